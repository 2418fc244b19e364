//! Fires timers: ends of delays and leases, deadlines, silent workers, lock leases. Sleeps until the next one, or until an earlier one exists.

use std::sync::Arc;
use std::time::Duration;

use towpath_core::clock::Clock;
use towpath_core::store::Store;
use towpath_core::time::Timestamp;

use super::backoff::Backoff;

/// How many timers of each kind one move fires. More would make callers wait behind it.
const CHUNK: u32 = 256;
/// A store that says something is due and then finds nothing to do is not asked more often than this.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

pub(crate) async fn run(store: Arc<dyn Store>, clock: Arc<dyn Clock>) {
    let mut backoff = Backoff::new(&clock, "do what is due");
    loop {
        match store.fire_due(CHUNK).await {
            Ok(fired) => {
                backoff.succeeded();
                if fired.total() >= u64::from(CHUNK) {
                    continue;
                }
                let earliest = if fired.total() == 0 { clock.now() + SHORTEST_PAUSE } else { clock.now() };
                sleep(store.as_ref(), clock.as_ref(), fired.next_due, earliest).await;
            }
            Err(error) => {
                if backoff.failed(error).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Sleeps until `next`, or until whatever turns out to be due before, but at least until `earliest`.
async fn sleep(store: &dyn Store, clock: &dyn Clock, mut next: Option<Timestamp>, earliest: Timestamp) {
    loop {
        let wake_at = next.unwrap_or(Timestamp::MAX).max(earliest);
        tokio::select! {
            biased;
            () = clock.sleep_until(wake_at) => return,
            at = store.due_before(next) => next = Some(at),
        }
    }
}
