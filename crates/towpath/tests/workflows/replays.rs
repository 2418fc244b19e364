//! Replay: the same code binds its journal however its parts interleave, and other code is found out.

use towpath::HandlerError;
use towpath::testing::{CrashAt, TestTowpath};
use towpath::workflow::{BlockCause, Event, RunState, TaskContext, Workflow, WorkflowContext};

use crate::support::{kinds, seconds};

static CHAINS: Workflow<u64, u64> = Workflow::new("chains", "1");
static EDIT: Workflow<u64, String> = Workflow::new("edit", "1");
static GO: Event<u64> = Event::new("go");

async fn slowly(input: (u64, u64), task: TaskContext) -> Result<u64, HandlerError> {
    let clock = task.towpath().clock();
    clock.sleep_until(clock.now() + std::time::Duration::from_millis(input.1)).await;
    Ok(input.0 + 1)
}

async fn chain(ctx: WorkflowContext, seed: u64) -> Result<u64, HandlerError> {
    let mut number = seed;
    for step in 0..10 {
        number = ctx.task("slowly", &(number, (seed * 31 + step * 17) % 40), slowly).await?;
    }
    Ok(number - seed)
}

async fn two_chains(seed: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let (one, other) = towpath::try_join!(chain(ctx.branch("one"), seed), chain(ctx.branch("other"), seed))?;
    Ok(one + other)
}

/// Scenario 3: 25 runs, each with a crash somewhere, each replayed 40 times.
#[tokio::test]
async fn two_parallel_chains_never_diverge() {
    let mut replays = 0;
    for seed in 0..25 {
        let test = TestTowpath::new().await;
        let worker = test.worker().workflow(&CHAINS, two_chains).start().await.unwrap();
        let other = test.worker().workflow(&CHAINS, two_chains).start().await.unwrap();
        test.crash_at(if seed % 2 == 0 { CrashAt::BeforeCommit(1 + seed) } else { CrashAt::AfterCommit(1 + seed) });
        let run = test.start(&CHAINS, &seed).await.unwrap();
        assert_eq!(test.finish(run.result()).await, Ok(20), "seed {seed}");
        for _ in 0..40 {
            assert_eq!(worker.replay(run.run_id()).await, Ok(()), "seed {seed}");
            replays += 1;
        }
        drop(other);
    }
    assert_eq!(replays, 1_000);
}

async fn say(what: String, _task: TaskContext) -> Result<String, HandlerError> {
    Ok(what)
}

async fn first_edition(_input: u64, ctx: WorkflowContext) -> Result<String, HandlerError> {
    let one = ctx.task("say", "one", say).await?;
    ctx.event(&GO).await?;
    Ok(one + &ctx.task("say", "two", say).await?)
}

async fn inserted_step(_input: u64, ctx: WorkflowContext) -> Result<String, HandlerError> {
    let zero = ctx.task("say", "zero", say).await?;
    let one = ctx.task("say", "one", say).await?;
    ctx.event(&GO).await?;
    Ok(zero + &one)
}

async fn guarded_step(_input: u64, ctx: WorkflowContext) -> Result<String, HandlerError> {
    let zero = match ctx.version("say-zero", 0, 1) {
        1 => ctx.task("say", "zero", say).await?,
        _old => String::new(),
    };
    let one = ctx.task("say", "one", say).await?;
    ctx.event(&GO).await?;
    Ok(zero + &one)
}

async fn returns_early(_input: u64, _ctx: WorkflowContext) -> Result<String, HandlerError> {
    Ok("nothing".to_owned())
}

/// Scenario 4.
async fn an_inserted_step_blocks_the_run_and_the_fixed_build_goes_on(test: TestTowpath) {
    let old = test.worker().workflow(&EDIT, first_edition).build("old").start().await.unwrap();
    let run = test.start(&EDIT, &0).await.unwrap();
    test.advance(seconds(1)).await;
    old.drain().await;
    let edited = test.worker().workflow(&EDIT, inserted_step).build("edited").start().await.unwrap();
    run.send(&GO, &1).await.unwrap();
    test.settle().await;
    let view = run.describe().await.unwrap().run;
    assert_eq!((view.state, view.cause), (RunState::Blocked, Some(BlockCause::Nondeterminism)));
    assert_eq!(test.executions("say"), 1, "the edited code has had no effect");
    let blocked = run.published().await.unwrap();
    let text = blocked[0].1.as_str();
    assert!(blocked[0].0.as_ref() == "$blocked" && text.contains(r#""found":["task say"]"#), "{text}");
    assert!(text.contains(r#""expected":["task say","event go"]"#) && text.contains(r#""build":"edited""#), "{text}");
    edited.drain().await;
    let _fixed = test.worker().workflow(&EDIT, first_edition).build("fixed").start().await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok("onetwo".to_owned()));
}

/// Scenario 5.
async fn the_same_edit_behind_a_version_keeps_old_runs_on_their_way(test: TestTowpath) {
    let old = test.worker().workflow(&EDIT, first_edition).build("old").start().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..10 {
        runs.push((test.start(&EDIT, &0).await.unwrap(), "one"));
    }
    test.advance(seconds(1)).await;
    old.drain().await;
    let new = test.worker().workflow(&EDIT, guarded_step).build("new").start().await.unwrap();
    for _ in 0..10 {
        runs.push((test.start(&EDIT, &0).await.unwrap(), "zeroone"));
    }
    test.advance(seconds(1)).await;
    for (run, says) in runs {
        run.send(&GO, &1).await.unwrap();
        assert_eq!(test.finish(run.result()).await.as_deref(), Ok(says));
        assert!(kinds(&test, run.run_id()).await.contains(&"mark"), "both answers leave a mark");
    }
    assert_eq!(test.replay_all(&new).await, []);
}

async fn code_that_returns_before_recorded_work_diverges(test: TestTowpath) {
    let old = test.worker().workflow(&EDIT, first_edition).build("old").start().await.unwrap();
    let run = test.start(&EDIT, &0).await.unwrap();
    test.advance(seconds(1)).await;
    let edited = test.worker().workflow(&EDIT, returns_early).build("edited").start().await.unwrap();
    let error = edited.replay(run.run_id()).await.unwrap_err();
    assert!(error.to_string().contains("[the end of the code]"), "{error}");
    assert_eq!(old.replay(run.run_id()).await, Ok(()));
}

/// Addendum 43: old and new builds mixed. A run that does not fit the new one returns to the old one.
async fn a_run_that_does_not_fit_a_build_returns_to_a_worker_of_another(test: TestTowpath) {
    let old = test.worker().workflow(&EDIT, first_edition).build("old").start().await.unwrap();
    let run = test.start(&EDIT, &0).await.unwrap();
    test.advance(seconds(1)).await;
    let edited = test.worker().workflow(&EDIT, inserted_step).build("edited").start().await.unwrap();
    run.send(&GO, &1).await.unwrap();
    // Whichever of the two claims it first, the old one registers again within its idle time.
    assert_eq!(test.finish(run.result()).await, Ok("onetwo".to_owned()));
    drop((old, edited));
}

static PICK: Workflow<u64, String> = Workflow::new("pick", "1");

async fn picks(_input: u64, ctx: WorkflowContext) -> Result<String, HandlerError> {
    let mut said = String::new();
    for _ in 0..3 {
        let picked = towpath::select! {
            number = ctx.event(&GO) => format!("event {} ", number?),
            slept = ctx.sleep(seconds(60)) => {
                slept?;
                "sleep ".to_owned()
            },
        };
        said += &picked;
    }
    Ok(said)
}

/// Addendum 43: event and timer due together in a reminder loop.
async fn select_picks_the_recorded_winner_at_each_replay(test: TestTowpath) {
    let worker = test.worker().workflow(&PICK, picks).start().await.unwrap();
    let run = test.start(&PICK, &0).await.unwrap();
    test.advance(seconds(60)).await;
    run.send(&GO, &7).await.unwrap();
    run.send(&GO, &8).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok("sleep event 7 event 8 ".to_owned()));
    for _ in 0..10 {
        assert_eq!(worker.replay(run.run_id()).await, Ok(()));
    }
}

async fn an_event_for_a_wait_that_a_timer_ended_is_not_lost(test: TestTowpath) {
    static ONE: Workflow<u64, String> = Workflow::new("pick-then-wait", "1");
    async fn pick(_input: u64, ctx: WorkflowContext) -> Result<String, HandlerError> {
        let first = towpath::select! {
            number = ctx.event(&GO) => format!("event {}", number?),
            _slept = ctx.sleep(seconds(60)) => "sleep".to_owned(),
        };
        Ok(format!("{first}, event {}", ctx.event(&GO).await?))
    }
    let run = test.start(&ONE, &0).await.unwrap();
    let worker = test.worker().workflow(&ONE, pick).start().await.unwrap();
    test.advance(seconds(1)).await;
    worker.drain().await;
    // The timer is due first, then the event comes: both are in the inbox when the next worker claims the run.
    test.virtual_clock().advance(seconds(120));
    test.run_store().unwrap().fire_runs(10).await.unwrap();
    run.send(&GO, &7).await.unwrap();
    let _worker = test.worker().workflow(&ONE, pick).start().await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok("sleep, event 7".to_owned()));
}

async fn timers_of_dropped_waits_are_disarmed(test: TestTowpath) {
    let _worker = test.worker().workflow(&PICK, picks).start().await.unwrap();
    let run = test.start(&PICK, &0).await.unwrap();
    test.advance(seconds(1)).await;
    run.send(&GO, &1).await.unwrap();
    run.send(&GO, &2).await.unwrap();
    test.advance(seconds(1)).await;
    assert_eq!(run.describe().await.unwrap().run.wait.timers.len(), 1, "only the timer of the third wait is armed");
}

async fn waits_for_a_socket(_input: u64, ctx: WorkflowContext) -> Result<String, HandlerError> {
    ctx.task("say", "one", say).await?;
    let (_never_sent, receiver) = tokio::sync::oneshot::channel::<()>();
    let _closed = receiver.await;
    Ok(String::new())
}

async fn code_that_waits_for_something_else_is_blocked(test: TestTowpath) {
    static FOREIGN: Workflow<u64, String> = Workflow::new("foreign", "1");
    let _worker = test.worker().workflow(&FOREIGN, waits_for_a_socket).start().await.unwrap();
    let run = test.start(&FOREIGN, &0).await.unwrap();
    test.advance(seconds(1)).await;
    let view = run.describe().await.unwrap().run;
    assert_eq!((view.state, view.cause), (RunState::Blocked, Some(BlockCause::ForeignAwait)));
    assert!(run.published().await.unwrap()[0].1.as_str().contains("replays.rs:"), "it names the last step");
}

async fn code_that_panics_is_blocked_and_another_build_goes_on(test: TestTowpath) {
    async fn panics(_input: u64, ctx: WorkflowContext) -> Result<String, HandlerError> {
        let said = ctx.task("say", "one", say).await?;
        assert_eq!(said, "two", "a bug");
        Ok(said)
    }
    async fn mended(_input: u64, ctx: WorkflowContext) -> Result<String, HandlerError> {
        ctx.task("say", "one", say).await
    }
    let worker = test.worker().workflow(&EDIT, panics).build("1").start().await.unwrap();
    let run = test.start(&EDIT, &0).await.unwrap();
    test.settle().await;
    assert_eq!(run.describe().await.unwrap().run.cause, Some(BlockCause::Panicked));
    worker.drain().await;
    let _mended = test.worker().workflow(&EDIT, mended).build("2").start().await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok("one".to_owned()));
    assert_eq!(test.executions("say"), 1);
}

async fn input_that_the_code_cannot_read_blocks_the_run(test: TestTowpath) {
    static TEXT: Workflow<String, String> = Workflow::new("edit", "1");
    async fn numbers(_input: u64, _ctx: WorkflowContext) -> Result<String, HandlerError> {
        Ok(String::new())
    }
    let _worker = test.worker().workflow(&EDIT, numbers).start().await.unwrap();
    let run = test.start(&TEXT, "not a number").await.unwrap();
    test.settle().await;
    assert_eq!(run.describe().await.unwrap().run.cause, Some(BlockCause::Decode));
}

/// Addendum 43: input gains a field.
async fn an_input_that_gains_a_member_binds_the_recorded_step(test: TestTowpath) {
    static GAIN: Workflow<u64, String> = Workflow::new("gain", "1");
    async fn show(input: serde_json::Value, _task: TaskContext) -> Result<String, HandlerError> {
        Ok(input.to_string())
    }
    async fn old(_input: u64, ctx: WorkflowContext) -> Result<String, HandlerError> {
        let shown = ctx.task("show", &serde_json::json!({"a": 1}), show).await?;
        ctx.event(&GO).await?;
        Ok(shown)
    }
    async fn new(_input: u64, ctx: WorkflowContext) -> Result<String, HandlerError> {
        let shown = ctx.task("show", &serde_json::json!({"a": 1, "b": 2}), show).await?;
        ctx.event(&GO).await?;
        Ok(shown)
    }
    let worker = test.worker().workflow(&GAIN, old).build("1").start().await.unwrap();
    let run = test.start(&GAIN, &0).await.unwrap();
    test.advance(seconds(1)).await;
    worker.drain().await;
    let _new = test.worker().workflow(&GAIN, new).build("2").start().await.unwrap();
    run.send(&GO, &0).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(r#"{"a":1}"#.to_owned()));
    assert_eq!(test.executions("show"), 1);
}

async fn a_version_that_is_asked_for_twice_has_one_answer_and_one_that_is_gone_diverges(test: TestTowpath) {
    static VERSIONED: Workflow<u64, u64> = Workflow::new("versioned", "1");
    async fn twice(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        let first = ctx.version("change", 0, 1);
        ctx.event(&GO).await?;
        Ok(u64::from(first + ctx.branch("other").version("change", 0, 2)))
    }
    async fn newer(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        let first = ctx.version("change", 2, 3);
        ctx.event(&GO).await?;
        Ok(u64::from(first))
    }
    let worker = test.worker().workflow(&VERSIONED, twice).start().await.unwrap();
    let run = test.start(&VERSIONED, &0).await.unwrap();
    test.advance(seconds(1)).await;
    let other = test.worker().workflow(&VERSIONED, newer).build("newer").start().await.unwrap();
    let error = other.replay(run.run_id()).await.unwrap_err();
    assert!(error.to_string().contains("version 1 of 'change', and the code has 2 to 3"), "{error}");
    drop(other);
    run.send(&GO, &0).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(2));
    assert_eq!(worker.replay(run.run_id()).await, Ok(()));
}

/// Scenario 6: an event at every interleaving of a park.
#[tokio::test]
async fn an_event_is_received_once_wherever_it_meets_a_park() {
    static PARK: Workflow<u64, u64> = Workflow::new("park", "1");
    async fn waits(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        ctx.event(&GO).await
    }
    let test = TestTowpath::new().await;
    let _one = test.worker().workflow(&PARK, waits).start().await.unwrap();
    let _other = test.worker().workflow(&PARK, waits).start().await.unwrap();
    for trial in 0..2_000_u64 {
        let run = test.start(&PARK, &trial).await.unwrap();
        // The worker claims, reads, commits, lingers and parks meanwhile; the event comes a few turns into that.
        for _ in 0..trial % 97 {
            tokio::task::yield_now().await;
        }
        test.virtual_clock().advance(std::time::Duration::from_millis(trial % 23));
        for _ in 0..trial % 13 {
            tokio::task::yield_now().await;
        }
        run.send(&GO, &trial).await.unwrap();
        assert_eq!(test.finish(run.result()).await, Ok(trial), "trial {trial}");
    }
}

crate::on_memory_and_file! {
    an_inserted_step_blocks_the_run_and_the_fixed_build_goes_on
    the_same_edit_behind_a_version_keeps_old_runs_on_their_way
    code_that_returns_before_recorded_work_diverges
    a_run_that_does_not_fit_a_build_returns_to_a_worker_of_another
    select_picks_the_recorded_winner_at_each_replay
    an_event_for_a_wait_that_a_timer_ended_is_not_lost
    timers_of_dropped_waits_are_disarmed
    code_that_waits_for_something_else_is_blocked
    code_that_panics_is_blocked_and_another_build_goes_on
    input_that_the_code_cannot_read_blocks_the_run
    an_input_that_gains_a_member_binds_the_recorded_step
    a_version_that_is_asked_for_twice_has_one_answer_and_one_that_is_gone_diverges
}
