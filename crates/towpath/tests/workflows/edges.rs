//! More steps than one commit has, timers that are not needed, tasks that run at most once, and other edges.

use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Notify;
use towpath::testing::{CrashAt, TestTowpath};
use towpath::workflow::{ClosePolicy, Event, RunError, RunState, TaskContext, Workflow, WorkflowContext, WorkflowOptions};
use towpath::{Backoff, HandlerError, RetryPolicy};

use crate::support::{Count, days, kinds, seconds, state};

static EDGE: Workflow<u64, u64> = Workflow::new("edge", "1");
static LEAF: Workflow<u64, u64> = Workflow::new("leaf", "1");
static TICK: Event<u64> = Event::new("tick");
static STOP: Event<u64> = Event::new("stop");

async fn fails_once(_delay: u64, task: TaskContext) -> Result<u64, HandlerError> {
    if task.attempt() == 1 {
        return Err(HandlerError::retryable("busy", "come back later"));
    }
    Ok(u64::from(task.attempt()))
}

async fn retries_at_most_once(delay_ms: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let retry = RetryPolicy { max_attempts: 3, backoff: Backoff::Fixed { delay_ms }, ..RetryPolicy::default() };
    ctx.task("fails once", &delay_ms, fails_once).retry(retry).at_most_once().await
}

async fn a_task_that_runs_at_most_once_is_retried_after_an_error_that_it_returns(test: TestTowpath) {
    let worker = test.worker().workflow(&EDGE, retries_at_most_once).start().await.unwrap();
    for (delay_ms, attempts) in [(60_000, 2), (5, 4)] {
        let run = test.start(&EDGE, &delay_ms).await.unwrap();
        test.advance(seconds(90)).await;
        assert_eq!(state(&test, run.run_id()).await, RunState::Completed, "after {delay_ms} ms");
        assert_eq!((run.result().await, test.executions("fails once")), (Ok(2), attempts));
        assert_eq!(kinds(&test, run.run_id()).await, ["begin", "open", "start", "attempt", "start", "done", "close"]);
    }
    assert_eq!(test.replay_all(&worker).await, []);
}

async fn a_task_whose_beginning_is_in_the_journal_runs_although_its_worker_leaves(test: TestTowpath) {
    let begun = Arc::new(Notify::new());
    let code = {
        let begun = Arc::clone(&begun);
        move |_input: u64, ctx: WorkflowContext| {
            begun.notify_one();
            async move { ctx.run("once", |_task| async { Ok::<u64, HandlerError>(7) }).at_most_once().await }
        }
    };
    let worker = test.worker().workflow(&EDGE, code).start().await.unwrap();
    let run = test.start(&EDGE, &0).await.unwrap();
    begun.notified().await;
    worker.drain().await;
    assert_eq!((state(&test, run.run_id()).await, test.executions("once")), (RunState::Completed, 1));
    assert_eq!(run.result().await, Ok(7));
}

async fn ticks(count: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let mut sum = 0;
    for _ in 0..count {
        sum += ctx.event(&TICK).timeout(days(1)).await?.unwrap_or(0);
    }
    Ok(sum + ctx.event(&STOP).await?)
}

async fn an_event_that_is_there_already_leaves_no_timer(test: TestTowpath) {
    let run = test.start(&EDGE, &5).await.unwrap();
    for _ in 0..5 {
        run.send(&TICK, &1).await.unwrap();
    }
    let _worker = test.worker().workflow(&EDGE, ticks).start().await.unwrap();
    test.advance(seconds(1)).await;
    let header = test.run_store().unwrap().run(run.run_id()).await.unwrap().unwrap().run;
    assert_eq!(header.state, RunState::Waiting);
    assert!(header.wait.timers.is_empty(), "{:?}", header.wait.timers);
    run.send(&STOP, &1).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(6));
}

async fn sends_many(count: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let own = ctx.run_id().clone();
    futures_util::future::try_join_all((0..count).map(|number| ctx.send(&own, &TICK, &number))).await?;
    Ok(count)
}

async fn more_events_than_one_commit_has_are_sent_at_once(test: TestTowpath) {
    let _worker = test.worker().workflow(&EDGE, sends_many).start().await.unwrap();
    let run = test.start(&EDGE, &900).await.unwrap();
    test.advance(seconds(1)).await;
    assert_eq!(state(&test, run.run_id()).await, RunState::Completed);
}

async fn leaves_children(count: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    for number in 0..count {
        ctx.child(&LEAF, &number).on_parent_close(ClosePolicy::Abandon).start()?;
    }
    Ok(count)
}

async fn more_children_than_one_commit_has_are_started_by_a_run_that_ends(test: TestTowpath) {
    async fn leaf(number: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        ctx.run("count", move |task| async move { Ok(task.state::<Count>()?.add() as u64 + number) }).await
    }
    let count = Count::default();
    let builder = test.worker().workflow(&EDGE, leaves_children).workflow(&LEAF, leaf).state(count.clone());
    let _worker = builder.start().await.unwrap();
    let run = test.start(&EDGE, &900).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(900));
    test.advance(seconds(5)).await;
    assert_eq!(count.get(), 900);
}

/// A worker that dies between the commits of the end, and one whose view is out of date.
#[tokio::test]
async fn children_that_a_run_starts_at_its_end_survive_a_crash_there() {
    async fn leaf(number: u64, _ctx: WorkflowContext) -> Result<u64, HandlerError> {
        Ok(number)
    }
    for crash in [CrashAt::AfterCommit(1), CrashAt::AfterCommit(2), CrashAt::BeforeCommit(3), CrashAt::Stale(2)] {
        let test = TestTowpath::new().await;
        let _parents = test.worker().workflow(&EDGE, leaves_children).start().await.unwrap();
        let _others = test.worker().workflow(&EDGE, leaves_children).start().await.unwrap();
        test.crash_at(crash);
        let run = test.start(&EDGE, &900).await.unwrap();
        assert_eq!(test.finish(run.result()).await, Ok(900), "{crash:?}");
        let _leaves = test.worker().workflow(&LEAF, leaf).start().await.unwrap();
        test.advance(seconds(5)).await;
        let run_ids = test.run_ids();
        assert_eq!(run_ids.len(), 901, "{crash:?}");
        for run_id in &run_ids {
            assert_eq!(state(&test, run_id).await, RunState::Completed, "{crash:?}");
        }
    }
}

async fn sleeps_often(count: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    futures_util::future::try_join_all((0..count).map(|number| ctx.sleep(seconds(100 + number)))).await?;
    Ok(count)
}

async fn a_run_with_more_timers_than_it_may_have_fails(test: TestTowpath) {
    let _worker = test.worker().workflow(&EDGE, sleeps_often).start().await.unwrap();
    let run = test.start(&EDGE, &2_000).await.unwrap();
    test.advance(seconds(1)).await;
    assert_eq!(state(&test, run.run_id()).await, RunState::Failed);
    let Err(RunError::Failed { failure, .. }) = run.result().await else { panic!("it must fail") };
    assert_eq!(failure.code, "wait_set_too_large");
}

async fn cancels_its_token(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let stops = |task: TaskContext| async move {
        task.cancellation_token().cancel();
        Err::<u64, _>(HandlerError::cancelled())
    };
    match ctx.run("stops", stops).await {
        Err(error) if error.failure().is_some_and(|failure| failure.code == "cancelled") => Ok(1),
        other => other,
    }
}

async fn a_task_that_cancels_its_token_stops_only_itself(test: TestTowpath) {
    let _worker = test.worker().workflow(&EDGE, cancels_its_token).start().await.unwrap();
    let run = test.start(&EDGE, &0).await.unwrap();
    test.advance(seconds(1)).await;
    assert_eq!(state(&test, run.run_id()).await, RunState::Completed);
    assert_eq!(run.result().await, Ok(1));
}

/// A run's code may use channels of its own as often as it likes.
async fn code_may_use_a_channel_often(test: TestTowpath) {
    async fn counts(count: u64, _ctx: WorkflowContext) -> Result<u64, HandlerError> {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let mut sum = 0;
        for _ in 0..count {
            sender.send(1).map_err(|_| HandlerError::fatal("closed", "the channel is closed"))?;
            sum += receiver.recv().await.unwrap_or(0);
        }
        Ok(sum)
    }
    let _worker = test.worker().workflow(&EDGE, counts).start().await.unwrap();
    let run = test.start(&EDGE, &1_000).await.unwrap();
    test.advance(seconds(1)).await;
    assert_eq!(state(&test, run.run_id()).await, RunState::Completed);
}

/// Whether the worker can do the first task.
#[derive(Clone, Copy)]
struct IsWell(bool);

async fn two_tasks(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    async fn endless(task: TaskContext) -> Result<u64, HandlerError> {
        task.cancelled().await;
        Err(HandlerError::cancelled())
    }
    ctx.run("first", |task| async move { if task.state::<IsWell>()?.0 { Ok(1) } else { endless(task).await } }).await?;
    ctx.run("second", endless).timeout(days(1)).await
}

async fn runs_whose_workers_fell_silent_are_executed_one_at_a_time_until_they_make_progress(test: TestTowpath) {
    for number in 0..2 {
        test.start(&EDGE, &number).await.unwrap();
    }
    let worker = |is_well| test.worker().workflow(&EDGE, two_tasks).workflow_options(WorkflowOptions::default()).state(IsWell(is_well));
    for firsts in [2, 4, 6, 7] {
        let silent = worker(false).start().await.unwrap();
        test.advance(seconds(30)).await;
        assert_eq!(test.executions("first"), firsts);
        drop(silent);
    }
    let _well = worker(true).start().await.unwrap();
    test.advance(seconds(30)).await;
    assert_eq!((test.executions("first"), test.executions("second")), (9, 2));
}

/// A value that the test sees go.
type Watched = Arc<Mutex<Option<Weak<()>>>>;

async fn what_a_task_has_of_its_run_goes_with_the_run(test: TestTowpath) {
    let watched = Watched::default();
    let code = {
        let watched = Arc::clone(&watched);
        move |_input: u64, ctx: WorkflowContext| {
            let value = Arc::new(());
            *watched.lock().unwrap() = Some(Arc::downgrade(&value));
            async move {
                let of_task = (ctx.clone(), value);
                let endless = move |task: TaskContext| {
                    let of_task = of_task.clone();
                    async move {
                        task.cancelled().await;
                        drop(of_task);
                        Err::<u64, _>(HandlerError::cancelled())
                    }
                };
                Ok::<u64, HandlerError>(towpath::select! {
                    ended = ctx.run("endless", endless) => ended?,
                    number = ctx.event(&STOP) => number?,
                })
            }
        }
    };
    let worker = test.worker().workflow(&EDGE, code).start().await.unwrap();
    let run = test.start(&EDGE, &0).await.unwrap();
    test.advance(seconds(1)).await;
    run.send(&STOP, &7).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(7));
    worker.drain().await;
    let value = watched.lock().unwrap().take().unwrap();
    assert_eq!(value.strong_count(), 0, "the run holds itself");
}

crate::on_memory_and_file! {
    a_task_that_runs_at_most_once_is_retried_after_an_error_that_it_returns
    a_task_whose_beginning_is_in_the_journal_runs_although_its_worker_leaves
    an_event_that_is_there_already_leaves_no_timer
    more_events_than_one_commit_has_are_sent_at_once
    more_children_than_one_commit_has_are_started_by_a_run_that_ends
    a_run_with_more_timers_than_it_may_have_fails
    a_task_that_cancels_its_token_stops_only_itself
    code_may_use_a_channel_often
    runs_whose_workers_fell_silent_are_executed_one_at_a_time_until_they_make_progress
    what_a_task_has_of_its_run_goes_with_the_run
}
