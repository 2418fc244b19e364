//! Many steps at once, many runs at once, and the real clock.

use std::time::Duration;

use towpath::testing::{CrashAt, TestTowpath};
use towpath::workflow::{Event, RunError, RunState, TaskContext, Workflow, WorkflowContext, WorkflowOptions};
use towpath::{HandlerError, Towpath, WorkerError};

use crate::support::{assert_one_result_per_step, in_time, journal, seconds, state};

static MANY: Workflow<u64, u64> = Workflow::new("many", "1");
static STOP: Event<u64> = Event::new("stop");

async fn same(number: u64, _task: TaskContext) -> Result<u64, HandlerError> {
    Ok(number)
}

async fn many_at_once(count: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let tasks = (0..count).map(|number| ctx.task("same", &number, same).into_future());
    Ok(futures_util::future::try_join_all(tasks).await?.into_iter().sum())
}

async fn a_thousand_tasks_at_once_need_few_commits(test: TestTowpath) {
    let worker = test.worker().workflow(&MANY, many_at_once).start().await.unwrap();
    let run = test.start(&MANY, &1_000).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(499_500));
    assert_one_result_per_step(&journal(&test, run.run_id()).await, 1_000);
    assert!(test.commits() < 20, "{} commits", test.commits());
    assert_eq!(test.replay_all(&worker).await, []);
}

async fn equal_tasks_are_told_apart_by_their_occurrence(test: TestTowpath) {
    static KEYS: Workflow<u64, Vec<String>> = Workflow::new("keys", "1");
    async fn key(_number: u64, task: TaskContext) -> Result<String, HandlerError> {
        Ok(task.idempotency_key().to_owned())
    }
    async fn keys(_input: u64, ctx: WorkflowContext) -> Result<Vec<String>, HandlerError> {
        let mut keys = Vec::new();
        for number in [1, 1, 2] {
            keys.push(ctx.task("key", &number, key).await?);
        }
        keys.push(ctx.branch("other").task("key", &1, key).await?);
        keys.push(ctx.task("key", &9, key).key("mine").await?);
        Ok(keys)
    }
    let _worker = test.worker().workflow(&KEYS, keys).start().await.unwrap();
    let run = test.start(&KEYS, &0).await.unwrap();
    let mut keys = test.finish(run.result()).await.unwrap();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 5, "each task has an idempotency key of its own");
}

async fn a_journal_of_large_results_is_read_whole(test: TestTowpath) {
    static LARGE: Workflow<u64, u64> = Workflow::new("large", "1");
    async fn large(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        let mut bytes = 0;
        for length in [300_000, 1_000_000, 10, 900_000, 1_000_000, 20] {
            let text: String = ctx.task("text", &length, |length: usize, _| async move { Ok("x".repeat(length)) }).await?;
            bytes += text.len() as u64;
        }
        ctx.event(&STOP).await?;
        let too_large = ctx.run("too large", |_| async { Ok("x".repeat(2_000_000)) }).await;
        assert_eq!(too_large.unwrap_err().failure().unwrap().code, "payload_too_large");
        Ok(bytes)
    }
    let worker = test.worker().workflow(&LARGE, large).start().await.unwrap();
    let run = test.start(&LARGE, &0).await.unwrap();
    test.advance(seconds(1)).await;
    run.send(&STOP, &0).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(3_200_030));
    assert_eq!((test.executions("text"), worker.replay(run.run_id()).await), (6, Ok(())));
}

async fn a_lost_reply_is_repeated_without_harm(test: TestTowpath) {
    let _worker = test.worker().workflow(&MANY, many_at_once).start().await.unwrap();
    for commit in 1..=2 {
        test.crash_at(CrashAt::LostReply(commit));
        let run = test.start(&MANY, &3).await.unwrap();
        assert_eq!(test.finish(run.result()).await, Ok(3));
        assert_one_result_per_step(&journal(&test, run.run_id()).await, 3);
    }
}

async fn an_event_reaches_a_run_whose_task_still_runs(test: TestTowpath) {
    static STOPPABLE: Workflow<u64, String> = Workflow::new("stoppable", "1");
    async fn stoppable(_input: u64, ctx: WorkflowContext) -> Result<String, HandlerError> {
        let endless = |task: TaskContext| async move {
            task.cancelled().await;
            Err::<u64, _>(HandlerError::cancelled())
        };
        Ok(towpath::select! {
            ended = ctx.run("endless", endless).timeout(seconds(86_400)) => format!("ended with {:?}", ended?),
            number = ctx.event(&STOP) => format!("stopped by {}", number?),
        })
    }
    let worker = test.worker().workflow(&STOPPABLE, stoppable).start().await.unwrap();
    let run = test.start(&STOPPABLE, &0).await.unwrap();
    test.advance(seconds(1)).await;
    assert_eq!(worker.executing(), 1);
    run.send(&STOP, &7).await.unwrap();
    test.settle().await;
    assert_eq!(state(&test, run.run_id()).await, RunState::Completed, "the worker hears of the event at once");
    assert_eq!(run.result().await, Ok("stopped by 7".to_owned()));
}

async fn a_panic_of_a_task_is_a_failed_attempt(test: TestTowpath) {
    static PANICS: Workflow<u64, u64> = Workflow::new("panics", "1");
    async fn panics(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        ctx.run("panics once", |task| async move {
            assert!(task.attempt() > 1, "the first attempt panics");
            Ok(u64::from(task.attempt()))
        })
        .await
    }
    let _worker = test.worker().workflow(&PANICS, panics).start().await.unwrap();
    let run = test.start(&PANICS, &0).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(2));
}

async fn a_task_that_takes_too_long_is_a_failed_attempt(test: TestTowpath) {
    static SLOW: Workflow<u64, u64> = Workflow::new("too-slow", "1");
    async fn slow(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        let hangs_once = |task: TaskContext| async move {
            if task.attempt() == 1 {
                task.cancelled().await;
                return Err(HandlerError::cancelled());
            }
            Ok(u64::from(task.attempt()))
        };
        ctx.run("hangs once", hangs_once).timeout(seconds(30)).await
    }
    let _worker = test.worker().workflow(&SLOW, slow).start().await.unwrap();
    let before = test.now();
    let run = test.start(&SLOW, &0).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(2));
    assert!((30..=32).contains(&test.now().since(before).as_secs()));
}

async fn runs_of_a_shard_wait_for_a_worker_that_serves_it(test: TestTowpath) {
    let plain = test.worker().workflow(&MANY, many_at_once).start().await.unwrap();
    let run = test.start(&MANY, &3).shard("us-east").await.unwrap();
    test.advance(seconds(10)).await;
    assert_eq!(state(&test, run.run_id()).await, RunState::Ready);
    let _sharded = test.worker().workflow(&MANY, many_at_once).shards(["us-east"]).start().await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(3));
    drop(plain);
}

async fn wrong_options_and_double_workflows_are_refused(test: TestTowpath) {
    let twice = test.worker().workflow(&MANY, many_at_once).workflow(&MANY, many_at_once).start().await;
    assert!(matches!(twice, Err(WorkerError::DuplicateWorkflow { .. })));
    let options = WorkflowOptions { heartbeat_interval: seconds(10), ..WorkflowOptions::default() };
    let refused = test.worker().workflow(&MANY, many_at_once).workflow_options(options).start().await;
    assert!(matches!(refused, Err(WorkerError::OutOfRange { field: "claim_min_idle_time", .. })));
    static NAMELESS: Workflow<u64, u64> = Workflow::new("", "1");
    assert!(matches!(test.start(&NAMELESS, &0).await, Err(RunError::InvalidName(_))));
    assert!(test.start(&MANY, &f64::NAN).await.is_ok(), "serde_json writes NaN as null");
}

async fn work(number: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let once = ctx.task("same", &number, same).await?;
    ctx.sleep(Duration::from_millis(30)).await?;
    Ok(once + ctx.event(&STOP).await?)
}

/// By the real clock, on several threads, on a file, with a worker that leaves in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_runs_end_by_the_real_clock_while_workers_come_and_go() {
    in_time(async {
        let folder = tempfile::tempdir().unwrap();
        let towpath = Towpath::open(&format!("sqlite:{}", folder.path().join("data").display())).await.unwrap();
        let one = towpath.worker().workflow(&MANY, work).build("test").start().await.unwrap();
        let other = towpath.worker().workflow(&MANY, work).build("test").start().await.unwrap();
        let mut runs = Vec::new();
        for number in 0..100 {
            runs.push(towpath.start(&MANY, &number).await.unwrap());
        }
        for run in &runs {
            run.send(&STOP, &1).await.unwrap();
        }
        one.drain().await;
        for (number, run) in runs.iter().enumerate() {
            assert_eq!(run.result().await, Ok(number as u64 + 1));
        }
        other.drain().await;
        towpath.close().await;
    })
    .await;
}

crate::on_memory_and_file! {
    a_thousand_tasks_at_once_need_few_commits
    equal_tasks_are_told_apart_by_their_occurrence
    a_journal_of_large_results_is_read_whole
    a_lost_reply_is_repeated_without_harm
    an_event_reaches_a_run_whose_task_still_runs
    a_panic_of_a_task_is_a_failed_attempt
    a_task_that_takes_too_long_is_a_failed_attempt
    runs_of_a_shard_wait_for_a_worker_that_serves_it
    wrong_options_and_double_workflows_are_refused
}
