//! Empties the lists that old producers push to. One process drains a list and the others stand by; whoever dies, and even if two drain at
//! once, what was taken aside is dealt with exactly once.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use towpath_core::batch::{DeadLetter, IngestReply, Message, NewMessage, Settings, SourceId};
use towpath_core::names::BatcherName;
use towpath_core::store::{BatchSource, DrainReply, Drained};

use crate::Towpath;
use crate::batches::BatchError;
use crate::engine::backoff::Backoff;

/// So many elements are taken aside at a time.
const AT_ONCE: usize = 100;
/// A drainer that was not heard of for so long has lost its place.
const LEASE: Duration = Duration::from_secs(5);
/// So long an empty list is waited for. Shorter than the lease: when another takes the place, the read of the one before is over, and takes
/// nothing aside that nobody looks for.
const WAIT: Duration = Duration::from_secs(3);
/// Who stands by hears when the place is free, and looks when a lease is over. It comes up for air after so long.
const STAND_BY: Duration = Duration::from_secs(60);
/// A batcher that is full is tried again after so long.
const PAUSE_WHEN_FULL: Duration = Duration::from_secs(1);
/// A drainer that is stopped ends its turn and gives its place up within this, or leaves that to its lease.
const LAST_TURN: Duration = Duration::from_secs(2);

/// The drainer of one batcher: of all its sources, following its settings. Dropped, it stops at once, and its lease decides.
pub(super) struct Draining {
    stop: CancellationToken,
    running: AbortOnDropHandle<()>,
    towpath: Towpath,
}

impl Draining {
    pub(super) fn start(towpath: &Towpath, name: BatcherName, settings: watch::Receiver<Arc<Settings>>) -> Self {
        let stop = CancellationToken::new();
        let running = AbortOnDropHandle::new(tokio::spawn(run(towpath.clone(), name, settings, stop.clone())));
        Self { stop, running, towpath: towpath.clone() }
    }

    /// Takes nothing more, deals with what it has, and leaves its lists to others at once.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        let clock = self.towpath.clock();
        tokio::select! {
            biased;
            ended = self.running => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a drainer did not stop in good order");
                }
            }
            () = clock.sleep_until(clock.now() + LAST_TURN) => {}
        }
    }
}

async fn run(towpath: Towpath, name: BatcherName, mut settings: watch::Receiver<Arc<Settings>>, stop: CancellationToken) {
    let Some(source) = towpath.batches().source.clone() else {
        if !settings.borrow().sources.is_empty() {
            tracing::warn!(batcher = %name, "the batcher has sources, and this store has no lists that could be drained");
        }
        return;
    };
    let drainer = Drainer { id: towpath.ids().worker_id().to_string(), towpath, source, name, stop };
    loop {
        let now = Arc::clone(&settings.borrow_and_update());
        let lists = now.sources.iter().map(|list| drainer.drain(&now, &list.list));
        tokio::select! {
            _stopped = join_all(lists), if !now.sources.is_empty() => return,
            () = drainer.stop.cancelled(), if now.sources.is_empty() => return,
            changed = settings.changed() => if changed.is_err() { return },
        }
    }
}

struct Drainer {
    /// Its name among those who would drain the same lists.
    id: String,
    towpath: Towpath,
    source: Arc<dyn BatchSource>,
    name: BatcherName,
    stop: CancellationToken,
}

impl Drainer {
    /// Drains a list whenever it is this drainer's turn, until it is stopped.
    async fn drain(&self, settings: &Settings, list: &str) {
        let mut backoff = Backoff::new(self.towpath.clock(), "drain a list");
        while !self.stop.is_cancelled() {
            match self.turn(settings, list).await {
                Ok(()) => backoff.succeeded(),
                Err(error) => {
                    // Another may do better.
                    self.resign(list).await;
                    tokio::select! {
                        () = self.stop.cancelled() => {}
                        () = self.pause(list, &mut backoff, error) => {}
                    }
                }
            }
        }
        self.resign(list).await;
    }

    /// Ends when another try may succeed.
    async fn pause(&self, list: &str, backoff: &mut Backoff, error: BatchError) {
        match error {
            BatchError::Store(error) => {
                if backoff.failed(error).await.is_ok() {
                    return;
                }
            }
            error => tracing::error!(batcher = %self.name, list, %error, "a list cannot be drained"),
        }
        std::future::pending::<()>().await;
    }

    /// Waits for the place, then for elements, and deals with them. A stop ends the waits and nothing else; what was taken aside meanwhile is
    /// what the next drainer begins with.
    async fn turn(&self, settings: &Settings, list: &str) -> Result<(), BatchError> {
        let until = self.towpath.clock().now() + STAND_BY;
        let drained = async {
            match self.source.lead(list, &self.id, LEASE, until).await? {
                true => self.source.drain(list, AT_ONCE, WAIT).await,
                false => Ok(Drained::default()),
            }
        };
        let drained = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(()),
            drained = drained => drained?,
        };
        take(&self.towpath, self.source.as_ref(), &self.name, settings, list, drained).await
    }

    async fn resign(&self, list: &str) {
        if let Err(error) = self.source.resign(list, &self.id).await {
            tracing::debug!(list, %error, "the place of a drainer is free when its lease is over");
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
