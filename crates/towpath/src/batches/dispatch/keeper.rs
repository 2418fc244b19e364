//! Sweeps a batcher now and then: lost deadlines are armed again, what is over is forgotten.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use towpath_core::batch::Settings;
use towpath_core::names::BatcherName;
use towpath_core::store::Swept;

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
            (settings.batcher_id(&name), settings.dlq_keep_days.map(|days| DAY * days).or(towpath.retention().dead_letters))
        };
        match store.batch_sweep(&id, keep_dead).await {
            Ok(swept) => tell(&towpath, &name, swept),
            Err(error) => tracing::debug!(batcher = %name, %error, "a batcher could not be swept"),
        }
    }
}

fn tell(towpath: &Towpath, name: &BatcherName, swept: Swept) {
    if swept.rearmed > 0 {
        tracing::warn!(batcher = %name, rearmed = swept.rearmed, "open batches had lost their deadlines");
    }
    if swept.dead_removed > 0 {
        tracing::warn!(batcher = %name, removed = swept.dead_removed, "dead letters were dropped: nobody has dealt with them within their retention");
        towpath.observer().batch_dead_forgotten(name, swept.dead_removed);
    }
}
