//! What counts while the store is out of reach, for rules that wish so: the same arithmetic in this process's memory, with its share.

use std::sync::{Mutex, PoisonError};

use towpath_core::limit::{Check, LimitReply, LimitState, OnError, Recent, Retry, Rule, RuleReply, Rules, StateName, take};
use towpath_core::time::Micros;

/// So many states are kept; of a flood of keys those that were asked least lately are forgotten.
const KEPT_MAX: usize = 100_000;

/// Limits in memory.
pub(crate) struct LocalLimits {
    states: Mutex<Recent<StateName, LimitState>>,
}

impl Default for LocalLimits {
    fn default() -> Self {
        Self { states: Mutex::new(Recent::holding(KEPT_MAX)) }
    }
}

impl LocalLimits {
    /// Judges without the store, if every rule says that this may be. `nodes` processes share the limit.
    pub(super) fn judge(&self, check: &Check, nodes: u64, now: Micros) -> Option<LimitReply> {
        if check.rules().iter().any(|rule| rule.when_unreachable() == OnError::Closed) {
            return None;
        }
        let counted: Vec<Rule> =
            check.rules().iter().filter(|rule| rule.when_unreachable() == OnError::Local).map(|rule| rule.share_of(nodes)).collect();
        let said = self.count(check, counted, now);
        let mut said = said.into_iter().flat_map(|reply| reply.rules);
        let rules: Vec<RuleReply> = check
            .rules()
            .iter()
            .map(|rule| match rule.when_unreachable() {
                OnError::Local => said.next().unwrap_or_else(|| uncounted(rule)),
                _ => uncounted(rule),
            })
            .collect();
        let allowed = check.rules().iter().zip(&rules).all(|(rule, said)| said.ok || rule.is_shadow());
        Some(LimitReply { allowed, now, rules })
    }

    fn count(&self, check: &Check, rules: Vec<Rule>, now: Micros) -> Option<LimitReply> {
        let rules = Rules::new(rules).ok()?;
        let cost = check.cost().unsigned_abs();
        let scope = check.scope().clone();
        // Nobody is let wait for what only this process knows of.
        let check = match check.writes() && check.cost() > 0 {
            true => Check::take(scope.clone(), rules.clone(), cost, std::time::Duration::ZERO),
            false => Check::peek(scope.clone(), rules.clone(), if check.cost() > 0 { cost } else { 0 }),
        };
        let check = check.ok()?;
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<_> = rules.iter().map(|rule| StateName::of(rule, now)).collect();
        let before: Vec<_> = names.iter().map(|name| states.get(&scope, name).cloned()).collect();
        let (after, reply) = take(&check, &before, now);
        for (name, state) in names.into_iter().zip(after) {
            if let Some(state) = state {
                states.put(&scope, name, state);
            }
        }
        Some(reply)
    }
}

/// A rule that lets everything pass while nobody can count.
fn uncounted(rule: &Rule) -> RuleReply {
    let nothing = std::time::Duration::ZERO;
    RuleReply { ok: true, remaining: rule.capacity(), retry: Retry::NotNeeded, reset: nothing, wait: nothing, count: 0 }
}
