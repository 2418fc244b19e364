//! What the replies of all rules mean for whoever asked.

use std::time::Duration;

use super::{Check, LimitReply, Retry, Rule, RuleReply};

/// The answer to a check in one piece. `count`, `limit` and `remaining` are those of the binding rule: the violated one with the longest
/// retry, else the one with the least remaining.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary<'a> {
    /// Whether it was allowed.
    pub allowed: bool,
    /// The binding rule.
    pub rule: &'a Rule,
    /// What it said.
    pub binding: &'a RuleReply,
    /// The longest retry of the violated rules.
    pub retry: Retry,
    /// Until every rule is as good as new.
    pub reset: Duration,
    /// How long to wait before using what was reserved.
    pub wait: Duration,
    /// The rules that denied.
    pub violated: Vec<&'a Rule>,
    /// Whether one of the rules that only watch would have denied; `None` when there is none.
    pub would_deny: Option<bool>,
}

impl<'a> Summary<'a> {
    /// Sums up. `None` only when the reply is not one to this check.
    pub fn of(check: &'a Check, reply: &'a LimitReply) -> Option<Self> {
        let pairs = || check.rules().iter().zip(&reply.rules);
        // Where every rule only watches, they are all there is to speak of.
        let all_watch = check.rules().iter().all(Rule::is_shadow);
        let deciding = || pairs().filter(|(rule, _)| all_watch || !rule.is_shadow());
        let violated: Vec<_> = deciding().filter(|(rule, said)| !said.ok && !rule.is_shadow()).collect();
        let longest = violated.iter().copied().rev().max_by_key(|(_, said)| said.retry);
        let (rule, binding) = longest.or_else(|| deciding().min_by_key(|(_, said)| said.remaining))?;
        let watchers = || pairs().filter(|(rule, _)| rule.is_shadow());
        Some(Self {
            allowed: reply.allowed,
            rule,
            binding,
            retry: longest.map_or(Retry::NotNeeded, |(_, said)| said.retry),
            reset: deciding().map(|(_, said)| said.reset).max().unwrap_or_default(),
            wait: if reply.allowed { deciding().map(|(_, said)| said.wait).max().unwrap_or_default() } else { Duration::ZERO },
            violated: violated.into_iter().map(|(rule, _)| rule).collect(),
            would_deny: watchers().next().map(|_| watchers().any(|(_, said)| !said.ok)),
        })
    }
}
