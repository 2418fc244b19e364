//! Empties the lists that old producers push to. What was taken aside is dealt with exactly once, however often a drainer dies.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use towpath_core::batch::{DeadLetter, IngestReply, Message, NewMessage, Settings, SourceId};
use towpath_core::names::BatcherName;
use towpath_core::store::{BatchSource, DrainReply, Drained};

use crate::Towpath;
use crate::batches::BatchError;
use crate::engine::backoff::Backoff;

/// So many elements are taken aside at a time.
const AT_ONCE: usize = 100;
/// So long an empty list is waited for.
const WAIT: Duration = Duration::from_secs(5);
/// A batcher that is full is tried again after so long.
const PAUSE_WHEN_FULL: Duration = Duration::from_secs(1);

/// Drains all sources of a batcher, and follows its settings.
pub(super) async fn run(towpath: Towpath, name: BatcherName, mut settings: watch::Receiver<Arc<Settings>>) {
    let Some(source) = towpath.batches().source.clone() else {
        if !settings.borrow().sources.is_empty() {
            tracing::warn!(batcher = %name, "the batcher has sources, and this store has no lists that could be drained");
        }
        return;
    };
    loop {
        let now = Arc::clone(&settings.borrow_and_update());
        let lists = now.sources.iter().map(|list| drain(&towpath, source.as_ref(), &name, &now, &list.list));
        let changed = tokio::select! {
            _never = join_all(lists), if !now.sources.is_empty() => Ok(()),
            changed = settings.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

async fn drain(towpath: &Towpath, source: &dyn BatchSource, name: &BatcherName, settings: &Settings, list: &str) {
    let mut backoff = Backoff::new(towpath.clock(), "drain a list");
    loop {
        let turn = async {
            let drained = source.drain(list, AT_ONCE, WAIT).await?;
            take(towpath, source, name, settings, list, drained).await
        };
        match turn.await {
            Ok(()) => backoff.succeeded(),
            Err(BatchError::Store(error)) => {
                if backoff.failed(error).await.is_err() {
                    return std::future::pending().await;
                }
            }
            Err(error) => {
                tracing::error!(batcher = %name, list, %error, "a list cannot be drained");
                return std::future::pending().await;
            }
        }
    }
}

/// Deals with what was taken aside, and removes it.
async fn take(
    towpath: &Towpath,
    source: &dyn BatchSource,
    name: &BatcherName,
    settings: &Settings,
    list: &str,
    drained: Drained,
) -> Result<(), BatchError> {
    if drained.elements.is_empty() {
        return Ok(());
    }
    let (store, id) = (towpath.batch_store()?, settings.batcher_id(name));
    let mut good: Vec<NewMessage> = Vec::new();
    // Elements before which everything is dealt with once the good ones are taken.
    let mut dealt_with = Vec::new();
    for (offset, element) in drained.elements.iter().enumerate() {
        let source_id = SourceId { list: list.into(), number: drained.from + offset as u64 };
        match settings.message(Message::new(element.clone()), Some(source_id.clone())) {
            Ok(read) => {
                dealt_with.push(Some(good.len()));
                good.push(read.message);
            }
            Err(bad) => {
                let letter =
                    DeadLetter::unreadable(name, element, Some(&source_id), bad.dead_reason(), &bad.to_string(), towpath.clock().now());
                store.dead_letter_add(&id, letter, Some(source_id)).await?;
                dealt_with.push(None);
            }
        }
    }
    let replies = if good.is_empty() { Vec::new() } else { store.batch_ingest(&id, &settings.rules(), good).await? };
    let is_done = |place: &Option<usize>| place.is_none_or(|place| !matches!(replies.get(place), None | Some(IngestReply::Full { .. })));
    // Only what comes before the first that was not taken: order is that of the list.
    let done = dealt_with.iter().take_while(|place| is_done(place)).count();
    if done > 0
        && let DrainReply::Moved { at } = source.drained(list, drained.from, done).await?
    {
        tracing::debug!(list, at, "another has dealt with the same elements");
    }
    if done < drained.elements.len() {
        tracing::warn!(batcher = %name, list, "the batcher is full: the list is left alone for a moment");
        towpath.clock().sleep_until(towpath.clock().now() + PAUSE_WHEN_FULL).await;
    }
    Ok(())
}
