//! Says that a worker is alive, and introduces it again when the store has forgotten it.

use std::sync::Arc;

use towpath_core::store::{Heartbeat, StoreError};
use towpath_core::worker::HEARTBEAT_EVERY;

use super::backoff::Backoff;
use super::desk::Desk;

pub(crate) async fn run(desk: Arc<Desk>) {
    let mut backoff = Backoff::new(desk.clock(), "send a heartbeat");
    loop {
        desk.clock().sleep_until(desk.clock().now() + HEARTBEAT_EVERY).await;
        if !desk.health.is_fit(desk.clock().now()) {
            tracing::error!(worker = %desk.worker_id(), "the worker does not say that it is healthy: one of its tasks does not run");
            continue;
        }
        loop {
            match beat(&desk).await {
                Ok(()) => {
                    backoff.succeeded();
                    break;
                }
                Err(error) => {
                    if backoff.failed(error).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

async fn beat(desk: &Desk) -> Result<(), StoreError> {
    match desk.store().heartbeat(desk.worker_id()).await? {
        Heartbeat::Known => Ok(()),
        Heartbeat::Unknown => {
            tracing::warn!(worker = %desk.worker_id(), "the worker was forgotten, probably because it was silent for long; it registers again");
            desk.store().register(desk.introduction.clone()).await
        }
    }
}
