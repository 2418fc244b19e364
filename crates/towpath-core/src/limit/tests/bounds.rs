//! What no window may ever see, whatever comes.

use proptest::prelude::*;

use super::{Limiter, ms};
use crate::limit::{Algorithm, Rule};

/// The most units in any window of this length, by two pointers over the instants of all units.
fn most_in_any_window(taken: &[(i64, u64)], window_us: i64) -> u64 {
    let (mut most, mut sum, mut first) = (0, 0, 0);
    for (place, (at, cost)) in taken.iter().enumerate() {
        sum += cost;
        while taken[first].0 <= at - window_us {
            sum -= taken[first].1;
            first += 1;
        }
        assert!(first <= place);
        most = most.max(sum);
    }
    most
}

fn rules() -> impl Strategy<Value = Rule> {
    let algorithm = prop::sample::select(&Algorithm::ALL[..]);
    (algorithm, 1..30_u64, 1..500_u64, 1..5_u64).prop_map(|(algorithm, limit, window, burst)| {
        let rule = Rule::new("r", algorithm, limit, ms(window)).unwrap();
        if algorithm == Algorithm::Gcra { rule.burst(burst).unwrap() } else { rule }
    })
}

fn bound(rule: &Rule) -> u64 {
    match rule.algorithm() {
        Algorithm::Gcra => rule.limit() + rule.capacity() - 1,
        Algorithm::FixedWindow | Algorithm::SlidingCounter => 2 * rule.limit(),
        Algorithm::SlidingLog => rule.limit(),
    }
}

proptest! {
    #[test]
    fn no_window_sees_more_than_its_algorithm_promises(
        rule in rules(),
        pauses in prop::collection::vec((prop_oneof![Just(0_i64), 1..3_000_i64, 1..200_000_i64], 1..3_u64), 200),
    ) {
        let mut limiter = Limiter::new(vec![rule.clone()]);
        let mut taken = Vec::new();
        for (pause, cost) in pauses {
            let bucket = limiter.now_us / rule.window_us();
            limiter.now_us += pause;
            if rule.algorithm() == Algorithm::FixedWindow && limiter.now_us / rule.window_us() != bucket {
                limiter.states = vec![None];
            }
            if limiter.take(cost, 0).allowed {
                taken.push((limiter.now_us, cost));
            }
        }
        let most = most_in_any_window(&taken, rule.window_us());
        prop_assert!(most <= bound(&rule), "{most} in a window of {rule}");
    }
}

#[test]
fn a_saturated_gcra_grants_what_it_may() {
    for (limit, window) in [(7_u64, 1_000_u64), (100, 60_000), (999, 1_000), (1, 3)] {
        let mut limiter = Limiter::new(vec![Rule::gcra("r", limit, ms(window)).unwrap()]);
        let (start, windows) = (limiter.now_us, 50);
        let end = start + i64::try_from(window * 1_000 * windows).unwrap();
        let mut granted = 0;
        while limiter.now_us < end {
            match limiter.take(1, 0).rules[0].retry {
                crate::limit::Retry::After(after) => limiter.now_us += i64::try_from(after.as_micros()).unwrap(),
                _granted => granted += 1,
            }
        }
        let may = limit * windows;
        // A caller that waits whole microseconds gives away what is left of the last one, each time.
        assert!(granted * 100 >= may * 98 && granted <= may + 1, "{granted} of {may}");
    }
}
