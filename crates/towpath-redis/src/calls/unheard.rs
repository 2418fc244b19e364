//! Calls that a claim took while its reply was lost: no worker runs them, so they go back instead of waiting for the end of their leases.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use towpath_core::call::CallState;
use towpath_core::ids::DeliveryId;
use towpath_core::names::{CallId, WorkerId};
use towpath_core::store::{ClaimCalls, StoreError};
use towpath_core::time::Timestamp;

use super::claim::Wanted;
use super::partition::Partition;
use crate::pause::pause;
use crate::store::RedisStore;
use crate::value;

/// How often they are looked for, and how long apart: the server may run the script after the reply was given up.
const LOOKS: u32 = 5;
const APART: Duration = Duration::from_secs(1);
/// One claim takes no more than this.
const CLAIMED_MAX: usize = 128;

/// A claim whose reply was lost.
struct Unheard {
    worker: WorkerId,
    partitions: Vec<Arc<Partition>>,
    /// When it was made, and when the leases end that it gave. Together with the worker they tell its calls from those of other claims.
    made_at: Timestamp,
    until: Timestamp,
}

impl RedisStore {
    /// The reply to a claim that was made then is lost.
    pub(super) fn give_back_unheard(&self, want: &ClaimCalls, asked: &[&Wanted], made_at: Timestamp) {
        let partitions = asked.iter().map(|wanted| Arc::clone(&wanted.partition)).collect();
        let unheard = Unheard { worker: want.worker.clone(), partitions, made_at, until: made_at + want.lease };
        let shared = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            let mut looks = 0;
            while looks < LOOKS {
                pause(APART).await;
                let Some(shared) = shared.upgrade() else { return };
                let store = Self { shared };
                if store.shared.now() >= unheard.until {
                    return; // their leases are over
                }
                match store.look_for_unheard(&unheard).await {
                    Ok(()) => looks += 1,
                    Err(error) => tracing::debug!(worker = %unheard.worker, %error, "calls whose claim was not heard are looked for again"),
                }
            }
        });
    }

    async fn look_for_unheard(&self, unheard: &Unheard) -> Result<(), StoreError> {
        for partition in &unheard.partitions {
            let mut ask = Cmd::new();
            let until = unheard.until.as_millis();
            ask.arg("ZRANGEBYSCORE").arg(&partition.keys.running).arg(until).arg(until).arg("LIMIT").arg(0).arg(CLAIMED_MAX);
            let ids = value::array("ZRANGEBYSCORE", self.shared.link.ask(&ask).await?)?;
            let ids: Vec<CallId> = ids.iter().filter_map(|id| value::call_id(id).ok()).collect();
            if ids.is_empty() {
                continue;
            }
            let records = self.records(partition, &ids).await?.into_iter().flatten();
            let lost = records.filter(|record| {
                let call = &record.call;
                let is_of_the_claim = call.holder.as_ref() == Some(&unheard.worker) && call.started_at == Some(unheard.made_at);
                call.state == CallState::Running && is_of_the_claim && self.shared.held.get(&call.call_id).is_none()
            });
            let lost: Vec<DeliveryId> =
                lost.map(|record| DeliveryId { call_id: record.call.call_id.clone(), number: record.call.delivery }).collect();
            if !lost.is_empty() {
                tracing::info!(worker = %unheard.worker, calls = lost.len(), "calls of a claim whose reply was lost go back to the queue");
                self.release_all(&unheard.worker, lost).await?;
            }
        }
        Ok(())
    }
}
