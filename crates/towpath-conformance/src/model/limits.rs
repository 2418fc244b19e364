//! Limits.
//!
//! - A rule's state stands under its scope and the name that [`StateName`] gives it; rules that share a name share the state.
//! - Every rule of a check is judged on what was remembered before the check.
//! - A reset counts the rules that had anything in use, not the states that happened to be kept: brooms sweep when they like.

use async_trait::async_trait;
use towpath_core::limit::{Check, LimitReply, LimitState, Rules, StateName, in_use, take};
use towpath_core::names::LimitScope;
use towpath_core::store::{LimitStore, StoreError};
use towpath_core::time::Micros;

use super::ModelStore;
use super::records::Records;

#[async_trait]
impl LimitStore for ModelStore {
    async fn take(&self, check: &Check) -> Result<LimitReply, StoreError> {
        let now = self.shared.clock.now_us();
        Ok(self.look(|state, _| state.records.take(check, now)))
    }

    async fn reset(&self, scope: &LimitScope, rules: &Rules) -> Result<u64, StoreError> {
        let now = self.shared.clock.now_us();
        Ok(self.look(|state, _| {
            let states = state.records.states(scope, rules, now);
            for rule in rules.iter() {
                state.records.limits.remove(&(scope.clone(), StateName::of(rule, now)));
            }
            in_use(rules, &states, now)
        }))
    }
}

impl Records {
    fn take(&mut self, check: &Check, now: Micros) -> LimitReply {
        let (after, reply) = take(check, &self.states(check.scope(), check.rules(), now), now);
        for (rule, state) in check.rules().iter().zip(after) {
            if let Some(state) = state {
                self.limits.insert((check.scope().clone(), StateName::of(rule, now)), state);
            }
        }
        reply
    }

    fn states(&self, scope: &LimitScope, rules: &Rules, now: Micros) -> Vec<Option<LimitState>> {
        let state = |rule| self.limits.get(&(scope.clone(), StateName::of(rule, now))).cloned();
        rules.iter().map(state).collect()
    }
}
