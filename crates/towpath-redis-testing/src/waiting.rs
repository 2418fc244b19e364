//! Waiting for the thing itself.

use std::time::{Duration, Instant};

/// Returns as soon as `it_is_so`, and panics if that takes longer than `limit`.
#[expect(clippy::disallowed_methods, reason = "other processes are watched, and they live by the real clock")]
pub fn until(what: &str, limit: Duration, mut it_is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !it_is_so() {
        assert!(start.elapsed() < limit, "after {limit:?} still not: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
