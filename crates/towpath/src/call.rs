//! Calling: what a call is made of, how it is submitted, and how its outcome comes back.

mod again;
mod builder;
mod closest;
mod patience;
mod submit;
mod wait;

use std::fmt;
use std::time::Duration;

use towpath_core::call::{AttemptsBefore, CallState};
use towpath_core::names::{CallId, FunctionKey, IdempotencyKey};
use towpath_core::payload::Payload;
use towpath_core::store::{CallWatch, Durability};
use towpath_core::time::Timestamp;

pub use again::TimeoutRetries;
pub use builder::{CallBuilder, CallHandle};
pub(crate) use patience::Patience;
pub(crate) use submit::TIMEOUT_WAITED;
pub use wait::Wait;

use crate::Towpath;

/// How many calls may be above a call.
pub(crate) const DEPTH_MAX: u32 = 1_000;

/// A call to make, as JSON text. [`Towpath::call`] makes typed ones.
#[derive(Clone, Debug)]
pub struct NewCall {
    /// Which function.
    pub function: FunctionKey,
    /// Its parameters.
    pub params: Payload,
    /// The item that the caller was working on, carried along for the handler.
    pub input_item: Option<Payload>,
    /// An id made by the caller: sending it again is the same call.
    pub call_id: Option<CallId>,
    /// Makes calls of one function with the same key the same call, also across callers.
    pub idempotency_key: Option<IdempotencyKey>,
    /// It ends at the latest after this, 1 ms to 30 days. Default: 30 s, detached 24 h.
    pub timeout: Option<Duration>,
    /// Nobody waits for it: it gets longer defaults.
    pub detached: bool,
    /// How long to wait for a function that is not known yet.
    pub wait_for_function: Duration,
    /// Refuse at once when no healthy worker serves the function.
    pub fail_without_workers: bool,
    /// How often to call again, as a new call, when it times out; 0 to 10, see [`TimeoutRetries`]. Default: 0. Not for a detached call, nor
    /// with an id or a key of its own, which would be the same call again.
    pub retries_on_timeout: u32,
    /// How long its outcome is kept, 1 ms to 30 days. Default: 10 min; 24 h when detached or with an idempotency key.
    pub retain: Option<Duration>,
    /// How many calls are above it; 0 for a call from outside.
    pub depth: u32,
    /// The call whose handler makes it.
    pub parent: Option<CallId>,
    /// W3C trace context, carried as it came.
    pub traceparent: Option<String>,
    /// Attempts in the store that it was moved from. Default: none.
    pub before: AttemptsBefore,
    /// It delivers work that was accepted before, so a store that takes no new work takes it. A call with a parent does in any case.
    pub(crate) continues: bool,
}

impl NewCall {
    /// How long a call waits for a function that is not known yet, unless it says otherwise.
    pub const WAIT_FOR_FUNCTION: Duration = Duration::from_secs(5);

    /// A call with all defaults.
    pub fn new(function: FunctionKey, params: Payload) -> Self {
        Self {
            function,
            params,
            input_item: None,
            call_id: None,
            idempotency_key: None,
            timeout: None,
            detached: false,
            wait_for_function: Self::WAIT_FOR_FUNCTION,
            fail_without_workers: false,
            retries_on_timeout: 0,
            retain: None,
            depth: 0,
            parent: None,
            traceparent: None,
            before: AttemptsBefore::default(),
            continues: false,
        }
    }
}

/// A call that was taken.
pub struct SubmittedCall {
    /// Which call. Not the one that was asked for when an idempotency key led to an earlier one.
    pub call_id: CallId,
    /// Where it stood then.
    pub state: CallState,
    /// When it ends at the latest, by the store's clock.
    pub deadline: Timestamp,
    /// It had been taken before, under the same id or idempotency key; nothing new was done.
    pub existing: bool,
    /// What the acknowledgement is worth.
    pub durability: Durability,
    towpath: Towpath,
    /// Listens since before the call was submitted, so that no end is missed. `None`: nobody wanted to wait.
    watch: Option<Box<dyn CallWatch>>,
}

impl fmt::Debug for SubmittedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmittedCall")
            .field("call_id", &self.call_id)
            .field("state", &self.state)
            .field("deadline", &self.deadline)
            .field("existing", &self.existing)
            .field("durability", &self.durability)
            .finish_non_exhaustive()
    }
}

/// A call that ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Which call.
    pub call_id: CallId,
    /// What the handler returned.
    pub data: Payload,
    /// What the acknowledgement is worth.
    pub durability: Durability,
}
