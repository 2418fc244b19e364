//! What each command does to a call. Stores load a call, ask here, and save it; the model does the same on plain maps.

use std::time::Duration;

use super::{Answer, Call, CallEvent, CallState, DeadReason, Failure, Outcome, Retry, RetryPolicy, state};
use crate::names::{CallId, WorkerId};
use crate::time::Timestamp;

/// Proof that a worker was given a delivery: who, and which one. An old number proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The worker that speaks.
    pub worker: WorkerId,
    /// The number of its delivery.
    pub number: u64,
}

/// A worker's wish for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who wants it.
    pub worker: WorkerId,
    /// How long it may be silent.
    pub lease: Duration,
}

/// What is asked of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallCommand {
    /// Deliver it to a worker.
    Claim(Claim),
    /// Prolong a lease, counted from now.
    Renew {
        /// Who holds it.
        held: Held,
        /// The new length.
        lease: Duration,
    },
    /// Take a worker's answer.
    Answer {
        /// Who holds it.
        held: Held,
        /// What it says.
        answer: Answer,
        /// The function's policy.
        policy: RetryPolicy,
    },
    /// Take an unharmed delivery back, for another worker.
    Release(Held),
    /// The holder starts or stops waiting for a nested call.
    Park {
        /// Who holds it.
        held: Held,
        /// Whether it waits.
        parked: bool,
    },
    /// End it without a result, or ask its worker to.
    Cancel,
    /// Do what is due.
    ComeDue {
        /// How many workers the call may outlive, by its function's policy.
        max_deliveries: u32,
    },
    /// Deal with a dead letter.
    Settle {
        /// The call that replays it, or none if it is dropped.
        replayed_as: Option<CallId>,
    },
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallReply {
    /// Delivered, under this number.
    Claimed {
        /// The delivery's number.
        number: u64,
        /// The end of the lease.
        until: Timestamp,
    },
    /// Not delivered: its deadline has passed, with which it ended, or it was not waiting at all.
    NotClaimed,
    /// The lease holds.
    Held {
        /// Its new end.
        until: Timestamp,
        /// Somebody wants the call cancelled: stop and answer so.
        cancel_requested: bool,
    },
    /// The answer counts.
    Recorded,
    /// The same delivery has answered before. Nothing changed.
    AlreadyRecorded,
    /// The delivery is no longer this worker's. Nothing changed.
    Lost(LostLease),
    /// It is cancelled.
    Cancelled,
    /// Its worker will be asked to stop.
    CancelRequested,
    /// It had ended before. Nothing changed.
    AlreadyEnded,
    /// Something was due and happened.
    Moved,
    /// Nothing is due yet. Nothing changed.
    NotDue,
    /// The dead letter is dealt with.
    Settled,
    /// It is no dead letter. Nothing changed.
    NotDead,
}

/// Why a delivery is no longer the worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LostLease {
    /// The lease ran out and the call waits for another worker.
    Expired,
    /// Another delivery has begun.
    Replaced,
    /// The call has ended otherwise: cancelled, timed out, or answered by another delivery.
    Ended,
    /// There is no such call.
    Absent,
}

impl LostLease {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Replaced => "replaced",
            Self::Ended => "ended",
            Self::Absent => "absent",
        }
    }
}

/// Decides one command. A reply that says "nothing changed" returns the call as it was.
pub fn step(call: Call, command: CallCommand, now: Timestamp) -> (Call, CallReply) {
    match command {
        CallCommand::Claim(want) => claim(call, want, now),
        CallCommand::Renew { held, lease } => renew(call, &held, lease, now),
        CallCommand::Answer { held, answer, policy } => take_answer(call, &held, answer, &policy, now),
        CallCommand::Release(held) => release(call, &held, now),
        CallCommand::Park { held, parked } => park(call, &held, parked),
        CallCommand::Cancel => cancel(call, now),
        CallCommand::ComeDue { max_deliveries } => come_due(call, max_deliveries, now),
        CallCommand::Settle { replayed_as } => settle(call, replayed_as, now),
    }
}

fn claim(mut call: Call, want: Claim, now: Timestamp) -> (Call, CallReply) {
    if call.state != CallState::Queued {
        return (call, CallReply::NotClaimed);
    }
    if now >= call.deadline {
        return (end(call, CallEvent::Deadline, Outcome::Expired, now), CallReply::NotClaimed);
    }
    go(&mut call, CallEvent::Claim);
    let until = now + want.lease;
    call.delivery += 1;
    call.holder = Some(want.worker);
    call.started_at = Some(now);
    call.lease = want.lease;
    call.lease_until = Some(until);
    let number = call.delivery;
    (call, CallReply::Claimed { number, until })
}

fn renew(mut call: Call, held: &Held, lease: Duration, now: Timestamp) -> (Call, CallReply) {
    if let Err(lost) = check(&call, held) {
        return (call, CallReply::Lost(lost));
    }
    let until = now + lease;
    call.lease = lease;
    call.lease_until = Some(until);
    let cancel_requested = call.cancel_requested;
    (call, CallReply::Held { until, cancel_requested })
}

fn take_answer(call: Call, held: &Held, answer: Answer, policy: &RetryPolicy, now: Timestamp) -> (Call, CallReply) {
    if let Err(lost) = check(&call, held) {
        let reply = if answered_by(&call, held) { CallReply::AlreadyRecorded } else { CallReply::Lost(lost) };
        return (call, reply);
    }
    let call = match answer {
        Answer::Ok(data) => end(call, CallEvent::Complete, Outcome::Ok(data), now),
        Answer::Cancelled => end(call, CallEvent::Stop, Outcome::Cancelled, now),
        Answer::Failed { failure, retry: Retry::Never } => {
            let mut call = count_failure(call, &failure);
            call.last_failure = None; // the outcome says it
            end(call, CallEvent::Fail, Outcome::Failed(failure), now)
        }
        // Whoever asked to cancel does not want another attempt.
        Answer::Failed { failure, .. } if call.cancel_requested => {
            end(count_failure(call, &failure), CallEvent::Stop, Outcome::Cancelled, now)
        }
        Answer::Failed { failure, retry } => try_again(count_failure(call, &failure), failure, retry, policy, now),
    };
    (call, CallReply::Recorded)
}

/// Delays the call for its next attempt, or makes it a dead letter when there is none before its deadline.
fn try_again(mut call: Call, failure: Failure, retry: Retry, policy: &RetryPolicy, now: Timestamp) -> Call {
    let floor = if let Retry::NotBefore(floor) = retry { floor } else { Duration::ZERO };
    let at = policy.next_delay(call.failures, &call.call_id).map(|delay| now + delay.max(floor));
    let Some(at) = at.filter(|at| *at < call.deadline) else {
        let outcome = Outcome::Dead { reason: DeadReason::Exhausted, failure };
        return end(call, CallEvent::Exhaust, outcome, now);
    };
    go(&mut call, CallEvent::Retry);
    put_down(&mut call);
    call.not_before = Some(at);
    call
}

fn release(mut call: Call, held: &Held, now: Timestamp) -> (Call, CallReply) {
    if let Err(lost) = check(&call, held) {
        return (call, CallReply::Lost(lost));
    }
    if call.cancel_requested {
        return (end(call, CallEvent::Stop, Outcome::Cancelled, now), CallReply::Recorded);
    }
    go(&mut call, CallEvent::Release);
    put_down(&mut call);
    (call, CallReply::Recorded)
}

fn park(mut call: Call, held: &Held, parked: bool) -> (Call, CallReply) {
    if let Err(lost) = check(&call, held) {
        return (call, CallReply::Lost(lost));
    }
    call.parked = parked;
    (call, CallReply::Recorded)
}

fn cancel(mut call: Call, now: Timestamp) -> (Call, CallReply) {
    match call.state {
        CallState::Queued | CallState::Delayed => (end(call, CallEvent::Cancel, Outcome::Cancelled, now), CallReply::Cancelled),
        CallState::Running => {
            go(&mut call, CallEvent::Cancel);
            call.cancel_requested = true;
            (call, CallReply::CancelRequested)
        }
        _ended => (call, CallReply::AlreadyEnded),
    }
}

fn come_due(mut call: Call, max_deliveries: u32, now: Timestamp) -> (Call, CallReply) {
    if call.due().is_none_or(|due| now < due) {
        return (call, CallReply::NotDue);
    }
    let late = now >= call.deadline;
    let call = match call.state {
        CallState::Queued | CallState::Delayed if late => end(call, CallEvent::Deadline, Outcome::Expired, now),
        CallState::Running if call.cancel_requested => end(call, CallEvent::Stop, Outcome::Cancelled, now),
        CallState::Running if late => end(call, CallEvent::Deadline, Outcome::TimedOut, now),
        CallState::Running => lose_worker(call, max_deliveries, now),
        CallState::Queued | CallState::Delayed => {
            go(&mut call, CallEvent::DelayEnd);
            call.not_before = None;
            call
        }
        _ended => return (call, CallReply::NotDue),
    };
    (call, CallReply::Moved)
}

/// The lease is over: another worker gets the call, unless it has outlived too many.
fn lose_worker(mut call: Call, max_deliveries: u32, now: Timestamp) -> Call {
    call.crashes = call.crashes.saturating_add(1);
    if call.crashes >= max_deliveries {
        let message = format!("{} stopped answering while running this call", workers(call.crashes));
        let outcome = Outcome::Dead { reason: DeadReason::Poisoned, failure: Failure::new("poisoned", message) };
        return end(call, CallEvent::Poison, outcome, now);
    }
    go(&mut call, CallEvent::LeaseEnd);
    put_down(&mut call);
    call
}

fn workers(count: u32) -> String {
    if count == 1 { "its worker".to_owned() } else { format!("{count} workers") }
}

fn settle(mut call: Call, replayed_as: Option<CallId>, now: Timestamp) -> (Call, CallReply) {
    if call.state != CallState::Dead {
        return (call, CallReply::NotDead);
    }
    go(&mut call, CallEvent::Settle);
    call.replayed_as = replayed_as;
    call.ended_at = Some(now); // its retention starts now, so that whoever settled it can still look at it
    (call, CallReply::Settled)
}

/// Whether this delivery is the latest and still running. The number decides, not the clock: a lease that is over but that nobody has
/// taken back yet may still be renewed or answered, because no newer delivery exists.
fn check(call: &Call, held: &Held) -> Result<(), LostLease> {
    match call.state {
        CallState::Running if is_latest(call, held) => Ok(()),
        CallState::Running => Err(LostLease::Replaced),
        CallState::Queued | CallState::Delayed if is_latest(call, held) => Err(LostLease::Expired),
        CallState::Queued | CallState::Delayed => Err(LostLease::Replaced),
        _ended => Err(LostLease::Ended),
    }
}

fn is_latest(call: &Call, held: &Held) -> bool {
    call.delivery == held.number && call.holder.as_ref() == Some(&held.worker)
}

/// Whether the state this call is in came from an answer of this very delivery, so that saying it twice is harmless.
fn answered_by(call: &Call, held: &Held) -> bool {
    let from_an_answer = match call.state {
        CallState::Delayed | CallState::Completed | CallState::Failed => true,
        CallState::Dead | CallState::Settled => {
            matches!(call.outcome, Some(Outcome::Dead { reason: DeadReason::Exhausted, .. }))
        }
        _ => false,
    };
    from_an_answer && is_latest(call, held)
}

fn count_failure(mut call: Call, failure: &Failure) -> Call {
    call.failures = call.failures.saturating_add(1);
    call.last_failure = Some(failure.clone());
    call
}

fn end(mut call: Call, event: CallEvent, outcome: Outcome, now: Timestamp) -> Call {
    go(&mut call, event);
    put_down(&mut call);
    call.not_before = None;
    call.ended_at = Some(now);
    call.outcome = Some(outcome);
    call
}

/// Ends a lease. The holder stays written down: it says whose the latest delivery was.
fn put_down(call: &mut Call) {
    call.lease = Duration::ZERO;
    call.lease_until = None;
    call.parked = false;
}

fn go(call: &mut Call, event: CallEvent) {
    match state::next(call.state, event) {
        Ok(to) => call.state = to,
        Err(illegal) => unreachable!("{illegal}: the decision above has looked at the state first"),
    }
}

#[cfg(test)]
mod tests;
