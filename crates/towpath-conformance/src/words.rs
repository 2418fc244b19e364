//! Short words for long types, so that a case reads as a sentence. All of them panic on a name that the core refuses.

mod batches;
mod locks;
mod runs;

use std::time::Duration;

use towpath_core::call::{Answer, AttemptsBefore, CallRequest, Failure, Retry};
use towpath_core::names::{CallId, FunctionKey, FunctionName, IdempotencyKey, InvalidName, Scope, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::store::SubmitCall;
use towpath_core::worker::{FunctionDefinition, Offer};

pub use batches::{
    BATCH_LEASE, MessageWords, batch_id, batch_key, batch_token, batcher, claim_batch, given_up, message, source, unreadable,
};
pub use locks::{LockWords, PermitWords, execution, lock_id, node, of_lock_id, read, request, scope, semaphore, waiter, want, write};
pub use runs::{
    RUN_IDLE, RUN_RETAIN, StartWords, build, child, completes, does_not_fit, done, entry, event, event_name, reference, run_id, run_place,
    start, step, waits_for, waits_for_children, waits_for_timers,
};

/// A call's id.
pub fn call_id(text: &str) -> CallId {
    named(CallId::new(text))
}

/// A worker's id.
pub fn worker_id(text: &str) -> WorkerId {
    named(WorkerId::new(text))
}

/// A function: `add` is known to all, `wf-7:add` only in the scope `wf-7`.
pub fn function(text: &str) -> FunctionKey {
    let (scope, name) = match text.split_once(':') {
        Some((scope, name)) => (named(Scope::new(scope)), name),
        None => (Scope::global(), text),
    };
    FunctionKey { scope, name: named(FunctionName::new(name)) }
}

/// A function with all defaults.
pub fn definition(text: &str) -> FunctionDefinition {
    FunctionDefinition::new(function(text))
}

/// A function as a worker offers it, counting for itself how much it runs at once.
pub fn offer(text: &str) -> Offer {
    Offer { definition: definition(text), concurrency: None }
}

/// JSON text.
pub fn json(text: &str) -> Payload {
    Payload::from_json(text.to_owned())
}

/// So many seconds.
pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The answer of a handler that is done.
pub fn ok(result: &str) -> Answer {
    Answer::Ok(json(result))
}

/// An error called `code`, as handlers report it.
pub fn failure(code: &str) -> Failure {
    Failure::new(code, "it went wrong")
}

/// The answer of a handler that may succeed another time.
pub fn failed(code: &str) -> Answer {
    Answer::Failed { failure: failure(code), retry: Retry::ByPolicy }
}

/// The answer of a handler that asks for a pause before the next attempt.
pub fn failed_not_before(code: &str, pause: Duration) -> Answer {
    Answer::Failed { failure: failure(code), retry: Retry::NotBefore(pause) }
}

/// The answer of a handler that will never succeed with this input.
pub fn failed_for_good(code: &str) -> Answer {
    Answer::Failed { failure: failure(code), retry: Retry::Never }
}

/// A call to submit: one minute to live, its outcome kept for ten.
pub fn new_call(id: &str, of: &str) -> SubmitCall {
    let request = CallRequest {
        function: function(of),
        params: json("{}"),
        input_item: None,
        idempotency_key: None,
        depth: 0,
        parent: None,
        traceparent: None,
    };
    SubmitCall {
        call_id: call_id(id),
        request,
        timeout: seconds(60),
        retain: seconds(600),
        fail_without_workers: false,
        fresh: false,
        before: AttemptsBefore::default(),
        continues: false,
    }
}

/// What can be said about a call to submit.
pub trait SubmitWords {
    /// With these parameters.
    fn params(self, text: &str) -> Self;
    /// With this item of the caller's.
    fn input_item(self, text: &str) -> Self;
    /// The same call as any other under this key.
    fn key(self, text: &str) -> Self;
    /// With so long to live.
    fn timeout(self, length: Duration) -> Self;
    /// With its outcome kept so long.
    fn retain(self, length: Duration) -> Self;
    /// To be refused when nobody serves it.
    fn or_fail_without_workers(self) -> Self;
}

impl SubmitWords for SubmitCall {
    fn params(mut self, text: &str) -> Self {
        self.request.params = json(text);
        self
    }

    fn input_item(mut self, text: &str) -> Self {
        self.request.input_item = Some(json(text));
        self
    }

    fn key(mut self, text: &str) -> Self {
        self.request.idempotency_key = Some(named(IdempotencyKey::new(text)));
        self
    }

    fn timeout(self, length: Duration) -> Self {
        Self { timeout: length, ..self }
    }

    fn retain(self, length: Duration) -> Self {
        Self { retain: length, ..self }
    }

    fn or_fail_without_workers(self) -> Self {
        Self { fail_without_workers: true, ..self }
    }
}

#[track_caller]
fn named<T>(name: Result<T, InvalidName>) -> T {
    match name {
        Ok(name) => name,
        Err(refused) => panic!("a case uses a name that the core refuses: {refused}"),
    }
}
