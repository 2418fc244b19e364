//! Calls. A call is a record in its function's partition; every move of it compares the record and moves it in one script.
//!
//! | file | what it does |
//! |---|---|
//! | `partition`, `partitions` | what a process remembers about a function's keys; of which functions |
//! | `record`, `tail` | how a call is written down |
//! | `names` | from a call's id to its partition |
//! | `submit` | takes calls |
//! | `claim` | delivers waiting calls to workers |
//! | `waiting` | the claims of this process that wait |
//! | `handed` | calls that a submit hands to a claim that waits |
//! | `change` | makes changes that the host decided |
//! | `hold` | what a worker does with a call it holds |
//! | `find` | finds calls by their ids |
//! | `ended` | where ended calls are kept until Redis expires them |
//! | `lists`, `walk` | lists for people; a walk through the records where running and delayed calls are many |
//! | `remove` | removes a call whose record cannot be read |
//! | `replay` | submits a dead letter's request again |
//! | `waiters`, `replies` | how the end of a call reaches the tasks that wait for it |
//! | `held`, `agenda` | what this process remembers of its workers' calls and of timers |
//! | `sections` | replies of scripts that have one section per function |

pub(crate) mod agenda;
pub(crate) mod change;
pub(crate) mod claim;
mod ended;
pub(crate) mod find;
pub(crate) mod handed;
pub(crate) mod held;
mod hold;
mod lists;
pub(crate) mod names;
pub(crate) mod partition;
pub(crate) mod partitions;
pub(crate) mod record;
mod remove;
mod replay;
pub(crate) mod replies;
pub(crate) mod sections;
pub(crate) mod submit;
pub(crate) mod tail;
mod unheard;
pub(crate) mod waiters;
pub(crate) mod waiting;
mod walk;

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
        let Some((after, reply)) = self.put(call_id, |_, _| CallCommand::Cancel).await? else { return Ok(Cancelled::NotFound) };
        Ok(match reply {
            CallReply::Cancelled => Cancelled::Done,
            CallReply::CancelRequested => {
                if let Some(holder) = &after.record.call.holder {
                    self.shared.news.publish(&format!("a:{holder}")).await;
                }
                Cancelled::Requested
            }
            _ended_before => Cancelled::AlreadyEnded(after.record.call.state),
        })
    }

    async fn replay_dead(&self, call_id: &CallId, replay_id: CallId) -> Result<Replayed, StoreError> {
        self.replay(call_id, replay_id).await
    }

    async fn drop_dead(&self, call_id: &CallId) -> Result<bool, StoreError> {
        let settled = match self.put(call_id, |_, _| CallCommand::Settle { replayed_as: None }).await {
            // No outcome can be written into it, so it goes as a whole.
            Err(StoreError::Corrupt(_)) | Ok(None) if self.remove_unreadable(call_id).await? => return Ok(true),
            settled => settled?,
        };
        let Some((found, CallReply::Settled)) = settled else { return Ok(false) };
        self.let_reservation_end(&found.record.call).await;
        Ok(true)
    }

    fn watch(&self, call_id: &CallId) -> Box<dyn CallWatch> {
        Box::new(self.listen_to(call_id))
    }

    async fn attention(&self, worker: &WorkerId) {
        self.shared.news.attention(worker).await;
    }
}
