//! Tasks that others depend on. A task that panics or fails is logged, counted, and started again after a short delay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use towpath_core::store::StoreError;

use crate::pause::pause;
use crate::store::RedisStore;

/// The first delay before a task is started again; it doubles up to the last.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const LAST_DELAY: Duration = Duration::from_secs(1);

/// Number of times that a task of this process panicked and was started again.
pub(crate) static PANICS: AtomicU64 = AtomicU64::new(0);

/// Runs a round of work each time that `wait` ends, for as long as the store is open. Only a round keeps the store open.
pub(crate) fn supervise<W, F>(
    name: &'static str,
    store: &RedisStore,
    wait: impl Fn() -> W + Send + 'static,
    round: impl Fn(RedisStore) -> F + Send + 'static,
) where
    W: Future<Output = ()> + Send,
    F: Future<Output = Result<(), StoreError>> + Send + 'static,
{
    let shared = Arc::downgrade(&store.shared);
    tokio::spawn(async move {
        let mut delay = FIRST_DELAY;
        loop {
            wait().await;
            loop {
                let Some(shared) = shared.upgrade() else { return };
                // A task of its own, so that a panic ends this round and nothing else.
                match tokio::spawn(round(RedisStore { shared })).await {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => tracing::debug!(%error, task = name, "a task failed; trying again"),
                    Err(ended) if ended.is_panic() => {
                        PANICS.fetch_add(1, Ordering::Relaxed);
                        tracing::error!(task = name, "a task panicked and is started again; please report this");
                    }
                    Err(_the_runtime_ends) => return,
                }
                pause(delay).await;
                delay = (delay * 2).min(LAST_DELAY);
            }
            delay = FIRST_DELAY;
        }
    });
}
