//! What each command does to a run. Stores load the header, ask here, and save header and effects in one transaction.

use std::time::Duration;

use super::commit::{Commit, Committed, commit, leave};
use super::effects::{Child, Effects, Entry, EntryKind, ForgottenFacts};
use super::identity::StepId;
use super::place::RunId;
use super::state::RunState;
use super::wait::WaitSet;
use super::{Run, RunQueue};
use crate::lock::Fence;
use crate::names::{BuildId, EventName, WorkerId};
use crate::payload::Payload;
use crate::time::Timestamp;

/// Number of events that are not consumed and fit into an inbox.
pub const EVENTS_MAX: u32 = 10_000;
/// A run that is still open this long after its deadline is terminated.
pub const TERMINATED_AFTER: Duration = Duration::from_secs(60);

/// What is asked of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunCommand {
    /// Give it to a worker, if it is ready.
    Claim {
        /// Which worker.
        worker: WorkerId,
        /// How long that may be silent.
        idle: Duration,
    },
    /// Give it to another worker, if its owner has been silent for too long.
    TakeOver {
        /// Which worker.
        worker: WorkerId,
        /// How long that waits for a silent owner, and may be silent itself.
        idle: Duration,
        /// How many owners in a row may fall silent.
        max_deliveries: u32,
    },
    /// Prolong a claim.
    Renew {
        /// The worker that speaks.
        owner: WorkerId,
        /// The epoch of its claim.
        epoch: Fence,
    },
    /// Take what the owner has come to.
    Commit {
        /// What that is.
        commit: Box<Commit>,
        /// How many of the facts that it consumes are events that are in the inbox. The store counts them.
        events_consumed: u32,
    },
    /// Put an event into its inbox.
    Send {
        /// What it is called.
        name: EventName,
        /// The number of the event that came with the same name and reference before.
        known_as: Option<u64>,
    },
    /// A timer is due.
    TimerDue(RunTimer),
    /// A child has closed.
    ChildClosed(ChildEnd),
    /// Have its code end it, with clean-up. A run that was never claimed ends at once.
    Cancel {
        /// The last entry of its journal, if it ends at once.
        entry: Payload,
    },
    /// End it at once, without running its code.
    Terminate {
        /// The last entry of its journal.
        entry: Payload,
    },
    /// Start nothing more for it.
    Pause,
    /// Go on with it.
    Resume,
    /// A worker of this build serves its workflow.
    BuildRegistered(BuildId),
}

/// A timer of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RunTimer {
    /// Its delayed start.
    Start,
    /// The timer of a step.
    Step(StepId),
    /// The end of its back-off.
    BackOff,
    /// Its deadline.
    Deadline {
        /// The last entry of its journal, if it ends at once.
        entry: Payload,
    },
    /// [`TERMINATED_AFTER`] its deadline.
    AfterDeadline {
        /// The last entry of its journal.
        entry: Payload,
    },
}

/// A child that has closed, as the parent's store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildEnd {
    /// Which run says that it has closed.
    pub run_id: RunId,
    /// The child that the parent's step has started, if it is open.
    pub open: Option<Child>,
    /// Whether it completed.
    pub completed: bool,
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunReply {
    /// The worker has it, under this epoch.
    Claimed {
        /// The epoch of the claim.
        epoch: Fence,
        /// Until when the worker may be silent.
        until: Timestamp,
    },
    /// It is not to be claimed now.
    NotClaimed,
    /// Owner after owner fell silent: it is blocked.
    Poisoned,
    /// The claim holds.
    Held {
        /// Until when the worker may be silent.
        until: Timestamp,
        /// The number of the latest fact.
        facts: u64,
        /// A caller wants the run cancelled.
        cancel_requested: bool,
        /// No new task should start.
        paused: bool,
    },
    /// The run is not this worker's any more. Nothing changed.
    Lost {
        /// The epoch of the latest claim.
        epoch: Fence,
    },
    /// The owner has seen another revision: the store has lost some of its commits. Nothing changed.
    Stale {
        /// The revision that the store has.
        revision: u64,
    },
    /// The commit counts, now or already before.
    Committed(Committed),
    /// The journal takes no new work. Nothing changed; the owner blocks the run.
    HistoryFull,
    /// The run would be parked, and nothing could wake it. Nothing changed.
    NothingToWaitFor,
    /// The run would wait for too many things. Nothing changed.
    WaitSetTooLarge,
    /// The event is in the inbox, under this number.
    Accepted {
        /// Its number.
        number: u64,
    },
    /// The same event came before, under this number. Nothing changed.
    Duplicate {
        /// Its number.
        number: u64,
    },
    /// The inbox is full. Nothing changed.
    MailboxFull,
    /// The run has closed. Nothing changed.
    Closed(RunState),
    /// The run has no use for it any more. Nothing changed.
    Dropped,
    /// It is done; this is where the run stands now.
    Done(RunState),
}

/// Decides one command. A reply that says "nothing changed" returns the run as it was, and no effects.
pub fn step(run: Run, command: RunCommand, now: Timestamp) -> (Run, Effects, RunReply) {
    match command {
        RunCommand::Claim { worker, idle } => claim(run, worker, idle, now),
        RunCommand::TakeOver { worker, idle, max_deliveries } => take_over(run, worker, idle, max_deliveries, now),
        RunCommand::Renew { owner, epoch } => renew(run, &owner, epoch, now),
        RunCommand::Commit { commit: what, events_consumed } => commit(run, *what, events_consumed, now),
        RunCommand::Send { name, known_as } => send(run, &name, known_as, now),
        RunCommand::TimerDue(timer) => timer_due(run, timer, now),
        RunCommand::ChildClosed(end) => child_closed(run, &end, now),
        RunCommand::Cancel { entry } => cancel(run, entry, now),
        RunCommand::Terminate { entry } => terminate(run, entry, now),
        RunCommand::Pause => pause(run),
        RunCommand::Resume => resume(run, now),
        RunCommand::BuildRegistered(build) => build_registered(run, &build, now),
    }
}

fn unchanged(run: Run, reply: RunReply) -> (Run, Effects, RunReply) {
    (run, Effects::default(), reply)
}

/// The run stands where it stands now.
fn done(run: Run, effects: Effects) -> (Run, Effects, RunReply) {
    let state = run.state;
    (run, effects, RunReply::Done(state))
}

fn claim(mut run: Run, worker: WorkerId, idle: Duration, now: Timestamp) -> (Run, Effects, RunReply) {
    if run.state != RunState::Ready || run.paused {
        return unchanged(run, RunReply::NotClaimed);
    }
    let reply = hand_to(&mut run, worker, idle, now);
    (run, Effects::default(), reply)
}

/// The worker has the run from now on.
fn hand_to(run: &mut Run, worker: WorkerId, idle: Duration, now: Timestamp) -> RunReply {
    let until = now + idle;
    run.state = RunState::Running;
    run.owner = Some(worker);
    run.epoch = Fence::after(run.epoch, now);
    run.idle = idle;
    run.expires_at = Some(until);
    run.changed_at = now;
    run.cause = None;
    run.wait.events.clear();
    run.wait.groups.clear();
    RunReply::Claimed { epoch: run.epoch, until }
}

fn take_over(mut run: Run, worker: WorkerId, idle: Duration, max_deliveries: u32, now: Timestamp) -> (Run, Effects, RunReply) {
    // The owner may be silent for as long as it has said, and for as long as the other worker waits, whichever is longer.
    let is_silent = |run: &Run| run.expires_at.is_some_and(|until| now >= until + idle.saturating_sub(run.idle));
    if run.state != RunState::Running || !is_silent(&run) {
        return unchanged(run, RunReply::NotClaimed);
    }
    run.deliveries = run.deliveries.saturating_add(1);
    if run.deliveries > max_deliveries {
        leave(&mut run, RunState::Blocked, now);
        run.cause = Some(super::BlockCause::Poisoned);
        return (run, Effects::default(), RunReply::Poisoned);
    }
    if run.paused {
        queue_up(&mut run, RunQueue::First, now);
        return (run, Effects::default(), RunReply::NotClaimed);
    }
    let reply = hand_to(&mut run, worker, idle, now);
    (run, Effects::default(), reply)
}

fn renew(mut run: Run, owner: &WorkerId, epoch: Fence, now: Timestamp) -> (Run, Effects, RunReply) {
    if run.state != RunState::Running || run.owner.as_ref() != Some(owner) || run.epoch != epoch {
        let epoch = run.epoch;
        return unchanged(run, RunReply::Lost { epoch });
    }
    let until = now + run.idle;
    run.expires_at = Some(until);
    let reply = RunReply::Held { until, facts: run.facts, cancel_requested: run.cancel_requested, paused: run.paused };
    (run, Effects::default(), reply)
}

fn send(mut run: Run, name: &EventName, known_as: Option<u64>, now: Timestamp) -> (Run, Effects, RunReply) {
    if run.state.is_closed() {
        let state = run.state;
        return unchanged(run, RunReply::Closed(state));
    }
    if let Some(number) = known_as {
        return unchanged(run, RunReply::Duplicate { number });
    }
    if run.events >= EVENTS_MAX {
        return unchanged(run, RunReply::MailboxFull);
    }
    run.events += 1;
    let wakes = run.wait.events.contains(name);
    let effects = add_fact(&mut run, wakes, now);
    let number = run.facts;
    (run, effects, RunReply::Accepted { number })
}

/// Puts the fact that a command brought into the inbox. A parked run that waits for it is ready again.
fn add_fact(run: &mut Run, wakes: bool, now: Timestamp) -> Effects {
    run.facts += 1;
    let effects = Effects { fact: Some(run.facts), notifies_owner: run.state == RunState::Running, ..Effects::default() };
    if run.state == RunState::Waiting && wakes {
        queue_up(run, RunQueue::First, now);
    }
    effects
}

/// Makes the run ready, whatever it was.
pub(super) fn queue_up(run: &mut Run, queue: RunQueue, now: Timestamp) {
    leave(run, RunState::Ready, now);
    run.queue = queue;
    run.cause = None;
    run.back_off_until = None;
    run.start_at = None;
}

fn timer_due(mut run: Run, timer: RunTimer, now: Timestamp) -> (Run, Effects, RunReply) {
    match timer {
        RunTimer::Start if run.state == RunState::Delayed && run.start_at.is_none_or(|at| now >= at) => {
            queue_up(&mut run, RunQueue::New, now);
            done(run, Effects::default())
        }
        RunTimer::BackOff if run.back_off_until.is_some_and(|at| now >= at) => {
            queue_up(&mut run, RunQueue::First, now);
            done(run, Effects::default())
        }
        // A timer that is not armed any more is that of a step that the code has dropped.
        RunTimer::Step(step) if !run.state.is_closed() && run.wait.timers.get(&step).is_some_and(|at| now >= *at) => {
            run.wait.timers.remove(&step);
            let wakes = run.back_off_until.is_none();
            let effects = Effects { disarmed: vec![step], ..add_fact(&mut run, wakes, now) };
            done(run, effects)
        }
        RunTimer::Deadline { entry } if !run.state.is_closed() && run.deadline.is_some_and(|at| now >= at) => cancel(run, entry, now),
        RunTimer::AfterDeadline { entry } if !run.state.is_closed() && run.deadline.is_some_and(|at| now >= at + TERMINATED_AFTER) => {
            terminate(run, entry, now)
        }
        _not_armed => unchanged(run, RunReply::Dropped),
    }
}

fn child_closed(mut run: Run, end: &ChildEnd, now: Timestamp) -> (Run, Effects, RunReply) {
    let Some(child) = end.open.as_ref().filter(|child| child.run_id == end.run_id && !run.state.is_closed()) else {
        return unchanged(run, RunReply::Dropped);
    };
    let wakes = run.wait.child_closed(&child.group, end.completed);
    let effects = Effects { closed_child: Some(child.step.clone()), ..add_fact(&mut run, wakes, now) };
    done(run, effects)
}

fn cancel(mut run: Run, entry: Payload, now: Timestamp) -> (Run, Effects, RunReply) {
    let was_never_claimed = run.epoch == Fence::default();
    match run.state {
        state if state.is_closed() => unchanged(run, RunReply::Closed(state)),
        state if run.cancel_requested => unchanged(run, RunReply::Done(state)),
        RunState::Delayed | RunState::Ready if was_never_claimed => {
            run.cancel_requested = true;
            end(run, entry, RunState::Cancelled, now)
        }
        _open => {
            run.cancel_requested = true;
            let effects = add_fact(&mut run, true, now);
            run.cancel_fact = Some(run.facts);
            done(run, effects)
        }
    }
}

fn terminate(run: Run, entry: Payload, now: Timestamp) -> (Run, Effects, RunReply) {
    if run.state.is_closed() {
        let state = run.state;
        return unchanged(run, RunReply::Closed(state));
    }
    end(run, entry, RunState::Terminated, now)
}

/// Ends the run without its code. Its journal gets a last entry.
fn end(mut run: Run, entry: Payload, state: RunState, now: Timestamp) -> (Run, Effects, RunReply) {
    let entry = Entry { kind: EntryKind::Close, step: None, body: entry };
    run.entries += 1;
    run.journal_bytes += entry.body.len() as u64;
    let mut effects = Effects { entries: vec![entry], notifies_owner: run.state == RunState::Running, ..Effects::default() };
    close(&mut run, &mut effects, state, now);
    done(run, effects)
}

/// The run ends. Its facts and timers go, its children follow their policies, and its parent is told.
pub(super) fn close(run: &mut Run, effects: &mut Effects, state: RunState, now: Timestamp) {
    leave(run, state, now);
    run.closed_at = Some(now);
    run.cause = None;
    run.back_off_until = None;
    run.start_at = None;
    run.events = 0;
    run.wait = WaitSet::default();
    effects.forgotten = ForgottenFacts::All;
    effects.disarms_all = true;
    effects.children_follow = true;
    effects.tells_parent = run.parent.is_some();
}

fn pause(mut run: Run) -> (Run, Effects, RunReply) {
    if run.state.is_closed() {
        let state = run.state;
        return unchanged(run, RunReply::Closed(state));
    }
    let notifies_owner = !run.paused && run.state == RunState::Running;
    run.paused = true;
    done(run, Effects { notifies_owner, ..Effects::default() })
}

fn resume(mut run: Run, now: Timestamp) -> (Run, Effects, RunReply) {
    if run.state.is_closed() {
        let state = run.state;
        return unchanged(run, RunReply::Closed(state));
    }
    let notifies_owner = run.paused && run.state == RunState::Running;
    run.paused = false;
    if run.state == RunState::Blocked {
        run.deliveries = 0;
        run.unfit_builds.clear();
        queue_up(&mut run, RunQueue::First, now);
    }
    done(run, Effects { notifies_owner, ..Effects::default() })
}

fn build_registered(mut run: Run, build: &BuildId, now: Timestamp) -> (Run, Effects, RunReply) {
    let waits_for_a_build = run.cause.is_some_and(super::BlockCause::is_of_the_build) && run.state != RunState::Running;
    if !waits_for_a_build || run.unfit_builds.contains(build) {
        return unchanged(run, RunReply::Dropped);
    }
    queue_up(&mut run, RunQueue::First, now);
    done(run, Effects::default())
}
