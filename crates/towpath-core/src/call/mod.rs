//! A call: what is known of it, how it may move ([`state`]), what each command decides ([`step()`]), and how it is retried ([`retry`]).

pub mod outcome;
pub mod retry;
pub mod state;
mod step;

use std::time::Duration;

pub use outcome::{Answer, DeadReason, Failure, Outcome, Retry};
pub use retry::{Backoff, RetryPolicy};
pub use state::{CallEvent, CallState, Illegal};
pub use step::{CallCommand, CallReply, Claim, Held, LostLease, step};

use crate::names::{CallId, FunctionKey, IdempotencyKey, WorkerId};
use crate::payload::Payload;
use crate::time::Timestamp;

/// The life of a call: everything that moves. What it was asked to do stands apart, in [`CallRequest`], because it never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which call.
    pub call_id: CallId,
    /// Where it stands.
    pub state: CallState,
    /// When the store took it.
    pub submitted_at: Timestamp,
    /// When it ends at the latest, run or not.
    pub deadline: Timestamp,
    /// How long its outcome is kept after it ended.
    pub retain: Duration,
    /// Attempts that a handler ended with an error.
    pub failures: u32,
    /// Deliveries whose lease ran out: the worker died, hung, or was cut off.
    pub crashes: u32,
    /// The number of the latest delivery. It only rises, so an old delivery can never answer for a new one.
    pub delivery: u64,
    /// Who has, or last had, the latest delivery. Kept after the end, so that a repeated answer is known as such.
    pub holder: Option<WorkerId>,
    /// When the latest delivery started.
    pub started_at: Option<Timestamp>,
    /// How long the holder may be silent, as it last asked for.
    pub lease: Duration,
    /// Until when the holder may be silent.
    pub lease_until: Option<Timestamp>,
    /// The holder waits for a nested call and has given its permit back.
    pub parked: bool,
    /// Somebody asked to cancel it while it ran; the holder learns of it at its next renewal.
    pub cancel_requested: bool,
    /// A delayed call is not delivered before this.
    pub not_before: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The latest error of a handler, kept while the call is retried.
    pub last_failure: Option<Failure>,
    /// How it ended. Written once.
    pub outcome: Option<Outcome>,
    /// The call that a replay of this dead letter became.
    pub replayed_as: Option<CallId>,
}

impl Call {
    /// A call as it is when the store takes it.
    pub fn submitted(call_id: CallId, now: Timestamp, timeout: Duration, retain: Duration) -> Self {
        Self {
            call_id,
            state: CallState::Queued,
            submitted_at: now,
            deadline: now + timeout,
            retain,
            failures: 0,
            crashes: 0,
            delivery: 0,
            holder: None,
            started_at: None,
            lease: Duration::ZERO,
            lease_until: None,
            parked: false,
            cancel_requested: false,
            not_before: None,
            ended_at: None,
            last_failure: None,
            outcome: None,
            replayed_as: None,
        }
    }

    /// The same call with attempts that it had elsewhere.
    #[must_use]
    pub fn with_attempts(self, before: AttemptsBefore) -> Self {
        Self { failures: before.failures, crashes: before.crashes, ..self }
    }

    /// The next instant at which a timer moves this call: its deadline, the end of its lease or of its delay. `None` once it has ended:
    /// the end of a retention is not a timer (see [`Call::is_gone`]).
    pub fn due(&self) -> Option<Timestamp> {
        match self.state {
            CallState::Queued => Some(self.deadline),
            CallState::Delayed => Some(self.not_before.map_or(self.deadline, |at| at.min(self.deadline))),
            CallState::Running => Some(self.lease_until.map_or(self.deadline, |at| at.min(self.deadline))),
            _ended => None,
        }
    }

    /// The instant from which on this call is gone: its end plus its retention. `None` while it is open, and for a dead letter.
    pub fn kept_until(&self) -> Option<Timestamp> {
        if self.state == CallState::Dead { None } else { self.ended_at.map(|at| at + self.retain) }
    }

    /// Whether the retention of this call is over. A store then treats the call as if it did not exist, whether or not it has removed
    /// the bytes: no read shows it, no command reaches it, and its id and its idempotency key are free.
    pub fn is_gone(&self, now: Timestamp) -> bool {
        self.kept_until().is_some_and(|until| now >= until)
    }

    /// The call as it is after a time in which nobody could renew anything, because the store was closed: its lease counts from now.
    /// A worker that lives goes on with it, and the same work is not done twice.
    pub fn after_absence(mut self, now: Timestamp) -> Self {
        // Exactly so, and not "at least": should the clock have been set back meanwhile, no lease lasts longer than its length.
        self.lease_until = self.lease_until.map(|_| now + self.lease);
        self
    }

    /// Whether a worker has had this call, here or in the store that it comes from: a handler may have done something.
    pub fn may_have_run(&self) -> bool {
        self.started_at.is_some() || self.failures > 0 || self.crashes > 0
    }

    /// Which attempt the latest delivery is: 1 until a handler has failed.
    pub fn attempt(&self) -> u32 {
        self.failures.saturating_add(1)
    }
}

/// Attempts that a call has behind it when a store takes it: those it had in the store that it comes from. They count as if they had been made here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptsBefore {
    /// Attempts that a handler ended with an error.
    pub failures: u32,
    /// Deliveries whose lease ran out.
    pub crashes: u32,
}

/// What a call was asked to do. Written once at submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRequest {
    /// Which function.
    pub function: FunctionKey,
    /// Its parameters, a JSON object or any other JSON value.
    pub params: Payload,
    /// The item that the caller was working on, carried along for the handler (the seeds' `inputItem`).
    pub input_item: Option<Payload>,
    /// Makes repeated submits, even by other callers, the same call.
    pub idempotency_key: Option<IdempotencyKey>,
    /// How many calls are above this one; 0 for a call from outside.
    pub depth: u32,
    /// The call whose handler made this one.
    pub parent: Option<CallId>,
    /// W3C trace context, carried as it came.
    pub traceparent: Option<String>,
}

impl CallRequest {
    /// A request with nothing in it.
    pub fn of(function: FunctionKey) -> Self {
        let params = Payload::null();
        Self { function, params, input_item: None, idempotency_key: None, depth: 0, parent: None, traceparent: None }
    }

    /// Whether a resend of the same id or key asks for the same thing. Depth, parent and trace may differ between two tries.
    pub fn asks_the_same_as(&self, other: &Self) -> bool {
        self.function == other.function && self.params == other.params && self.input_item == other.input_item
    }

    /// Bytes of the caller's own data.
    pub fn payload_bytes(&self) -> usize {
        self.params.len() + self.input_item.as_ref().map_or(0, Payload::len)
    }
}
