//! Where ended calls are kept: in buckets of calls whose retention ends at about the same time. Redis expires a bucket as a whole, so that
//! forgetting sends no command.

use std::time::Duration;

use towpath_core::time::{Timestamp, millis};

/// A bucket is an eighth of the retention wide, but not narrower than this. So a function has some ten buckets, whatever its retention.
const NARROWEST_MS: i64 = 256;
/// A store that lives by a test's clock keeps buckets for so much longer: real time passes while that clock stands still.
const UNDER_A_TEST_CLOCK: Duration = Duration::from_secs(600);

/// A bucket, and how long it lives from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) name: String,
    pub(crate) lives_ms: i64,
}

impl Bucket {
    /// The bucket of a call that is kept until then.
    pub(crate) fn of(kept_until: Timestamp, retain: Duration, now: Timestamp, lives_by_the_server: bool) -> Self {
        let width = (millis(retain) / 8).max(NARROWEST_MS).unsigned_abs().next_power_of_two().cast_signed();
        let end = kept_until.as_millis().div_euclid(width).saturating_add(1).saturating_mul(width);
        let spare = if lives_by_the_server { 0 } else { millis(UNDER_A_TEST_CLOCK) };
        Self { name: format!("{width}.{end}"), lives_ms: end.saturating_sub(now.as_millis()).max(1).saturating_add(spare) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(kept_until: i64, retain: i64, now: i64) -> Bucket {
        Bucket::of(Timestamp::from_millis(kept_until), Duration::from_millis(retain.unsigned_abs()), Timestamp::from_millis(now), true)
    }

    #[test]
    fn a_bucket_outlives_each_of_its_calls_by_an_eighth_of_the_retention_at_most() {
        for retain in [1, 2_000, 60_000, 600_000, 86_400_000, 30 * 86_400_000] {
            for ended_at in [1_794_786_695_153, 1_794_786_695_000, 0] {
                let kept_until = ended_at + retain;
                let found = bucket(kept_until, retain, ended_at);
                assert!(found.lives_ms > retain, "{found:?}");
                assert!(found.lives_ms <= retain + (retain / 4).max(512), "{found:?}");
            }
        }
    }

    #[test]
    fn a_function_has_some_ten_buckets_whatever_its_retention() {
        for retain in [2_000, 600_000, 86_400_000, 30 * 86_400_000] {
            let buckets: std::collections::BTreeSet<String> = (0..1_000)
                .map(|part| 1_794_786_695_153 + retain * part / 1_000)
                .map(|ended_at| bucket(ended_at + retain, retain, ended_at).name)
                .collect();
            assert!(buckets.len() <= 10, "{retain}: {buckets:?}");
        }
    }

    #[test]
    fn calls_that_end_together_share_a_bucket() {
        assert_eq!(bucket(1_000_000, 2_000, 998_000).name, bucket(1_000_100, 2_000, 998_100).name);
        assert_ne!(bucket(1_000_000, 2_000, 998_000).name, bucket(1_000_300, 2_000, 998_300).name);
    }
}
