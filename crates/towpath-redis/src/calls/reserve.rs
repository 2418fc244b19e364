//! Ids and sequences in a Cluster, where they lie on another server than the call: an id is a function's before the call is written.
//! One server needs none of this: its script does both at once.

use std::sync::Arc;

use redis::Cmd;
use towpath_core::names::CallId;
use towpath_core::store::StoreError;

use crate::definition::read_shard_member;
use crate::room::Room;
use crate::store::RedisStore;
use crate::value;

/// What came of reserving an id.
pub(crate) enum Reserved {
    /// The call's place in the order of submits; nothing on one server.
    Sequence(u64),
    /// A call of another function has this id.
    BelongsToAnother,
    /// The call is there already, in another stream of its function.
    LiesIn(Arc<Room>),
}

impl RedisStore {
    pub(crate) async fn reserve(&self, room: &Room, call_id: &CallId) -> Result<Reserved, StoreError> {
        if !self.shared.link.is_cluster() {
            return Ok(Reserved::Sequence(0));
        }
        let place = self.whereabouts("HSETNX", call_id, Some(room));
        if value::number(&self.shared.link.ask(&place).await?) == Some(0)
            && let Some(other) = self.another(room, call_id).await?
        {
            return Ok(if other.function == room.function { Reserved::LiesIn(other) } else { Reserved::BelongsToAnother });
        }
        let mut next = Cmd::new();
        next.arg("INCR").arg(self.shared.keys.sequence());
        let next = self.shared.link.ask(&next).await?;
        let sequence = value::number(&next).and_then(|number| u64::try_from(number).ok()).ok_or_else(|| value::strange("INCR", &next))?;
        Ok(Reserved::Sequence(sequence))
    }

    /// Where else there is a call with this id. What was reserved and never written belongs to nobody.
    async fn another(&self, room: &Room, call_id: &CallId) -> Result<Option<Arc<Room>>, StoreError> {
        let owner = self.shared.link.ask(&self.whereabouts("HGET", call_id, None)).await?;
        let owner = value::text(&owner).filter(|owner| *owner != room.member).and_then(read_shard_member);
        let Some(owner) = owner.map(|(function, shard)| self.shard(&function, shard)) else { return Ok(None) };
        if self.has_call(&owner, call_id).await? {
            return Ok(Some(owner));
        }
        self.shared.link.ask(&self.whereabouts("HSET", call_id, Some(room))).await?;
        Ok(None)
    }

    /// Gives an id back that no call came to have.
    pub(crate) async fn unreserve(&self, room: &Room, call_id: &CallId) -> Result<(), StoreError> {
        if !self.shared.link.is_cluster() || self.has_call(room, call_id).await? {
            return Ok(());
        }
        self.shared.link.ask(&self.whereabouts("HDEL", call_id, None)).await?;
        if self.has_call(room, call_id).await? {
            // Somebody else has submitted it in the meantime.
            self.shared.link.ask(&self.whereabouts("HSET", call_id, Some(room))).await?;
        }
        Ok(())
    }

    async fn has_call(&self, room: &Room, call_id: &CallId) -> Result<bool, StoreError> {
        let mut ask = Cmd::new();
        ask.arg("HEXISTS").arg(&room.keys.calls).arg(call_id.as_str());
        Ok(value::number(&self.shared.link.ask(&ask).await?) == Some(1))
    }

    fn whereabouts(&self, command: &str, call_id: &CallId, room: Option<&Room>) -> Cmd {
        let mut ask = Cmd::new();
        ask.arg(command).arg(self.shared.keys.whereabouts()).arg(call_id.as_str());
        if let Some(room) = room {
            ask.arg(&room.member);
        }
        ask
    }
}
