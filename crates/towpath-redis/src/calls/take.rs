//! Delivering waiting calls to a worker: first those that wait outside the stream, they are older; then those that the stream has.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::call::{Call, CallCommand, CallReply, step};
use towpath_core::ids::DeliveryId;
use towpath_core::names::CallId;
use towpath_core::store::{ClaimCalls, ClaimFunction, Delivery, StoreError};
use towpath_core::time::{Timestamp, millis};

use super::entry::{self, Entry, TIMEOUT_UNSAID};
use super::load::Found;
use super::moves::Move;
use super::reserve::Reserved;
use crate::keys;
use crate::link::Reply;
use crate::record::{INLINE_MAX, Life, request_in};
use crate::room::Room;
use crate::script::{ADOPT, Args, TAKE};
use crate::store::RedisStore;
use crate::value;

/// A call of an old caller is remembered for so long after its end: a copy that comes later, or an entry that is read again, is known by
/// its id.
const ADOPTED_KEPT: Duration = Duration::from_secs(600);

/// Of so many functions each is asked for its share, and not one after the other for all it has.
const MANY_FUNCTIONS: usize = 8;

/// What a look for work brought.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) deliveries: Vec<Delivery>,
    /// How many more the worker may be given.
    pub(crate) room_left: u64,
}

impl RedisStore {
    /// Takes what waits now, without waiting: functions in the order given.
    pub(crate) async fn take_now(&self, want: &ClaimCalls) -> Result<Vec<Delivery>, StoreError> {
        if want.functions.len() >= MANY_FUNCTIONS {
            return self.take_shares(want).await;
        }
        let mut deliveries: Vec<Delivery> = Vec::new();
        for wanted in &want.functions {
            let mut of_function = wanted.max as usize;
            for room in self.shards(&wanted.function) {
                let left = (want.max as usize).saturating_sub(deliveries.len());
                let count = left.min(of_function) as u64;
                if count == 0 {
                    break;
                }
                let taken = self.take_from(&room, want, count).await?;
                of_function -= taken.len().min(of_function);
                deliveries.extend(taken);
            }
        }
        Ok(deliveries)
    }

    /// Takes what waits in one room: first outside the stream, then in it.
    async fn take_from(&self, room: &Arc<Room>, want: &ClaimCalls, count: u64) -> Result<Vec<Delivery>, StoreError> {
        let Taken { mut deliveries, mut room_left } = self.take_outside(room, want, count).await?;
        while room_left > 0 {
            let entries = self.read_waiting(room, want, room_left).await?;
            if entries.is_empty() {
                break;
            }
            let more = self.take_read(room, want, room_left, entries).await?;
            deliveries.extend(more.deliveries);
            room_left = more.room_left;
        }
        Ok(deliveries)
    }

    /// The streams of the functions that somebody wants calls of.
    fn wanted_rooms<'a>(&self, want: &'a ClaimCalls) -> Vec<(&'a ClaimFunction, Arc<Room>)> {
        let rooms = |wanted: &'a ClaimFunction| self.shards(&wanted.function).into_iter().map(move |room| (wanted, room));
        want.functions.iter().flat_map(rooms).collect()
    }

    /// The same of many functions: all are asked at once, each for its share of what the worker wants.
    async fn take_shares(&self, want: &ClaimCalls) -> Result<Vec<Delivery>, StoreError> {
        let mut deliveries: Vec<Delivery> = Vec::new();
        let left_of = |deliveries: &[Delivery]| (want.max as usize).saturating_sub(deliveries.len());
        let mut open: VecDeque<(Arc<Room>, u64)> = VecDeque::with_capacity(want.functions.len());
        for (wanted, room) in self.wanted_rooms(want) {
            let most = left_of(&deliveries).min(wanted.max as usize) as u64;
            let taken = self.take_outside(&room, want, most).await?;
            deliveries.extend(taken.deliveries);
            open.extend(Some((room, taken.room_left)).filter(|(_, most)| *most > 0));
        }
        while !open.is_empty() && left_of(&deliveries) > 0 {
            let left = left_of(&deliveries);
            let asked: Vec<(Arc<Room>, u64)> = open.drain(..left.min(open.len())).collect();
            let share = (left / asked.len()) as u64;
            let reads: Vec<Cmd> = asked.iter().map(|(room, most)| read_command(room, want, share.min(*most), None)).collect();
            for ((room, most), reply) in asked.into_iter().zip(self.shared.link.ask_all(&reads).await?) {
                let count = share.min(most);
                let entries = self.read_share(&room, reply).await?;
                // Whoever had more than its share may be asked for more.
                open.extend(Some((Arc::clone(&room), most - count)).filter(|(_, more)| entries.len() as u64 == count && *more > 0));
                if !entries.is_empty() {
                    deliveries.extend(self.take_read(&room, want, count, entries).await?.deliveries);
                }
            }
        }
        Ok(deliveries)
    }

    async fn read_share(&self, room: &Room, reply: Value) -> Result<Vec<Entry>, StoreError> {
        match value::checked(reply) {
            Ok(reply) => Ok(entry::read_streams(&Reply::from(&reply))),
            Err(error) if is_no_group(&error) => self.make_group(room).await.map(|()| Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Takes what waits outside the stream, if there may be something.
    pub(crate) async fn take_outside(&self, room: &Arc<Room>, want: &ClaimCalls, count: u64) -> Result<Taken, StoreError> {
        let Some(rung) = room.worth_a_look().or_else(|| room.is_limited().then_some(0)) else {
            return Ok(Taken { deliveries: Vec::new(), room_left: count });
        };
        let taken = self.run_take(room, want, count, &[], true).await?;
        if taken.room_left > 0 && rung > 0 {
            room.nothing_since(rung);
        }
        Ok(taken)
    }

    /// Takes what was just read from the stream. What cannot be delivered is dealt with: nothing stays between the stream and a worker.
    pub(crate) async fn take_read(
        &self,
        room: &Arc<Room>,
        want: &ClaimCalls,
        count: u64,
        entries: Vec<Entry>,
    ) -> Result<Taken, StoreError> {
        if let Some(deliveries) = self.deliver_at_once(room, want, count, &entries).await {
            let room_left = count.saturating_sub(deliveries.len() as u64);
            return Ok(Taken { deliveries, room_left });
        }
        self.run_take(room, want, count, &entries, false).await
    }

    /// Reads what waits in the stream, on the connection of the function's reader if that is free.
    async fn read_waiting(&self, room: &Arc<Room>, want: &ClaimCalls, count: u64) -> Result<Vec<Entry>, StoreError> {
        let read = read_command(room, want, count, None);
        let kept = room.kept_line().take();
        let reply = match kept {
            Some(mut line) => {
                let reply = line.ask(&read).await;
                if !matches!(reply, Err(StoreError::Unknown(_))) {
                    *room.kept_line() = Some(line);
                }
                reply
            }
            None => self.shared.link.ask(&read).await.map(|reply| Reply::from(&reply)),
        };
        match reply {
            Ok(reply) => Ok(entry::read_streams(&reply)),
            Err(error) if is_no_group(&error) => {
                self.make_group(room).await?;
                Ok(entry::read_streams(&Reply::from(&self.shared.link.ask(&read).await?)))
            }
            Err(error) => Err(error),
        }
    }

    async fn run_take(
        &self,
        room: &Arc<Room>,
        want: &ClaimCalls,
        count: u64,
        entries: &[Entry],
        outside: bool,
    ) -> Result<Taken, StoreError> {
        let (nameless, named): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(|entry| entry.call_id.is_none());
        self.drop_entries(room, &nameless).await?;
        if named.is_empty() && !outside {
            return Ok(Taken { deliveries: Vec::new(), room_left: count });
        }
        let now = self.shared.now();
        let reply = self.ask_take(room, want, (count, now), &named, outside).await?;
        let mut reply = value::array("a take", reply)?.into_iter();
        let left = reply.next().as_ref().and_then(value::number).and_then(|left| u64::try_from(left).ok()).unwrap_or_default();
        let late = value::array("a take", reply.next().unwrap_or(Value::Nil))?;
        let strangers = value::array("a take", reply.next().unwrap_or(Value::Nil))?;
        let limit = reply.next().as_ref().and_then(value::number);
        room.set_limit(&want.worker, limit.unwrap_or(-1), now);
        let by_id: HashMap<&str, &Entry> = named.iter().filter_map(|entry| Some((entry.call_id.as_ref()?.as_str(), *entry))).collect();
        let mut taken = Taken { deliveries: Vec::new(), room_left: left };
        for item in reply {
            taken.deliveries.push(self.delivered(room, item, &by_id, now)?);
        }
        self.end_late(room, &late).await?;
        if !strangers.is_empty() {
            let places: Vec<&str> = strangers.iter().filter_map(value::text).collect();
            let strangers: Vec<Entry> = named.into_iter().filter(|entry| places.contains(&entry.place.as_str())).cloned().collect();
            let more = Box::pin(self.take_strangers(room, want, left, strangers)).await?;
            taken.deliveries.extend(more.deliveries);
            taken.room_left = more.room_left;
        }
        if taken.room_left == 0 && !entries.is_empty() {
            room.ring(); // what had no room waits outside
        }
        Ok(taken)
    }

    async fn ask_take(
        &self,
        room: &Room,
        want: &ClaimCalls,
        (count, now): (u64, Timestamp),
        entries: &[&Entry],
        outside: bool,
    ) -> Result<Value, StoreError> {
        let keys = &room.keys;
        let mut args = Args::with_capacity(7 + entries.len() * 2);
        args.push(keys.group.as_str());
        args.push(want.worker.as_str());
        args.number(now.as_millis());
        args.number(millis(want.lease));
        args.number(count);
        args.flag(outside);
        args.flag(self.is_in_process(want));
        for entry in entries {
            args.push(entry.place.as_str());
            args.push(entry.call_id.as_ref().map_or("", CallId::as_str));
        }
        let names = [
            keys.calls.as_str(),
            &keys.requests,
            &keys.due,
            &keys.ready,
            &keys.aside,
            &keys.counts,
            &keys.busy,
            &keys.definition,
            &keys.stream,
            &keys.touched,
        ];
        self.shared.link.run_args(&TAKE, &names, &args).await
    }

    fn delivered(&self, room: &Arc<Room>, item: Value, entries: &HashMap<&str, &Entry>, now: Timestamp) -> Result<Delivery, StoreError> {
        let parts = value::array("a take", item)?;
        let [id, life, request @ ..] = &parts[..] else { return Err(StoreError::Corrupt("a delivery had no life".to_owned())) };
        let call_id = value::call_id(id)?;
        let record = value::bytes(life).unwrap_or_default();
        let life = Life::read(&call_id, record)?;
        let request = match (request.first(), entries.get(call_id.as_str())) {
            (Some(apart), _) => {
                let apart = || value::bytes(apart).unwrap_or_default();
                self.request(room, request_in(record, life.kept).unwrap_or_else(apart))?
            }
            (None, Some(entry)) => entry.asked(&room.function).0,
            (None, None) => return Err(StoreError::Corrupt(format!("call '{call_id}' was delivered and had not been read"))),
        };
        let delivery = delivery(&life.call, request, now);
        if let Some(due) = life.call.due() {
            self.shared.agenda.note(due);
        }
        if !life.tail_apart {
            self.shared.held.put(Found::new(Arc::clone(room), life));
        }
        Ok(delivery)
    }

    /// Calls that were found past their deadline end there and then.
    async fn end_late(&self, room: &Arc<Room>, late: &[Value]) -> Result<(), StoreError> {
        if late.is_empty() {
            return Ok(());
        }
        let ids = late.iter().map(value::call_id).collect::<Result<Vec<CallId>, StoreError>>()?;
        let now = self.shared.now();
        let mut moves = Vec::new();
        for life in self.lives(room, &ids).await?.into_iter().flatten() {
            let (after, reply) = step(life.call.clone(), CallCommand::ComeDue { max_deliveries: u32::MAX }, now);
            if reply == CallReply::Moved && after.state.has_ended() {
                moves.push(Move::new(life, after));
            }
        }
        // Where somebody was faster, it is over anyway.
        self.apply(room, moves).await.map(drop)
    }

    /// Calls of old callers are written down and then delivered like all others. Entries of ours without a record were finished and
    /// forgotten: the group was made anew, and they come again.
    async fn take_strangers(&self, room: &Arc<Room>, want: &ClaimCalls, count: u64, entries: Vec<Entry>) -> Result<Taken, StoreError> {
        let (finished, new): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|entry| entry.has_record);
        self.drop_entries(room, &finished.iter().collect::<Vec<_>>()).await?;
        if new.is_empty() {
            return Ok(Taken { deliveries: Vec::new(), room_left: count });
        }
        self.write_down(room, &new).await?;
        self.run_take(room, want, count, &new, false).await
    }

    async fn write_down(&self, room: &Room, entries: &[Entry]) -> Result<(), StoreError> {
        let (shared, keys, cluster) = (&self.shared, &room.keys, self.shared.link.is_cluster());
        let mut args = Args::default();
        args.flag(cluster);
        args.number(INLINE_MAX);
        for entry in entries {
            let Some(call_id) = entry.call_id.clone() else { continue };
            let Reserved::Sequence(sequence) = self.reserve(room, &call_id).await? else { continue };
            let life = adopted(entry, call_id, shared.now());
            let mut rest = Vec::new();
            life.write_rest(&keys.line, &mut rest);
            args.push(life.call.call_id.as_str());
            args.push(entry.place.as_str());
            args.number(sequence);
            args.push(rest);
            args.number(life.call.deadline.as_millis());
            args.push(entry.asked(&room.function).1);
        }
        let counter = shared.keys.sequence();
        let mut names: Vec<&str> = vec![&keys.calls, &keys.requests, &keys.due, &keys.index, &keys.counts];
        if !cluster {
            names.push(&counter);
        }
        shared.link.run_args(&ADOPT, &names, &args).await.map(drop)
    }

    /// Acknowledges entries that are no calls (old workers write one when they start) or were dealt with.
    async fn drop_entries(&self, room: &Room, entries: &[&Entry]) -> Result<(), StoreError> {
        if entries.is_empty() {
            return Ok(());
        }
        let (mut ack, mut delete) = (Cmd::new(), Cmd::new());
        ack.arg("XACK").arg(&room.keys.stream).arg(&room.keys.group);
        delete.arg("XDEL").arg(&room.keys.stream);
        for entry in entries {
            ack.arg(&entry.place);
            delete.arg(&entry.place);
        }
        tracing::debug!(function = %room.function, count = entries.len(), "entries that are no calls, or were dealt with before, were acknowledged");
        self.shared.link.ask_all(&[ack, delete]).await.map(drop)
    }

    /// Makes the stream's group if it is not there: from the start of the stream, so that nothing that waits is passed over.
    pub(crate) async fn make_group(&self, room: &Room) -> Result<(), StoreError> {
        self.shared.incarnation.doubt();
        // The new group reads again what is in the stream. What we hold shall not be there.
        self.write_down_all_deliveries().await?;
        let mut make = Cmd::new();
        make.arg("XGROUP").arg("CREATE").arg(&room.keys.stream).arg(&room.keys.group).arg("0").arg("MKSTREAM");
        match value::checked(self.shared.link.insist(&[make]).await?.pop().unwrap_or(Value::Nil)) {
            Err(error) if !error.to_string().contains("BUSYGROUP") => Err(error),
            _made_or_there => Ok(()),
        }
    }
}

/// The command that reads new entries for a worker.
pub(crate) fn read_command(room: &Room, want: &ClaimCalls, count: u64, block: Option<Duration>) -> Cmd {
    let mut read = Cmd::new();
    read.arg("XREADGROUP").arg("GROUP").arg(&room.keys.group).arg(entry::consumer(&want.worker)).arg("COUNT").arg(count);
    if let Some(block) = block {
        read.arg("BLOCK").arg(millis(block));
    }
    read.arg("STREAMS").arg(&room.keys.stream).arg(">");
    read
}

pub(crate) fn is_no_group(error: &StoreError) -> bool {
    error.to_string().contains("NOGROUP")
}

/// An old caller's call, as if it had been submitted when the stream took it.
fn adopted(entry: &Entry, call_id: CallId, now: Timestamp) -> Life {
    let taken = entry.taken_ms().map_or(now, Timestamp::from_millis).min(now);
    let timeout = entry.timeout_ms.map_or(TIMEOUT_UNSAID, Duration::from_millis);
    // Who names no list waits where everybody does.
    let channel = entry.channel.as_ref().map_or_else(|| keys::response(&call_id), |named| named[0].clone());
    let channels: Vec<String> = Some(channel).filter(|channel| is_reply_list(channel)).into_iter().collect();
    let call = Call::submitted(call_id, taken, timeout, ADOPTED_KEPT);
    Life { entry: entry.place.clone(), ..Life::submitted(call, None, channels) }
}

/// A list that an old caller may wait on. Anything else could be a key that is not a reply's.
fn is_reply_list(channel: &str) -> bool {
    channel.starts_with("function:response:") && !channel.contains(char::is_control)
}

pub(super) fn delivery(call: &Call, request: towpath_core::call::CallRequest, now: Timestamp) -> Delivery {
    Delivery {
        id: DeliveryId { call_id: call.call_id.clone(), number: call.delivery },
        request,
        attempt: call.attempt(),
        submitted_at: call.submitted_at,
        deadline: call.deadline,
        remaining: call.deadline.since(now),
        lease_until: call.lease_until.unwrap_or(now),
    }
}
