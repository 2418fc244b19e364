//! The generic cell rate algorithm in integers: an arrival time that moves on by window / limit with every unit.
//!
//! Times are whole microseconds and a fraction of one, so no rate is rounded. Redis computes the same in doubles; every product here stays
//! below 2^53 because the rule was checked, and comparisons go by the whole part first, so nothing is lost after a change of the rule either.

use super::reply::{Retry, RuleReply, div_ceil, length, units};
use super::take::{Ask, Step};
use super::{EXACT_MAX, LimitState};

/// An instant as whole microseconds and a numerator over the rule's denominator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Exact {
    us: i128,
    part: i128,
}

pub(super) fn step(ask: &Ask<'_>, state: Option<&LimitState>) -> Step {
    let (num, den) = ask.rule.interval();
    let (num, den) = (i128::from(num), i128::from(den));
    let (now, capacity) = (ask.now, i128::from(ask.rule.capacity()));
    let base = due(state, den, now);
    let moved = base.part + ask.cost * num;
    let mut due = Exact { us: base.us + moved.div_euclid(den), part: moved.rem_euclid(den) };
    let room = Exact { us: capacity * num / den, part: capacity * num % den };
    let (mut ok, mut wait_us, mut retry) = (true, 0, Retry::NotNeeded);
    if ask.cost < 0 {
        due = due.max(Exact { us: now, part: 0 }); // never beyond full capacity
    } else if ask.cost > 0 && (due.us - now, due.part) > (room.us, room.part) {
        wait_us = due.us - now - room.us + i128::from(due.part > room.part);
        if ask.cost > capacity || wait_us > ask.max_wait_us {
            ok = false;
            retry = if ask.cost > capacity { Retry::Never } else { Retry::After(length(wait_us)) };
            (wait_us, due) = (0, base);
        }
    }
    let ahead = due.us - now;
    let load = if ahead < EXACT_MAX / den { ahead * den + due.part } else { EXACT_MAX };
    let reply = RuleReply {
        ok,
        remaining: units((capacity * num - load).div_euclid(num)),
        retry,
        reset: length(ahead + i128::from(due.part > 0)),
        wait: length(wait_us),
        count: units(div_ceil(load, num)),
    };
    let after = LimitState::Gcra { at_us: narrow(due.us), part: narrow(due.part), parts: narrow(den) };
    Step { reply, if_allowed: (ok && ask.cost != 0).then_some(after), in_any_case: None }
}

/// When the next unit would be due; now, if that is past. A fraction over another denominator is rounded up.
fn due(state: Option<&LimitState>, den: i128, now: i128) -> Exact {
    let fresh = Exact { us: now, part: 0 };
    let Some(LimitState::Gcra { at_us, part, parts }) = state else { return fresh };
    let (mut us, mut part, parts) = (i128::from(*at_us), i128::from(*part), i128::from(*parts).max(1));
    if parts != den {
        part = div_ceil(part * den, parts);
        if part >= den {
            (us, part) = (us + 1, 0);
        }
    }
    if us >= now { Exact { us, part } } else { fresh }
}

fn narrow(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
