//! The moves of calls.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Durability, StoreError};
use crate::call::{Answer, AttemptsBefore, Call, CallRequest, CallState, LostLease, Outcome};
use crate::ids::DeliveryId;
use crate::names::{CallId, FunctionKey, IdempotencyKey, WorkerId};
use crate::payload::Payload;
use crate::time::Timestamp;

/// The moves of calls. One method is one atomic transition.
///
/// A call whose retention is over ([`Call::is_gone`]) does not exist for any of them, whether or not its bytes are still there: its id
/// and its idempotency key are free.
#[async_trait]
pub trait CallStore: Send + Sync {
    /// Takes a call. `Accepted` means that it is kept as the named durability says, whatever dies next.
    async fn submit(&self, call: SubmitCall) -> Result<Submitted, StoreError>;

    /// Delivers waiting calls to a worker, oldest first, each under a new delivery number. Waits up to `wait` for the first one.
    /// Dropping the future gives back what was claimed for it. A claim that waits ends empty when a lease of its worker runs out: whoever
    /// let that happen may be gone, and shall not be given more until it asks again. Of a function with an [`Offer::concurrency`](crate::worker::Offer) by
    /// this worker, or with a [`max_concurrent`](crate::worker::FunctionLimits), no more are delivered than may run at once.
    async fn claim(&self, want: ClaimCalls) -> Result<Vec<Delivery>, StoreError>;

    /// Prolongs leases, counted from the store's now. One reply per delivery, in order.
    async fn renew(&self, leases: RenewCalls) -> Result<Vec<Renewal>, StoreError>;

    /// Takes answers. One reply per answer, in order: each is its own transition, and a lost one does not spoil the others.
    async fn complete(&self, answers: CompleteCalls) -> Result<Vec<Completed>, StoreError>;

    /// Takes unharmed deliveries back, so that another worker gets them at once. Returns how many were still this worker's.
    async fn release(&self, worker: &WorkerId, deliveries: Vec<DeliveryId>) -> Result<u64, StoreError>;

    /// Says that a delivery waits for a nested call (or no longer does), so that it does not count as running.
    async fn park(&self, worker: &WorkerId, delivery: &DeliveryId, parked: bool) -> Result<Renewal, StoreError>;

    /// Keeps a handler's progress report and tells the call's watchers.
    async fn report_progress(&self, worker: &WorkerId, delivery: &DeliveryId, progress: Payload) -> Result<Renewal, StoreError>;

    /// Cancels a waiting call, or asks the worker of a running one to stop.
    async fn cancel(&self, call_id: &CallId) -> Result<Cancelled, StoreError>;

    /// Submits a dead letter's request again as a new call and settles the dead letter, in one move. The new call has the old one's
    /// time to live, counted from now, and a fresh count of attempts; an idempotency key leads to the new call from then on.
    async fn replay_dead(&self, call_id: &CallId, replay_id: CallId) -> Result<Replayed, StoreError>;

    /// Settles a dead letter without running it again. `false`: there is no such dead letter.
    async fn drop_dead(&self, call_id: &CallId) -> Result<bool, StoreError>;

    /// Watches a call from this moment on, whether it exists yet or not.
    fn watch(&self, call_id: &CallId) -> Box<dyn CallWatch>;

    /// Ends when a delivery of this worker deserves a renewal at once, because somebody wants it cancelled. Losing this wake-up only
    /// means that the worker learns of it at its regular renewal.
    async fn attention(&self, worker: &WorkerId);
}

/// A watcher's ear.
#[async_trait]
pub trait CallWatch: Send {
    /// The next thing to be heard. Hearing nothing proves nothing: whoever has waited long enough reads the call.
    async fn next(&mut self) -> CallNews;
}

/// What a watcher hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallNews {
    /// The call has ended like this, and that is kept.
    Ended(Arc<Outcome>),
    /// The handler reported progress, or failed and will be tried again: look at the call.
    Changed,
    /// The store is not what it was: look at the call, it may be gone.
    Doubtful,
}

impl CallNews {
    /// What whoever watches a call hears when it is over.
    pub fn of_end(call: &Call) -> Self {
        match &call.outcome {
            Some(outcome) => Self::Ended(Arc::new(outcome.clone())),
            None => Self::Changed,
        }
    }
}

/// A call to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitCall {
    /// The caller made it before sending, so that a resend is the same call.
    pub call_id: CallId,
    /// What is asked.
    pub request: CallRequest,
    /// It ends at the latest so long after the store took it.
    pub timeout: Duration,
    /// Its outcome is kept so long after it ended.
    pub retain: Duration,
    /// Refuse instead of waiting when no healthy worker serves the function.
    pub fail_without_workers: bool,
    /// The id was made for this very submit and was never sent before, so no store needs to look whether it was used. A store may
    /// ignore this. Every repetition of the submit sends `false`.
    pub fresh: bool,
    /// Attempts in the store that it was moved from; none for a call that begins here.
    pub before: AttemptsBefore,
    /// Work that was accepted before needs this call: its handler makes it, or a batch is delivered by it. A store that takes no new work
    /// because it keeps less than the operator asked for takes it all the same.
    pub continues: bool,
}

/// What became of a submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// Kept.
    Accepted {
        /// When it ends at the latest.
        deadline: Timestamp,
        /// What this acknowledgement is worth.
        durability: Durability,
    },
    /// The same id or idempotency key was taken before and asks for the same. Nothing new was done.
    Existing {
        /// The call that was taken then.
        call_id: CallId,
        /// Where it stands.
        state: CallState,
        /// When it ends at the latest.
        deadline: Timestamp,
        /// What this acknowledgement is worth.
        durability: Durability,
    },
    /// The same id or idempotency key was taken before and asks for something else. Nothing was done.
    Conflict {
        /// The call that was taken then.
        call_id: CallId,
    },
    /// No such function is known. Nothing was done.
    UnknownFunction,
    /// No healthy worker serves it, and the caller did not want to wait for one. Nothing was done.
    NoWorkers,
    /// Its backlog is full. Nothing was done.
    Overloaded {
        /// Calls that wait.
        backlog: u64,
        /// Calls that may wait.
        limit: u64,
    },
}

/// A worker's wish for work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimCalls {
    /// Who wants it.
    pub worker: WorkerId,
    /// Which functions, and how many calls of each. A worker of many functions shares one list among its claims.
    pub functions: Arc<[ClaimFunction]>,
    /// At most this many in all.
    pub max: u32,
    /// How long the worker may be silent.
    pub lease: Duration,
    /// How long to wait for the first call.
    pub wait: Duration,
    /// The worker takes calls of every function that it has registered, up to `max` of any of them. So a store on a server may hand it a
    /// call at the moment of its submit, without asking what `functions` says.
    pub takes_any: bool,
}

/// A function that a worker wants calls of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimFunction {
    /// Which.
    pub function: FunctionKey,
    /// At most this many.
    pub max: u32,
}

/// A call in a worker's hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Which call, and which delivery of it.
    pub id: DeliveryId,
    /// What is asked.
    pub request: CallRequest,
    /// 1 until a handler has failed.
    pub attempt: u32,
    /// When the call was submitted.
    pub submitted_at: Timestamp,
    /// When it ends at the latest, by the store's clock.
    pub deadline: Timestamp,
    /// How long that is from now, so that nobody compares two machines' clocks.
    pub remaining: Duration,
    /// The end of the lease, by the store's clock.
    pub lease_until: Timestamp,
}

/// Leases to prolong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewCalls {
    /// Who holds them.
    pub worker: WorkerId,
    /// Which.
    pub deliveries: Vec<DeliveryId>,
    /// Their new length.
    pub lease: Duration,
}

/// What became of a lease.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It holds.
    Held {
        /// Its end.
        until: Timestamp,
        /// Somebody wants the call cancelled: stop and answer so.
        cancel_requested: bool,
    },
    /// It is no longer ours: stop, and write nothing.
    Lost(LostLease),
}

/// Answers to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompleteCalls {
    /// Who answers.
    pub worker: WorkerId,
    /// Which deliveries, and what.
    pub answers: Vec<(DeliveryId, Answer)>,
}

/// What became of an answer.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completed {
    /// It counts.
    Recorded {
        /// Set when the call is over with it; not when it will be tried again.
        ended: Option<Ended>,
    },
    /// The same delivery has answered before; that answer counts.
    AlreadyRecorded,
    /// The delivery was no longer this worker's; the answer was refused.
    Lost(LostLease),
}

/// A call that just ended, for those who count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which call.
    pub call_id: CallId,
    /// Of which function.
    pub function: FunctionKey,
    /// In which state it ended.
    pub state: CallState,
    /// From submit to end.
    pub took: Duration,
}

/// What became of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not run.
    Done,
    /// It runs; its worker will be asked to stop.
    Requested,
    /// It had ended before.
    AlreadyEnded(CallState),
    /// There is no such call.
    NotFound,
}

/// What became of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// Submitted again under the new id.
    Submitted,
    /// There is no such dead letter, or the new id is taken. (Its function is known: one with a dead letter cannot be forgotten.)
    NotDead,
}

impl CompleteCalls {
    /// A single answer.
    pub fn one(worker: WorkerId, delivery: DeliveryId, answer: Answer) -> Self {
        Self { worker, answers: vec![(delivery, answer)] }
    }
}

impl SubmitCall {
    /// The key that makes it the same call as another, if the caller gave one.
    pub fn idempotency_key(&self) -> Option<&IdempotencyKey> {
        self.request.idempotency_key.as_ref()
    }
}
