//! Ids and sequences in a Cluster, where they lie on another server than the call: an id is a function's before the call is written.
//! One server needs none of this: its script does both at once.

use redis::Cmd;
use towpath_core::names::CallId;
use towpath_core::store::StoreError;

use crate::definition::read_function_member;
use crate::room::Room;
use crate::store::RedisStore;
use crate::value;

/// What came of reserving an id.
pub(crate) enum Reserved {
    /// The call's place in the order of submits; nothing on one server.
    Sequence(u64),
    /// A call of another function has this id.
    BelongsToAnother,
}

impl RedisStore {
    pub(crate) async fn reserve(&self, room: &Room, call_id: &CallId) -> Result<Reserved, StoreError> {
        if !self.shared.link.is_cluster() {
            return Ok(Reserved::Sequence(0));
        }
        let place = self.whereabouts("HSETNX", call_id, Some(room));
        if value::number(&self.shared.link.ask(&place).await?) == Some(0) && self.has_another(room, call_id).await? {
            return Ok(Reserved::BelongsToAnother);
        }
        let mut next = Cmd::new();
        next.arg("INCR").arg(self.shared.keys.sequence());
        let next = self.shared.link.ask(&next).await?;
        let sequence = value::number(&next).and_then(|number| u64::try_from(number).ok()).ok_or_else(|| value::strange("INCR", &next))?;
        Ok(Reserved::Sequence(sequence))
    }

    /// Whether the id belongs to a call of another function. What was reserved and never written belongs to nobody.
    async fn has_another(&self, room: &Room, call_id: &CallId) -> Result<bool, StoreError> {
        let owner = self.shared.link.ask(&self.whereabouts("HGET", call_id, None)).await?;
        let Some(owner) = value::text(&owner).filter(|owner| *owner != room.member).and_then(read_function_member) else {
            return Ok(false);
        };
        if self.has_call(&self.room(&owner), call_id).await? {
            return Ok(true);
        }
        self.shared.link.ask(&self.whereabouts("HSET", call_id, Some(room))).await?;
        Ok(false)
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
