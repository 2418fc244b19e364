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
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Logs and counts a panic of a task that goes on.
pub(crate) fn note_panic(task: &'static str) {
    PANICS.fetch_add(1, Ordering::Relaxed);
    tracing::error!(task, "a task panicked and is started again; please report this");
}

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
                    Err(ended) if ended.is_panic() => note_panic(name),
                    Err(_the_runtime_ends) => return,
                }
                pause(delay).await;
                delay = (delay * 2).min(LAST_DELAY);
            }
            delay = FIRST_DELAY;
        }
    });
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Notify, mpsc};
    use towpath_core::clock::VirtualClock;
    use towpath_redis_testing::RedisServer;

    use super::*;
    use crate::options::RedisOptions;

    const SOON: Duration = Duration::from_secs(10);

    struct Supervised {
        server: RedisServer,
        store: RedisStore,
        signal: Arc<Notify>,
        /// The number of each round that begins.
        rounds: mpsc::UnboundedReceiver<u64>,
    }

    impl Supervised {
        /// A task whose first round panics and whose second one fails.
        async fn start() -> Self {
            let server = RedisServer::start();
            let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
            let store = RedisStore::open_by_clock(options, Arc::new(VirtualClock::new())).await.expect("the server is up");
            let (begun, rounds) = mpsc::unbounded_channel();
            let (signal, number) = (Arc::new(Notify::new()), Arc::new(AtomicU64::new(0)));
            let signalled = Arc::clone(&signal);
            let wait = move || {
                let signalled = Arc::clone(&signalled);
                async move { signalled.notified().await }
            };
            supervise("a test", &store, wait, move |_store| {
                let (begun, number) = (begun.clone(), number.fetch_add(1, Ordering::Relaxed) + 1);
                async move {
                    begun.send(number).expect("the test listens");
                    assert_ne!(number, 1, "a bug");
                    if number == 2 { Err(StoreError::Unknown("a failure".to_owned())) } else { Ok(()) }
                }
            });
            Self { server, store, signal, rounds }
        }

        async fn next_round(&mut self) -> Option<u64> {
            tokio::time::timeout(SOON, self.rounds.recv()).await.expect("it begins, or the task ends")
        }
    }

    #[tokio::test]
    async fn a_task_that_panics_or_fails_is_started_again_without_another_signal() {
        let panics = PANICS.load(Ordering::Relaxed);
        let mut task = Supervised::start().await;
        task.signal.notify_one();
        for round in 1..=3 {
            assert_eq!(task.next_round().await, Some(round));
        }
        assert!(PANICS.load(Ordering::Relaxed) > panics, "the panic is counted");
        task.signal.notify_one();
        assert_eq!(task.next_round().await, Some(4), "and it waits for signals as before");
    }

    #[tokio::test]
    async fn a_task_ends_with_its_store() {
        let mut task = Supervised::start().await;
        task.signal.notify_one();
        for round in 1..=3 {
            assert_eq!(task.next_round().await, Some(round));
        }
        let Supervised { server: _server, store, signal, mut rounds } = task;
        drop(store);
        signal.notify_one();
        assert_eq!(tokio::time::timeout(SOON, rounds.recv()).await, Ok(None));
    }
}
