//! A trial of fourteen days: a run waits for a payment, reminds the customer, and downgrades the account if none comes.
//!
//! Run it with `cargo run -p towpath --example 07_workflow`. The clock is virtual: two weeks pass in milliseconds.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use towpath::HandlerError;
use towpath::testing::TestTowpath;
use towpath::workflow::{Event, TaskContext, Workflow, WorkflowContext};

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Clone, Serialize, Deserialize)]
struct Customer {
    email: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Ending {
    Subscribed { cents: u64 },
    Downgraded,
}

static TRIAL: Workflow<Customer, Ending> = Workflow::new("subscription-trial", "1.0.0");
static PAID: Event<u64> = Event::new("paid");

/// A task has effects. It may run again when a worker died before its result was kept: the mail service knows the idempotency key.
async fn send_mail(mail: (String, String), task: TaskContext) -> Result<(), HandlerError> {
    let (to, text) = mail;
    println!("mail to {to}: {text} (key {})", &task.idempotency_key()[..8]);
    Ok(())
}

async fn set_plan(plan: (String, String), _task: TaskContext) -> Result<(), HandlerError> {
    println!("{} has the plan '{}' now", plan.0, plan.1);
    Ok(())
}

async fn trial(customer: Customer, ctx: WorkflowContext) -> Result<Ending, HandlerError> {
    let email = &customer.email;
    ctx.task("mail", &(email, "welcome to your trial"), send_mail).await?;
    // Eleven days, a reminder, three more days. No worker holds the run meanwhile.
    let mut paid = ctx.event(&PAID).timeout(11 * DAY).await?;
    if paid.is_none() {
        ctx.task("mail", &(email, "three days are left"), send_mail).await?;
        paid = ctx.event(&PAID).timeout(3 * DAY).await?;
    }
    let (plan, ending) = match paid {
        Some(cents) => ("full", Ending::Subscribed { cents }),
        None => ("free", Ending::Downgraded),
    };
    ctx.task("plan", &(email, plan), set_plan).await?;
    Ok(ending)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let test = TestTowpath::new().await;
    let worker = test.worker().workflow(&TRIAL, trial).start().await?;

    let ada = test.start(&TRIAL, &Customer { email: "ada@example.org".to_owned() }).reference("ada").await?;
    let bob = test.start(&TRIAL, &Customer { email: "bob@example.org".to_owned() }).reference("bob").await?;
    test.advance(12 * DAY).await;
    ada.send(&PAID, &900).reference("invoice-1").await?;

    assert_eq!(test.finish(ada.result()).await?, Ending::Subscribed { cents: 900 });
    let before = test.now();
    assert_eq!(test.finish(bob.result()).await?, Ending::Downgraded);
    assert_eq!(test.now().since(before).as_secs() / 86_400, 2, "two days after Ada paid, Bob's trial is over");

    // The code still fits every journal: a deploy with it is safe.
    assert_eq!(test.replay_all(&worker).await, []);
    assert_eq!(test.executions("mail"), 4);
    worker.drain().await;
    println!("two weeks passed by the virtual clock; all is as it should be");
    Ok(())
}
