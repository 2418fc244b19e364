//! The moves of workflow runs. One method is one atomic transition, decided by [`run::step`](crate::run::step).
//!
//! A run whose retention is over ([`Run::is_gone`]) does not exist for any of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Durability, StoreError};
use crate::lock::Fence;
use crate::names::{BuildId, EventName, Reference, Shard, WorkerId, WorkflowName, WorkflowVersion};
use crate::payload::Payload;
use crate::run::{BlockCause, ChildStart, Commit, Committed, Entry, Fact, Parent, Run, RunId, RunPlace, RunState};
use crate::time::Timestamp;

/// One page of facts has this many at most.
pub const FACTS_MAX: usize = 1_000;
/// One page of facts ends with the one that reaches this many bytes.
pub const FACTS_BYTES_MAX: usize = 256 * 1024;
/// An event with a reference is recognised for this long.
pub const EVENT_KNOWN_FOR: Duration = Duration::from_secs(86_400);
/// A post that its run does not take is given up after this.
pub const POST_KEPT_FOR: Duration = Duration::from_secs(86_400);
/// A post that its run does not take is sent again after this, then after twice as long, and so on.
pub const POST_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A post waits no longer than this for its next try.
pub const POST_AGAIN_MAX: Duration = Duration::from_secs(60);

/// The moves of runs.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Creates a run, or finds the one that has its reference. With an event, an open run that has the reference receives it in the same
    /// move (start or send).
    async fn start_run(&self, start: StartRun) -> Result<Started, StoreError>;

    /// Gives ready runs to a worker: those that were begun before new ones, but for every eighth claim, and place by place in the order in which
    /// the worker names them. Waits up to `wait` for the first one.
    async fn claim_runs(&self, want: ClaimRuns) -> Result<Vec<ClaimedRun>, StoreError>;

    /// Gives a worker the runs of owners that have been silent for too long: those whose claims ended first, whatever their places.
    async fn take_over_runs(&self, want: TakeOverRuns) -> Result<TakenOver, StoreError>;

    /// Prolongs claims. One reply per claim, in order.
    async fn renew_runs(&self, owner: &WorkerId, claims: Vec<(RunId, Fence)>) -> Result<Vec<RunRenewal>, StoreError>;

    /// Takes what an owner has come to, as a whole or not at all.
    async fn commit_run(&self, run_id: &RunId, commit: Commit) -> Result<RunCommitted, StoreError>;

    /// Puts an event into a run's inbox. A parked run that waits for it is ready again.
    async fn send_event(&self, run_id: &RunId, event: NewEvent) -> Result<EventSent, StoreError>;

    /// Does what a caller asks of a run from outside.
    async fn request_run(&self, run_id: &RunId, request: RunRequest) -> Result<RunRequested, StoreError>;

    /// A worker of this build serves these places: runs that did not fit another build are ready again. Returns how many.
    async fn register_build(&self, build: &BuildId, places: &[RunPlace]) -> Result<u64, StoreError>;

    /// Sends stored posts to their runs, at most `limit`. Returns how many have arrived, or never can. Posts to one run keep their order: if
    /// one is refused for now (a full inbox), all posts to that run wait, and no other does. After [`POST_KEPT_FOR`] it is given up.
    async fn send_posts(&self, limit: u32) -> Result<u64, StoreError>;

    /// Fires timers of runs that are due, at most `limit`. Returns how many were fired, and when the next timer or post is due.
    /// [`due_before`](super::TimerStore::due_before) of the same store ends for these, too.
    async fn fire_runs(&self, limit: u32) -> Result<FiredRuns, StoreError>;

    /// A run, with its reference and how it ended.
    async fn run(&self, run_id: &RunId) -> Result<Option<RunView>, StoreError>;

    /// Entries of the journal of the run's present generation, from this number on: at most `bytes_max` bytes, and at least one entry if there is
    /// one.
    async fn journal(&self, run_id: &RunId, from: u64, bytes_max: usize) -> Result<Vec<JournalEntry>, StoreError>;

    /// Facts of the run's inbox after this number: one page, [`FACTS_MAX`] and about [`FACTS_BYTES_MAX`] at most.
    async fn facts(&self, run_id: &RunId, after: u64) -> Result<Vec<Fact>, StoreError>;

    /// The values that the run has published, by key.
    async fn published(&self, run_id: &RunId) -> Result<Vec<(Arc<str>, Payload)>, StoreError>;

    /// Returns when the run has closed or is gone, or after this time.
    async fn run_closed(&self, run_id: &RunId, wait: Duration) -> Result<(), StoreError>;

    /// Runs that this owner executes and for which something has come (a fact, a pause, an end) since this was asked last. Waits up to `wait`
    /// for the first. A notification may be lost, and may come once too often: renewals say the same.
    async fn runs_notified(&self, owner: &WorkerId, wait: Duration) -> Result<Vec<RunId>, StoreError>;

    /// The latest run that this reference was given to, if it can be read.
    async fn run_referenced(&self, workflow: &WorkflowName, reference: &Reference) -> Result<Option<RunId>, StoreError>;

    /// Runs, those created last first. The list may be a moment old, and carries no payloads: `outcome` is `None`.
    async fn runs(&self, filter: &RunFilter, page: RunPageRequest) -> Result<RunPage, StoreError>;

    /// How many runs each place has in each state, and since when the oldest ready one waits: by workflow, version and shard. For people: it
    /// may be a moment old, and a closed run whose retention is over counts until the store has removed it.
    async fn run_places(&self) -> Result<Vec<RunPlaceView>, StoreError>;
}

/// Which runs are meant. Empty means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs of this workflow.
    pub workflow: Option<WorkflowName>,
    /// Only runs of this version.
    pub version: Option<WorkflowVersion>,
    /// Only runs of this shard.
    pub shard: Option<Shard>,
    /// Only runs in one of these states.
    pub states: Vec<RunState>,
    /// Only runs that are blocked or back off for this cause.
    pub cause: Option<BlockCause>,
    /// Only children of this run.
    pub parent: Option<RunId>,
    /// Only runs with this reference.
    pub reference: Option<Reference>,
    /// Only runs created at this instant or later.
    pub since: Option<Timestamp>,
    /// Only runs created before this instant.
    pub until: Option<Timestamp>,
}

impl RunFilter {
    /// Whether a run belongs to the list.
    pub fn takes(&self, view: &RunView) -> bool {
        let run = &view.run;
        self.workflow.as_ref().is_none_or(|workflow| *workflow == run.place.workflow)
            && self.version.as_ref().is_none_or(|version| *version == run.place.version)
            && self.shard.as_ref().is_none_or(|shard| run.place.shard.as_ref() == Some(shard))
            && (self.states.is_empty() || self.states.contains(&run.state))
            && self.cause.is_none_or(|cause| run.cause == Some(cause))
            && self.parent.as_ref().is_none_or(|parent| run.parent.as_ref().is_some_and(|of| of.run_id == *parent))
            && self.reference.as_ref().is_none_or(|reference| view.reference.as_ref() == Some(reference))
            && self.since.is_none_or(|since| run.created_at >= since)
            && self.until.is_none_or(|until| run.created_at < until)
    }
}

/// Which page of a list of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunPageRequest {
    /// The creation and the id of the last run of the page before; `None` for the first page.
    pub after: Option<(Timestamp, RunId)>,
    /// At most this many, and at most [`RUNS_PAGE_MAX`].
    pub limit: u32,
}

/// The largest page of runs that a store serves.
pub const RUNS_PAGE_MAX: u32 = 200;

/// A page of runs: those created last first, and of those created at one instant the highest id first. It may have fewer runs than were asked
/// for, even none, and a next page all the same: a store looks at a bounded number of runs for one page. A run that cannot be read is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<RunView>,
    /// Ask for the next page with this; `None` when this was the last.
    pub next: Option<(Timestamp, RunId)>,
}

/// A place as people look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlaceView {
    /// Which place.
    pub place: RunPlace,
    /// How many runs it has in each state that has any, in the order of [`RunState::ALL`].
    pub counts: Vec<(RunState, u64)>,
    /// Since when the runs at the heads of its two queues wait: the earlier of the two.
    pub oldest_ready: Option<Timestamp>,
}

/// A run to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRun {
    /// The caller made it before sending, so that a resend is the same run.
    pub run_id: RunId,
    /// Its workflow, version and shard.
    pub place: RunPlace,
    /// The first entry of its journal, with the input.
    pub begin: Entry,
    /// What tells its input from another one.
    pub input_hash: Arc<str>,
    /// A name by which it is known, unique for its workflow over versions and shards.
    pub reference: Option<Reference>,
    /// What becomes of a start whose reference is taken by a run with another input.
    pub on_conflict: OnConflict,
    /// Whether a reference can be used again.
    pub reuse: Reuse,
    /// The run starts this long after the store took it.
    pub delay: Duration,
    /// The run is cancelled this long after the store took it, if it is still open.
    pub timeout: Option<Duration>,
    /// How long it can be read after it has closed.
    pub retain: Duration,
    /// An event that the run receives, new or not.
    pub event: Option<NewEvent>,
}

/// What becomes of a start whose reference is taken by a run with another input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// It is refused.
    #[default]
    Refuse,
    /// It is that run.
    ReturnExisting,
}

/// Whether a reference can be used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// Not while the run can be read.
    #[default]
    Never,
    /// As soon as the run has closed.
    AfterClosed,
}

/// What became of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// The run is kept.
    Created {
        /// What this acknowledgement is worth.
        durability: Durability,
    },
    /// The same id or reference was started before, with the same input. Nothing new was started.
    Existing {
        /// Which run.
        run_id: RunId,
        /// Where it stands.
        state: RunState,
        /// What became of the event, if there was one.
        event: Option<EventSent>,
    },
    /// The reference is taken by a run with another input. Nothing was done.
    Conflict {
        /// Which run.
        run_id: RunId,
    },
}

/// An event to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// What it is called.
    pub name: EventName,
    /// Its data.
    pub data: Payload,
    /// The same name and reference are the same event, for [`EVENT_KNOWN_FOR`].
    pub reference: Option<Reference>,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSent {
    /// It is in the inbox.
    Accepted {
        /// Its number there.
        number: u64,
    },
    /// It came before. Nothing new was done.
    Duplicate {
        /// Its number there.
        number: u64,
    },
    /// The inbox is full. Nothing was done.
    MailboxFull,
    /// The run has closed. Nothing was done.
    Closed(RunState),
    /// There is no such run.
    NotFound,
}

/// A worker's request for runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRuns {
    /// Which worker.
    pub worker: WorkerId,
    /// Of which places.
    pub places: Arc<[RunPlace]>,
    /// At most this many.
    pub max: u32,
    /// How long the worker may be silent.
    pub idle: Duration,
    /// How long to wait for the first run.
    pub wait: Duration,
}

/// A run in a worker's hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedRun {
    /// Its header, with the epoch of the claim.
    pub run: Run,
    /// The first facts of its inbox, [`FACTS_MAX`] at most.
    pub facts: Vec<Fact>,
}

/// A worker's request for runs of silent owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeOverRuns {
    /// Which worker.
    pub worker: WorkerId,
    /// Of which places.
    pub places: Arc<[RunPlace]>,
    /// At most this many.
    pub max: u32,
    /// How long the worker waits for a silent owner, and may be silent itself.
    pub idle: Duration,
    /// How many owners in a row may fall silent before the run is blocked.
    pub max_deliveries: u32,
    /// Runs that the worker executes at this moment, whatever their claims say.
    pub executing: Vec<RunId>,
}

/// What a look for silent owners brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenOver {
    /// Runs that the worker has now.
    pub claimed: Vec<ClaimedRun>,
    /// Runs that are blocked because owner after owner fell silent.
    pub poisoned: Vec<RunId>,
    /// When the next claim ends that has not ended yet, unless its owner renews it.
    pub next_due: Option<Timestamp>,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunRenewal {
    /// It holds.
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
    /// The run is not this worker's any more.
    Lost,
}

/// What became of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunCommitted {
    /// It counts, now or already before.
    Committed {
        /// What it has come to.
        committed: Committed,
        /// If the run was not parked because of facts that its owner has not read: these, [`FACTS_MAX`] at most.
        facts: Vec<Fact>,
    },
    /// The run is not this worker's any more. Nothing was written.
    Lost,
    /// The store has another revision than the owner. Nothing was written; the owner reads the journal again.
    Stale {
        /// The revision that the store has.
        revision: u64,
    },
    /// The journal takes no new work. Nothing was written; the owner blocks the run.
    HistoryFull,
    /// The run would wait for too many things. Nothing was written.
    WaitSetTooLarge,
    /// The run would be parked, and nothing could wake it. Nothing was written.
    NothingToWaitFor,
}

/// What a caller asks of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunRequest {
    /// Have its code end it.
    Cancel {
        /// Why, for people.
        reason: Arc<str>,
    },
    /// End it at once, without running its code.
    Terminate {
        /// Why, for people.
        reason: Arc<str>,
    },
    /// Start nothing more for it.
    Pause,
    /// Go on with it.
    Resume,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunRequested {
    /// Done; this is where the run stands.
    Done(RunState),
    /// The run had closed before. Nothing was done.
    Closed(RunState),
    /// There is no such run.
    NotFound,
}

/// What was fired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FiredRuns {
    /// How many timers.
    pub fired: u64,
    /// When the next one is due. It lies in the past when the limit left timers that are due.
    pub next_due: Option<Timestamp>,
}

/// A run as people and programs look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunView {
    /// Its header.
    pub run: Run,
    /// The name by which it is known.
    pub reference: Option<Reference>,
    /// How it ended: the body of the last entry of its journal.
    pub outcome: Option<Payload>,
}

/// An entry of a journal as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its number, from 0.
    pub number: u64,
    /// When it was written. It never decreases within a journal.
    pub at: Timestamp,
    /// What it says.
    pub entry: Entry,
}

/// The body of the last entry of a run that ended without its code.
///
/// ```
/// let body = towpath_core::store::end_without_code("terminated", "a person said so");
/// assert_eq!(body.as_str(), r#"{"out":"terminated","reason":"a person said so"}"#);
/// ```
pub fn end_without_code(out: &'static str, reason: &str) -> Payload {
    Payload::from_json(serde_json::json!({ "out": out, "reason": reason }).to_string())
}

impl StartRun {
    /// The start of a child, and the run that waits for it.
    pub fn of_child(child: ChildStart) -> (Self, Parent) {
        let start = Self {
            run_id: child.run_id,
            place: child.place,
            begin: child.begin,
            input_hash: Arc::from(""),
            reference: None,
            on_conflict: OnConflict::Refuse,
            reuse: Reuse::Never,
            delay: Duration::ZERO,
            timeout: None,
            retain: child.retain,
            event: None,
        };
        (start, child.parent)
    }
}

/// How long a post waits that was refused this many times.
pub fn post_again_after(tries: u32) -> Duration {
    POST_AGAIN_AFTER.saturating_mul(1 << tries.min(6)).min(POST_AGAIN_MAX)
}

/// The event that a start brings. Without a reference it gets one, so that a resend of the start is the same event.
pub fn event_of_start(start: &StartRun) -> Option<NewEvent> {
    let mut event = start.event.clone()?;
    event.reference = event.reference.or_else(|| Reference::new(format!("start {}", start.run_id)).ok());
    Some(event)
}
