//! Prolongs the leases of calls that take long, all in one move, and hears that a call is lost or wanted cancelled.

use std::sync::Arc;
use std::time::Duration;

use towpath_core::store::{RenewCalls, Renewal, StoreError};
use towpath_core::time::Timestamp;

use super::backoff::Backoff;
use super::desk::{Desk, DueLease};

/// At most this many leases are prolonged in one move.
const BATCH_MAX: usize = 1_000;
/// Leases are prolonged at most this often per lease, so that calls which began at different times are renewed together.
const SHARES: u32 = 12;

pub(crate) async fn run(desk: Arc<Desk>) {
    let renew_after = desk.timing.lease / 3;
    let mut backoff = Backoff::new(desk.clock(), "renew leases");
    let mut looked_at = desk.clock().now();
    loop {
        let age = tokio::select! {
            biased;
            // Somebody wants a call cancelled: renewing tells which.
            () = desk.store().attention(desk.worker_id()) => Duration::ZERO,
            () = desk.clock().sleep_until(next_look(&desk, looked_at)) => renew_after,
        };
        looked_at = desk.clock().now();
        let mut due = desk.held_longer_than(age);
        while !due.is_empty() {
            let rest = due.split_off(due.len().min(BATCH_MAX));
            match renew(&desk, &due).await {
                Ok(()) => {
                    backoff.succeeded();
                    due = rest;
                }
                Err(error) => {
                    if backoff.failed(error).await.is_err() {
                        return;
                    }
                    due = desk.held_longer_than(age);
                }
            }
        }
    }
}

/// The first instant at which a lease is a third over. What is claimed after this look is a third over later than that. Leases that are
/// due soon after one another share a move.
fn next_look(desk: &Desk, looked_at: Timestamp) -> Timestamp {
    let lease = desk.timing.lease;
    let latest = looked_at + lease / 3;
    desk.first_held_for(lease / 3).map_or(latest, |at| at.min(latest)).max(looked_at + lease / SHARES)
}

async fn renew(desk: &Desk, due: &[DueLease]) -> Result<(), StoreError> {
    let deliveries = due.iter().map(|lease| lease.delivery.clone()).collect();
    let asked_at = desk.clock().now();
    let leases = RenewCalls { worker: desk.worker_id().clone(), deliveries, lease: desk.timing.lease };
    let replies = desk.store().renew(leases).await?;
    for (lease, reply) in due.iter().zip(replies) {
        match reply {
            Renewal::Held { cancel_requested, .. } => {
                desk.renewed(lease.ticket, asked_at);
                if cancel_requested && let Some(stop) = desk.stop_signal(lease.ticket) {
                    stop.cancel();
                }
            }
            Renewal::Lost(why) => {
                if let Some(stop) = desk.stop_signal(lease.ticket) {
                    tracing::warn!(delivery = %lease.delivery, why = why.as_str(), "a call is no longer this worker's; its handler is told to stop");
                    stop.lose();
                }
            }
        }
    }
    Ok(())
}
