//! A workflow run: its header ([`Run`]), what each command decides ([`step()`]), and the identity of its steps ([`StepParts`]).
//!
//! The header holds all that a decision needs and no payload. The journal, the inbox, timers, children and posts are rows that a store
//! writes together with the header, as [`Effects`] says (decision 049).

mod canonical;
mod commit;
mod effects;
mod identity;
mod place;
mod state;
mod step;
mod wait;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use canonical::{Unencodable, canonical};
pub use commit::{Commit, Committed, ENTRIES_MAX, JOURNAL_BYTES_MAX, LastCommit, RESULTS_BEYOND_MAX, RunEnd, TIMERS_MAX, Then, TimerAt};
pub use effects::{Child, ChildStart, ClosePolicy, Effects, Entry, EntryKind, Fact, FactKind, ForgottenFacts, Post};
pub use identity::{InvalidStepId, Occurrences, StepId, StepKey, StepKind, StepParts, idempotency_key};
pub use place::{InvalidRunId, RunId, RunPlace, place};
pub use state::{BlockCause, RunState};
pub use step::{ChildEnd, EVENTS_MAX, RunCommand, RunReply, RunTimer, TERMINATED_AFTER, step};
pub use wait::{Group, WAIT_SET_MAX, WaitSet};

use crate::lock::Fence;
use crate::names::{BuildId, WorkerId};
use crate::time::Timestamp;

/// The header of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Which run.
    pub run_id: RunId,
    /// Its workflow, version and shard. They never change.
    pub place: RunPlace,
    /// Where it stands.
    pub state: RunState,
    /// Why it is blocked, or backs off.
    pub cause: Option<BlockCause>,
    /// How often it was continued as new, from 0. Each generation has a journal of its own.
    pub generation: u64,
    /// The worker that executes it.
    pub owner: Option<WorkerId>,
    /// Rises with every claim. 0: it was never claimed.
    pub epoch: Fence,
    /// Rises with every commit of its owner.
    pub revision: u64,
    /// How many entries the journal of this generation has. The next one gets this number.
    pub entries: u64,
    /// How many bytes they have.
    pub journal_bytes: u64,
    /// The number of the latest fact in its inbox; 0: there was none.
    pub facts: u64,
    /// How many events in its inbox are not consumed.
    pub events: u32,
    /// What it waits for while it is parked.
    pub wait: WaitSet,
    /// Which of the two queues it is in when it is ready.
    pub queue: RunQueue,
    /// No worker starts anything for it.
    pub paused: bool,
    /// A caller wants it cancelled.
    pub cancel_requested: bool,
    /// The number of the fact that says so, while that is in the inbox.
    pub cancel_fact: Option<u64>,
    /// How many owners in a row fell silent without a result of a task.
    pub deliveries: u32,
    /// How long its owner may be silent.
    #[serde(with = "as_millis")]
    pub idle: Duration,
    /// Until when its owner may be silent.
    pub expires_at: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its state last changed.
    pub changed_at: Timestamp,
    /// When it closed.
    pub closed_at: Option<Timestamp>,
    /// When a delayed run starts.
    pub start_at: Option<Timestamp>,
    /// When it is cancelled, if it is still open.
    pub deadline: Option<Timestamp>,
    /// When a run that backs off is ready again.
    pub back_off_until: Option<Timestamp>,
    /// How long it can be read after it has closed.
    #[serde(with = "as_millis")]
    pub retain: Duration,
    /// The run that waits for it, if it is a child.
    pub parent: Option<Parent>,
    /// The builds that it did not fit.
    pub unfit_builds: Vec<BuildId>,
    /// The latest commit, by which a repeated one is recognised.
    pub last_commit: Option<LastCommit>,
}

/// The run that started a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Which run.
    pub run_id: RunId,
    /// By which step.
    pub step: StepId,
}

/// The two queues of a place. Workers look into [`RunQueue::First`] first, and into the other one every eighth time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunQueue {
    /// New starts.
    New,
    /// Runs that were begun: woken, released, taken over, continued.
    First,
}

/// Where a run stands in the store. Exactly one of these holds, and it follows from the header alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its start timer is armed for this instant.
    Start(Timestamp),
    /// It is in this queue.
    Queued(RunQueue),
    /// It is ready, and kept out of the queues until it is resumed.
    Paused,
    /// A worker has it until this instant, or longer if that renews its claim.
    Claimed(Timestamp),
    /// It waits for what its wait set names.
    Parked,
    /// It is ready again at this instant.
    BacksOff(Timestamp),
    /// It needs a person or another build.
    Blocked,
    /// It has closed.
    Closed,
}

/// What a new run begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// Which run.
    pub run_id: RunId,
    /// Its workflow, version and shard.
    pub place: RunPlace,
    /// When it starts, if not at once.
    pub start_at: Option<Timestamp>,
    /// When it is cancelled, if it is still open.
    pub deadline: Option<Timestamp>,
    /// How long it can be read after it has closed.
    pub retain: Duration,
    /// The run that waits for it.
    pub parent: Option<Parent>,
    /// How many bytes its first entry has, with the input.
    pub begin_bytes: u64,
}

impl Run {
    /// A run as it is when it is created. Its first entry, with the input, is in the journal.
    pub fn created(new: NewRun, now: Timestamp) -> Self {
        let start_at = new.start_at.filter(|at| *at > now);
        Self {
            run_id: new.run_id,
            place: new.place,
            state: if start_at.is_some() { RunState::Delayed } else { RunState::Ready },
            cause: None,
            generation: 0,
            owner: None,
            epoch: Fence::default(),
            revision: 0,
            entries: 1,
            journal_bytes: new.begin_bytes,
            facts: 0,
            events: 0,
            wait: WaitSet::default(),
            queue: RunQueue::New,
            paused: false,
            cancel_requested: false,
            cancel_fact: None,
            deliveries: 0,
            idle: Duration::ZERO,
            expires_at: None,
            created_at: now,
            changed_at: now,
            closed_at: None,
            start_at,
            deadline: new.deadline,
            back_off_until: None,
            retain: new.retain,
            parent: new.parent,
            unfit_builds: Vec::new(),
            last_commit: None,
        }
    }

    /// Where it stands in the store.
    pub fn standing(&self) -> Standing {
        match self.state {
            RunState::Delayed => Standing::Start(self.start_at.unwrap_or(self.created_at)),
            RunState::Ready if self.paused => Standing::Paused,
            RunState::Ready => Standing::Queued(self.queue),
            RunState::Running => Standing::Claimed(self.expires_at.unwrap_or(self.changed_at)),
            RunState::Waiting => self.back_off_until.map_or(Standing::Parked, Standing::BacksOff),
            RunState::Blocked => Standing::Blocked,
            _closed => Standing::Closed,
        }
    }

    /// The instant from which on this run is gone: its end plus its retention. `None` while it is open.
    pub fn kept_until(&self) -> Option<Timestamp> {
        self.closed_at.map(|at| at + self.retain)
    }

    /// Whether its retention is over. A store then treats it as if it did not exist, whether or not it has removed the bytes.
    pub fn is_gone(&self, now: Timestamp) -> bool {
        self.kept_until().is_some_and(|until| now >= until)
    }
}

/// A length as whole milliseconds.
mod as_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::time::{from_millis, millis};

    pub(super) fn serialize<S: Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(millis(*length))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Duration, D::Error> {
        i64::deserialize(deserializer).map(from_millis)
    }
}

#[cfg(test)]
mod tests;
