//! How a call ended, its latest failure and what replays it: the tail of a record.

use towpath_core::call::{Call, DeadReason, Failure, Outcome};
use towpath_core::names::CallId;
use towpath_core::store::StoreError;

use super::record::payload;
use crate::pieces::{Pieces, Writer};

/// The tail of a call; empty when there is nothing to say.
pub(crate) fn write_tail(call: &Call) -> Vec<u8> {
    let mut out = Writer::with_capacity(64);
    if let Some(outcome) = &call.outcome {
        put_outcome(&mut out, outcome);
    }
    if let Some(failure) = &call.last_failure {
        write_failure(&mut out, b'L', failure);
    }
    if let Some(replay) = &call.replayed_as {
        out.put(b'R', replay.as_str().as_bytes());
    }
    out.done()
}

/// An outcome by itself.
pub(crate) fn write_outcome(outcome: &Outcome) -> Vec<u8> {
    let mut out = Writer::with_capacity(64);
    put_outcome(&mut out, outcome);
    out.done()
}

fn put_outcome(out: &mut Writer, outcome: &Outcome) {
    match outcome {
        Outcome::Ok(data) => out.put(b'O', data.as_bytes()),
        Outcome::Failed(failure) => write_failure(out, b'F', failure),
        Outcome::TimedOut => out.put(b'T', b""),
        Outcome::Expired => out.put(b'X', b""),
        Outcome::Cancelled => out.put(b'K', b""),
        Outcome::Dead { reason: DeadReason::Exhausted, failure } => write_failure(out, b'E', failure),
        Outcome::Dead { reason: DeadReason::Poisoned, failure } => write_failure(out, b'P', failure),
    }
}

/// A failure's own pieces stand inside its piece.
fn write_failure(out: &mut Writer, tag: u8, failure: &Failure) {
    let mut inner = Writer::default();
    inner.put(b'c', failure.code.as_bytes());
    inner.put(b'm', failure.message.as_bytes());
    if let Some(details) = &failure.details {
        inner.put(b'd', details.as_bytes());
    }
    out.put(tag, &inner.done());
}

/// Puts a tail back on its call.
pub(crate) fn read_tail(call: &mut Call, bytes: &[u8]) -> Result<(), StoreError> {
    let id = call.call_id.clone();
    let broken = || StoreError::Corrupt(format!("the outcome of call '{id}' is not one"));
    for piece in Pieces::of(bytes) {
        let (tag, value) = piece.ok_or_else(broken)?;
        match tag {
            _ if OUTCOMES.contains(&tag) => call.outcome = Some(outcome_of(tag, value).ok_or_else(broken)?),
            b'L' => call.last_failure = Some(read_failure(value).ok_or_else(broken)?),
            b'R' => {
                let text = std::str::from_utf8(value).map_err(|_| broken())?;
                call.replayed_as = Some(CallId::new(text).map_err(|_| broken())?);
            }
            _from_a_newer_version => {}
        }
    }
    Ok(())
}

/// The letters of outcomes.
const OUTCOMES: &[u8] = b"OFTXKEP";

/// Reads what [`write_outcome`] wrote.
pub(crate) fn read_outcome(bytes: &[u8]) -> Option<Outcome> {
    let (tag, value) = Pieces::of(bytes).next()??;
    outcome_of(tag, value)
}

fn outcome_of(tag: u8, value: &[u8]) -> Option<Outcome> {
    Some(match tag {
        b'O' => Outcome::Ok(payload(value)),
        b'F' => Outcome::Failed(read_failure(value)?),
        b'T' => Outcome::TimedOut,
        b'X' => Outcome::Expired,
        b'K' => Outcome::Cancelled,
        b'E' => Outcome::Dead { reason: DeadReason::Exhausted, failure: read_failure(value)? },
        b'P' => Outcome::Dead { reason: DeadReason::Poisoned, failure: read_failure(value)? },
        _other => return None,
    })
}

fn read_failure(bytes: &[u8]) -> Option<Failure> {
    let mut failure = Failure::new("", "");
    for piece in Pieces::of(bytes) {
        let (tag, value) = piece?;
        match tag {
            b'c' => failure.code = String::from_utf8(value.to_vec()).ok()?,
            b'm' => failure.message = String::from_utf8(value.to_vec()).ok()?,
            b'd' => failure.details = Some(payload(value)),
            _from_a_newer_version => {}
        }
    }
    Some(failure)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use towpath_core::time::Timestamp;

    use super::*;

    #[test]
    fn every_outcome_comes_back_byte_for_byte() {
        let failure = Failure { code: "boom".into(), message: "it\nbroke: 5".into(), details: Some(payload(b"{\"a\": 1 }")) };
        let outcomes = [
            None,
            Some(Outcome::Ok(payload(b" [1,  2] "))),
            Some(Outcome::Failed(failure.clone())),
            Some(Outcome::TimedOut),
            Some(Outcome::Expired),
            Some(Outcome::Cancelled),
            Some(Outcome::Dead { reason: DeadReason::Exhausted, failure: failure.clone() }),
            Some(Outcome::Dead { reason: DeadReason::Poisoned, failure: failure.clone() }),
        ];
        for outcome in outcomes {
            let id = CallId::new("call-1").unwrap();
            let bare = Call::submitted(id, Timestamp::from_millis(1), Duration::ZERO, Duration::ZERO);
            let mut call = bare.clone();
            (call.outcome, call.last_failure) = (outcome, Some(failure.clone()));
            call.replayed_as = Some(CallId::new("call-2").unwrap());
            let mut read = bare;
            read_tail(&mut read, &write_tail(&call)).unwrap();
            assert_eq!(read, call);
        }
    }
}
