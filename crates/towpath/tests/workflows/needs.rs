//! Tasks that take from a limit, and tasks that hold a lock.

use towpath::HandlerError;
use towpath::testing::TestTowpath;
use towpath::workflow::{TaskContext, Workflow, WorkflowContext};
use towpath_core::limit::{Rule, Rules};
use towpath_core::names::RuleName;

use crate::support::{Count, seconds};

static LOCKED: Workflow<u64, Vec<u64>> = Workflow::new("locked", "1");

/// How many attempts are inside at once.
async fn enter(count: Count, most: Count, task: TaskContext) -> Result<u64, HandlerError> {
    if count.add() - most.get() > 1 {
        return Err(HandlerError::fatal("crowded", "two attempts hold the lock"));
    }
    let clock = task.towpath().clock();
    clock.sleep_until(clock.now() + seconds(5)).await;
    most.add();
    Ok(task.fence().expect("the attempt holds the lock").as_u64())
}

async fn attempts_that_hold_a_lock_run_one_after_the_other(test: TestTowpath) {
    async fn three(_input: u64, ctx: WorkflowContext) -> Result<Vec<u64>, HandlerError> {
        let locked = |task: TaskContext| async move {
            let counts = task.state::<(Count, Count)>()?;
            enter(counts.0.clone(), counts.1.clone(), task).await
        };
        let (one, two, three) =
            towpath::try_join!(ctx.run("a", locked).lock("file"), ctx.run("b", locked).lock("file"), ctx.run("c", locked).lock("file"))?;
        Ok(vec![one, two, three])
    }
    let _worker = test.worker().workflow(&LOCKED, three).state((Count::default(), Count::default())).start().await.unwrap();
    let before = test.now();
    let run = test.start(&LOCKED, &0).await.unwrap();
    let mut fences = test.finish(run.result()).await.unwrap();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!((fences.len(), test.now().since(before).as_secs()), (3, 15), "each had the lock under a fence of its own");
}

async fn attempts_wait_for_their_turn_and_use_up_no_attempt_by_that(test: TestTowpath) {
    async fn three(_input: u64, ctx: WorkflowContext) -> Result<Vec<u64>, HandlerError> {
        let mut attempts = Vec::new();
        for _ in 0..3 {
            let work = ctx.run("work", |task| async move { Ok(u64::from(task.attempt())) });
            attempts.push(work.limit("slowly", "mail").timeout(seconds(1)).await?);
        }
        Ok(attempts)
    }
    let (name, rule) = (RuleName::new("slowly").unwrap(), "r=gcra:1/60s".parse::<Rule>().unwrap());
    test.limit_policies().put(None, &name, &Rules::one(rule)).await.unwrap();
    let _worker = test.worker().workflow(&LOCKED, three).start().await.unwrap();
    let before = test.now();
    let run = test.start(&LOCKED, &0).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(vec![1, 1, 1]));
    assert!((119..=121).contains(&test.now().since(before).as_secs()), "{:?}", test.now().since(before));
    let journal = ["begin", "open", "done", "open", "done", "open", "done", "close"];
    assert_eq!(crate::support::kinds(&test, run.run_id()).await, journal, "waiting leaves no failed attempt");
}

crate::on_memory_and_file! {
    attempts_that_hold_a_lock_run_one_after_the_other
    attempts_wait_for_their_turn_and_use_up_no_attempt_by_that
}
