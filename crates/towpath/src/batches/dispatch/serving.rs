//! All batchers served: one dispatcher, one drainer and one keeper each, following their settings.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use towpath_core::batch::{BatcherId, Settings};
use towpath_core::names::BatcherName;

use super::dispatcher::Dispatching;
use super::drainer::Draining;
use super::keeper;
use super::receiver::Receiver;
use crate::Towpath;
use crate::batches::BatchError;
use crate::engine::backoff::Backoff;

/// Hearing nothing proves nothing.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Batchers that are served. Dropped, all of it stops at once: what is under way comes back by its lease.
pub struct ServingBatches {
    stop: CancellationToken,
    running: AbortOnDropHandle<()>,
}

impl Towpath {
    /// Serves all batchers, those that come later too: what is due goes to the receiver, lists of old producers are emptied. On a store
    /// without batches nothing is served.
    pub fn serve_batches(&self, receiver: Arc<dyn Receiver>, drain_timeout: Duration) -> ServingBatches {
        let stop = CancellationToken::new();
        let serving = Serving { towpath: self.clone(), receiver, served: BTreeMap::new() };
        let running = AbortOnDropHandle::new(tokio::spawn(serving.run(stop.clone(), drain_timeout)));
        ServingBatches { stop, running }
    }
}

impl ServingBatches {
    /// Claims nothing more, and ends when what is under way has ended or its time is over.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.running.await {
            tracing::error!(%error, "batchers did not stop in good order");
        }
    }
}

impl fmt::Debug for ServingBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingBatches").finish_non_exhaustive()
    }
}

struct Serving {
    towpath: Towpath,
    receiver: Arc<dyn Receiver>,
    served: BTreeMap<BatcherName, Served>,
}

struct Served {
    id: BatcherId,
    settings: watch::Sender<Arc<Settings>>,
    dispatching: Dispatching,
    draining: Draining,
    _keeping: AbortOnDropHandle<()>,
}

impl Served {
    /// Its lists are another's at once; what is under way may end first.
    async fn stop(self, drain_timeout: Duration) {
        tokio::join!(self.draining.stop(), self.dispatching.stop(drain_timeout));
    }
}

impl Serving {
    async fn run(mut self, stop: CancellationToken, drain_timeout: Duration) {
        let mut backoff = Backoff::new(self.towpath.clock(), "follow the batchers");
        let mut seen = 0;
        while !stop.is_cancelled() {
            let until = self.towpath.clock().now() + LOOK_EVERY;
            let looked = match self.follow(drain_timeout).await {
                Ok(()) => tokio::select! {
                    () = stop.cancelled() => break,
                    changed = async { self.towpath.batchers().changed(seen, until).await } => changed,
                },
                Err(error) => Err(error),
            };
            match looked {
                Ok(count) => {
                    backoff.succeeded();
                    seen = count;
                }
                Err(BatchError::Store(error)) => {
                    let pause = async { backoff.failed(error).await };
                    let goes_on = tokio::select! { () = stop.cancelled() => Ok(()), paused = pause => paused };
                    if goes_on.is_err() {
                        break;
                    }
                }
                // A store without batches.
                Err(_) => break,
            }
        }
        join_all(self.served.into_values().map(|one| one.stop(drain_timeout))).await;
    }

    async fn follow(&mut self, drain_timeout: Duration) -> Result<(), BatchError> {
        for known in self.towpath.batchers().list().await? {
            let id = known.settings.batcher_id(&known.name);
            match self.served.get(&known.name) {
                Some(one) if one.id == id => {
                    one.settings.send_if_modified(|now| std::mem::replace(now, Arc::clone(&known.settings)) != known.settings);
                }
                // It is kept elsewhere now. What is under way there may end first.
                Some(_) => {
                    if let Some(old) = self.served.remove(&known.name) {
                        old.stop(drain_timeout).await;
                    }
                    self.start(known.name, id, known.settings);
                }
                None => self.start(known.name, id, known.settings),
            }
        }
        Ok(())
    }

    fn start(&mut self, name: BatcherName, id: BatcherId, settings: Arc<Settings>) {
        let (sender, settings) = watch::channel(settings);
        let towpath = &self.towpath;
        let draining = Draining::start(towpath, name.clone(), settings.clone());
        let keeping = AbortOnDropHandle::new(tokio::spawn(keeper::run(towpath.clone(), name.clone(), settings.clone())));
        let dispatching = Dispatching::start(towpath, name.clone(), settings, Arc::clone(&self.receiver));
        self.served.insert(name, Served { id, settings: sender, dispatching, draining, _keeping: keeping });
    }
}
