//! A workflow to play with: a subscription on trial, which waits for a payment or ends in the free plan.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use towpath::HandlerError;
use towpath::workflow::{Event, TaskContext, Workflow, WorkflowContext};

/// `trial@1`.
pub(super) static TRIAL: Workflow<Trial, Subscription> = Workflow::new("trial", "1");
static PAID: Event<Payment> = Event::new("paid");

/// The input of a run.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Trial {
    user: String,
    /// How long the trial lasts.
    #[serde(default = "fourteen")]
    days: u64,
}

const fn fourteen() -> u64 {
    14
}

#[derive(Serialize, Deserialize)]
struct Payment {
    plan: String,
}

/// The result of a run.
#[derive(Serialize, Deserialize)]
pub(super) struct Subscription {
    user: String,
    plan: String,
}

/// Activates a trial, waits for a payment, and sets the plan that follows from it.
pub(super) async fn trial(trial: Trial, ctx: WorkflowContext) -> Result<Subscription, HandlerError> {
    ctx.task("activate", &trial.user, set_plan).await?;
    let paid = ctx.event(&PAID).timeout(Duration::from_secs(trial.days * 86_400)).await?;
    let plan = paid.map_or_else(|| "free".to_owned(), |payment| payment.plan);
    let step = if plan == "free" { "downgrade" } else { "upgrade" };
    ctx.task(step, &trial.user, set_plan).await?;
    Ok(Subscription { user: trial.user, plan })
}

/// Stands for a request to the system that knows the plans of users.
async fn set_plan(_user: String, _task: TaskContext) -> Result<(), HandlerError> {
    Ok(())
}
