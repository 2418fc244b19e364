//! Children, cancellation, continuing as new, calls of functions, events between runs.

use towpath::testing::TestTowpath;
use towpath::workflow::{ChildOutcome, ClosePolicy, Event, RunError, RunId, RunState, TaskContext, Workflow, WorkflowContext};
use towpath::{CallContext, HandlerError};

use crate::support::{Count, kinds, seconds, state};

static PARENT: Workflow<String, String> = Workflow::new("parent", "1");
static CHILD: Workflow<String, String> = Workflow::new("child", "1");
static GO: Event<u64> = Event::new("go");

async fn child(what: String, ctx: WorkflowContext) -> Result<String, HandlerError> {
    match what.as_str() {
        "fail" => Err(HandlerError::fatal("broken", "it does not work")),
        "wait" => {
            ctx.sleep(seconds(86_400)).await?;
            Ok(what)
        }
        _other => Ok(format!("{what} done")),
    }
}

async fn awaits_child(what: String, ctx: WorkflowContext) -> Result<String, HandlerError> {
    ctx.child(&CHILD, &what).await
}

async fn tells_outcome(what: String, ctx: WorkflowContext) -> Result<String, HandlerError> {
    Ok(match ctx.child(&CHILD, &what).outcome().await? {
        ChildOutcome::Completed(result) => result,
        ChildOutcome::Failed(failure) => failure.code,
        ChildOutcome::Cancelled => "cancelled".to_owned(),
        ChildOutcome::Terminated(reason) => format!("terminated: {reason}"),
    })
}

/// The child of a run, once it is there.
fn child_of(test: &TestTowpath, parent: &RunId) -> RunId {
    test.run_ids().into_iter().find(|run_id| run_id.code() != parent.code()).expect("the child was started")
}

/// Scenario 9, first part.
async fn a_child_completes_and_its_parent_goes_on(test: TestTowpath) {
    let worker = test.worker().workflow(&PARENT, awaits_child).workflow(&CHILD, child).start().await.unwrap();
    let run = test.start(&PARENT, "work").await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok("work done".to_owned()));
    assert_eq!(kinds(&test, run.run_id()).await, ["begin", "open", "done", "close"]);
    assert_eq!(test.replay_all(&worker).await, []);
}

async fn a_child_fails_and_its_parent_fails_with_it(test: TestTowpath) {
    let _worker = test.worker().workflow(&PARENT, awaits_child).workflow(&CHILD, child).start().await.unwrap();
    let run = test.start(&PARENT, "fail").await.unwrap();
    let Err(RunError::Failed { failure, .. }) = test.finish(run.result()).await else { panic!("it must fail") };
    assert_eq!(failure.code, "child_failed");
    assert!(failure.message.contains("it does not work (broken)"), "{failure:?}");
}

async fn a_parent_hears_how_its_child_ended(test: TestTowpath) {
    for (how, says) in [("cancel", "cancelled"), ("terminate", "terminated: enough")] {
        let test = if how == "cancel" { &test } else { &TestTowpath::new().await };
        let _worker = test.worker().workflow(&PARENT, tells_outcome).workflow(&CHILD, child).start().await.unwrap();
        let run = test.start(&PARENT, "wait").await.unwrap();
        test.advance(seconds(1)).await;
        let of_child = test.towpath().run(&CHILD, &child_of(test, run.run_id())).unwrap();
        if how == "cancel" {
            of_child.cancel("enough").await.unwrap();
        } else {
            of_child.terminate("enough").await.unwrap();
        }
        let before = test.now();
        assert_eq!(test.finish(run.result()).await.as_deref(), Ok(says));
        assert!(test.now().since(before) < seconds(1));
    }
}

async fn a_closed_parent_cancels_its_open_children(test: TestTowpath) {
    async fn leaves(policy: String, ctx: WorkflowContext) -> Result<String, HandlerError> {
        let policy = if policy == "abandon" { ClosePolicy::Abandon } else { ClosePolicy::Cancel };
        let handle = ctx.child(&CHILD, "wait").on_parent_close(policy).start()?;
        ctx.sleep(seconds(10)).await?;
        Ok(handle.run_id().to_string())
    }
    let _worker = test.worker().workflow(&PARENT, leaves).workflow(&CHILD, child).start().await.unwrap();
    for (policy, expected) in [("cancel", RunState::Cancelled), ("abandon", RunState::Waiting)] {
        let run = test.start(&PARENT, policy).await.unwrap();
        let child = RunId::parse(&test.finish(run.result()).await.unwrap()).unwrap();
        test.advance(seconds(5)).await;
        assert_eq!(state(&test, &child).await, expected, "{policy}");
    }
}

async fn cleans_up(place: String, ctx: WorkflowContext) -> Result<String, HandlerError> {
    let work = async {
        match place.as_str() {
            "task" => {
                ctx.run("hang", |task: TaskContext| async move {
                    task.cancelled().await;
                    Err::<(), _>(HandlerError::cancelled())
                })
                .await
            }
            "sleep" => ctx.sleep(seconds(86_400)).await,
            "child" => ctx.child(&CHILD, "wait").await.map(drop),
            "event" => ctx.event(&GO).await.map(drop),
            _shielded => ctx.shielded(ctx.sleep(seconds(60))).await,
        }
    };
    let ended = work.await;
    if ctx.is_cancelled() {
        ctx.shielded(ctx.run("clean up", |_| async { Ok(()) }).into_future()).await?;
    }
    ended.map(|()| "undisturbed".to_owned())
}

/// Scenario 22.
async fn a_cancelled_run_cleans_up_wherever_it_waits(test: TestTowpath) {
    let worker = test.worker().workflow(&PARENT, cleans_up).workflow(&CHILD, child).start().await.unwrap();
    for (number, place) in ["task", "sleep", "child", "event"].into_iter().enumerate() {
        let run = test.start(&PARENT, place).await.unwrap();
        test.advance(seconds(1)).await;
        run.cancel("changed my mind").await.unwrap();
        let ended = test.finish(run.result()).await;
        let Err(RunError::Cancelled { reason, .. }) = ended else { panic!("{place}: {ended:?}") };
        assert_eq!((reason.as_str(), test.executions("clean up")), ("changed my mind", number as u64 + 1), "{place}");
    }
    test.advance(seconds(1)).await;
    for run_id in test.run_ids() {
        assert_eq!(state(&test, &run_id).await, RunState::Cancelled, "the child is cancelled, too");
    }
    assert_eq!(test.replay_all(&worker).await, []);
}

async fn shielded_work_is_not_interrupted(test: TestTowpath) {
    let _worker = test.worker().workflow(&PARENT, cleans_up).workflow(&CHILD, child).start().await.unwrap();
    let before = test.now();
    let run = test.start(&PARENT, "shielded").await.unwrap();
    test.advance(seconds(1)).await;
    run.cancel("changed my mind").await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok("undisturbed".to_owned()));
    assert_eq!(test.now().since(before).as_secs(), 60);
}

async fn a_run_that_is_cancelled_before_it_began_runs_no_code(test: TestTowpath) {
    let run = test.start(&PARENT, "task").await.unwrap();
    run.cancel("too early").await.unwrap();
    let _worker = test.worker().workflow(&PARENT, cleans_up).workflow(&CHILD, child).start().await.unwrap();
    assert!(matches!(test.finish(run.result()).await, Err(RunError::Cancelled { .. })));
    assert_eq!(test.executions("clean up"), 0);
}

async fn a_run_has_a_deadline(test: TestTowpath) {
    let _worker = test.worker().workflow(&PARENT, cleans_up).workflow(&CHILD, child).start().await.unwrap();
    let run = test.start(&PARENT, "sleep").timeout(seconds(100)).await.unwrap();
    let before = test.now();
    let ended = test.finish(run.result()).await;
    assert!(matches!(ended, Err(RunError::Cancelled { .. })), "{ended:?}");
    assert!((100..=105).contains(&test.now().since(before).as_secs()));
}

static COUNT: Workflow<(u64, u64), u64> = Workflow::new("count", "1");

async fn counts(so_far: (u64, u64), ctx: WorkflowContext) -> Result<u64, HandlerError> {
    let (left, sum) = so_far;
    if left == 0 {
        return Ok(sum);
    }
    let number = ctx.event(&GO).await?;
    ctx.continue_as_new(&(left - 1, sum + number))
}

/// Scenario 12, with fewer generations.
async fn events_outlive_generations(test: TestTowpath) {
    let worker = test.worker().workflow(&COUNT, counts).start().await.unwrap();
    let run = test.start(&COUNT, &(100, 0)).await.unwrap();
    for number in 1..=50 {
        run.send(&GO, &number).await.unwrap();
    }
    test.advance(seconds(5)).await;
    for number in 51..=100 {
        run.send(&GO, &number).await.unwrap();
    }
    assert_eq!(test.finish(run.result()).await, Ok(5_050), "no event is lost or doubled");
    let view = run.describe().await.unwrap().run;
    assert_eq!((view.generation, view.entries), (100, 2), "each generation begins its journal anew");
    assert_eq!(worker.replay(run.run_id()).await, Ok(()));
}

async fn a_cancellation_outlives_a_generation(test: TestTowpath) {
    async fn stubborn(so_far: (u64, u64), ctx: WorkflowContext) -> Result<u64, HandlerError> {
        match ctx.sleep(seconds(60)).await {
            Err(HandlerError::Cancelled) if so_far.0 == 0 => ctx.continue_as_new(&(1, 0)),
            ended => ended.map(|()| so_far.0),
        }
    }
    let _worker = test.worker().workflow(&COUNT, stubborn).start().await.unwrap();
    let run = test.start(&COUNT, &(0, 0)).await.unwrap();
    test.advance(seconds(1)).await;
    run.cancel("stop").await.unwrap();
    assert!(matches!(test.finish(run.result()).await, Err(RunError::Cancelled { .. })));
    assert_eq!(run.describe().await.unwrap().run.generation, 1);
}

async fn a_run_sends_an_event_to_another(test: TestTowpath) {
    static SENDER: Workflow<String, u64> = Workflow::new("sender", "1");
    async fn sends(to: String, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        ctx.send(&RunId::parse(&to)?, &GO, &7).await?;
        Ok(1)
    }
    async fn waits(_input: (u64, u64), ctx: WorkflowContext) -> Result<u64, HandlerError> {
        ctx.event(&GO).await
    }
    let worker = test.worker().workflow(&SENDER, sends).workflow(&COUNT, waits).start().await.unwrap();
    let waiting = test.start(&COUNT, &(0, 0)).await.unwrap();
    test.advance(seconds(1)).await;
    let sender = test.start(&SENDER, waiting.run_id().as_str()).await.unwrap();
    assert_eq!(test.finish(waiting.result()).await, Ok(7));
    assert_eq!(test.finish(sender.result()).await, Ok(1));
    assert_eq!(test.replay_all(&worker).await, []);
}

async fn a_workflow_calls_a_function(test: TestTowpath) {
    static CALLS: Workflow<u64, u64> = Workflow::new("calls", "1");
    async fn calls(number: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        let doubled: u64 = ctx.call("double", &number).await?;
        match ctx.call::<u64, _>("refuse", &number).await {
            Err(HandlerError::Final { failure }) if failure.code == "refused" => Ok(doubled),
            other => other,
        }
    }
    let ran = Count::default();
    let counted = ran.clone();
    let double = move |number: u64, _ctx: CallContext| {
        let ran = counted.clone();
        async move {
            ran.add();
            Ok::<u64, HandlerError>(2 * number)
        }
    };
    let refuse = |_number: u64, _ctx: CallContext| async { Err::<u64, _>(HandlerError::fatal("refused", "no")) };
    let _worker = test.worker().workflow(&CALLS, calls).function("double", double).function("refuse", refuse).start().await.unwrap();
    let run = test.start(&CALLS, &4).await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(8));
    assert_eq!(ran.get(), 1);
}

/// Scenario 23, in short.
async fn a_paused_run_starts_nothing_and_goes_on_when_it_is_resumed(test: TestTowpath) {
    static PAUSED: Workflow<u64, u64> = Workflow::new("paused", "1");
    async fn waits(_input: u64, ctx: WorkflowContext) -> Result<u64, HandlerError> {
        let number = ctx.event(&GO).await?;
        ctx.run("work", move |_| async move { Ok(number) }).await
    }
    let _worker = test.worker().workflow(&PAUSED, waits).start().await.unwrap();
    let run = test.start(&PAUSED, &0).await.unwrap();
    test.advance(seconds(1)).await;
    run.pause().await.unwrap();
    run.send(&GO, &5).await.unwrap();
    test.advance(seconds(3_600)).await;
    assert_eq!((state(&test, run.run_id()).await, test.executions("work")), (RunState::Ready, 0));
    run.resume().await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(5));
}

async fn the_same_reference_is_the_same_run(test: TestTowpath) {
    let _worker = test.worker().workflow(&COUNT, counts).start().await.unwrap();
    let run = test.start(&COUNT, &(0, 3)).reference("order-42").await.unwrap();
    let again = test.start(&COUNT, &(0, 3)).reference("order-42").await.unwrap();
    assert!(again.existing() && !run.existing() && again.run_id() == run.run_id());
    let conflict = test.start(&COUNT, &(0, 4)).reference("order-42").await.unwrap_err();
    assert_eq!(conflict.code(), "reference_conflict");
    assert_eq!(test.finish(again.result()).await, Ok(3));
    let closed = run.send(&GO, &1).await.unwrap_err();
    assert_eq!(closed.code(), "run_closed");
}

async fn a_start_with_an_event_reaches_the_open_run(test: TestTowpath) {
    let _worker = test.worker().workflow(&COUNT, counts).start().await.unwrap();
    for number in 1..=3 {
        test.start(&COUNT, &(3, 0)).reference("cart").event(&GO, &number).await.unwrap();
        test.advance(seconds(1)).await;
    }
    let run = test.start(&COUNT, &(3, 0)).reference("cart").await.unwrap();
    assert_eq!(test.finish(run.result()).await, Ok(6));
}

async fn a_delayed_run_starts_later(test: TestTowpath) {
    let _worker = test.worker().workflow(&COUNT, counts).start().await.unwrap();
    let before = test.now();
    let run = test.start(&COUNT, &(0, 3)).delay(seconds(100)).await.unwrap();
    assert_eq!(state(&test, run.run_id()).await, RunState::Delayed);
    assert_eq!(test.finish(run.result()).await, Ok(3));
    assert_eq!(test.now().since(before).as_secs(), 100);
}

crate::on_memory_and_file! {
    a_child_completes_and_its_parent_goes_on
    a_child_fails_and_its_parent_fails_with_it
    a_parent_hears_how_its_child_ended
    a_closed_parent_cancels_its_open_children
    a_cancelled_run_cleans_up_wherever_it_waits
    shielded_work_is_not_interrupted
    a_run_that_is_cancelled_before_it_began_runs_no_code
    a_run_has_a_deadline
    events_outlive_generations
    a_cancellation_outlives_a_generation
    a_run_sends_an_event_to_another
    a_workflow_calls_a_function
    a_paused_run_starts_nothing_and_goes_on_when_it_is_resumed
    the_same_reference_is_the_same_run
    a_start_with_an_event_reaches_the_open_run
    a_delayed_run_starts_later
}
