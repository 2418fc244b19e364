//! How small and how large each number of the API may be. Fields of one name have the same bounds wherever they stand.

use std::time::Duration;

use serde_json::json;

use super::codes::Code;
use super::error::ApiError;

/// The smallest and the largest number that a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    name: &'static str,
    min: u64,
    max: u64,
}

const SECOND_MS: u64 = 1_000;
const DAY_MS: u64 = 24 * 60 * 60 * SECOND_MS;

const TABLE: &[Bounds] = &[
    bounds("timeout_ms", 1, 30 * DAY_MS),
    bounds("retain_ms", 1, 30 * DAY_MS),
    bounds("wait_ms", 0, 30 * DAY_MS),
    bounds("wait_for_function_ms", 0, 600 * SECOND_MS),
    bounds("lease_ms", 100, 7 * DAY_MS),
    bounds("retry_after_ms", 0, 7 * DAY_MS),
    bounds("delay_ms", 0, 7 * DAY_MS),
    bounds("delay_ms_max", 0, 7 * DAY_MS),
    bounds("deadline_ms", 1, 36_600 * DAY_MS),
    bounds("sleep_ms", 0, 36_600 * DAY_MS),
    bounds("max", 1, 10_000),
    bounds("limit", 1, 200),
    bounds("concurrency", 1, 10_000),
    bounds("max_attempts", 1, 1_000),
    bounds("max_deliveries", 1, 1_000),
    bounds("max_backlog", 0, 1_000_000_000),
    bounds("max_concurrent", 1, 1_000_000),
    bounds("max_payload_bytes", 1, 4 * 1024 * 1024),
    bounds("shards", 1, 64),
    bounds("failures", 0, 1_000_000),
    bounds("crashes", 0, 1_000_000),
    bounds("after_progress", 0, u32::MAX as u64),
    bounds("if_version", 0, i64::MAX as u64),
    bounds("not_version", 0, i64::MAX as u64),
];

const fn bounds(name: &'static str, min: u64, max: u64) -> Bounds {
    Bounds { name, min, max }
}

impl Bounds {
    /// The bounds of a field, by its last name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        TABLE.iter().find(|bounds| bounds.name == name).copied()
    }

    /// An answer to a number outside.
    pub(crate) fn refuse(self, field: String, what: &str) -> ApiError {
        let Self { min, max, .. } = self;
        ApiError::new(Code::OutOfRange, format!("'{field}': {what}; it must be a whole number from {min} to {max}"))
            .field(field)
            .details(json!({ "min": min, "max": max }))
    }

    fn check(self, field: &str, number: u64) -> Result<(), ApiError> {
        if (self.min..=self.max).contains(&number) {
            return Ok(());
        }
        Err(self.refuse(field.to_owned(), &format!("{number} is out of range")))
    }
}

/// Checks a number against the bounds of the last name in `field`, which may be a path such as `functions[0].concurrency`.
pub(crate) fn check<N: Into<u64> + Copy>(field: &str, number: Option<N>) -> Result<Option<N>, ApiError> {
    if let (Some(number), Some(bounds)) = (number, Bounds::of(field.rsplit('.').next().unwrap_or_default())) {
        bounds.check(field, number.into())?;
    }
    Ok(number)
}

/// Checks a length in milliseconds.
pub(crate) fn length(field: &str, ms: Option<u64>) -> Result<Option<Duration>, ApiError> {
    Ok(check(field, ms)?.map(Duration::from_millis))
}

/// Checks a number against narrower bounds than those of its name elsewhere.
pub(crate) fn check_within(field: &'static str, number: Option<u64>, min: u64, max: u64) -> Result<Option<u64>, ApiError> {
    if let Some(number) = number {
        bounds(field, min, max).check(field, number)?;
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_are_taken_and_what_is_beyond_is_not() {
        assert!(check("timeout_ms", Some(1_u64)).is_ok());
        assert!(check("timeout_ms", Some(30 * DAY_MS)).is_ok());
        assert!(check("functions[3].concurrency", Some(0_u32)).is_err());
        for beyond in [0, 30 * DAY_MS + 1, u64::MAX] {
            let Err(error) = check("timeout_ms", Some(beyond)) else { panic!("{beyond} was taken") };
            assert_eq!((error.code(), error.field_name()), (Code::OutOfRange, Some("timeout_ms")));
        }
        assert!(check::<u64>("timeout_ms", None).is_ok());
    }

    #[test]
    fn every_field_stands_in_the_table_once() {
        for bounds in TABLE {
            assert_eq!(Bounds::of(bounds.name), Some(*bounds));
            assert!(bounds.min <= bounds.max, "{bounds:?}");
        }
    }
}
