//! The moves of calls.
//!
//! | room | what it does |
//! |---|---|
//! | `submit` | takes calls |
//! | `shape` | calls on their way to the server |
//! | `reserve` | ids and sequences in a Cluster |
//! | `entry` | the stream's entries and the replies, as old peers write and read them |
//! | `take` | delivers waiting calls to a worker |
//! | `at_once` | deliveries that are written down a moment later |
//! | `queue` | claims that wait, first come first served, and the readers that block for them |
//! | `load` | finds calls |
//! | `moves` | changes calls as decided, unless somebody was faster |
//! | `effects` | what a batch of changes does to the server |
//! | `hold` | what a worker does with a call it holds |
//! | `ears` | who waits for a call in this process |
//! | `inbox` | answers that come from other processes |
//! | `old_peers` | answers of workers that know no record and no inbox |

mod at_once;
pub(crate) mod ears;
mod effects;
pub(crate) mod entry;
mod hold;
pub(crate) mod inbox;
pub(crate) mod load;
pub(crate) mod moves;
pub(crate) mod old_peers;
pub(crate) mod queue;
mod replay;
mod reserve;
pub(crate) mod shape;
pub(crate) mod submit;
pub(crate) mod take;

use async_trait::async_trait;
use towpath_core::call::{CallCommand, CallReply};
use towpath_core::ids::DeliveryId;
use towpath_core::names::{CallId, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::store::{
    CallStore, CallWatch, Cancelled, ClaimCalls, CompleteCalls, Completed, Delivery, RenewCalls, Renewal, Replayed, StoreError, SubmitCall,
    Submitted,
};

use crate::store::RedisStore;

#[async_trait]
impl CallStore for RedisStore {
    async fn submit(&self, call: SubmitCall) -> Result<Submitted, StoreError> {
        self.submit_call(call).await
    }

    async fn claim(&self, want: ClaimCalls) -> Result<Vec<Delivery>, StoreError> {
        self.claim_or_wait(want).await
    }

    async fn renew(&self, leases: RenewCalls) -> Result<Vec<Renewal>, StoreError> {
        self.renew_all(leases).await
    }

    async fn complete(&self, answers: CompleteCalls) -> Result<Vec<Completed>, StoreError> {
        self.complete_all(answers).await
    }

    async fn release(&self, worker: &WorkerId, deliveries: Vec<DeliveryId>) -> Result<u64, StoreError> {
        self.release_all(worker, deliveries).await
    }

    async fn park(&self, worker: &WorkerId, delivery: &DeliveryId, parked: bool) -> Result<Renewal, StoreError> {
        self.park_one(worker, delivery, parked).await
    }

    async fn report_progress(&self, worker: &WorkerId, delivery: &DeliveryId, progress: Payload) -> Result<Renewal, StoreError> {
        self.keep_progress(worker, delivery, &progress).await
    }

    async fn cancel(&self, call_id: &CallId) -> Result<Cancelled, StoreError> {
        self.write_down_delivery_of(call_id).await?;
        let Some((after, reply)) = self.put(call_id, |_, _| CallCommand::Cancel).await? else { return Ok(Cancelled::NotFound) };
        Ok(match reply {
            CallReply::Cancelled => Cancelled::Done,
            CallReply::CancelRequested => {
                if let Some(holder) = &after.life.call.holder {
                    self.shared.news.publish(&format!("a:{holder}")).await;
                }
                Cancelled::Requested
            }
            _ended_before => Cancelled::AlreadyEnded(after.life.call.state),
        })
    }

    async fn replay_dead(&self, call_id: &CallId, replay_id: CallId) -> Result<Replayed, StoreError> {
        self.replay(call_id, replay_id).await
    }

    async fn drop_dead(&self, call_id: &CallId) -> Result<bool, StoreError> {
        let settled = self.put(call_id, |_, _| CallCommand::Settle { replayed_as: None }).await?;
        Ok(settled.is_some_and(|(_, reply)| reply == CallReply::Settled))
    }

    fn watch(&self, call_id: &CallId) -> Box<dyn CallWatch> {
        Box::new(self.listen_to(call_id))
    }

    async fn attention(&self, worker: &WorkerId) {
        self.shared.news.attention(worker).await;
    }
}
