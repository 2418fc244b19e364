//! One operation as plain data, so that a list of them can be printed, cut down and run again.

use std::time::Duration;

use towpath_core::call::{Answer, Backoff, CallState, RetryPolicy};
use towpath_core::ids::DeliveryId;
use towpath_core::inspect::CallFilter;
use towpath_core::store::{ClaimCalls, ClaimFunction, CompleteCalls, RenewCalls, SetConfig, SubmitCall};
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, Offer, RegisterWorker};

use crate::words::{self, SubmitWords, call_id, definition, function, json, worker_id};

/// A name out of a small alphabet.
pub(super) type Name = &'static str;

/// Anything that can be asked of a store, and the two things that can happen to it: time passes, and it is restarted.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    Submit { id: String, of: Name, params: Name, item: Option<Name>, key: Option<Name>, timeout_ms: u64, retain_ms: u64, impatient: bool },
    Claim { worker: Name, functions: Vec<(Name, u32)>, max: u32, lease_ms: u64 },
    Renew { worker: Name, deliveries: Vec<Ref>, lease_ms: u64 },
    Complete { worker: Name, answers: Vec<(Ref, Say)> },
    Release { worker: Name, deliveries: Vec<Ref> },
    Park { worker: Name, delivery: Ref, parked: bool },
    Progress { worker: Name, delivery: Ref, report: Name },
    Cancel { id: String },
    Replay { id: String, as_id: String },
    Drop { id: String },
    Watch { id: String },
    Listen,
    Attention { worker: Name },
    Register { worker: Name, offers: Vec<(Name, Shape, Option<u32>)> },
    Heartbeat { worker: Name },
    Unregister { worker: Name },
    Define { function: Name, shape: Shape },
    Forget { function: Name },
    Find { function: Name },
    FunctionsChanged,
    Config,
    SetConfig { value: Name, if_version: Option<u64> },
    ConfigChanged { seen: u64 },
    Fire { limit: u32 },
    DueBefore { known: Option<Timestamp> },
    Call { id: String },
    Calls { states: Vec<CallState>, of: Option<Name>, worker: Option<Name>, after: Option<u32>, limit: u32 },
    Functions,
    Workers,
    Probe,
    Advance { ms: u64 },
    Reopen,
}

impl Op {
    /// What sort of operation it is.
    pub(super) fn kind(&self) -> String {
        let text = format!("{self:?}");
        text.split([' ', '{']).next().unwrap_or_default().to_owned()
    }
}

/// A delivery: which call, under which number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ref(pub(super) String, pub(super) u64);

impl Ref {
    pub(super) fn id(&self) -> DeliveryId {
        DeliveryId { call_id: call_id(&self.0), number: self.1 }
    }
}

/// What a worker says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Say {
    Ok(Name),
    Fail,
    FailNotBefore { ms: u64 },
    FailForGood,
    Cancelled,
}

impl Say {
    fn answer(self) -> Answer {
        match self {
            Self::Ok(result) => words::ok(result),
            Self::Fail => words::failed("busy"),
            Self::FailNotBefore { ms } => words::failed_not_before("busy", Duration::from_millis(ms)),
            Self::FailForGood => words::failed_for_good("broken"),
            Self::Cancelled => Answer::Cancelled,
        }
    }
}

/// The parts of a definition that change what a store decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) attempts: u32,
    pub(super) deliveries: u32,
    pub(super) pause_ms: u64,
    pub(super) grows: bool,
    pub(super) backlog: Option<u64>,
    pub(super) concurrent: Option<u32>,
}

impl Shape {
    pub(super) fn definition(self, name: Name) -> FunctionDefinition {
        let mut definition = definition(name);
        let backoff = if self.grows {
            Backoff::Exponential { delay_ms: self.pause_ms, delay_ms_max: 10_000 }
        } else {
            Backoff::Fixed { delay_ms: self.pause_ms }
        };
        definition.retry = RetryPolicy { max_attempts: self.attempts, max_deliveries: self.deliveries, backoff };
        (definition.limits.max_backlog, definition.limits.max_concurrent) = (self.backlog, self.concurrent);
        definition
    }
}

/// The call that a submit hands in; nothing for any other operation.
pub(super) fn submit(op: &Op) -> Option<SubmitCall> {
    let Op::Submit { id, of, params, item, key, timeout_ms, retain_ms, impatient } = op else { return None };
    let lengths = (Duration::from_millis(*timeout_ms), Duration::from_millis(*retain_ms));
    let mut call = words::new_call(id, of).params(params).timeout(lengths.0).retain(lengths.1);
    call.request.input_item = item.map(json);
    call.fail_without_workers = *impatient;
    Some(key.iter().fold(call, |call, key| call.key(key)))
}

pub(super) fn claim(worker: Name, functions: &[(Name, u32)], max: u32, lease_ms: u64) -> ClaimCalls {
    let functions = functions.iter().map(|(name, max)| ClaimFunction { function: function(name), max: *max }).collect();
    ClaimCalls { worker: worker_id(worker), functions, max, lease: Duration::from_millis(lease_ms), wait: Duration::ZERO, takes_any: false }
}

pub(super) fn renew(worker: Name, deliveries: &[Ref], lease_ms: u64) -> RenewCalls {
    let deliveries = deliveries.iter().map(Ref::id).collect();
    RenewCalls { worker: worker_id(worker), deliveries, lease: Duration::from_millis(lease_ms) }
}

pub(super) fn complete(worker: Name, answers: &[(Ref, Say)]) -> CompleteCalls {
    let answers = answers.iter().map(|(delivery, say)| (delivery.id(), say.answer())).collect();
    CompleteCalls { worker: worker_id(worker), answers }
}

pub(super) fn register(worker: Name, offers: &[(Name, Shape, Option<u32>)]) -> RegisterWorker {
    let offer =
        |(name, shape, concurrency): &(Name, Shape, Option<u32>)| Offer { definition: shape.definition(name), concurrency: *concurrency };
    RegisterWorker { worker_id: worker_id(worker), kind: "random".to_owned(), offers: offers.iter().map(offer).collect() }
}

pub(super) fn set_config(value: Name, if_version: Option<u64>) -> SetConfig {
    SetConfig { value: json(value), if_version }
}

pub(super) fn filter(states: &[CallState], of: Option<Name>, worker: Option<Name>) -> CallFilter {
    let key = of.map(function);
    CallFilter {
        states: states.to_vec(),
        scope: key.as_ref().map(|key| key.scope.clone()),
        function: key.map(|key| key.name),
        worker: worker.map(worker_id),
        brief: false,
    }
}
