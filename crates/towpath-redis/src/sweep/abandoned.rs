//! Entries that somebody has read and never dealt with: a process of ours that died in between, or an old worker that is gone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::call::{CallCommand, CallReply, CallState, Claim, step};
use towpath_core::names::{CallId, WorkerId};
use towpath_core::store::{ClaimCalls, StoreError};
use towpath_core::time::{Timestamp, millis};

use super::{FALLEN_AFTER_MS, PAGE};
use crate::calls::entry;
use crate::calls::moves::Move;
use crate::calls::take::is_no_group;
use crate::link::Reply;
use crate::record::Life;
use crate::room::Room;
use crate::store::RedisStore;
use crate::value;

/// The consumer that takes over what fell.
const NOBODY: &str = "towpath";
/// The consumer of the seeds that takes over what others abandoned, and never reads it.
const RECLAIMER: &str = "reclaimer";

/// An entry that somebody has read and not acknowledged.
struct Pending {
    place: String,
    consumer: String,
    idle_ms: u64,
}

/// Who reads a stream.
struct Readers {
    ours: HashSet<String>,
    /// Workers whose deliveries may be written down later, and how long they may be silent.
    leases_ms: HashMap<String, u64>,
    /// Workers of this process that were given something which never arrived.
    bereft: HashSet<String>,
    /// Old workers that were heard of lately: what they have read may still be at work.
    old: HashSet<String>,
    /// Old workers that were not heard of for a while.
    silent: HashSet<String>,
    /// One of those that live reads under a name of its own. Nobody can tell which, so whoever is a stranger may be it.
    strangers_may_live: bool,
    abandoned_after_ms: u64,
}

/// An entry that was read and is not under way, and its call, if that waits for just this entry.
struct Lost<'a> {
    pending: &'a Pending,
    life: Option<Life>,
}

impl Readers {
    /// Whether a worker was given a call and let it drop, rather than never having got it.
    fn let_it_drop(&self, lost: &Lost<'_>) -> bool {
        let over = |lease: &u64| lost.pending.idle_ms >= *lease;
        lost.life.is_some() && self.leases_ms.get(&lost.pending.consumer).is_some_and(over)
    }

    fn have_lost(&self, one: &Pending) -> bool {
        let consumer = &one.consumer;
        if let Some(lease) = self.leases_ms.get(consumer) {
            return one.idle_ms >= *lease || self.bereft.contains(consumer);
        }
        if consumer == NOBODY || self.ours.contains(consumer) {
            return one.idle_ms >= FALLEN_AFTER_MS;
        }
        let stranger = consumer != RECLAIMER && !self.silent.contains(consumer);
        let may_live = self.old.contains(consumer) || stranger && self.strangers_may_live;
        one.idle_ms >= self.abandoned_after_ms && !may_live
    }
}

impl RedisStore {
    /// Entries that were read and never dealt with, by somebody who is not there any more or never got them.
    pub(super) async fn reclaim_abandoned(&self, room: &Arc<Room>) -> Result<(), StoreError> {
        let mut from = "-".to_owned();
        let mut readers: Option<Readers> = None;
        loop {
            let mut idle = Cmd::new();
            idle.arg("XPENDING").arg(&room.keys.stream).arg(&room.keys.group).arg("IDLE").arg(FALLEN_AFTER_MS);
            idle.arg(&from).arg("+").arg(PAGE);
            let page = match self.shared.link.ask(&idle).await {
                Err(error) if is_no_group(&error) => {
                    return self.group_is_gone(room).await;
                }
                page => value::array("XPENDING", page?)?,
            };
            let pending: Vec<Pending> = page.iter().filter_map(read_pending).collect();
            let Some(last) = pending.last() else { return Ok(()) };
            from = format!("({}", last.place);
            let readers = match &mut readers {
                Some(readers) => readers,
                None => readers.insert(self.readers(room).await?),
            };
            self.plan_the_next_look(room, &pending, readers);
            let abandoned: Vec<&Pending> = pending.iter().filter(|one| readers.have_lost(one)).collect();
            let lost = self.not_running(room, abandoned).await?;
            let (crashed, fallen) = lost.into_iter().partition::<Vec<_>, _>(|lost| readers.let_it_drop(lost));
            self.end_leases(room, crashed).await?;
            self.put_outside(room, &fallen.iter().map(|lost| lost.pending.place.as_str()).collect::<Vec<_>>()).await?;
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Makes the group again, from the start, if workers of ours read it. Read by old workers alone, they would run again what they have
    /// finished long ago.
    async fn group_is_gone(&self, room: &Room) -> Result<(), StoreError> {
        self.shared.incarnation.doubt();
        if self.serving(&room.function).await?.has_ours() { self.make_group(room).await } else { Ok(()) }
    }

    /// Who reads a function's stream.
    async fn readers(&self, room: &Room) -> Result<Readers, StoreError> {
        // Old workers tell nobody that they live: unless somebody calls, only a look brings their heartbeats up to date.
        self.look_at_peers_now(std::slice::from_ref(&room.function)).await?;
        let abandoned_after_ms = millis(self.shared.options.timing.abandoned_after);
        let since = self.shared.now().as_millis().saturating_sub(abandoned_after_ms);
        let (mut workers, mut consumers, mut known) = (Cmd::new(), Cmd::new(), Cmd::new());
        known.arg("HGETALL").arg(&room.keys.definition);
        workers.arg("ZRANGE").arg(&room.keys.workers).arg(0).arg(-1).arg("WITHSCORES");
        consumers.arg("XINFO").arg("CONSUMERS").arg(&room.keys.stream).arg(&room.keys.group);
        let mut replies = self.shared.link.ask_all(&[workers, consumers, known]).await?.into_iter();
        let mut reply = |what| value::array(what, value::checked(replies.next().unwrap_or(Value::Nil))?);
        let (workers, consumers, known) = (reply("ZRANGE")?, reply("XINFO CONSUMERS")?, reply("HGETALL")?);
        let leases_ms = known.chunks_exact(2).filter_map(|pair| read_lease(&pair[0], &pair[1])).collect();
        let bereft = room.take_bereft();
        let consumers: HashSet<&str> = consumers.iter().filter_map(name_of_consumer).collect();
        let (mut ours, mut old, mut silent) = (HashSet::new(), HashSet::new(), HashSet::new());
        for pair in workers.chunks_exact(2) {
            let (Some(name), Some(heard)) = (value::text(&pair[0]), value::number(&pair[1])) else { continue };
            // Ours answer for what they hold by their leases; only old ones are believed on their word.
            match name.strip_prefix("old:") {
                None => ours.insert(name.to_owned()),
                Some(id) if heard > since => old.insert(id.to_owned()),
                Some(id) => silent.insert(id.to_owned()),
            };
        }
        let strangers_may_live = old.iter().any(|worker| !consumers.contains(worker.as_str()));
        let abandoned_after_ms = u64::try_from(abandoned_after_ms).unwrap_or(u64::MAX);
        Ok(Readers { ours, leases_ms, bereft, old, silent, strangers_may_live, abandoned_after_ms })
    }

    /// Those entries whose calls are not under way.
    async fn not_running<'a>(&self, room: &Room, pending: Vec<&'a Pending>) -> Result<Vec<Lost<'a>>, StoreError> {
        let asks: Vec<Cmd> = pending
            .iter()
            .map(|one| {
                let mut ask = Cmd::new();
                ask.arg("XRANGE").arg(&room.keys.stream).arg(&one.place).arg(&one.place);
                ask
            })
            .collect();
        let entries = self.shared.link.ask_all(&asks).await?;
        let named = |reply: &Value| entry::read_entries(&Reply::from(reply)).pop()?.call_id;
        let ids: Vec<Option<CallId>> = entries.iter().map(named).collect();
        let known: Vec<CallId> = ids.iter().flatten().cloned().collect();
        let lives = self.lives(room, &known).await?.into_iter().zip(&known);
        let lives: HashMap<&CallId, Life> = lives.filter_map(|(life, id)| Some((id, life?))).collect();
        let lost = pending.into_iter().zip(&ids).map(|(pending, id)| {
            let life = id.as_ref().and_then(|id| lives.get(id)).filter(|life| life.entry == pending.place).cloned();
            Lost { pending, life }
        });
        let held_here = |life: &Life| self.shared.held.unwritten(&life.call.call_id).is_some();
        let is_at_work = |life: &Life| life.call.state == CallState::Running || held_here(life);
        Ok(lost.filter(|lost| !lost.life.as_ref().is_some_and(is_at_work)).collect())
    }

    /// Calls that a worker was given, and did not live to write down, are as if its lease had run out.
    async fn end_leases(&self, room: &Arc<Room>, crashed: Vec<Lost<'_>>) -> Result<(), StoreError> {
        if crashed.is_empty() {
            return Ok(());
        }
        let (now, max_deliveries) = (self.shared.now(), self.retry_policy(room).await?.max_deliveries);
        let mut moves = Vec::new();
        for Lost { pending, life } in crashed {
            let (Some(life), Ok(worker)) = (life, WorkerId::new(&pending.consumer)) else { continue };
            let claimed_at = Timestamp::from_millis(now.as_millis().saturating_sub_unsigned(pending.idle_ms));
            let claim = CallCommand::Claim(Claim { worker, lease: Duration::ZERO });
            let (claimed, _) = step(life.call.clone(), claim, claimed_at);
            let (after, reply) = step(claimed, CallCommand::ComeDue { max_deliveries }, now);
            if reply == CallReply::Moved {
                moves.push(Move::new(life, after));
            }
        }
        tracing::warn!(function = %room.function, count = moves.len(), "calls that a worker took and never answered are delivered again");
        // Where somebody was faster, it is not abandoned.
        self.apply(room, moves).await?;
        self.brings_work(room).await;
        Ok(())
    }

    /// What is not abandoned yet will be when its worker's lease is over, unless the worker lives.
    fn plan_the_next_look(&self, room: &Arc<Room>, pending: &[Pending], readers: &Readers) {
        let left = |one: &Pending| readers.leases_ms.get(&one.consumer)?.checked_sub(one.idle_ms).filter(|left| *left > 0);
        if let Some(left) = pending.iter().filter_map(left).min() {
            self.sweep_in(room, Duration::from_millis(left));
        }
    }

    /// Takes entries over and puts their calls where the next claim finds them; what was dealt with is acknowledged.
    async fn put_outside(&self, room: &Arc<Room>, places: &[&str]) -> Result<(), StoreError> {
        if places.is_empty() {
            return Ok(());
        }
        let mut claim = Cmd::new();
        claim.arg("XCLAIM").arg(&room.keys.stream).arg(&room.keys.group).arg(NOBODY).arg(FALLEN_AFTER_MS);
        for place in places {
            claim.arg(*place);
        }
        let entries = entry::read_entries(&Reply::from(&self.shared.link.ask(&claim).await?));
        tracing::warn!(function = %room.function, count = entries.len(), "calls that a worker took and never answered are delivered again");
        let nobody = ClaimCalls {
            worker: WorkerId::new(NOBODY).map_err(|error| StoreError::Corrupt(error.to_string()))?,
            functions: Vec::new(),
            max: 0,
            lease: Duration::ZERO,
            wait: Duration::ZERO,
            in_process: false,
        };
        self.take_read(room, &nobody, 0, entries).await?;
        self.brings_work(room).await;
        Ok(())
    }
}

/// How long a worker may be silent, if this field says so.
fn read_lease(field: &Value, value: &Value) -> Option<(String, u64)> {
    let worker = value::text(field)?.strip_prefix("lease:")?;
    Some((worker.to_owned(), value::text(value)?.parse().ok()?))
}

fn read_pending(pending: &Value) -> Option<Pending> {
    let Value::Array(parts) = pending else { return None };
    let text = |place: usize| parts.get(place).and_then(value::text).map(str::to_owned);
    let idle_ms = u64::try_from(parts.get(2).and_then(value::number)?).ok()?;
    Some(Pending { place: text(0)?, consumer: text(1)?, idle_ms })
}

fn name_of_consumer(consumer: &Value) -> Option<&str> {
    let Value::Array(fields) = consumer else { return None };
    fields.chunks_exact(2).find(|pair| value::text(&pair[0]) == Some("name")).and_then(|pair| value::text(&pair[1]))
}
