//! Draws turns for deliveries of functions with a rate. What must wait for longer than a moment goes back to its queue.

use std::sync::Arc;
use std::time::Duration;

use towpath_core::ids::DeliveryId;
use towpath_core::store::Delivery;

use super::desk::Desk;
use super::executor;
use crate::limits::Turn;

/// Starts the handlers of these deliveries, those of functions with a rate as their turns come.
pub(crate) async fn start(desk: &Arc<Desk>, deliveries: Vec<Delivery>) {
    let has_turns = |delivery: &Delivery| desk.served(&delivery.request.function).is_some_and(|served| served.turns.is_some());
    if !deliveries.iter().any(has_turns) {
        return executor::start(desk, deliveries, Duration::ZERO);
    }
    let (limited, free) = deliveries.into_iter().partition(has_turns);
    executor::start(desk, free, Duration::ZERO);
    draw(desk, limited).await;
}

/// One after the other: what the first one learns of the room, the next one need not ask.
async fn draw(desk: &Arc<Desk>, deliveries: Vec<Delivery>) {
    let claimed_at = desk.clock().now();
    let mut back = Vec::new();
    for mut delivery in deliveries {
        let Some(turns) = desk.served(&delivery.request.function).and_then(|served| served.turns.clone()) else { continue };
        match turns.take(1, Duration::MAX).await {
            Turn::Yours(verdict) => {
                // The call's time does not stand still while it is asked whose turn it is.
                delivery.remaining = delivery.remaining.saturating_sub(desk.clock().now().since(claimed_at));
                executor::start(desk, vec![delivery], verdict.wait);
            }
            Turn::NotBefore(_) | Turn::Never => back.push(delivery.id),
        }
    }
    if !back.is_empty() {
        put_back(desk, back).await;
    }
}

async fn put_back(desk: &Desk, deliveries: Vec<DeliveryId>) {
    if let Err(error) = desk.store().release(desk.worker_id(), deliveries).await {
        tracing::warn!(%error, "calls whose turn has not come could not be put back; they come back when their leases are over");
    }
}
