//! An owner's commit: what its execution of the run has come to, written as a whole or not at all.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::effects::{Child, Effects, Entry, ForgottenFacts, Post};
use super::identity::StepId;
use super::state::{BlockCause, RunState};
use super::step::{RunReply, close, queue_up};
use super::wait::{WAIT_SET_MAX, WaitSet};
use super::{Run, RunQueue};
use crate::lock::Fence;
use crate::names::{BuildId, WorkerId};
use crate::payload::Payload;
use crate::time::Timestamp;

/// A journal with this many entries takes no new work.
pub const ENTRIES_MAX: u64 = 50_000;
/// A journal of this many bytes takes no new work.
pub const JOURNAL_BYTES_MAX: u64 = 50 * 1024 * 1024;
/// Number of results that still fit into a full journal.
pub const RESULTS_BEYOND_MAX: u64 = 1_000;
/// Number of timers of steps that can be armed at once: each move of the run reads and writes all of them.
pub const TIMERS_MAX: usize = 1_000;
/// No timer is armed for later than this.
const TIMER_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);

/// An owner's commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The worker that speaks.
    pub owner: WorkerId,
    /// The epoch of its claim.
    pub epoch: Fence,
    /// The revision that it has seen.
    pub revision: u64,
    /// What tells this commit from another one of the same revision.
    pub digest: Arc<str>,
    /// Entries to append to the journal.
    pub entries: Vec<Entry>,
    /// Numbers of the facts that the entries have used.
    pub consumed: Vec<u64>,
    /// The number of the latest fact that the owner has read.
    pub seen: u64,
    /// Timers to arm.
    pub armed: Vec<(StepId, TimerAt)>,
    /// Timers of steps that the code has dropped.
    pub disarmed: Vec<StepId>,
    /// Children to start.
    pub children: Vec<Child>,
    /// Posts to other runs; those that create the children are among them.
    pub posts: Vec<Post>,
    /// Values that the code has published.
    pub published: Vec<(Arc<str>, Payload)>,
    /// What becomes of the run.
    pub then: Then,
}

/// When a timer is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerAt {
    /// This long after the commit, by the store's clock.
    After(Duration),
    /// At this instant.
    At(Timestamp),
}

/// What becomes of a run with a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// Its owner goes on.
    Stay,
    /// It is parked until something that it waits for comes. If there are facts that the owner has not read, it is not, and the owner goes on.
    Park {
        /// Names of events, and groups of children. The timers that are armed belong to it by themselves.
        wait: WaitSet,
    },
    /// It ends. The last entry has its outcome.
    Close(RunEnd),
    /// Its generation ends, and the next one begins with this entry.
    Continue(Entry),
    /// Another worker goes on with it, without waiting for the claim to expire.
    Release,
    /// A person or another build must help.
    Block {
        /// Why.
        cause: BlockCause,
        /// The build that it does not fit, if that is the cause.
        build: Option<BuildId>,
    },
    /// A worker of another build may take it after a delay.
    BackOff {
        /// Why.
        cause: BlockCause,
        /// The build that it does not fit.
        build: Option<BuildId>,
        /// For how long no worker takes it.
        delay: Duration,
    },
}

/// How the code of a run ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// With a result.
    Completed,
    /// With an error.
    Failed,
    /// As it was asked to.
    Cancelled,
}

impl RunEnd {
    const fn state(self) -> RunState {
        match self {
            Self::Completed => RunState::Completed,
            Self::Failed => RunState::Failed,
            Self::Cancelled => RunState::Cancelled,
        }
    }
}

/// What a commit has come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The revision of the owner's next commit.
    pub revision: u64,
    /// The number of the first entry that was appended.
    pub first_entry: u64,
    /// When, by the store's clock. Timers count from here.
    pub now: Timestamp,
    /// The owner goes on although it wanted to park: there are facts that it has not read.
    pub has_facts: bool,
    /// A caller wants the run cancelled.
    pub cancel_requested: bool,
    /// No new task should start.
    pub paused: bool,
}

/// The latest commit of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCommit {
    /// Who made it.
    pub owner: WorkerId,
    /// Under which epoch.
    pub epoch: Fence,
    /// On which revision.
    pub revision: u64,
    /// What it was.
    pub digest: Arc<str>,
    /// What it came to.
    pub reply: Committed,
}

impl LastCommit {
    fn is_of(&self, commit: &Commit) -> bool {
        self.owner == commit.owner && self.epoch == commit.epoch && self.revision == commit.revision && self.digest == commit.digest
    }
}

/// `events_consumed`: how many of the facts that it consumes are events that are in the inbox.
pub(super) fn commit(mut run: Run, mut commit: Commit, events_consumed: u32, now: Timestamp) -> (Run, Effects, RunReply) {
    let nothing = |run: Run, reply: RunReply| (run, Effects::default(), reply);
    if let Some(last) = run.last_commit.as_ref().filter(|last| last.is_of(&commit)) {
        let reply = RunReply::Committed(last.reply.clone());
        return nothing(run, reply);
    }
    if run.state != RunState::Running || run.owner.as_ref() != Some(&commit.owner) || run.epoch != commit.epoch {
        let epoch = run.epoch;
        return nothing(run, RunReply::Lost { epoch });
    }
    if run.revision != commit.revision {
        let revision = run.revision;
        return nothing(run, RunReply::Stale { revision });
    }
    if is_too_much(&run, &commit) {
        return nothing(run, RunReply::HistoryFull);
    }
    let disarmed: HashSet<&StepId> = commit.disarmed.iter().collect();
    commit.armed.retain(|(step, _)| !disarmed.contains(step));
    let timers = run.wait.timers.keys().filter(|step| !disarmed.contains(step)).count() + commit.armed.len();
    if timers > TIMERS_MAX {
        return nothing(run, RunReply::WaitSetTooLarge);
    }
    if let Then::Park { wait } = &commit.then {
        let is_over = wait.groups.values().any(|group| group.open == 0);
        // The owner goes on if there are facts that it has not read. What it waits for may be among them.
        let is_parked = run.facts <= commit.seen;
        match wait.events.len() + wait.groups.len() + timers {
            // A group without an open child would never wake the run.
            0 if is_parked => return nothing(run, RunReply::NothingToWaitFor),
            _some if is_parked && is_over => return nothing(run, RunReply::NothingToWaitFor),
            many if many > WAIT_SET_MAX => return nothing(run, RunReply::WaitSetTooLarge),
            _some => {}
        }
    }
    let first_entry = run.entries;
    let (owner, epoch, revision, digest, seen) = (commit.owner.clone(), commit.epoch, commit.revision, commit.digest.clone(), commit.seen);
    let (then, mut effects) = record(&mut run, commit, events_consumed, now);
    run.revision += 1;
    let has_facts = go_on(&mut run, &mut effects, then, seen, now);
    let reply =
        Committed { revision: run.revision, first_entry, now, has_facts, cancel_requested: run.cancel_requested, paused: run.paused };
    run.last_commit = Some(LastCommit { owner, epoch, revision, digest, reply: reply.clone() });
    (run, effects, RunReply::Committed(reply))
}

/// Whether the journal would grow beyond its limit.
fn is_too_much(run: &Run, commit: &Commit) -> bool {
    let entries = run.entries + commit.entries.len() as u64;
    let bytes = run.journal_bytes + bytes_of(&commit.entries);
    let is_full = entries > ENTRIES_MAX || bytes > JOURNAL_BYTES_MAX;
    let is_over = entries > ENTRIES_MAX + RESULTS_BEYOND_MAX;
    // What ends the run always fits.
    let ends = matches!(commit.then, Then::Close(_) | Then::Continue(_) | Then::Block { .. });
    !ends && (is_over || is_full && commit.entries.iter().any(|entry| entry.kind.is_new_work()))
}

fn bytes_of(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.body.len() as u64).sum()
}

/// Writes down what the owner has come to. Returns what becomes of the run.
fn record(run: &mut Run, commit: Commit, events_consumed: u32, now: Timestamp) -> (Then, Effects) {
    run.entries += commit.entries.len() as u64;
    run.journal_bytes += bytes_of(&commit.entries);
    run.events = run.events.saturating_sub(events_consumed);
    run.cancel_fact = run.cancel_fact.filter(|number| !commit.consumed.contains(number));
    if commit.entries.iter().any(|entry| entry.kind.is_progress()) {
        run.deliveries = 0;
    }
    for step in &commit.disarmed {
        run.wait.timers.remove(step);
    }
    let due = |at: TimerAt| match at {
        TimerAt::After(delay) => now + delay.min(TIMER_MAX),
        TimerAt::At(at) => at.min(now + TIMER_MAX),
    };
    let armed: Vec<(StepId, Timestamp)> = commit.armed.into_iter().map(|(step, at)| (step, due(at))).collect();
    run.wait.timers.extend(armed.iter().cloned());
    let effects = Effects {
        entries: commit.entries,
        consumed: commit.consumed,
        armed,
        disarmed: commit.disarmed,
        children: commit.children,
        posts: commit.posts,
        published: commit.published,
        ..Effects::default()
    };
    (commit.then, effects)
}

/// Moves the run. Whether it stays with its owner although that wanted to park it.
fn go_on(run: &mut Run, effects: &mut Effects, then: Then, seen: u64, now: Timestamp) -> bool {
    match then {
        Then::Stay => {}
        Then::Park { .. } if run.facts > seen => return true,
        Then::Park { wait } => {
            run.wait.events = wait.events;
            run.wait.groups = wait.groups;
            leave(run, RunState::Waiting, now);
        }
        Then::Close(end) => close(run, effects, end.state(), now),
        Then::Continue(begin) => {
            run.generation += 1;
            run.entries = 1;
            run.journal_bytes = begin.body.len() as u64;
            effects.begins = Some(begin);
            effects.forgotten = ForgottenFacts::OfSteps;
            effects.disarms_all = true;
            effects.children_follow = true;
            run.wait = WaitSet::default();
            run.unfit_builds.clear();
            if run.cancel_requested && run.cancel_fact.is_none() {
                // The generation that ends has consumed it. The next one must hear of it, too.
                run.facts += 1;
                run.cancel_fact = Some(run.facts);
                effects.cancels_again = Some(run.facts);
            }
            queue_up(run, RunQueue::First, now);
        }
        Then::Release => queue_up(run, RunQueue::First, now),
        Then::Block { cause, build } => {
            note_build(run, build);
            leave(run, RunState::Blocked, now);
            run.cause = Some(cause);
        }
        Then::BackOff { cause, build, delay } => {
            note_build(run, build);
            leave(run, RunState::Waiting, now);
            run.cause = Some(cause);
            run.back_off_until = Some(now + delay);
        }
    }
    false
}

fn note_build(run: &mut Run, build: Option<BuildId>) {
    run.unfit_builds.extend(build.filter(|build| !run.unfit_builds.contains(build)));
}

/// The owner lets go of the run.
pub(super) fn leave(run: &mut Run, state: RunState, now: Timestamp) {
    run.state = state;
    run.owner = None;
    run.expires_at = None;
    run.changed_at = now;
}
