//! Finding calls: first which function an id belongs to, then what is written down about it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use redis::{Cmd, Value};
use towpath_core::call::{Call, CallRequest};
use towpath_core::inspect::CallView;
use towpath_core::names::CallId;
use towpath_core::store::StoreError;

use super::moves::Move;
use crate::definition::read_shard_member;
use crate::record::{Life, function_in, read_progress, read_request, read_tail, request_in};
use crate::room::Room;
use crate::store::RedisStore;
use crate::value;

/// What is written down of a call.
struct Record {
    life: Life,
    text: Vec<u8>,
}

/// A call and the function it belongs to.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) room: Arc<Room>,
    pub(crate) life: Arc<Life>,
    /// What the server has, when it does not know of the latest delivery yet.
    pub(crate) on_server: Option<Arc<Life>>,
    /// What was asked, as its record has it, if the server may still have the call as the stream took it.
    pub(crate) asked: Option<Bytes>,
}

impl Found {
    /// A call as the server has it.
    pub(crate) fn new(room: Arc<Room>, life: impl Into<Arc<Life>>) -> Self {
        Self { room, life: life.into(), on_server: None, asked: None }
    }

    /// From what the server has to what was decided.
    pub(crate) fn moved_to(&self, after: Call) -> Move {
        let before = Arc::clone(self.on_server.as_ref().unwrap_or(&self.life));
        Move { asked: self.asked.clone(), ..Move::new(before, after) }
    }
}

impl RedisStore {
    /// The function that a call belongs to.
    pub(crate) async fn room_of(&self, call_id: &CallId) -> Result<Option<Arc<Room>>, StoreError> {
        Ok(self.rooms_of(std::slice::from_ref(call_id)).await?.pop().flatten())
    }

    async fn rooms_of(&self, call_ids: &[CallId]) -> Result<Vec<Option<Arc<Room>>>, StoreError> {
        if call_ids.is_empty() {
            return Ok(Vec::new());
        }
        if !self.shared.link.is_cluster() {
            let records = value::array("HMGET", self.shared.link.ask(&fields(&self.shared.keys.calls(), call_ids)).await?)?;
            let room = |record: &Value| value::bytes(record).and_then(function_in).map(|(function, shard)| self.shard(&function, shard));
            return Ok(records.iter().map(room).collect());
        }
        let ask = fields(&self.shared.keys.whereabouts(), call_ids);
        let members = value::array("HMGET", self.shared.link.ask(&ask).await?)?;
        let room = |member: &Value| value::text(member).and_then(read_shard_member).map(|(function, shard)| self.shard(&function, shard));
        Ok(members.iter().map(room).collect())
    }

    /// Calls with their outcomes, each where it was asked for.
    pub(crate) async fn load_all(&self, call_ids: &[CallId]) -> Result<Vec<Option<Found>>, StoreError> {
        let rooms = self.rooms_of(call_ids).await?;
        let mut by_room: HashMap<&str, (Arc<Room>, Vec<usize>)> = HashMap::new();
        for (place, room) in rooms.iter().enumerate() {
            if let Some(room) = room {
                by_room.entry(&room.member).or_insert_with(|| (Arc::clone(room), Vec::new())).1.push(place);
            }
        }
        let mut found = vec![None; call_ids.len()];
        for (room, places) in by_room.values() {
            let ids: Vec<CallId> = places.iter().map(|place| call_ids[*place].clone()).collect();
            for (place, life) in places.iter().zip(self.lives(room, &ids).await?) {
                found[*place] = life.map(|life| Found::new(Arc::clone(room), life));
            }
        }
        Ok(found)
    }

    /// One call with its outcome.
    pub(crate) async fn load(&self, call_id: &CallId) -> Result<Option<Found>, StoreError> {
        Ok(self.load_all(std::slice::from_ref(call_id)).await?.pop().flatten())
    }

    /// Calls of one function with their outcomes, each where it was asked for.
    pub(crate) async fn lives(&self, room: &Room, call_ids: &[CallId]) -> Result<Vec<Option<Life>>, StoreError> {
        if call_ids.is_empty() {
            return Ok(Vec::new());
        }
        let records = self.records(room, call_ids).await?;
        Ok(records.into_iter().map(|record| record.map(|record| record.life)).collect())
    }

    /// What is written down of calls of one function, with what stands apart of how they ended.
    async fn records(&self, room: &Room, call_ids: &[CallId]) -> Result<Vec<Option<Record>>, StoreError> {
        let texts = value::array("HMGET", self.shared.link.ask(&fields(&room.keys.calls, call_ids)).await?)?;
        let read = |(call_id, text): (&CallId, Value)| {
            let Some(text) = value::into_bytes(text) else { return Ok(None) };
            Ok(Some(Record { life: Life::read(call_id, &text)?, text }))
        };
        let mut records = call_ids.iter().zip(texts).map(read).collect::<Result<Vec<Option<Record>>, StoreError>>()?;
        let apart: Vec<&mut Record> = records.iter_mut().flatten().filter(|record| record.life.tail_apart).collect();
        if !apart.is_empty() {
            let ids: Vec<CallId> = apart.iter().map(|record| record.life.call.call_id.clone()).collect();
            let tails = value::array("HMGET", self.shared.link.ask(&fields(&room.keys.outcomes, &ids)).await?)?;
            for (record, tail) in apart.into_iter().zip(tails) {
                read_tail(&mut record.life.call, value::bytes(&tail).unwrap_or_default())?;
            }
        }
        Ok(records)
    }

    /// Everything that is known of calls of one function.
    pub(crate) async fn views(&self, room: &Room, call_ids: &[CallId]) -> Result<Vec<Option<CallView>>, StoreError> {
        if call_ids.is_empty() {
            return Ok(Vec::new());
        }
        let records = self.records(room, call_ids).await?;
        let keys = [&room.keys.requests, &room.keys.progress];
        let replies = self.shared.link.ask_all(&keys.map(|key| fields(key, call_ids))).await?;
        let mut columns = Vec::with_capacity(keys.len());
        for reply in replies {
            columns.push(value::array("HMGET", value::checked(reply)?)?);
        }
        let [requests, reports] = &columns[..] else { return Err(StoreError::Corrupt("two replies were due".to_owned())) };
        let view = |(place, record): (usize, Option<Record>)| {
            let Some(Record { life, text }) = record else { return Ok(None) };
            let apart = || value::bytes(&requests[place]).unwrap_or_default();
            let request = self.request(room, request_in(&text, life.kept).unwrap_or_else(apart))?;
            let progress = value::bytes(&reports[place]).and_then(read_progress);
            Ok(Some(CallView { call: life.call, request, progress }))
        };
        records.into_iter().enumerate().map(view).collect()
    }

    pub(crate) fn request(&self, room: &Room, bytes: &[u8]) -> Result<CallRequest, StoreError> {
        read_request(&room.function, bytes)
    }
}

fn fields(key: &str, call_ids: &[CallId]) -> Cmd {
    let mut ask = Cmd::new();
    ask.arg("HMGET").arg(key);
    for call_id in call_ids {
        ask.arg(call_id.as_str());
    }
    ask
}
