//! Steady state: how long calls are kept and may take, so that retention, deadlines and timers are all under way while calls are measured.

use std::time::Duration;

use towpath::{FloorGauge, FunctionKey, FunctionName, NewCall, Payload};

use super::place::{Before, Place};
use super::{PARAMS, blocking, failed};
use crate::cli::failure::Failure;
use crate::cli::time;

/// Kept calls are level when they grew by no more than this factor between two readings.
const LEVEL: f64 = 1.1;
const BETWEEN_READINGS: Duration = Duration::from_secs(2);

/// How measured calls are submitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steady {
    /// How long an outcome is kept.
    pub(super) retain: Duration,
    /// When a call ends at the latest.
    pub(super) timeout: Duration,
    /// How long the load runs before it is measured, at least.
    pub(super) warm_up: Duration,
    /// And at most, when the number of kept calls does not become level.
    pub(super) warm_up_max: Duration,
    /// The wait before each retry whose lateness is measured.
    pub(super) backoff: Duration,
    /// The deadline of calls whose expiry is measured.
    pub(super) expire_after: Duration,
}

impl Steady {
    pub(super) const FULL: Self = Self {
        retain: Duration::from_secs(2),
        timeout: Duration::from_secs(5),
        warm_up: Duration::from_secs(8),
        warm_up_max: Duration::from_secs(16),
        backoff: Duration::from_secs(2),
        expire_after: Duration::from_secs(5),
    };
    /// Shows that everything works. Its figures are only a hint.
    pub(super) const QUICK: Self = Self {
        retain: Duration::from_millis(500),
        timeout: Duration::from_secs(5),
        warm_up: Duration::from_secs(1),
        warm_up_max: Duration::from_secs(1),
        backoff: Duration::from_millis(300),
        expire_after: Duration::from_millis(700),
    };

    /// The same with a shorter warm-up: the retention and half a second. For loads that are only compared with each other.
    pub(super) fn brief(self) -> Self {
        let warm_up = (self.retain + Duration::from_millis(500)).min(self.warm_up);
        Self { warm_up, warm_up_max: warm_up, ..self }
    }

    /// A call of one of the measured functions.
    pub(super) fn call(&self, place: &Place, number: u32) -> Result<NewCall, Failure> {
        self.call_of(place.function(number))
    }

    pub(super) fn call_of(&self, function: String) -> Result<NewCall, Failure> {
        let name = FunctionName::new(function).map_err(|error| failed(&error.to_string()))?;
        let mut call = NewCall::new(FunctionKey::global(name), Payload::from_json(PARAMS));
        (call.timeout, call.retain) = (Some(self.timeout), Some(self.retain));
        Ok(call)
    }

    /// Returns when a load that has just begun is in steady state, or when the longest warm-up is over.
    pub(super) async fn warm_up(&self, place: &Place) -> Result<(), Failure> {
        let end = time::now() + self.warm_up_max;
        time::sleep(self.warm_up).await;
        let Some(mut before) = place.kept().await? else { return Ok(()) };
        while time::now() + BETWEEN_READINGS <= end {
            time::sleep(BETWEEN_READINGS).await;
            let kept = place.kept().await?.unwrap_or(0);
            if kept as f64 <= before as f64 * LEVEL {
                break;
            }
            before = kept;
        }
        Ok(())
    }

    /// How many calls are kept at this rate if each is removed when its retention ends.
    pub(super) fn kept_at(&self, calls_per_second: f64) -> f64 {
        calls_per_second * self.retain.as_secs_f64()
    }
}

impl Place {
    /// From now on, records that are there now do not count as kept calls.
    pub(super) async fn count_from_here(&mut self) -> Result<(), Failure> {
        self.before = Before::default();
        if let Some((records, keys)) = self.records().await? {
            self.before = Before { keys, records: records.unwrap_or(0) };
        }
        Ok(())
    }

    /// About how many calls are kept, by the number of records beyond those at [`Place::count_from_here`]. `None`: it is not known. The
    /// embedded store cannot count cheaply.
    pub(super) async fn kept(&self) -> Result<Option<u64>, Failure> {
        let Some((records, keys)) = self.records().await? else { return Ok(None) };
        // Where calls are keys, only new keys were counted.
        let counted_keys = records == Some(keys.saturating_sub(self.before.keys));
        let before = if counted_keys { 0 } else { self.before.records };
        // Fewer than before: what stood there before has left, so that the kept calls cannot be told from it.
        Ok(records.and_then(|records| records.checked_sub(before)))
    }

    /// Records and keys of a Redis.
    async fn records(&self) -> Result<Option<(Option<u64>, u64)>, Failure> {
        let failed = |cause: String| failed(&cause);
        let Some(prefix) = towpath::redis_prefix(&self.url).map_err(|error| failed(error.to_string()))? else { return Ok(None) };
        let (url, keys_before) = (self.url.clone(), self.before.keys);
        blocking(move || FloorGauge::open(&url)?.records(&prefix, keys_before)).await.map(Some).map_err(failed)
    }
}
