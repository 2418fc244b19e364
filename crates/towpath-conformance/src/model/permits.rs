//! Semaphores and read/write locks: each kind and scope has permits of its own.

use towpath_core::lock::Stepped;
use towpath_core::names::{ExecutionId, LockScope};
use towpath_core::permit::{PermitKind, PermitState};
use towpath_core::store::HeldScope;
use towpath_core::time::Timestamp;

use super::State;
use super::records::Records;

impl State {
    /// Puts one move to the permits of a scope: load, decide, save, wake.
    pub(super) fn put_permit<R>(&mut self, kind: PermitKind, scope: &LockScope, step: impl FnOnce(&mut PermitState) -> Stepped<R>) -> R {
        let key = (kind, scope.clone());
        let mut permits = self.records.permits.remove(&key).unwrap_or_default();
        let Stepped { reply, wakes } = step(&mut permits);
        if permits.is_known() {
            self.records.permits.insert(key, permits);
        }
        self.ears.wake(&wakes);
        reply
    }
}

impl Records {
    pub(super) fn permits_held_by(&self, execution_id: &ExecutionId, now: Timestamp) -> impl Iterator<Item = HeldScope> {
        let names_it = move |state: &PermitState| {
            state.permits.iter().any(|permit| permit.lease_end > now && permit.execution_id.as_ref() == Some(execution_id))
        };
        let held = self.permits.iter().filter(move |(_, state)| names_it(state));
        held.map(|((kind, scope), _)| HeldScope::Permit(*kind, scope.clone()))
    }
}
