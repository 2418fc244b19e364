//! Workers that crash, lose replies and come back: each step has one result all the same.

use std::time::Duration;

use towpath::HandlerError;
use towpath::testing::{CrashAt, TestTowpath};
use towpath::workflow::{BlockCause, Event, RunState, TaskContext, Workflow, WorkflowContext, WorkflowOptions};
use towpath_core::run::{Commit, EntryKind, RunEnd, Then};
use towpath_core::store::{ClaimRuns, RunCommitted, RunRenewal};

use crate::support::{Count, assert_one_result_per_step, journal, kinds, seconds, state};

static TWENTY: Workflow<u64, u64> = Workflow::new("twenty-steps", "1");
static NUMBER: Event<u64> = Event::new("number");
/// Tasks, sleeps and events of [`twenty_steps`].
const STEPS: usize = 20;

async fn add(numbers: (u64, u64), _task: TaskContext) -> Result<u64, HandlerError> {
    Ok(numbers.0 + numbers.1)
}

/// Twenty steps, in an order that depends on the seed.
async fn twenty_steps(seed: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let mut sum = 0;
    for step in 0..STEPS as u64 {
        match (seed + step * step) % 4 {
            0 => ctx.sleep(seconds(30)).await?,
            1 => sum += ctx.event(&NUMBER).await?,
            _task => sum = ctx.task("add", &(sum, step), add).await?,
        }
    }
    Ok(sum)
}

fn expected(seed: u64) -> (u64, usize) {
    let (mut sum, mut events) = (0, 0);
    for step in 0..STEPS as u64 {
        match (seed + step * step) % 4 {
            0 => {}
            1 => {
                sum += 100;
                events += 1;
            }
            _task => sum += step,
        }
    }
    (sum, events)
}

async fn run_twenty_steps(test: &TestTowpath, seed: u64, crash: CrashAt) -> u64 {
    let _one = test.worker().workflow(&TWENTY, twenty_steps).start().await.unwrap();
    let _other = test.worker().workflow(&TWENTY, twenty_steps).start().await.unwrap();
    test.crash_at(crash);
    let (sum, events) = expected(seed);
    let run = test.start(&TWENTY, &seed).await.unwrap();
    for number in 0..events {
        run.send(&NUMBER, &100).reference(&number.to_string()).await.unwrap();
    }
    assert_eq!(test.finish(run.result()).await, Ok(sum), "seed {seed}, {crash:?}");
    assert_one_result_per_step(&journal(test, run.run_id()).await, STEPS);
    test.commits()
}

/// Scenario 1.
#[tokio::test]
async fn a_crash_before_or_after_any_commit_leaves_one_result_per_step() {
    for seed in 0..20 {
        let test = TestTowpath::new().await;
        let commits = run_twenty_steps(&test, seed, CrashAt::BeforeCommit(u64::MAX)).await;
        assert!(commits >= STEPS as u64);
        for commit in 1..=commits {
            // Over the seeds each commit meets each crash; with TOWPATH_HISTORIES it does for each seed.
            let crashes = [CrashAt::BeforeCommit, CrashAt::AfterCommit, CrashAt::LostReply, CrashAt::Stale];
            let one = usize::try_from((seed + commit) % 4).unwrap();
            let crashes = if std::env::var_os("TOWPATH_HISTORIES").is_some() { &crashes[..] } else { &crashes[one..=one] };
            for crash in crashes {
                run_twenty_steps(&test, seed, crash(commit)).await;
            }
        }
    }
}

async fn a_task_runs_again_after_a_crash_as_the_same_attempt(test: TestTowpath) {
    static SLOW: Workflow<u64, u64> = Workflow::new("slow", "1");
    async fn slow(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        ctx.run("wait", |task| async move {
            task.towpath().clock().sleep_until(task.towpath().clock().now() + seconds(100)).await;
            Ok(u64::from(task.attempt()))
        })
        .await
    }
    let _one = test.worker().workflow(&SLOW, slow).start().await.unwrap();
    let _other = test.worker().workflow(&SLOW, slow).start().await.unwrap();
    // The first commit writes that the task is open; the second one would write its result.
    test.crash_at(CrashAt::BeforeCommit(2));
    let run = test.start(&SLOW, &0).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(1), "a crash uses up no attempt");
    assert_eq!((test.executions("wait"), kinds(&test, run.run_id()).await), (2, vec!["begin", "open", "done", "close"]));
}

async fn charge_once(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    match ctx.run("charge", |_| async { Ok(1) }).at_most_once().await {
        Err(HandlerError::Final { failure }) if failure.code == "unknown_outcome" => Ok(0),
        charged => charged,
    }
}

/// Scenario 2.
async fn at_most_once_is_an_unknown_outcome_after_a_crash(test: TestTowpath) {
    static CHARGE: Workflow<u64, u64> = Workflow::new("charge", "1");
    let worker = test.worker().workflow(&CHARGE, charge_once).start().await.unwrap();
    let _other = test.worker().workflow(&CHARGE, charge_once).start().await.unwrap();
    let run = test.start(&CHARGE, &0).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(1));
    assert_eq!(kinds(&test, run.run_id()).await, ["begin", "open", "start", "done", "close"]);
    test.crash_at(CrashAt::BeforeCommit(2));
    let crashed = test.start(&CHARGE, &0).await.unwrap();
    assert_eq!(test.finish(crashed.result()).await, Ok(0));
    assert_eq!(test.executions("charge"), 2, "once for each run");
    assert_eq!(test.replay_all(&worker).await, []);
}

async fn at_most_once_is_an_unknown_outcome_after_its_time(test: TestTowpath) {
    static CHARGE: Workflow<u64, String> = Workflow::new("charge-slowly", "1");
    async fn charge(_input: u64, ctx: WorkflowContext) -> Result<String, HandlerError> {
        let charged: Result<(), _> = ctx.run("charge", |_| std::future::pending()).at_most_once().timeout(seconds(10)).await;
        Ok(charged.unwrap_err().failure().unwrap().code.clone())
    }
    let _worker = test.worker().workflow(&CHARGE, charge).start().await.unwrap();
    let run = test.start(&CHARGE, &0).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok("unknown_outcome".to_owned()));
}

/// Scenario 13: a worker that was paused for longer than it may be silent.
async fn the_commit_of_a_worker_that_lost_its_run_is_refused(test: TestTowpath) {
    static LOSE: Workflow<u64, u64> = Workflow::new("lose", "1");
    async fn lose(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        ctx.task("add", &(1, 1), add).await
    }
    let store = test.run_store().unwrap().clone();
    let run = test.start(&LOSE, &0).await.unwrap();
    let paused = towpath::WorkerId::new("paused").unwrap();
    let places: Vec<_> = vec![towpath_core::run::place("lose", "1", None).unwrap()];
    let want = ClaimRuns { worker: paused.clone(), places: places.into(), max: 1, idle: Duration::from_secs(5), wait: Duration::ZERO };
    let claimed = store.claim_runs(want).await.unwrap().remove(0).run;
    let worker = test.worker().workflow(&LOSE, lose).start().await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(2));
    let renewals = store.renew_runs(&paused, vec![(claimed.run_id.clone(), claimed.epoch)]).await.unwrap();
    assert_eq!(renewals, [RunRenewal::Lost]);
    let late = Commit {
        owner: paused,
        epoch: claimed.epoch,
        revision: claimed.revision,
        digest: "late".into(),
        entries: Vec::new(),
        consumed: Vec::new(),
        seen: 0,
        armed: Vec::new(),
        disarmed: Vec::new(),
        children: Vec::new(),
        posts: Vec::new(),
        published: Vec::new(),
        then: Then::Close(RunEnd::Failed),
    };
    assert_eq!(store.commit_run(&claimed.run_id, late).await.unwrap(), RunCommitted::Lost);
    assert_one_result_per_step(&journal(&test, run.run_id()).await, 1);
    drop(worker);
}

async fn the_task_of_a_worker_that_lost_its_run_is_stopped(test: TestTowpath) {
    static LOSE: Workflow<u64, u64> = Workflow::new("lose-task", "1");
    let dropped = Count::default();
    let lose = {
        let dropped = dropped.clone();
        move |_input: u64, ctx: WorkflowContext| {
            let dropped = dropped.clone();
            async move {
                ctx.run("hang", move |_| {
                    let on_drop = OnDrop(dropped.clone());
                    async move {
                        std::future::pending::<()>().await;
                        drop(on_drop);
                        Ok(1)
                    }
                })
                .await
            }
        }
    };
    let worker = test.worker().workflow(&LOSE, lose).start().await.unwrap();
    let run = test.start(&LOSE, &0).await.unwrap();
    test.advance(seconds(1)).await;
    assert_eq!(worker.executing(), 1);
    run.terminate("enough").await.unwrap();
    // The worker hears at once that the run is gone; its next renewal would say so after ten minutes.
    test.advance(seconds(1)).await;
    assert_eq!((worker.executing(), dropped.get()), (0, 1));
    assert_eq!(state(&test, run.run_id()).await, RunState::Terminated);
}

struct OnDrop(Count);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.add();
    }
}

async fn a_drained_worker_hands_its_runs_on_at_once(test: TestTowpath) {
    static DRAIN: Workflow<u64, u64> = Workflow::new("drain", "1");
    async fn two(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        let slow = |task: TaskContext| async move {
            task.towpath().clock().sleep_until(task.towpath().clock().now() + seconds(20)).await;
            Ok(1)
        };
        Ok(ctx.run("one", slow).await? + ctx.run("two", slow).await?)
    }
    let one = test.worker().workflow(&DRAIN, two).start().await.unwrap();
    let run = test.start(&DRAIN, &0).await.unwrap();
    test.advance(seconds(1)).await;
    let before = test.now();
    let drained = tokio::spawn(one.drain());
    test.finish(drained).await.unwrap();
    assert_eq!(test.now().since(before).as_secs(), 19, "the task that runs may end");
    let _other = test.worker().workflow(&DRAIN, two).start().await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(2));
    assert_eq!(test.now().since(before).as_secs(), 39, "the other worker does not wait for a silent owner");
    assert_eq!((test.executions("one"), test.executions("two")), (1, 1));
}

async fn a_file_is_opened_again_and_its_runs_go_on() {
    static AGAIN: Workflow<u64, u64> = Workflow::new("again", "1");
    async fn again(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        let one = ctx.task("add", &(1, 1), add).await?;
        ctx.sleep(seconds(60)).await?;
        ctx.task("add", &(one, 1), add).await
    }
    let folder = tempfile::tempdir().unwrap();
    let before = crate::support::in_file(&folder).await;
    let worker = before.worker().workflow(&AGAIN, again).start().await.unwrap();
    let run_id = before.start(&AGAIN, &0).await.unwrap().run_id().clone();
    before.advance(seconds(1)).await;
    drop(worker);
    before.close().await;
    drop(before);
    let after = crate::support::in_file(&folder).await;
    let _worker = after.worker().workflow(&AGAIN, again).start().await.unwrap();
    let run = after.run(&AGAIN, &run_id).unwrap();
    assert_eq!(after.finish(run.result()).await, Ok(3));
    let done = journal(&after, &run_id).await.into_iter().filter(|entry| entry.entry.kind == EntryKind::Done).count();
    assert_eq!((done, after.executions("add")), (3, 1), "what was done before is not done again");
}

#[tokio::test]
async fn a_file_that_is_opened_again() {
    crate::support::in_time(a_file_is_opened_again_and_its_runs_go_on()).await;
}

crate::on_memory_and_file! {
    a_task_runs_again_after_a_crash_as_the_same_attempt
    at_most_once_is_an_unknown_outcome_after_a_crash
    at_most_once_is_an_unknown_outcome_after_its_time
    the_commit_of_a_worker_that_lost_its_run_is_refused
    the_task_of_a_worker_that_lost_its_run_is_stopped
    a_drained_worker_hands_its_runs_on_at_once
}

static FAMILY: Workflow<u64, u64> = Workflow::new("family", "1");
static MEMBER: Workflow<u64, u64> = Workflow::new("member", "1");

/// Two children, one of which waits, and a task.
async fn family(number: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let one = ctx.child(&MEMBER, &number).start()?;
    let (one, other) = towpath::try_join!(one.result(), ctx.child(&MEMBER, &(number + 1)))?;
    ctx.task("add", &(one, other), add).await
}

async fn member(number: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    ctx.sleep(seconds(number)).await?;
    ctx.task("add", &(number, 100), add).await
}

/// Counts events over generations.
async fn generations(left: (u64, u64), ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let (left, sum) = left;
    if left == 0 {
        return Ok(sum);
    }
    let number = ctx.event(&NUMBER).await?;
    ctx.continue_as_new(&(left - 1, sum + number))
}

#[tokio::test]
async fn a_crash_at_any_commit_of_a_family_starts_no_child_twice() {
    let test = TestTowpath::new().await;
    for commit in 1..=16 {
        for crash in [CrashAt::BeforeCommit, CrashAt::AfterCommit, CrashAt::Stale] {
            let _one = test.worker().workflow(&FAMILY, family).workflow(&MEMBER, member).start().await.unwrap();
            let _other = test.worker().workflow(&FAMILY, family).workflow(&MEMBER, member).start().await.unwrap();
            test.crash_at(crash(commit));
            let runs_before = test.run_ids().len();
            let run = test.start(&FAMILY, &3).await.unwrap();
            assert_eq!(test.finish(run.result()).await, Ok(207), "{:?}", crash(commit));
            assert_eq!(test.run_ids().len() - runs_before, 3, "{:?}", crash(commit));
            assert_one_result_per_step(&journal(&test, run.run_id()).await, 3);
        }
    }
}

#[tokio::test]
async fn a_crash_at_any_commit_of_a_generation_loses_and_doubles_no_event() {
    static GENERATIONS: Workflow<(u64, u64), u64> = Workflow::new("generations", "1");
    let test = TestTowpath::new().await;
    for commit in 1..=14 {
        for crash in [CrashAt::BeforeCommit, CrashAt::AfterCommit, CrashAt::LostReply] {
            let _one = test.worker().workflow(&GENERATIONS, generations).start().await.unwrap();
            let _other = test.worker().workflow(&GENERATIONS, generations).start().await.unwrap();
            test.crash_at(crash(commit));
            let run = test.start(&GENERATIONS, &(4, 0)).await.unwrap();
            for number in [1, 10] {
                run.send(&NUMBER, &number).await.unwrap();
            }
            test.advance(seconds(1)).await;
            for number in [100, 1_000] {
                run.send(&NUMBER, &number).await.unwrap();
            }
            assert_eq!(test.finish(run.result()).await, Ok(1_111), "{:?}", crash(commit));
        }
    }
}

/// Scenario 17, with fewer deliveries.
#[tokio::test]
async fn a_run_that_kills_worker_after_worker_is_blocked() {
    static POISON: Workflow<u64, u64> = Workflow::new("poison", "1");
    async fn poison(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        ctx.task("add", &(1, 1), add).await
    }
    let test = TestTowpath::new().await;
    let options = WorkflowOptions { max_deliveries: 1, ..WorkflowOptions::default() };
    let worker = || test.worker().workflow(&POISON, poison).workflow_options(options.clone());
    let _workers = (worker().start().await.unwrap(), worker().start().await.unwrap(), worker().start().await.unwrap());
    test.crash_at(CrashAt::BeforeCommit(1));
    let run = test.start(&POISON, &0).await.unwrap();
    test.advance(seconds(1)).await;
    test.crash_at(CrashAt::BeforeCommit(1));
    test.advance(seconds(40)).await;
    let view = run.describe().await.unwrap().run;
    assert_eq!((view.state, view.cause), (RunState::Blocked, Some(BlockCause::Poisoned)));
    run.resume().await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(2));
}
