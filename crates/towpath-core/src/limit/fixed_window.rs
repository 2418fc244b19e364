//! The seed's counter: one per window, which starts at a multiple of its length.

use super::LimitState;
use super::reply::{Retry, RuleReply, length, units};
use super::state::window_number;
use super::take::{Ask, Step};
use crate::time::Micros;

pub(super) fn step(ask: &Ask<'_>, state: Option<&LimitState>) -> Step {
    let before = match state {
        Some(LimitState::FixedWindow { count }) => i128::from(*count),
        _ => 0,
    };
    let (limit, window) = (i128::from(ask.rule.limit()), i128::from(ask.rule.window_us()));
    let now = Micros::new(i64::try_from(ask.now).unwrap_or(i64::MAX));
    let until_next = window * (i128::from(window_number(ask.rule, now)) + 1) - ask.now;
    let add = if ask.cost < 0 { ask.cost.max(-before) } else { ask.cost };
    let ok = ask.cost <= 0 || before + ask.cost <= limit;
    let retry = match ok {
        true => Retry::NotNeeded,
        false if ask.cost > limit => Retry::Never,
        false => Retry::After(length(until_next)),
    };
    let counts_denied = ask.rule.counts_denied() && ask.commit;
    let count = if ok || counts_denied { before + add } else { before };
    let after = LimitState::FixedWindow { count: i64::try_from(before + add).unwrap_or(i64::MAX) };
    let reply = RuleReply {
        ok,
        remaining: units(limit - count),
        retry,
        reset: if count > 0 { length(until_next) } else { length(0) },
        wait: length(0),
        count: units(count),
    };
    Step { reply, if_allowed: (ok && add != 0).then(|| after.clone()), in_any_case: (!ok && counts_denied).then_some(after) }
}
