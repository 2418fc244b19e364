//! Ending a tenure, ours or an old workflow's, when its recorded owner matches. Compare and delete in one step.

use super::holder::meta_field;
use super::{Counter, Holder, LockState, Stepped};
use crate::names::{ExecutionId, LockId, LockScope};
use crate::time::Timestamp;

/// A tenure to end by who owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndLock {
    /// Of what.
    pub scope: LockScope,
    /// Whose.
    pub by: EndBy,
}

/// What the owner is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndBy {
    /// Its lock id, as old workflows release.
    LockId(LockId),
    /// Its execution, which has failed.
    Execution(ExecutionId),
    /// Nothing: an operator forces it, provided that nothing has changed since they looked.
    Force {
        /// The counter as they saw it.
        counter: Option<Counter>,
        /// Who forces it, for the record.
        who: String,
        /// Why, for the record.
        reason: String,
    },
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReply {
    /// The lock is free.
    Ended {
        /// Who had it, as far as that is written down.
        holder: Option<Holder>,
    },
    /// Its holder had entered more than once and has it still.
    StillHeld {
        /// How often it must still leave.
        holds: u32,
    },
    /// This lock id released it before. Nothing was touched.
    Already,
    /// There is nothing with an identity to compare with. Nothing was touched.
    Absent {
        /// An old workflow's counter stands there without identity.
        counter_without_meta: bool,
    },
    /// It is held by somebody else. Nothing was touched.
    NotHolder(Holder),
    /// The counter is not what the operator saw. Nothing was touched.
    Changed {
        /// What it is.
        counter: Option<Counter>,
    },
}

/// Ends the tenure if its owner matches.
pub fn end(state: &mut LockState, whose: &EndLock, now: Timestamp) -> Stepped<EndReply> {
    let holder = match judge(state, &whose.by, now) {
        Ok(holder) => holder,
        Err(reply) => return Stepped::quiet(*reply),
    };
    (state.counter, state.meta) = (None, None);
    match state.tenure.take() {
        Some(tenure) => state.note_release(tenure, now),
        None => {
            state.last.lock_id = match &whose.by {
                EndBy::LockId(lock_id) => Some(lock_id.clone()),
                EndBy::Execution(_) | EndBy::Force { .. } => None,
            };
            (state.free_since, state.reap_at) = (Some(now), None);
        }
    }
    Stepped { reply: EndReply::Ended { holder }, wakes: state.queue.wakes() }
}

/// The owner that matches, or why nothing is to be touched.
fn judge(state: &mut LockState, by: &EndBy, now: Timestamp) -> Result<Option<Holder>, Box<EndReply>> {
    if let EndBy::Force { counter, .. } = by {
        if *counter != state.counter {
            return Err(Box::new(EndReply::Changed { counter: state.counter.clone() }));
        }
        let written = || state.meta.as_deref().map(|meta| Holder::from_meta(Some(meta)));
        return Ok(state.held(now).map(Holder::of).or_else(written));
    }
    if let Some(tenure) = state.held(now) {
        let holder = Holder::of(tenure);
        let matches = match by {
            EndBy::LockId(lock_id) => *lock_id == tenure.lock_id,
            EndBy::Execution(execution_id) => Some(execution_id) == tenure.execution_id.as_ref(),
            EndBy::Force { .. } => true,
        };
        if !matches {
            return Err(Box::new(somebody_elses(state, by, holder)));
        }
        if let (EndBy::LockId(_), Some(tenure)) = (by, &mut state.tenure)
            && tenure.holds > 1
        {
            tenure.holds -= 1;
            return Err(Box::new(EndReply::StillHeld { holds: tenure.holds }));
        }
        return Ok(Some(holder));
    }
    let Some(meta) = state.foreign_meta() else {
        let counter_without_meta = state.counter.as_ref().is_some_and(|counter| counter.fence().is_none());
        return Err(Box::new(EndReply::Absent { counter_without_meta }));
    };
    let holder = Holder::from_meta(Some(meta));
    let matches = match by {
        EndBy::LockId(lock_id) => meta_field(meta, "lock_id").as_deref() == Some(lock_id.as_str()),
        EndBy::Execution(execution_id) => meta_field(meta, "execution_id").as_deref() == Some(execution_id.as_str()),
        EndBy::Force { .. } => true,
    };
    if matches { Ok(Some(holder)) } else { Err(Box::new(somebody_elses(state, by, holder))) }
}

fn somebody_elses(state: &LockState, by: &EndBy, holder: Holder) -> EndReply {
    match by {
        EndBy::LockId(lock_id) if state.last.lock_id.as_ref() == Some(lock_id) => EndReply::Already,
        _ => EndReply::NotHolder(holder),
    }
}
