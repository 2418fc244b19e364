//! Limits.
//!
//! - A rule's state stands under its scope and the name that [`StateName`] gives it; rules that share a name share the state.
//! - Every rule of a check is judged on what was remembered before the check.
//! - A list has the rules that have ever counted something and have something in use now.
//! - A reset counts the rules that had anything in use, not the states that happened to be kept: brooms sweep when they like.

use async_trait::async_trait;
use towpath_core::inspect::{LimitPage, LimitQuery, LimitView, PageRequest};
use towpath_core::limit::{Check, LimitReply, LimitState, NotedRule, Rules, StateName, counted, in_use, take};
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
        self.limits_noted.extend(counted(check, &reply).map(|rule| NotedRule::new(check.scope().clone(), rule.clone())));
        for (rule, state) in check.rules().iter().zip(after) {
            if let Some(state) = state {
                self.limits.insert((check.scope().clone(), StateName::of(rule, now)), state);
            }
        }
        reply
    }

    pub(super) fn limit_page(&self, query: &LimitQuery, now: Micros) -> LimitPage {
        let limit = query.limit.min(PageRequest::LIMIT_MAX) as usize;
        let view = |noted: &NotedRule| {
            let state = self.limits.get(&(noted.scope().clone(), StateName::of(noted.rule(), now)));
            LimitView::of(noted.clone(), state.cloned(), now)
        };
        let mut in_use = self.limits_noted.iter().filter(|noted| query.means(noted)).filter_map(view);
        let items: Vec<_> = in_use.by_ref().take(limit).collect();
        let next = items.last().map(|view| view.limit.clone()).filter(|_| in_use.next().is_some());
        LimitPage { items, next }
    }

    fn states(&self, scope: &LimitScope, rules: &Rules, now: Micros) -> Vec<Option<LimitState>> {
        let state = |rule| self.limits.get(&(scope.clone(), StateName::of(rule, now))).cloned();
        rules.iter().map(state).collect()
    }
}
