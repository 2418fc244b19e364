//! A dead letter's request, submitted again.

use std::sync::Arc;

use towpath_core::call::{Call, CallCommand, CallReply, step};
use towpath_core::names::CallId;
use towpath_core::store::{Replayed, StoreError};

use super::change::Change;
use super::names::Reserved;
use super::record::{REQUEST, Record};
use crate::store::RedisStore;

impl RedisStore {
    /// Settles a dead letter and submits its request under a new id, in one script.
    pub(crate) async fn replay(&self, dead: &CallId, replay_id: CallId) -> Result<Replayed, StoreError> {
        self.shared.guarantee.admit()?;
        loop {
            let Some((partition, whole)) = self.find_whole(dead).await? else { return Ok(Replayed::NotDead) };
            let now = self.shared.now();
            let settle = CallCommand::Settle { replayed_as: Some(replay_id.clone()) };
            let (settled, reply) = step(whole.record.call.clone(), settle, now);
            if reply != CallReply::Settled {
                return Ok(Replayed::NotDead);
            }
            let old = &whole.record.call;
            let new = Call::submitted(replay_id.clone(), now, old.deadline.since(old.submitted_at), old.retain);
            let taken = matches!(self.reserve(&partition.function, &new).await?, Reserved::ByAnother);
            if taken || self.records(&partition, std::slice::from_ref(&replay_id)).await?.iter().any(Option::is_some) {
                return Ok(Replayed::NotDead);
            }
            let (asked, key) = (whole.asked().clone(), whole.record.key.clone());
            let record = Record::submitted(new, self.shared.next_sequence(now), key.clone(), Arc::default(), asked.clone());
            let is_beside = record.request.is_none();
            let mut insert = Change::insert(record);
            if is_beside {
                let field = format!("{REQUEST}{replay_id}");
                insert = insert.with([b"HSET", partition.keys.calls.as_bytes(), field.as_bytes(), &asked]);
            }
            if let Some(key) = key {
                let key = format!("{}{key}", partition.keys.idempotency);
                insert = insert.with([b"SET", key.as_bytes(), replay_id.as_str().as_bytes()]);
            }
            let settle = Change::new(Arc::new(whole.record), settled.clone());
            if self.apply_together(&partition, vec![settle, insert]).await? {
                self.let_reservation_end(&settled).await;
                return Ok(Replayed::Submitted);
            }
        }
    }
}
