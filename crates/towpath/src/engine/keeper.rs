//! Removes what is too old or too much, now and then: dead letters, entries of audits, outcomes beyond a number or a size.

use std::sync::Arc;
use std::time::Duration;

use towpath_core::clock::Clock;
use towpath_core::store::{Forgotten, Retention, Store, StoreError, StoreTrouble};

/// How often it looks.
const EVERY: Duration = Duration::from_secs(60);
/// How much of each kind one move removes. More would make callers wait behind it.
const CHUNK: u32 = 256;

pub(crate) async fn run(store: Arc<dyn Store>, clock: Arc<dyn Clock>, keep: Retention) {
    loop {
        clock.sleep_until(clock.now() + EVERY).await;
        match forget_all(store.as_ref(), &keep).await {
            Ok(()) => {}
            Err(StoreError::Unavailable(StoreTrouble::Closed)) => return,
            Err(error) => tracing::debug!(%error, "what is too old could not be removed; it is tried again in a minute"),
        }
    }
}

async fn forget_all(store: &dyn Store, keep: &Retention) -> Result<(), StoreError> {
    loop {
        let forgotten = store.forget_old(keep, CHUNK).await?;
        tell(&forgotten);
        if !forgotten.has_more(CHUNK) {
            return Ok(());
        }
    }
}

/// A dead letter is the last trace of work that was not done, so that each has a line of its own.
fn tell(forgotten: &Forgotten) {
    for call_id in &forgotten.dead_letters {
        tracing::warn!(%call_id, "a dead letter was dropped: it was neither replayed nor dropped within its retention");
    }
    if forgotten.audits > 0 {
        tracing::info!(entries = forgotten.audits, "entries of audits were removed: they were older than their retention");
    }
    if forgotten.outcomes > 0 {
        tracing::warn!(
            calls = forgotten.outcomes,
            "ended calls were removed before their retention was over: the store keeps more calls or bytes than it is allowed to"
        );
    }
    if forgotten.runs > 0 {
        tracing::warn!(
            runs = forgotten.runs,
            "closed runs were removed before their retention was over: the store keeps more bytes than it is allowed to"
        );
    }
}
