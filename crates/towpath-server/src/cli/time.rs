//! The command line's own time. A process edge: terminals, programs and networks do not wait for a clock that a test moves.
//! What is due in the store is never judged here.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The present instant, for measuring on this machine.
#[expect(clippy::disallowed_methods, reason = "a process edge: nothing durable is decided by it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since the Unix epoch by this machine's clock, only to show ages to people.
#[expect(clippy::disallowed_methods, reason = "a process edge: only shown to people")]
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Ends after this long.
#[expect(clippy::disallowed_methods, reason = "a process edge: waits for programs and networks")]
pub(crate) async fn sleep(length: Duration) {
    tokio::time::sleep(length).await;
}

/// Ends at this instant.
pub(crate) async fn sleep_until(at: Instant) {
    sleep(at.saturating_duration_since(now())).await;
}
