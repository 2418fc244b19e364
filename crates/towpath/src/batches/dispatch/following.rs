//! A receiver in this process: its dispatcher, and a follower of the batcher's settings.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use towpath_core::batch::Settings;
use towpath_core::names::BatcherName;

use super::dispatcher::Dispatching;
use super::keeper;
use super::receiver::Receiver;
use crate::Towpath;
use crate::batches::{BatchError, Which};
use crate::engine::backoff::Backoff;

/// Hearing nothing proves nothing.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A receiver that is served in this process.
pub(crate) struct InProcess {
    dispatching: Dispatching,
    _keeping: AbortOnDropHandle<()>,
    _following: AbortOnDropHandle<()>,
}

impl InProcess {
    pub(crate) async fn start(towpath: &Towpath, which: &Which, receiver: Arc<dyn Receiver>) -> Result<Self, BatchError> {
        let (name, settings) = towpath.batch(which.clone()).resolved().await?;
        towpath.batch_store()?;
        let (sender, settings) = watch::channel(settings);
        let following = follow(towpath.clone(), matches!(which, Which::Named(_)).then(|| name.clone()), sender);
        let following = AbortOnDropHandle::new(tokio::spawn(following));
        let keeping = AbortOnDropHandle::new(tokio::spawn(keeper::run(towpath.clone(), name.clone(), settings.clone())));
        Ok(Self { dispatching: Dispatching::start(towpath, name, settings, receiver), _keeping: keeping, _following: following })
    }

    pub(crate) async fn stop(self, patience: Duration) {
        self.dispatching.stop(patience).await;
    }
}

/// Follows the settings of a known batcher; those of one that was given with its settings never change.
async fn follow(towpath: Towpath, name: Option<BatcherName>, settings: watch::Sender<Arc<Settings>>) {
    let Some(name) = name else { return settings.closed().await };
    let mut backoff = Backoff::new(towpath.clock(), "follow the settings of a batcher");
    let mut seen = 0;
    loop {
        let changed = towpath.batchers().changed(seen, towpath.clock().now() + LOOK_EVERY).await;
        match changed {
            Ok(count) => {
                backoff.succeeded();
                seen = count;
                if let Ok(Some(known)) = towpath.batchers().find(&name).await {
                    settings.send_if_modified(|now| std::mem::replace(now, Arc::clone(&known.settings)) != known.settings);
                }
            }
            Err(BatchError::Store(error)) => {
                if backoff.failed(error).await.is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}
