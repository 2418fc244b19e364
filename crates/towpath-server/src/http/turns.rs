//! Turns of pull workers: calls of functions with a rate are given out as their turns come, and stay in the queue until then.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towpath::limits::{Room, Turn, Turns, Verdict};
use towpath_core::ids::DeliveryId;
use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::store::{ClaimFunction, Delivery};
use towpath_core::time::Timestamp;

use super::app::App;
use super::error::ApiError;

/// Functions of which this server knows that they have a rate. One that it does not know yet is learnt with the first call of it.
#[derive(Debug, Default)]
pub(crate) struct Paced(Mutex<HashMap<FunctionKey, Turns>>);

impl Paced {
    fn learn(&self, function: &FunctionKey, turns: Option<&Turns>) {
        let mut known = self.lock();
        match turns {
            Some(turns) => drop(known.insert(function.clone(), turns.clone())),
            None => drop(known.remove(function)),
        }
    }

    fn recall(&self, function: &FunctionKey) -> Option<Turns> {
        self.lock().get(function).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FunctionKey, Turns>> {
        // Nothing in here can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a worker may claim now.
pub(crate) struct Claimable {
    pub(crate) functions: Vec<ClaimFunction>,
    /// When a function that is left out may be claimed for again.
    pub(crate) again_at: Option<Timestamp>,
}

/// Leaves out functions whose turn cannot come yet.
pub(crate) async fn claimable(app: &App, functions: Vec<FunctionKey>, max: u32) -> Claimable {
    let mut claimable = Claimable { functions: Vec::with_capacity(functions.len()), again_at: None };
    for function in functions {
        let room = match app.paced().recall(&function) {
            Some(turns) => turns.room().await,
            None => Room::Now(max),
        };
        match room {
            Room::Now(room) => claimable.functions.push(ClaimFunction { function, max: max.min(room) }),
            Room::NotBefore(at) => claimable.again_at = Some(claimable.again_at.map_or(at, |known| known.min(at))),
        }
    }
    claimable
}

/// Makes deliveries ready for a worker: ends calls whose params do not fit, keeps the deliveries whose turn has come, or comes in a moment that
/// is waited for, and puts the others back. A client that goes away meanwhile swallows nothing.
pub(crate) async fn draw(app: &App, worker: &WorkerId, lease: Duration, deliveries: Vec<Delivery>) -> Result<Vec<Delivery>, ApiError> {
    let ids = deliveries.iter().map(|delivery| delivery.id.clone()).collect();
    let mut in_hand = InHand { app: app.clone(), worker: worker.clone(), ids, verdicts: Vec::new() };
    let claimed_at = app.clock().now();
    let deliveries = app.towpath().prepare_deliveries(worker, deliveries).await?;
    in_hand.ids = deliveries.iter().map(|delivery| delivery.id.clone()).collect();
    let (mut kept, mut back, mut starts_at) = (Vec::with_capacity(deliveries.len()), Vec::new(), claimed_at);
    for delivery in deliveries {
        let function = &delivery.request.function;
        let turns = match app.towpath().turns_of(function).await {
            Ok(turns) => turns,
            Err(error) => {
                // The trouble of one function is not that of another.
                in_hand.ids.retain(|id| *id != delivery.id);
                app.towpath().put_back_later(worker, delivery, &error);
                continue;
            }
        };
        app.paced().learn(function, turns.as_ref());
        let turn = match turns {
            Some(turns) => Some(turns.take(1, lease / 4).await),
            None => None,
        };
        match turn {
            None => kept.push(delivery),
            Some(Turn::Yours(verdict)) => {
                starts_at = starts_at.max(app.clock().now() + round_up(verdict.wait));
                in_hand.verdicts.push(verdict);
                kept.push(delivery);
            }
            Some(Turn::NotBefore(_) | Turn::Never) => back.push(delivery.id),
        }
    }
    if !back.is_empty() {
        in_hand.ids.retain(|id| !back.contains(id));
        app.store().release(worker, back).await?;
    }
    if starts_at > app.clock().now() {
        app.clock().sleep_until(starts_at).await;
    }
    // The calls' time did not stand still meanwhile.
    let passed = app.clock().now().since(claimed_at);
    for delivery in &mut kept {
        delivery.remaining = delivery.remaining.saturating_sub(passed);
    }
    in_hand.give_out();
    Ok(kept)
}

/// Clocks wake by milliseconds.
fn round_up(wait: Duration) -> Duration {
    Duration::from_millis(u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX))
}

/// Deliveries on their way to a worker. If they do not get there, they and their turns are given back.
struct InHand {
    app: App,
    worker: WorkerId,
    ids: Vec<DeliveryId>,
    verdicts: Vec<Verdict>,
}

impl InHand {
    fn give_out(mut self) {
        self.ids.clear();
        self.verdicts.clear();
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        let (ids, verdicts) = (std::mem::take(&mut self.ids), std::mem::take(&mut self.verdicts));
        if ids.is_empty() {
            return;
        }
        let (app, worker) = (self.app.clone(), self.worker.clone());
        tokio::spawn(async move {
            // What cannot be given back comes back when its lease is over.
            let _released = app.store().release(&worker, ids).await;
            for verdict in verdicts {
                let _refunded = verdict.refund().await;
            }
        });
    }
}
