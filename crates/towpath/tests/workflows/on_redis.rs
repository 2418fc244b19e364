//! The same workflows on a real Redis, by its clock.

use std::time::Duration;

use towpath::workflow::{Event, RunError, RunState, TaskContext, Workflow, WorkflowContext};
use towpath::{HandlerError, Towpath};
use towpath_redis_testing::RedisServer;

use crate::support::in_time;

static ORDER: Workflow<u64, u64> = Workflow::new("order", "1");
static PART: Workflow<u64, u64> = Workflow::new("part", "1");
static GO: Event<u64> = Event::new("go");

async fn same(number: u64, _task: TaskContext) -> Result<u64, HandlerError> {
    Ok(number)
}

async fn order(number: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let task = ctx.task("same", &number, same).await?;
    ctx.sleep(Duration::from_millis(50)).await?;
    let (event, part) = towpath::try_join!(ctx.event(&GO), ctx.child(&PART, &number))?;
    Ok(task + event + part)
}

async fn part(number: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    ctx.sleep(Duration::from_millis(20)).await?;
    ctx.task("same", &number, same).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_end_on_redis_while_workers_come_and_go() {
    in_time(async {
        let redis = RedisServer::start();
        let towpath = Towpath::open(&redis.url()).await.unwrap();
        let worker = || towpath.worker().workflow(&ORDER, order).workflow(&PART, part).build("test").start();
        let (one, other) = (worker().await.unwrap(), worker().await.unwrap());
        let mut runs = Vec::new();
        for number in 0..20 {
            runs.push(towpath.start(&ORDER, &number).reference(&number.to_string()).await.unwrap());
        }
        for run in &runs {
            run.send(&GO, &1_000).await.unwrap();
        }
        one.drain().await;
        for (number, run) in runs.iter().enumerate() {
            assert_eq!(run.result().await, Ok(2 * number as u64 + 1_000));
            assert_eq!(other.replay(run.run_id()).await, Ok(()));
        }
        other.drain().await;
        towpath.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_cancelled_on_redis() {
    in_time(async {
        let redis = RedisServer::start();
        let towpath = Towpath::open(&redis.url()).await.unwrap();
        let worker = towpath.worker().workflow(&ORDER, order).workflow(&PART, part).build("test").start().await.unwrap();
        let run = towpath.start(&ORDER, &1).await.unwrap();
        while run.describe().await.unwrap().run.state != RunState::Waiting {
            tokio::task::yield_now().await;
        }
        run.cancel("changed my mind").await.unwrap();
        assert!(matches!(run.result().await, Err(RunError::Cancelled { .. })));
        worker.drain().await;
        towpath.close().await;
    })
    .await;
}
