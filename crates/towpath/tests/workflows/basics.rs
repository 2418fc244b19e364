//! Tasks, sleeps, events: the steps that most workflows are made of.

use towpath::testing::TestTowpath;
use towpath::workflow::{Event, RunState, TaskContext, Workflow, WorkflowContext};
use towpath::{Backoff, HandlerError, RetryPolicy};

use crate::support::{Count, days, kinds, seconds, state};

static SUM: Workflow<u64, u64> = Workflow::new("sum", "1");
static PAID: Event<u64> = Event::new("paid");

async fn double(number: u64, _task: TaskContext) -> Result<u64, HandlerError> {
    Ok(2 * number)
}

async fn three_tasks(number: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let once = ctx.task("first", &number, double).await?;
    let twice = ctx.task("second", &once, double).await?;
    ctx.run("third", move |_task| async move { Ok(twice + 1) }).await
}

async fn three_tasks_run_once_each(test: TestTowpath) {
    let worker = test.worker().workflow(&SUM, three_tasks).start().await.unwrap();
    let run = test.start(&SUM, &5).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(21));
    for task in ["first", "second", "third"] {
        assert_eq!(test.executions(task), 1, "{task}");
    }
    assert_eq!(kinds(&test, run.run_id()).await, ["begin", "open", "done", "open", "done", "open", "done", "close"]);
    assert_eq!(test.commits(), 4, "one commit per task, and one for the end");
    assert_eq!(test.replay_all(&worker).await, []);
    worker.drain().await;
}

async fn sleeps(length: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let before = ctx.now();
    ctx.sleep(seconds(length)).await?;
    Ok(ctx.now().since(before).as_secs())
}

async fn a_sleep_parks_the_run_and_ends_in_time(test: TestTowpath) {
    let worker = test.worker().workflow(&SUM, sleeps).start().await.unwrap();
    let before = test.now();
    let run = test.start(&SUM, &86_400).await.unwrap();
    test.advance(seconds(1)).await;
    assert_eq!((state(&test, run.run_id()).await, worker.executing()), (RunState::Waiting, 0));
    assert_eq!(test.finish(run.result()).await, Ok(86_400));
    assert!(test.now().since(before) < seconds(86_401));
}

async fn pays(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    Ok(ctx.event(&PAID).timeout(days(14)).await?.unwrap_or(0))
}

async fn an_event_reaches_a_parked_run(test: TestTowpath) {
    let _worker = test.worker().workflow(&SUM, pays).start().await.unwrap();
    let run = test.start(&SUM, &0).await.unwrap();
    test.advance(days(13)).await;
    assert_eq!(state(&test, run.run_id()).await, RunState::Waiting);
    assert_eq!(run.send(&PAID, &7).reference("payment-1").await, Ok(true));
    assert_eq!(run.send(&PAID, &8).reference("payment-1").await, Ok(false), "the same reference is the same event");
    assert_eq!(test.finish(run.result()).await, Ok(7));
}

async fn an_event_that_does_not_come_times_out(test: TestTowpath) {
    let _worker = test.worker().workflow(&SUM, pays).start().await.unwrap();
    let before = test.now();
    let run = test.start(&SUM, &0).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(0));
    assert_eq!(test.now().since(before).as_secs(), days(14).as_secs());
}

async fn an_early_event_is_kept(test: TestTowpath) {
    let run = test.start(&SUM, &0).event(&PAID, &9).await.unwrap();
    let _worker = test.worker().workflow(&SUM, pays).start().await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(9));
}

async fn flaky(fails: u64, task: TaskContext) -> Result<u64, HandlerError> {
    if u64::from(task.attempt()) <= fails {
        return Err(HandlerError::retryable("busy", "come back later"));
    }
    Ok(u64::from(task.attempt()))
}

fn fixed(max_attempts: u32, seconds: u64) -> RetryPolicy {
    RetryPolicy { max_attempts, backoff: Backoff::Fixed { delay_ms: seconds * 1_000 }, ..RetryPolicy::default() }
}

async fn retries(fails: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    ctx.task("flaky", &fails, flaky).retry(fixed(3, 60)).await
}

async fn a_failed_attempt_is_repeated_after_its_delay(test: TestTowpath) {
    let worker = test.worker().workflow(&SUM, retries).start().await.unwrap();
    let before = test.now();
    let run = test.start(&SUM, &2).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(3));
    assert_eq!(test.now().since(before).as_secs(), 120);
    assert_eq!(kinds(&test, run.run_id()).await, ["begin", "open", "attempt", "attempt", "done", "close"]);
    let failed = test.start(&SUM, &9).await.unwrap();
    let error = test.finish(failed.result()).await.unwrap_err();
    assert!(error.to_string().contains("come back later (busy)"), "{error}");
    assert_eq!(test.replay_all(&worker).await, []);
}

async fn exhausts(fails: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    ctx.task("flaky", &fails, flaky).await
}

async fn a_task_that_uses_up_its_attempts_blocks_the_run_and_resume_tries_again(test: TestTowpath) {
    let _worker = test.worker().workflow(&SUM, exhausts).start().await.unwrap();
    let run = test.start(&SUM, &10).await.unwrap();
    test.advance(seconds(1_200)).await;
    assert_eq!((state(&test, run.run_id()).await, test.executions("flaky")), (RunState::Blocked, 10));
    run.resume().await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(11));
}

async fn remembers(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let (number, id) = (ctx.random("dice"), ctx.uuid("order"));
    ctx.publish("id", &id)?;
    ctx.sleep(seconds(60)).await?;
    assert_eq!(ctx.run("draw", move |_| async move { Ok(number) }).await?, number);
    Ok(number)
}

async fn chance_is_the_same_at_each_replay_and_values_are_published(test: TestTowpath) {
    let worker = test.worker().workflow(&SUM, remembers).start().await.unwrap();
    let run = test.start(&SUM, &0).await.unwrap();
    let other = test.start(&SUM, &0).await.unwrap();
    let (number, another) = (test.finish(run.result()).await.unwrap(), test.finish(other.result()).await.unwrap());
    assert_ne!(number, another);
    let published = run.published().await.unwrap();
    assert_eq!(published[0].0.as_ref(), "id");
    assert_eq!(test.replay_all(&worker).await, []);
}

async fn a_value_from_the_worker_reaches_its_tasks(test: TestTowpath) {
    async fn counts(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        ctx.run("count", |task| async move { Ok(task.state::<Count>()?.add() as u64) }).await
    }
    let _worker = test.worker().workflow(&SUM, counts).state(Count::default()).start().await.unwrap();
    let run = test.start(&SUM, &0).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(1));
}

crate::on_memory_and_file! {
    three_tasks_run_once_each
    a_sleep_parks_the_run_and_ends_in_time
    an_event_reaches_a_parked_run
    an_event_that_does_not_come_times_out
    an_early_event_is_kept
    a_failed_attempt_is_repeated_after_its_delay
    a_task_that_uses_up_its_attempts_blocks_the_run_and_resume_tries_again
    chance_is_the_same_at_each_replay_and_values_are_published
    a_value_from_the_worker_reaches_its_tasks
}
