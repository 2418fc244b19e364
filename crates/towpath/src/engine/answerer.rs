//! Sends answers: whatever piled up while the last ones were under way goes in one move. No timer, so a lone answer goes at once.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use towpath_core::call::Answer;
use towpath_core::ids::DeliveryId;
use towpath_core::store::{CompleteCalls, Completed, StoreError};

use super::backoff::Backoff;
use super::desk::{Desk, Finished, Ticket};
use super::supervised::note_panic;

/// At most this many answers go in one move.
const BATCH_MAX: usize = 256;
/// A full batch does not wait for the move that is under way: the store shall find it when it is done with that. No more than these.
const UNDER_WAY_MAX: usize = 2;

/// An answer on its way.
struct Pending {
    ticket: Ticket,
    delivery: DeliveryId,
    answer: Answer,
}

/// Sends answers until all handlers are gone. Only one task at a time runs this.
pub(crate) async fn run(desk: Arc<Desk>, finished: Arc<Mutex<mpsc::UnboundedReceiver<Finished>>>) {
    let mut finished = finished.lock().await;
    let mut batch = Vec::new();
    let (mut under_way, mut in_trouble) = (JoinSet::new(), JoinSet::new());
    while finished.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let mut done: Vec<Ticket> = Vec::with_capacity(batch.len());
        let mut pending = Vec::with_capacity(batch.len());
        for Finished { ticket, delivery, answer } in batch.drain(..) {
            match answer {
                Some(answer) => pending.push(Pending { ticket, delivery, answer }),
                None => done.push(ticket),
            }
        }
        done.extend(pending.iter().map(|answer| answer.ticket));
        if done.len() < BATCH_MAX {
            if takes_all(&desk, &pending).await {
                desk.remove(&done);
            } else {
                // The trouble of one function must not hold up the answers of others.
                let desk = Arc::clone(&desk);
                in_trouble.spawn(async move { send(&desk, pending, &done).await });
            }
            while in_trouble.try_join_next().is_some() {}
            continue;
        }
        if under_way.len() == UNDER_WAY_MAX {
            under_way.join_next().await;
        }
        let desk = Arc::clone(&desk);
        under_way.spawn(async move { send(&desk, pending, &done).await });
    }
}

/// Sends answers once. Whether the store took all of them, or refused them for good.
async fn takes_all(desk: &Desk, pending: &[Pending]) -> bool {
    if pending.is_empty() {
        return true;
    }
    match complete(desk, pending).await {
        Ok(replies) => {
            log_lost(pending, &replies);
            true
        }
        Err(_) => false,
    }
}

/// Sends answers, and clears the desk of all that is done.
async fn send(desk: &Desk, pending: Vec<Pending>, done: &[Ticket]) {
    send_all(desk, pending).await;
    desk.remove(done);
}

/// Sends answers until the store has taken them or they are of no use any more. Saying one twice is harmless.
async fn send_all(desk: &Desk, mut pending: Vec<Pending>) {
    let mut backoff = Backoff::new(desk.clock(), "send answers");
    while !pending.is_empty() {
        match complete(desk, &pending).await {
            Ok(replies) => {
                backoff.succeeded();
                log_lost(&pending, &replies);
                return;
            }
            Err(StoreError::Corrupt(cause)) => return send_singly(desk, pending, &cause).await,
            Err(error) => {
                if backoff.failed(error).await.is_err() {
                    return;
                }
            }
        }
        let now = desk.clock().now();
        pending.retain(|answer| desk.may_answer(answer.ticket, now));
    }
}

/// One call that cannot be read must not hold up the others.
async fn send_singly(desk: &Desk, pending: Vec<Pending>, cause: &str) {
    tracing::error!(%cause, "the store cannot read a call that was answered");
    for answer in pending {
        let one = [answer];
        if let Err(error) = complete(desk, &one).await {
            tracing::error!(%error, delivery = %one[0].delivery, "an answer could not be kept");
        }
    }
}

/// A panic of the store counts as a lost reply, so that the answers are sent again.
async fn complete(desk: &Desk, pending: &[Pending]) -> Result<Vec<Completed>, StoreError> {
    let answers = pending.iter().map(|answer| (answer.delivery.clone(), answer.answer.clone())).collect();
    let complete = desk.store().complete(CompleteCalls { worker: desk.worker_id().clone(), answers });
    AssertUnwindSafe(complete).catch_unwind().await.unwrap_or_else(|_panic| {
        note_panic("answerer");
        Err(StoreError::Unknown("the store panicked".to_owned()))
    })
}

fn log_lost(pending: &[Pending], replies: &[Completed]) {
    for (answer, reply) in pending.iter().zip(replies) {
        if let Completed::Lost(why) = reply {
            tracing::info!(delivery = %answer.delivery, why = why.as_str(), "an answer came too late and was refused");
        }
    }
}
