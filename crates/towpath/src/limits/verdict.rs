//! The answer to a check.

use std::fmt;
use std::time::Duration;

use towpath_core::limit::{Check, LimitReply, Retry, Rule, RuleReply, Rules, Summary};
use towpath_core::names::{LimitScope, RuleName};

use super::LimitError;
use crate::Towpath;

/// Whether it is allowed, and all that follows. `count`, `limit` and `remaining` are those of the binding rule: the violated one with the
/// longest retry, else the one with the least remaining.
#[derive(Clone)]
#[must_use = "a verdict that nobody reads limits nothing"]
#[non_exhaustive]
pub struct Verdict {
    /// Whether it is allowed.
    pub allowed: bool,
    /// What is limited.
    pub scope: LimitScope,
    /// The binding rule.
    pub rule: RuleName,
    /// Its units in use.
    pub count: u64,
    /// Its limit.
    pub limit: u64,
    /// How many more it would allow now.
    pub remaining: u64,
    /// After so long it is allowed, if nobody else comes; a microsecond earlier it is not. `None`: it is allowed, or never will be.
    pub retry_after: Option<Duration>,
    /// It asks for more than there can ever be at once.
    pub never: bool,
    /// Until all rules are as good as new, if nothing more is taken.
    pub reset: Duration,
    /// What was reserved may be used after so long.
    pub wait: Duration,
    /// The rules that denied.
    pub violated: Vec<RuleName>,
    /// Whether a rule that only watches would have denied; `None` when there is none.
    pub would_deny: Option<bool>,
    /// The store was out of reach, and the rules say what to do then.
    pub degraded: bool,
    /// What each rule says.
    pub rules: Vec<(Rule, RuleReply)>,
    pub(super) taken: Option<Taken>,
}

/// What can be given back.
#[derive(Clone)]
pub(super) struct Taken {
    pub(super) towpath: Towpath,
    pub(super) rules: Rules,
    pub(super) cost: u64,
}

impl Verdict {
    pub(super) fn of(check: &Check, reply: &LimitReply, degraded: bool) -> Self {
        let nothing = RuleReply { ok: true, remaining: 0, retry: Retry::NotNeeded, reset: Duration::ZERO, wait: Duration::ZERO, count: 0 };
        let summary = Summary::of(check, reply);
        let (rule, binding) = summary.as_ref().map_or((&check.rules()[0], &nothing), |summary| (summary.rule, summary.binding));
        let retry = summary.as_ref().map_or(Retry::NotNeeded, |summary| summary.retry);
        Self {
            allowed: reply.allowed,
            scope: check.scope().clone(),
            rule: rule.name().clone(),
            count: binding.count,
            limit: rule.limit(),
            remaining: binding.remaining,
            retry_after: if let Retry::After(after) = retry { Some(after) } else { None },
            never: retry == Retry::Never,
            reset: summary.as_ref().map(|summary| summary.reset).unwrap_or_default(),
            wait: summary.as_ref().map(|summary| summary.wait).unwrap_or_default(),
            violated: summary.iter().flat_map(|summary| &summary.violated).map(|rule| rule.name().clone()).collect(),
            would_deny: summary.and_then(|summary| summary.would_deny),
            degraded,
            rules: check.rules().iter().cloned().zip(reply.rules.iter().copied()).collect(),
            taken: None,
        }
    }

    /// Gives back what was taken, because it was not used. Nothing happens if nothing was taken from the store.
    pub async fn refund(self) -> Result<(), LimitError> {
        let Some(Taken { towpath, rules, cost }) = self.taken else { return Ok(()) };
        let check = Check::refund(self.scope, rules, cost)?;
        towpath.limits().denied.forget(check.scope());
        towpath.store().take(&check).await.map(drop)?;
        Ok(())
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verdict")
            .field("allowed", &self.allowed)
            .field("scope", &self.scope)
            .field("rule", &self.rule)
            .field("count", &self.count)
            .field("limit", &self.limit)
            .field("remaining", &self.remaining)
            .field("retry_after", &self.retry_after)
            .field("wait", &self.wait)
            .field("degraded", &self.degraded)
            .finish_non_exhaustive()
    }
}
