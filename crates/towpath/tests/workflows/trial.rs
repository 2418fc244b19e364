//! A trial of fourteen days: wait for a payment, or downgrade.

use towpath::HandlerError;
use towpath::testing::{CrashAt, TestTowpath};
use towpath::workflow::{Event, RunState, TaskContext, Workflow, WorkflowContext};

use crate::support::{days, kinds, state};

static TRIAL: Workflow<String, String> = Workflow::new("subscription-trial", "1.0.0");
static PAID: Event<u64> = Event::new("paid");

async fn set_plan(plan: String, _task: TaskContext) -> Result<String, HandlerError> {
    Ok(plan)
}

async fn trial(_customer: String, ctx: WorkflowContext) -> Result<String, HandlerError> {
    let plan = towpath::select! {
        paid = ctx.event(&PAID) => if paid? > 0 { "full" } else { "free" },
        waited = ctx.sleep(days(14)) => {
            waited?;
            "free"
        },
    };
    ctx.task("plan", plan, set_plan).await
}

async fn a_customer_who_pays_is_subscribed(test: TestTowpath) {
    let worker = test.worker().workflow(&TRIAL, trial).start().await.unwrap();
    let run = test.start(&TRIAL, "ada").await.unwrap();
    test.advance(days(13)).await;
    assert_eq!((state(&test, run.run_id()).await, worker.executing()), (RunState::Waiting, 0));
    run.send(&PAID, &900).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok("full".to_owned()));
    assert!(run.describe().await.unwrap().run.wait.timers.is_empty(), "the timer is freed");
}

async fn a_customer_who_does_not_pay_is_downgraded_after_fourteen_days(test: TestTowpath) {
    let worker = test.worker().workflow(&TRIAL, trial).start().await.unwrap();
    let before = test.now();
    let run = test.start(&TRIAL, "bob").await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok("free".to_owned()));
    assert_eq!(test.now().since(before).as_secs(), days(14).as_secs());
    let journal = ["begin", "open", "open", "done", "open", "done", "close"];
    assert_eq!(kinds(&test, run.run_id()).await, journal);
    assert_eq!(test.replay_all(&worker).await, []);
}

async fn a_worker_that_dies_on_the_last_day_delays_nothing_but_its_own_silence(test: TestTowpath) {
    let _one = test.worker().workflow(&TRIAL, trial).start().await.unwrap();
    let _other = test.worker().workflow(&TRIAL, trial).start().await.unwrap();
    let before = test.now();
    let run = test.start(&TRIAL, "eve").await.unwrap();
    test.advance(days(1)).await;
    test.crash_at(CrashAt::AfterCommit(1));
    assert_eq!(test.finish(run.result()).await, Ok("free".to_owned()));
    let late = test.now().since(before) - days(14);
    assert!(late.as_secs() <= 2 * 3_600, "{late:?}");
    assert_eq!(test.executions("plan"), 1);
}

crate::on_memory_and_file! {
    a_customer_who_pays_is_subscribed
    a_customer_who_does_not_pay_is_downgraded_after_fourteen_days
    a_worker_that_dies_on_the_last_day_delays_nothing_but_its_own_silence
}
