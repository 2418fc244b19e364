//! Two counters: of the last window counts the part that lies within one window before now, as if its units had come evenly.
//!
//! Everything is scaled by the window's length, so that only integers are compared.

use super::LimitState;
use super::reply::{Retry, RuleReply, div_ceil, length, units};
use super::take::{Ask, Step};

pub(super) fn step(ask: &Ask<'_>, state: Option<&LimitState>) -> Step {
    let (limit, a) = (i128::from(ask.rule.limit()), i128::from(ask.rule.window_us()));
    let window = ask.now.div_euclid(a);
    let (mut current, previous) = counts(state, a, window);
    let elapsed = ask.now - window * a;
    let mut used = previous * (a - elapsed) + current * a;
    let ok = ask.cost <= 0 || used <= (limit - ask.cost) * a;
    let mut retry = Retry::NotNeeded;
    let mut after = None;
    if ok {
        let taken = (current + ask.cost).max(0);
        used += (taken - current) * a;
        current = taken;
        after = (ask.cost != 0).then(|| LimitState::SlidingCounter {
            window_us: ask.rule.window_us(),
            window: narrow(window),
            current: narrow(current),
            previous: narrow(previous),
        });
    } else {
        retry = match () {
            () if ask.cost > limit => Retry::Never,
            // The last window fades until there is room.
            () if current + ask.cost <= limit => Retry::After(length(div_ceil(used - (limit - ask.cost) * a, previous))),
            // This window must end first, and then fade.
            () => Retry::After(length((a - elapsed) + div_ceil((current + ask.cost - limit) * a, current).max(0))),
        };
    }
    let reset = match (current > 0, previous > 0) {
        (true, _) => 2 * a - elapsed,
        (false, true) => a - elapsed,
        (false, false) => 0,
    };
    let reply = RuleReply {
        ok,
        remaining: units((limit * a - used).div_euclid(a)),
        retry,
        reset: length(reset),
        wait: length(0),
        count: units(div_ceil(used, a)),
    };
    Step { reply, if_allowed: after, in_any_case: None }
}

/// The counts of this window and of the one before.
fn counts(state: Option<&LimitState>, a: i128, now_in: i128) -> (i128, i128) {
    match state {
        Some(LimitState::SlidingCounter { window_us, window, current, previous }) if i128::from(*window_us) == a => {
            match now_in - i128::from(*window) {
                0 => (i128::from(*current), i128::from(*previous)),
                1 => (0, i128::from(*current)),
                _ => (0, 0),
            }
        }
        _ => (0, 0),
    }
}

fn narrow(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
