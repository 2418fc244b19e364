//! Refusals that need not be asked again: until its retry a denied check is denied, whoever else comes.
//!
//! Only a refund or a reset by another process could free it earlier; such a check is then denied until its retry all the same.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towpath_core::limit::{Check, LimitReply, Retry};
use towpath_core::names::LimitScope;
use towpath_core::time::{Micros, micros};

/// So many refusals are kept in mind; what is over goes first.
const KEPT_MAX: usize = 10_000;

/// Checks that were denied, by what they asked.
#[derive(Default)]
pub(crate) struct Denied {
    until: Mutex<HashMap<LimitScope, Vec<Refusal>>>,
}

struct Refusal {
    check: Check,
    reply: LimitReply,
    /// By this process's clock when it heard of it.
    heard: Micros,
    retry_at: Micros,
}

impl Denied {
    /// What a check that was just denied would be told again.
    pub(super) fn recall(&self, check: &Check, now: Micros) -> Option<LimitReply> {
        let known = self.lock();
        let refusal = known.get(check.scope())?.iter().find(|refusal| refusal.check == *check && now < refusal.retry_at)?;
        let passed = Duration::from_micros(u64::try_from(now.get() - refusal.heard.get()).unwrap_or(0));
        let mut reply = refusal.reply.clone();
        for rule in &mut reply.rules {
            rule.reset = rule.reset.saturating_sub(passed);
            if let Retry::After(after) = rule.retry {
                rule.retry = Retry::After(after.saturating_sub(passed).max(Duration::from_micros(1)));
            }
        }
        Some(reply)
    }

    /// Keeps a refusal in mind, where asking again would change nothing: not where denied calls count, and not where rules watch.
    pub(super) fn note(&self, check: &Check, reply: &LimitReply, now: Micros) {
        let is_plain = check.writes() && check.cost() > 0 && check.max_wait_us() == 0;
        if reply.allowed || !is_plain || check.rules().iter().any(|rule| rule.counts_denied() || rule.is_shadow()) {
            return;
        }
        let after = |said: &towpath_core::limit::RuleReply| if let Retry::After(after) = said.retry { Some(after) } else { None };
        let Some(longest) = reply.rules.iter().filter_map(after).max() else { return };
        let mut known = self.lock();
        if known.len() >= KEPT_MAX {
            known.retain(|_, refusals| refusals.iter().any(|refusal| now < refusal.retry_at));
        }
        if known.len() >= KEPT_MAX {
            return; // it is asked again, which is only slower
        }
        let refusals = known.entry(check.scope().clone()).or_default();
        refusals.retain(|refusal| now < refusal.retry_at && refusal.check != *check);
        let retry_at = Micros::new(now.get().saturating_add(micros(longest)));
        refusals.push(Refusal { check: check.clone(), reply: reply.clone(), heard: now, retry_at });
    }

    /// Something was given back: ask again.
    pub(super) fn forget(&self, scope: &LimitScope) {
        self.lock().remove(scope);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LimitScope, Vec<Refusal>>> {
        // Nothing in here can panic half way.
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
