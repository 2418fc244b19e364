//! The decision over all rules of a check: all of them or none.

use super::reply::RuleReply;
use super::{Algorithm, Check, LimitReply, LimitState, Rule, Rules, fixed_window, gcra, sliding_counter, sliding_log};
use crate::time::Micros;

/// What is asked of one rule.
pub(crate) struct Ask<'a> {
    pub(crate) rule: &'a Rule,
    pub(crate) cost: i128,
    pub(crate) max_wait_us: i128,
    pub(crate) commit: bool,
    pub(crate) now: i128,
}

/// What one rule decides.
pub(crate) struct Step {
    pub(crate) reply: RuleReply,
    /// What is to be remembered if all rules allow.
    pub(crate) if_allowed: Option<LimitState>,
    /// What is to be remembered in any case: the count of a denied call, where such calls count.
    pub(crate) in_any_case: Option<LimitState>,
}

/// Decides. `states` are what is remembered of each rule, in order; what comes back is what is to be remembered from now on.
///
/// Rules that only watch decide among themselves: they count when all of them allow, whatever the others say, and deny nothing.
pub fn take(check: &Check, states: &[Option<LimitState>], now: Micros) -> (Vec<Option<LimitState>>, LimitReply) {
    let rules = check.rules();
    let mut steps = Vec::with_capacity(rules.len());
    for (place, rule) in rules.iter().enumerate() {
        steps.push(step(&ask(check, rule, now), states.get(place).and_then(Option::as_ref)));
    }
    let all_allow = |shadow: bool| rules.iter().zip(&steps).filter(|(rule, _)| rule.is_shadow() == shadow).all(|(_, step)| step.reply.ok);
    let (allowed, shadows_allow) = (all_allow(false), all_allow(true));
    let mut after = Vec::with_capacity(rules.len());
    let mut replies = Vec::with_capacity(rules.len());
    for (place, (rule, step)) in rules.iter().zip(steps).enumerate() {
        let group_allows = if rule.is_shadow() { shadows_allow } else { allowed };
        let written = step.if_allowed.filter(|_| group_allows).or(step.in_any_case).filter(|_| check.writes());
        after.push(written.or_else(|| states.get(place).cloned().flatten()));
        replies.push(step.reply);
    }
    (after, LimitReply { allowed, now, rules: replies })
}

/// What one rule of a check says when this is remembered of it; nothing is decided by that. For a store whose own hand has decided, and which
/// tells what it found.
pub fn told(check: &Check, rule: &Rule, state: Option<&LimitState>, now: Micros) -> RuleReply {
    step(&ask(check, rule, now), state).reply
}

fn ask<'a>(check: &Check, rule: &'a Rule, now: Micros) -> Ask<'a> {
    Ask {
        rule,
        cost: i128::from(check.cost()),
        max_wait_us: i128::from(check.max_wait_us()),
        commit: check.writes(),
        now: i128::from(now.get()),
    }
}

/// How many of these rules have anything in use: what a reset gives back.
pub fn in_use(rules: &Rules, states: &[Option<LimitState>], now: Micros) -> u64 {
    let look = |(place, rule)| {
        let ask = Ask { rule, cost: 0, max_wait_us: 0, commit: false, now: i128::from(now.get()) };
        step(&ask, states.get(place).and_then(Option::as_ref)).reply
    };
    rules.iter().enumerate().map(look).filter(|said| !said.reset.is_zero()).count() as u64
}

fn step(ask: &Ask<'_>, state: Option<&LimitState>) -> Step {
    match ask.rule.algorithm() {
        Algorithm::Gcra => gcra::step(ask, state),
        Algorithm::FixedWindow => fixed_window::step(ask, state),
        Algorithm::SlidingCounter => sliding_counter::step(ask, state),
        Algorithm::SlidingLog => sliding_log::step(ask, state),
    }
}
