//! The instant of every unit: one taken at t counts until t + window, exclusive.

use super::LimitState;
use super::reply::{Retry, RuleReply, length, units};
use super::take::{Ask, Step};

pub(super) fn step(ask: &Ask<'_>, state: Option<&LimitState>) -> Step {
    let (limit, window) = (i128::from(ask.rule.limit()), i128::from(ask.rule.window_us()));
    let all: &[(i64, u32)] = match state {
        Some(LimitState::SlidingLog { units }) => units,
        _ => &[],
    };
    let still_counts = |at: i64| i128::from(at) > ask.now - window;
    let live: Vec<(i64, u32)> = all.iter().copied().filter(|(at, _)| still_counts(*at)).collect();
    let before: i128 = live.iter().map(|(_, n)| i128::from(*n)).sum();
    let mut count = before;
    let (mut retry, mut after) = (Retry::NotNeeded, live.clone());
    let ok = ask.cost <= 0 || before + ask.cost <= limit;
    if ok {
        count += ask.cost.max(-before);
        if ask.cost < 0 {
            give_back(&mut after, units(-ask.cost));
        } else if ask.cost > 0 {
            add(&mut after, ask);
        }
    } else {
        // When so many of the oldest have left, there is room.
        let must_leave = before + ask.cost - limit;
        retry = if ask.cost > limit { Retry::Never } else { Retry::After(length(leaves(&live, must_leave) + window - ask.now)) };
    }
    let newest = if ask.cost < 0 { after.last() } else { all.last() };
    let reset = match newest {
        _ if ok && ask.cost > 0 => window,
        Some((at, _)) => i128::from(*at) + window - ask.now,
        None => 0,
    };
    let reply = RuleReply { ok, remaining: units(limit - count), retry, reset: length(reset), wait: length(0), count: units(count) };
    Step { reply, if_allowed: (ok && ask.cost != 0).then_some(LimitState::SlidingLog { units: after }), in_any_case: None }
}

/// Takes units away, newest first.
fn give_back(log: &mut Vec<(i64, u32)>, mut count: u64) {
    while count > 0
        && let Some((_, n)) = log.last_mut()
    {
        let back = u32::try_from(count).unwrap_or(u32::MAX).min(*n);
        *n -= back;
        count -= u64::from(back);
        if *n == 0 {
            log.pop();
        }
    }
}

fn add(log: &mut Vec<(i64, u32)>, ask: &Ask<'_>) {
    let (at, n) = (i64::try_from(ask.now).unwrap_or(i64::MAX), u32::try_from(ask.cost).unwrap_or(u32::MAX));
    // Later instants can stand there when the store's clock was set back.
    let place = log.partition_point(|(other, _)| *other < at);
    match log.get_mut(place) {
        Some((same, count)) if *same == at => *count = count.saturating_add(n),
        _ => log.insert(place, (at, n)),
    }
}

/// The instant of the `nth` oldest unit, counted from 1.
fn leaves(log: &[(i64, u32)], nth: i128) -> i128 {
    let mut passed = 0;
    for (at, n) in log {
        passed += i128::from(*n);
        if passed >= nth {
            return i128::from(*at);
        }
    }
    log.last().map_or(0, |(at, _)| i128::from(*at))
}
