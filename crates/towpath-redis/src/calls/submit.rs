//! Taking calls. Those that come at the same time go with one script.

use std::collections::HashMap;
use std::sync::Arc;

use redis::Value;
use tokio::sync::oneshot;
use towpath_core::call::CallState;
use towpath_core::names::CallId;
use towpath_core::store::{Durability, StoreError, SubmitCall, Submitted};
use towpath_core::time::{Timestamp, millis};
use towpath_core::worker::HEALTHY_FOR;

use super::inbox::ReplyTo;
use super::reserve::Reserved;
use super::shape::{Shapes, ToSubmit};
use crate::lane::heard;
use crate::link::slot_of_key;
use crate::quick::QuickSet;
use crate::record::{Life, request_in};
use crate::registry::Serving;
use crate::room::Room;
use crate::script::{SUBMIT, SUBMIT_ONE};
use crate::store::RedisStore;
use crate::value;

/// So many calls of a function that come together are listed on a page, and not one by one.
const PAGED_FROM: usize = 2;

/// What the server made of it.
pub(crate) enum Judged {
    Accepted { deadline: Timestamp, durability: Durability },
    Existing { call_id: CallId, life: Vec<u8>, request: Vec<u8> },
    Foreign(CallId),
    UnknownFunction,
    NoWorkers,
    Overloaded { backlog: u64, limit: u64 },
    Again,
}

impl RedisStore {
    /// Most calls are simply taken, so that way is short; all others go the long way, which begins anew: a submit may be repeated.
    pub(crate) async fn submit_call(&self, call: SubmitCall) -> Result<Submitted, StoreError> {
        self.check_place(&call.request.function)?;
        let serving = self.serving_as_seen(&call.request.function);
        let room = self.room_for(&call, serving);
        let call = Arc::new(call);
        if !self.shared.link.is_cluster()
            && let Some(reply_to) = self.reply_to_at_once(&room, &call.call_id, serving)
            && let Judged::Accepted { deadline, durability } = heard(self.send_submit(&room, &call, reply_to, 0)).await?
        {
            return Ok(Submitted::Accepted { deadline, durability });
        }
        Box::pin(self.submit_with_care(room, call)).await
    }

    async fn submit_with_care(&self, room: Arc<Room>, call: Arc<SubmitCall>) -> Result<Submitted, StoreError> {
        let reply_to = self.reply_to(&room, &call.call_id).await;
        let mut submitted = self.submit_to(&room, &call, reply_to).await;
        if matches!(submitted, Ok(Submitted::NoWorkers)) && self.is_served_after_all(&room).await {
            let reply_to = self.reply_to(&room, &call.call_id).await;
            submitted = self.submit_to(&room, &call, reply_to).await;
        }
        if submitted.as_ref().is_ok_and(|submitted| self.hangs_on_deliveries(submitted)) {
            self.write_down_all_deliveries().await?;
            let reply_to = self.reply_to(&room, &call.call_id).await;
            submitted = self.submit_to(&room, &call, reply_to).await;
        }
        if !matches!(submitted, Ok(Submitted::Accepted { .. } | Submitted::Existing { .. }) | Err(StoreError::Unknown(_))) {
            self.await_old_reply_no_more(&call.call_id);
        }
        submitted
    }

    /// The stream that a call goes to: that which everybody knows, or one of those that the function is spread over. The same call goes to
    /// the same one again, as long as there are as many.
    fn room_for(&self, call: &SubmitCall, serving: Option<Serving>) -> Arc<Room> {
        let function = &call.request.function;
        let spread = serving.filter(|serving| serving.shards > 0 && !serving.may_be_old());
        // What is looked up by its function and not by its id alone is in one place.
        match spread.filter(|_| call.request.idempotency_key.is_none() && !call.fail_without_workers) {
            Some(serving) => self.shard(function, 1 + slot_of_key(call.call_id.as_str().as_bytes()) % serving.shards),
            None => self.room(function),
        }
    }

    /// Sends a call with those that are sent at the same time.
    fn send_submit(
        &self,
        room: &Arc<Room>,
        call: &Arc<SubmitCall>,
        reply_to: ReplyTo,
        sequence: u64,
    ) -> oneshot::Receiver<Result<Judged, StoreError>> {
        let to_submit = ToSubmit { call: Arc::clone(call), reply_to, sequence };
        let store = self.clone();
        room.submits.ask_one((Arc::clone(room), to_submit), move |batch| {
            let store = store.clone();
            async move { store.flush_submits(&batch).await }
        })
    }

    /// Whether the answer may be another one when all deliveries of this process are written down.
    fn hangs_on_deliveries(&self, submitted: &Submitted) -> bool {
        match submitted {
            Submitted::Existing { call_id, state: CallState::Queued, .. } => self.shared.held.unwritten(call_id).is_some(),
            Submitted::Overloaded { .. } => self.shared.held.has_unwritten(),
            _ => false,
        }
    }

    /// Whether an old worker has come since somebody last looked, which it tells nobody, or one of ours was heard, which it does not say for
    /// each function.
    async fn is_served_after_all(&self, room: &Room) -> bool {
        let looked = self.look_at_peers_now(std::slice::from_ref(&room.function)).await;
        looked.is_ok() && self.was_served(&room.function)
    }

    async fn submit_to(&self, room: &Arc<Room>, call: &Arc<SubmitCall>, reply_to: ReplyTo) -> Result<Submitted, StoreError> {
        loop {
            let sequence = match self.reserve(room, &call.call_id).await? {
                Reserved::Sequence(sequence) => sequence,
                Reserved::BelongsToAnother => return Ok(Submitted::Conflict { call_id: call.call_id.clone() }),
                Reserved::LiesIn(shard) => return Box::pin(self.submit_to(&shard, call, reply_to)).await,
            };
            let judged = heard(self.send_submit(room, call, reply_to.clone(), sequence)).await?;
            if matches!(judged, Judged::UnknownFunction | Judged::NoWorkers | Judged::Overloaded { .. }) {
                self.unreserve(room, &call.call_id).await?;
            }
            return match judged {
                Judged::Again => continue,
                Judged::Accepted { deadline, durability } => Ok(Submitted::Accepted { deadline, durability }),
                Judged::Existing { call_id, life, request } => self.existing(room, call, call_id, &life, &request),
                Judged::Foreign(call_id) => Ok(Submitted::Conflict { call_id }),
                Judged::UnknownFunction => Ok(Submitted::UnknownFunction),
                Judged::NoWorkers => Ok(Submitted::NoWorkers),
                Judged::Overloaded { backlog, limit } => Ok(Submitted::Overloaded { backlog, limit }),
            };
        }
    }

    fn existing(&self, room: &Room, again: &SubmitCall, call_id: CallId, life: &[u8], request: &[u8]) -> Result<Submitted, StoreError> {
        let (record, life) = (life, Life::read(&call_id, life)?);
        if !self.request(room, request_in(record, life.kept).unwrap_or(request))?.asks_the_same_as(&again.request) {
            return Ok(Submitted::Conflict { call_id });
        }
        let durability = self.shared.durability();
        Ok(Submitted::Existing { call_id, state: life.call.state, deadline: life.call.deadline, durability })
    }

    async fn flush_submits(&self, batch: &[(Arc<Room>, ToSubmit)]) -> Result<Vec<Judged>, StoreError> {
        let judged = match batch {
            [(room, one)] => self.submit_one(room, one).await?,
            _ => None,
        };
        let judged = match judged {
            Some(judged) => vec![judged],
            None => self.submit_batch(batch).await?,
        };
        if let Some(due) = judged.iter().filter_map(accepted_deadline).min() {
            self.shared.agenda.note(due);
        }
        Ok(judged)
    }

    /// One call that asks for nothing special is taken in fewer steps. `None`: it is not that simple.
    async fn submit_one(&self, room: &Room, one: &ToSubmit) -> Result<Option<Judged>, StoreError> {
        let (shared, now) = (&self.shared, self.shared.now());
        let Some(args) = one.alone(room, now).filter(|_| !shared.link.is_cluster()) else { return Ok(None) };
        let sequence = shared.keys.sequence();
        let mut names: Vec<&str> = vec![&room.keys.calls, &room.keys.requests, &sequence, &room.keys.pages];
        names.extend(room.keys.of_submits());
        let (reply, durability) = shared.run_durably(&SUBMIT_ONE, &names, &args).await?;
        let accepted = value::text(&reply) == Some("A");
        Ok(accepted.then_some(Judged::Accepted { deadline: now + one.call.timeout, durability }))
    }

    async fn submit_batch(&self, batch: &[(Arc<Room>, ToSubmit)]) -> Result<Vec<Judged>, StoreError> {
        let (shared, now) = (&self.shared, self.shared.now());
        let cluster = shared.link.is_cluster();
        let groups = by_function(batch);
        let mut args = shared.pool.take();
        args.number(now.as_millis().saturating_sub(millis(HEALTHY_FOR)));
        args.number(now.as_millis());
        args.flag(cluster);
        let mut ids = QuickSet::default();
        ids.reserve(batch.len());
        args.flag(batch.iter().all(|(_, one)| ids.insert(&one.call.call_id)));
        args.number(groups.len());
        let mut shapes = Shapes::new(now);
        let is_paged = |places: &[usize]| !cluster && places.len() >= PAGED_FROM;
        let mut numbers = vec![0; batch.len()];
        for (_, places) in &groups {
            places.iter().for_each(|place| numbers[*place] = shapes.number(&batch[*place].1, is_paged(places)));
        }
        shapes.write(&mut args);
        let first = &batch[groups[0].1[0]].0.keys;
        let sequence = shared.keys.sequence();
        let mut names: Vec<&str> = vec![&first.calls, &first.requests, if cluster { &first.stream } else { &sequence }, &first.pages];
        for (room, places) in &groups {
            args.push(&room.keys.line);
            args.push(room.function.name.as_str());
            let listed = places.iter().filter(|_| is_paged(places));
            args.written(|page| listed.for_each(|place| list(page, &batch[*place].1.call.call_id)));
            args.number(places.len());
            for place in places {
                let one = &batch[*place].1;
                shapes.write_call(one, numbers[*place], &mut args);
                if cluster {
                    args.number(one.sequence);
                }
            }
            names.extend(room.keys.of_submits());
        }
        let submitted = shared.run_durably(&SUBMIT, &names, &args).await;
        shared.pool.put(args);
        let (reply, durability) = submitted?;
        if value::text(&reply) == Some("A") {
            let accepted = |(_, one): &(Arc<Room>, ToSubmit)| Judged::Accepted { deadline: now + one.call.timeout, durability };
            return Ok(batch.iter().map(accepted).collect());
        }
        let replies = value::array("a submit", reply)?;
        if replies.len() != batch.len() {
            return Err(StoreError::Corrupt(format!("{} submits had {} replies", batch.len(), replies.len())));
        }
        let mut judged: Vec<Option<Judged>> = batch.iter().map(|_| None).collect();
        for (place, reply) in groups.iter().flat_map(|(_, places)| places).zip(replies) {
            let deadline = now + batch[*place].1.call.timeout;
            judged[*place] = Some(read_judgement(reply, deadline, durability)?);
        }
        Ok(judged.into_iter().flatten().collect())
    }
}

/// Puts a call on a page.
fn list(page: &mut Vec<u8>, call_id: &CallId) {
    if !page.is_empty() {
        page.push(b'\n');
    }
    page.extend_from_slice(call_id.as_str().as_bytes());
}

/// The places of each function's calls. Most batches are of one.
fn by_function(batch: &[(Arc<Room>, ToSubmit)]) -> Vec<(&Arc<Room>, Vec<usize>)> {
    let mut groups: Vec<(&Arc<Room>, Vec<usize>)> = Vec::new();
    let mut known: HashMap<*const Room, usize> = HashMap::new();
    for (place, (room, _)) in batch.iter().enumerate() {
        let group = *known.entry(Arc::as_ptr(room)).or_insert_with(|| {
            groups.push((room, Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(place);
    }
    groups
}

fn accepted_deadline(judged: &Judged) -> Option<Timestamp> {
    match judged {
        Judged::Accepted { deadline, .. } => Some(*deadline),
        _ => None,
    }
}

fn read_judgement(reply: Value, deadline: Timestamp, durability: Durability) -> Result<Judged, StoreError> {
    let parts = match reply {
        Value::Array(parts) => parts,
        word => vec![word],
    };
    let part = |place: usize| parts.get(place).unwrap_or(&Value::Nil);
    let count = |place: usize| value::number(part(place)).and_then(|number| u64::try_from(number).ok()).unwrap_or_default();
    let bytes = |place: usize| value::bytes(part(place)).unwrap_or_default().to_vec();
    Ok(match value::text(part(0)) {
        Some("A") => Judged::Accepted { deadline, durability },
        Some("E") => Judged::Existing { call_id: value::call_id(part(1))?, life: bytes(2), request: bytes(3) },
        Some("C") => Judged::Foreign(value::call_id(part(1))?),
        Some("U") => Judged::UnknownFunction,
        Some("N") => Judged::NoWorkers,
        Some("O") => Judged::Overloaded { backlog: count(1), limit: count(2) },
        Some("R") => Judged::Again,
        _ => return Err(StoreError::Corrupt("the reply to a submit is none that the script gives".to_owned())),
    })
}
