//! Refusals that need not be asked again: until its retry a denied check is denied, whoever else comes.
//!
//! Only a refund or a reset by another process could free it earlier; such a check is then denied until its retry all the same.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towpath_core::limit::{Check, LimitReply, Recent, Retry};
use towpath_core::names::LimitScope;
use towpath_core::time::{Micros, micros};

/// So many refusals are remembered; the oldest go first. A check that is not remembered is asked again, which is only slower.
const KEPT_MAX: usize = 10_000;

/// Checks that were denied, by what they asked.
pub(crate) struct Denied {
    known: Mutex<Recent<Check, Refusal>>,
}

impl Default for Denied {
    fn default() -> Self {
        Self { known: Mutex::new(Recent::holding(KEPT_MAX)) }
    }
}

struct Refusal {
    reply: LimitReply,
    /// By this process's clock when it heard of it.
    heard: Micros,
    retry_at: Micros,
}

impl Denied {
    /// What a check that was just denied would be told again.
    pub(super) fn recall(&self, check: &Check, now: Micros) -> Option<LimitReply> {
        let known = self.lock();
        let refusal = known.get(check.scope(), check).filter(|refusal| now < refusal.retry_at)?;
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
        let retry_at = Micros::new(now.get().saturating_add(micros(longest)));
        self.lock().put(check.scope(), check.clone(), Refusal { reply: reply.clone(), heard: now, retry_at });
    }

    /// Something was given back: ask again.
    pub(super) fn forget(&self, scope: &LimitScope) {
        self.lock().forget(scope);
    }

    fn lock(&self) -> MutexGuard<'_, Recent<Check, Refusal>> {
        // Nothing in here can panic half way.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use towpath_core::limit::{Rules, take};

    use super::*;

    const START: Micros = Micros::new(1_000_000_000_000);

    fn refused(user: usize) -> (Check, LimitReply) {
        let rules = Rules::one(format!("per_user=sliding_log:1/1h,key=u{user}").parse().unwrap());
        let check = Check::take(LimitScope::new("acme").unwrap(), rules, 1, Duration::ZERO).unwrap();
        let (states, _) = take(&check, &[None], START);
        let (_, reply) = take(&check, &states, START);
        assert!(!reply.allowed);
        (check, reply)
    }

    #[test]
    fn refusals_of_a_flood_of_keys_are_bounded_and_the_latest_is_recalled() {
        let denied = Denied::default();
        for user in 0..3 * KEPT_MAX {
            let (check, reply) = refused(user);
            denied.note(&check, &reply, START);
            assert_eq!(denied.recall(&check, START), Some(reply));
        }
        assert!(denied.lock().len() <= KEPT_MAX, "{} refusals are in memory", denied.lock().len());
        let (check, _) = refused(3 * KEPT_MAX - 1);
        denied.forget(check.scope());
        assert_eq!(denied.recall(&check, START), None, "something was given back");
        assert!(denied.lock().is_empty());
    }
}
