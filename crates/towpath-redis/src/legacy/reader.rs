//! Blocking reads on a connection of their own: one task per kind of read. It goes on after errors with a growing delay, is started again
//! after a panic, and ends with the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Cmd;
use tokio::sync::watch;
use towpath_core::store::StoreError;

use crate::link::{Exclusive, Link, Reply};
use crate::pause::pause;
use crate::store::{RedisStore, Shared};
use crate::supervised::note_panic;

/// How long one read blocks.
pub(super) const BLOCK: Duration = Duration::from_secs(5);
/// The first delay after an error; it doubles up to the last.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LAST_DELAY: Duration = Duration::from_secs(2);

/// A kind of blocking read.
pub(super) trait BlockingRead: Send + 'static {
    /// Name of the task in logs.
    const NAME: &'static str;

    /// The next read, which blocks for [`BLOCK`], and a key that it reads. `None`: there is nothing to wait for now.
    fn question(store: &RedisStore) -> impl Future<Output = Result<Option<(String, Cmd)>, StoreError>> + Send;

    /// Takes what a read brought.
    fn answer(store: RedisStore, reply: Reply) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// A read has failed.
    fn failed(store: &RedisStore);

    /// Rises when the next read would be another one.
    fn changes(store: &RedisStore) -> watch::Receiver<u64>;
}

/// Reads for as long as the store is open.
pub(super) fn start<B: BlockingRead>(store: &RedisStore) {
    let shared = Arc::downgrade(&store.shared);
    tokio::spawn(async move {
        while let Err(ended) = tokio::spawn(read::<B>(Weak::clone(&shared))).await {
            if !ended.is_panic() {
                return;
            }
            note_panic(B::NAME);
            pause(LAST_DELAY).await;
        }
    });
}

async fn read<B: BlockingRead>(shared: Weak<Shared>) {
    let (mut line, mut delay) = (None, FIRST_DELAY);
    loop {
        let round = round::<B>(&shared, &mut line).await;
        match round {
            Some(Ok(())) => delay = FIRST_DELAY,
            Some(Err(error)) => {
                tracing::debug!(%error, task = B::NAME, "a blocking read failed; trying again");
                line = None;
                if let Some(shared) = shared.upgrade() {
                    B::failed(&RedisStore { shared });
                }
                pause(delay).await;
                delay = (delay * 2).min(LAST_DELAY);
            }
            None => return,
        }
    }
}

/// One read. `None`: the store is closed.
async fn round<B: BlockingRead>(shared: &Weak<Shared>, line: &mut Option<Exclusive>) -> Option<Result<(), StoreError>> {
    let store = RedisStore { shared: shared.upgrade()? };
    let mut changes = B::changes(&store);
    changes.mark_unchanged();
    let question = match B::question(&store).await {
        Ok(question) => question,
        Err(error) => return Some(Err(error)),
    };
    let link = store.shared.link.clone();
    // While it waits, it does not keep the store open.
    drop(store);
    let Some((key, command)) = question else {
        return changes.changed().await.ok().map(|()| Ok(()));
    };
    let reply = match ask(&link, line, &key, &command, &mut changes).await {
        Ok(reply) => reply,
        Err(error) => return Some(Err(error)),
    };
    Some(B::answer(RedisStore { shared: shared.upgrade()? }, reply).await)
}

async fn ask(
    link: &Link,
    line: &mut Option<Exclusive>,
    key: &str,
    command: &Cmd,
    changes: &mut watch::Receiver<u64>,
) -> Result<Reply, StoreError> {
    let own = match line {
        Some(own) => own,
        None => line.insert(link.exclusive(key).await?),
    };
    let id = own.id();
    let read = own.ask_blocking(command, BLOCK);
    tokio::pin!(read);
    tokio::select! {
        biased;
        reply = &mut read => reply,
        _changed = changes.changed() => link.end(&id, read).await,
    }
}
