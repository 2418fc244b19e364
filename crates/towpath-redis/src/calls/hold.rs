//! What a worker does with a call it holds.

use std::collections::HashMap;
use std::sync::Arc;

use redis::{Cmd, Value};
use towpath_core::call::{Answer, CallCommand, CallReply, CallState, Held, LostLease, Retry, RetryPolicy, step};
use towpath_core::ids::DeliveryId;
use towpath_core::names::{CallId, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::store::{CallNews, CompleteCalls, Completed, RenewCalls, Renewal, StoreError};

use super::at_once::rebased;
use super::entry;
use super::load::Found;
use super::moves::{Move, REPLY_KEPT_MS, changes, ended};
use crate::link::Reply;
use crate::quick::{QuickMap, QuickSet};
use crate::record::Life;
use crate::room::Room;
use crate::script::{Args, PROGRESS};
use crate::store::RedisStore;
use crate::value;

/// One command that only the holder of a call may give.
struct Wish {
    call_id: CallId,
    command: CallCommand,
}

/// What came of it: the call as it is now, if there is one.
struct Granted {
    found: Found,
    reply: CallReply,
}

/// Changes of one function's calls, and whose wishes they are.
struct Batch {
    room: Arc<Room>,
    places: Vec<usize>,
    moves: Vec<Move>,
}

impl Batch {
    fn new(room: &Arc<Room>) -> Self {
        Self { room: Arc::clone(room), places: Vec::new(), moves: Vec::new() }
    }

    fn add(&mut self, place: usize, one: Move) {
        self.places.push(place);
        self.moves.push(one);
    }
}

impl RedisStore {
    pub(crate) async fn renew_all(&self, leases: RenewCalls) -> Result<Vec<Renewal>, StoreError> {
        let RenewCalls { worker, deliveries, lease } = leases;
        let wish = |delivery: DeliveryId| Wish {
            command: CallCommand::Renew { held: held(&worker, &delivery), lease },
            call_id: delivery.call_id,
        };
        let granted = self.grant(deliveries.into_iter().map(wish).collect()).await?;
        Ok(granted.into_iter().map(renewal).collect())
    }

    pub(crate) async fn complete_all(&self, answers: CompleteCalls) -> Result<Vec<Completed>, StoreError> {
        let CompleteCalls { worker, answers } = answers;
        let policies = self.policies_for(&answers).await?;
        let wish = |(delivery, answer): (DeliveryId, Answer)| Wish {
            command: CallCommand::Answer {
                held: held(&worker, &delivery),
                policy: policies.get(&delivery.call_id).cloned().unwrap_or_default(),
                answer,
            },
            call_id: delivery.call_id,
        };
        let granted = self.grant(answers.into_iter().map(wish).collect()).await?;
        Ok(granted.into_iter().map(completed).collect())
    }

    pub(crate) async fn release_all(&self, worker: &WorkerId, deliveries: Vec<DeliveryId>) -> Result<u64, StoreError> {
        let wish = |delivery: DeliveryId| Wish { command: CallCommand::Release(held(worker, &delivery)), call_id: delivery.call_id };
        let granted = self.grant(deliveries.into_iter().map(wish).collect()).await?;
        let recorded = |granted: &Option<Granted>| granted.as_ref().is_some_and(|granted| granted.reply == CallReply::Recorded);
        Ok(granted.iter().filter(|granted| recorded(granted)).count() as u64)
    }

    pub(crate) async fn park_one(&self, worker: &WorkerId, delivery: &DeliveryId, parked: bool) -> Result<Renewal, StoreError> {
        let wish = Wish { command: CallCommand::Park { held: held(worker, delivery), parked }, call_id: delivery.call_id.clone() };
        Ok(renewal(self.grant(vec![wish]).await?.pop().flatten()))
    }

    pub(crate) async fn keep_progress(&self, worker: &WorkerId, delivery: &DeliveryId, report: &Payload) -> Result<Renewal, StoreError> {
        self.write_down_delivery_of(&delivery.call_id).await?;
        loop {
            let Some(found) = self.load(&delivery.call_id).await? else { return Ok(Renewal::Lost(LostLease::Absent)) };
            // Parking as it is parked proves that the delivery is held, and changes nothing.
            let proof = CallCommand::Park { held: held(worker, delivery), parked: found.life.call.parked };
            let (call, reply) = step(found.life.call.clone(), proof, self.shared.now());
            if let CallReply::Lost(lost) = reply {
                return Ok(Renewal::Lost(lost));
            }
            let mut args = Args::default();
            args.push(delivery.call_id.as_str());
            args.number(found.life.version);
            args.push(report.as_bytes());
            args.push(self.shared.inbox_of(&found.room).as_bytes());
            args.number(REPLY_KEPT_MS);
            let keys = [found.room.keys.calls.as_str(), &found.room.keys.progress];
            if value::number(&self.shared.link.run_args(&PROGRESS, &keys, &args).await?) == Some(1) {
                self.shared.ears.tell(&delivery.call_id, &CallNews::Changed);
                let (until, cancel_requested) = (call.lease_until.unwrap_or_default(), call.cancel_requested);
                return Ok(Renewal::Held { until, cancel_requested });
            }
        }
    }

    /// Takes back all that a worker holds, whatever function it is of.
    pub(crate) async fn hand_back_all(&self, worker: &WorkerId) -> Result<u64, StoreError> {
        self.write_down_all_deliveries().await?;
        let rooms = self.all_rooms().await?;
        let busy: Vec<Cmd> = rooms.iter().map(|room| hget(&room.keys.busy, &format!("r:{worker}"))).collect();
        let counts = self.shared.link.ask_all(&busy).await?;
        let mut deliveries = Vec::new();
        for (room, _) in rooms.iter().zip(counts).filter(|(_, count)| value::number(count).is_some_and(|count| count > 0)) {
            let running = self.running(room).await?.into_iter().map(|life| life.call);
            let own = running.filter(|call| call.holder.as_ref() == Some(worker));
            deliveries.extend(own.map(|call| DeliveryId { call_id: call.call_id, number: call.delivery }));
        }
        self.release_all(worker, deliveries).await
    }

    /// The calls of a function that run: those whose entry is pending, and those that have left the stream.
    async fn running(&self, room: &Arc<Room>) -> Result<Vec<Life>, StoreError> {
        let mut aside = Cmd::new();
        aside.arg("SMEMBERS").arg(&room.keys.aside);
        let aside = value::array("SMEMBERS", self.shared.link.ask(&aside).await?)?;
        let mut ids = aside.iter().map(value::call_id).collect::<Result<Vec<CallId>, StoreError>>()?;
        ids.extend(self.pending_ids(room).await?);
        let lives = self.lives(room, &ids).await?.into_iter().flatten();
        Ok(lives.filter(|life| life.call.state == CallState::Running).collect())
    }

    async fn pending_ids(&self, room: &Room) -> Result<Vec<CallId>, StoreError> {
        const PAGE: usize = 1_000;
        let (mut ids, mut from) = (Vec::new(), "-".to_owned());
        loop {
            let mut pending = Cmd::new();
            pending.arg("XPENDING").arg(&room.keys.stream).arg(&room.keys.group).arg(&from).arg("+").arg(PAGE);
            let page = match self.shared.link.ask(&pending).await {
                Err(error) if super::take::is_no_group(&error) => return Ok(ids),
                page => value::array("XPENDING", page?)?,
            };
            let places: Vec<String> = page.iter().filter_map(place_of).collect();
            let ranges: Vec<Cmd> = places.iter().map(|place| one_entry(&room.keys.stream, place)).collect();
            for reply in self.shared.link.ask_all(&ranges).await? {
                let entry = entry::read_entries(&Reply::from(&reply)).pop();
                ids.extend(entry.and_then(|entry| entry.call_id));
            }
            match places.last() {
                Some(last) if page.len() == PAGE => from = format!("({last}"),
                _ => return Ok(ids),
            }
        }
    }

    /// Puts commands to calls: decides on what this process remembers of them where it can, and on what the server has where it must.
    async fn grant(&self, wishes: Vec<Wish>) -> Result<Vec<Option<Granted>>, StoreError> {
        let mut granted: Vec<Option<Granted>> = wishes.iter().map(|_| None).collect();
        let mut remembered: Vec<Option<Found>> = wishes.iter().map(|wish| self.shared.held.get(&wish.call_id)).collect();
        let mut unwritten: Vec<Option<Found>> = wishes.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..wishes.len()).collect();
        while !open.is_empty() {
            let mut again = Vec::new();
            let mut batches: QuickMap<String, Batch> = QuickMap::default();
            let now = self.shared.now();
            for (place, found, is_fresh) in self.look_up(&wishes, &open, &mut remembered, &mut again).await? {
                // Somebody may have changed a call that is ours without taking it from us.
                let found = unwritten[place].take().and_then(|mine| rebased(&mine, &found)).unwrap_or(found);
                let (after, reply) = step(found.life.call.clone(), wishes[place].command.clone(), now);
                if changes(&reply) {
                    let room = Arc::clone(&found.room);
                    let one = found.moved_to(after);
                    let life = Arc::clone(one.result());
                    let batch = match batches.get_mut(&room.member) {
                        Some(batch) => batch,
                        None => batches.entry(room.member.clone()).or_insert_with(|| Batch::new(&room)),
                    };
                    batch.add(place, one);
                    unwritten[place] = Some(found).filter(|found| found.on_server.is_some());
                    granted[place] = Some(Granted { found: Found::new(room, life), reply });
                } else if is_fresh {
                    granted[place] = Some(Granted { found, reply });
                } else {
                    // What is remembered may be old: only the server says no, and it must know of the delivery for that.
                    self.write_down_delivery_of(&wishes[place].call_id).await?;
                    again.push(place);
                }
            }
            let (places, changes): (Vec<_>, Vec<_>) = batches.into_values().map(|batch| (batch.places, (batch.room, batch.moves))).unzip();
            let done = self.apply_all(changes).await?;
            for (place, done) in places.into_iter().flatten().zip(done.into_iter().flatten()) {
                match granted[place].as_ref().filter(|_| done) {
                    Some(granted) => self.remember(&granted.found),
                    None => {
                        granted[place] = None;
                        again.push(place);
                    }
                }
            }
            for place in &again {
                remembered[*place] = None;
                self.shared.held.remove(&wishes[*place].call_id);
            }
            again.sort_unstable(); // of two about one call the first comes first, also the second time
            open = again;
        }
        Ok(granted)
    }

    /// The calls that are still to be decided on, and whether they come from the server. Of several wishes about one call the first is
    /// looked up, the others wait for what it leaves.
    async fn look_up(
        &self,
        wishes: &[Wish],
        open: &[usize],
        remembered: &mut [Option<Found>],
        again: &mut Vec<usize>,
    ) -> Result<Vec<(usize, Found, bool)>, StoreError> {
        let mut asked = QuickSet::default();
        let (first, later): (Vec<usize>, Vec<usize>) = open.iter().partition(|place| asked.insert(&wishes[**place].call_id));
        again.extend(later);
        let (known, unknown): (Vec<usize>, Vec<usize>) = first.into_iter().partition(|place| remembered[*place].is_some());
        let ids: Vec<CallId> = unknown.iter().map(|place| wishes[*place].call_id.clone()).collect();
        let loaded = self.load_all(&ids).await?;
        let known = known.into_iter().filter_map(|place| Some((place, remembered[place].take()?, false)));
        let loaded = unknown.into_iter().zip(loaded).filter_map(|(place, found)| Some((place, found?, true)));
        Ok(known.chain(loaded).collect())
    }

    /// Keeps in mind what a worker of this process still holds.
    fn remember(&self, found: &Found) {
        let call_id = &found.life.call.call_id;
        let known = self.shared.held.remove(call_id).is_some();
        if known && found.life.call.state == CallState::Running {
            self.shared.held.put(found.clone());
        }
    }

    /// The retry policies that answers need: only failures that may be tried again do.
    async fn policies_for(&self, answers: &[(DeliveryId, Answer)]) -> Result<HashMap<CallId, RetryPolicy>, StoreError> {
        let mut policies = HashMap::new();
        for (delivery, answer) in answers {
            if !matches!(answer, Answer::Failed { retry: Retry::ByPolicy | Retry::NotBefore(_), .. }) {
                continue;
            }
            let room = match self.shared.held.get(&delivery.call_id) {
                Some(found) => Some(found.room),
                None => self.room_of(&delivery.call_id).await?,
            };
            if let Some(room) = room {
                policies.insert(delivery.call_id.clone(), self.retry_policy(&room).await?);
            }
        }
        Ok(policies)
    }
}

fn held(worker: &WorkerId, delivery: &DeliveryId) -> Held {
    Held { worker: worker.clone(), number: delivery.number }
}

fn renewal(granted: Option<Granted>) -> Renewal {
    let Some(Granted { found, reply }) = granted else { return Renewal::Lost(LostLease::Absent) };
    match reply {
        CallReply::Held { until, cancel_requested } => Renewal::Held { until, cancel_requested },
        CallReply::Lost(lost) => Renewal::Lost(lost),
        _recorded => {
            let call = &found.life.call;
            Renewal::Held { until: call.lease_until.unwrap_or_default(), cancel_requested: call.cancel_requested }
        }
    }
}

fn completed(granted: Option<Granted>) -> Completed {
    let Some(Granted { found, reply }) = granted else { return Completed::Lost(LostLease::Absent) };
    match reply {
        CallReply::Lost(lost) => Completed::Lost(lost),
        CallReply::AlreadyRecorded => Completed::AlreadyRecorded,
        _recorded => Completed::Recorded { ended: ended(&found.room, &found.life.call) },
    }
}

fn hget(key: &str, field: &str) -> Cmd {
    let mut ask = Cmd::new();
    ask.arg("HGET").arg(key).arg(field);
    ask
}

fn one_entry(stream: &str, place: &str) -> Cmd {
    let mut ask = Cmd::new();
    ask.arg("XRANGE").arg(stream).arg(place).arg(place);
    ask
}

fn place_of(pending: &Value) -> Option<String> {
    let Value::Array(parts) = pending else { return None };
    value::text(parts.first()?).map(str::to_owned)
}
