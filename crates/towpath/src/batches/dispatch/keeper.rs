//! Sweeps a batcher now and then: lost deadlines are armed again, what is over is forgotten.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use towpath_core::batch::Settings;
use towpath_core::names::BatcherName;

use crate::Towpath;

const SWEEP_EVERY: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// Sweeps until it is dropped.
pub(super) async fn run(towpath: Towpath, name: BatcherName, settings: watch::Receiver<Arc<Settings>>) {
    let Ok(store) = towpath.batch_store().cloned() else { return };
    loop {
        let clock = towpath.clock();
        clock.sleep_until(clock.now() + SWEEP_EVERY).await;
        let (id, keep_dead) = {
            let settings = settings.borrow();
            (settings.batcher_id(&name), settings.dlq_keep_days.map(|days| DAY * days))
        };
        match store.batch_sweep(&id, keep_dead).await {
            Ok(swept) if swept.rearmed > 0 => {
                tracing::warn!(batcher = %name, rearmed = swept.rearmed, "open batches had lost their deadlines");
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(batcher = %name, %error, "a batcher could not be swept"),
        }
    }
}
