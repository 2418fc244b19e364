//! What happens by itself. Every process does it; whoever is second finds it done.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::Cmd;
use towpath_core::call::{CallCommand, CallReply, CallState, step};
use towpath_core::names::{CallId, LockScope, WorkerId};
use towpath_core::store::{Fired, StoreError, TimerStore};
use towpath_core::time::Timestamp;

use crate::agenda::Heads;
use crate::calls::entry::is_inbox;
use crate::calls::moves::{Move, ended};
use crate::lane::BATCH_MAX;
use crate::pages::Listed;
use crate::pause::pause;
use crate::record::Life;
use crate::room::Room;
use crate::store::RedisStore;
use crate::value;

/// How often it is looked when the next worker falls silent or the next lease of a lock ends, and how many functions there are.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// What another process has put on the agenda, and then died, is looked for when it is missed; and without a reason so often for each
/// function there is, but no less often than the latter.
const LOOK_PER_FUNCTION: Duration = Duration::from_secs(1);
const LOOK_AT_LAST: Duration = Duration::from_secs(60);

/// Something that happens by itself. At one instant calls come before workers and workers before locks, and older submits before younger
/// ones.
enum Due {
    Call(Arc<Room>, Box<Life>),
    Worker(WorkerId),
    Lock(LockScope),
}

/// What has come up.
struct ComeUp {
    agenda: Vec<Due>,
    pages: Vec<(Arc<Room>, Vec<u64>)>,
    /// There may be more that is due.
    more: bool,
}

#[async_trait]
impl TimerStore for RedisStore {
    async fn fire_due(&self, limit: u32) -> Result<Fired, StoreError> {
        self.write_down_all_deliveries().await?;
        let now = self.shared.now();
        let rooms = self.all_rooms().await?;
        let heads = self.heads(&rooms).await?;
        let mut next = heads.iter().flatten().min().copied();
        let mut fired = Fired::default();
        let due: Vec<Arc<Room>> =
            rooms.into_iter().zip(&heads).filter(|(_, head)| head.is_some_and(|head| head <= now)).map(|(room, _)| room).collect();
        let mut left = limit as usize;
        while left > 0 {
            let ComeUp { agenda, pages, more } = self.due_by(&due, now, left).await?;
            left -= agenda.len();
            self.fire(agenda, now, &mut fired).await?;
            for (room, firsts) in pages {
                self.turn_pages(&room, &firsts).await?;
            }
            if !more {
                break;
            }
        }
        if limit > 0 {
            let later = heads.into_iter().flatten().filter(|head| *head > now);
            next = self.heads(&due).await?.into_iter().flatten().chain(later).min();
        }
        fired.next_due = next.into_iter().chain(self.next_of_others().await?).min();
        self.shared.agenda.wait_until(fired.next_due);
        Ok(fired)
    }

    async fn due_before(&self, known: Option<Timestamp>) -> Timestamp {
        self.shared.agenda.wait_until(known);
        let mut departures = self.shared.presence.departures();
        let mut seen = self.shared.agenda.kept(known);
        loop {
            departures.mark_unchanged();
            let looked = match seen {
                Some(seen) => self.look_at_others(seen).await,
                None => self.look_at_agenda().await,
            };
            match looked {
                Ok(now) if now.first().is_some_and(|first| known.is_none_or(|known| first < known)) => {
                    return now.first().unwrap_or_default();
                }
                // A worker that would have fallen silent then was heard, or a lease renewed: the timekeeper need not look.
                Ok(now) if seen.is_some() && known.is_some() && now.first() > known => {
                    self.shared.agenda.keep(now);
                    return now.first().unwrap_or_default();
                }
                Ok(now) => seen = Some(now),
                Err(error) => tracing::debug!(%error, "what is due next is not known; looking again"),
            }
            tokio::select! {
                () = self.shared.agenda.sooner() => seen = None,
                () = self.shared.agenda.lease_sooner() => {}
                // The sender lives in `self`, so this ends by a departure only.
                _ = departures.changed() => seen = None,
                () = pause(LOOK_EVERY) => {
                    seen = seen.map(|seen| Heads { age: seen.age + LOOK_EVERY, ..seen }).filter(|seen| seen.age < look_again_after(seen.functions));
                }
            }
        }
    }
}

/// How long nobody need look at the calls of so many functions without a reason.
fn look_again_after(functions: usize) -> Duration {
    LOOK_PER_FUNCTION.saturating_mul(u32::try_from(functions).unwrap_or(u32::MAX)).clamp(LOOK_EVERY, LOOK_AT_LAST)
}

impl RedisStore {
    /// All that is due, in the order in which it happens, at most `limit`.
    async fn due_by(&self, rooms: &[Arc<Room>], now: Timestamp, limit: usize) -> Result<ComeUp, StoreError> {
        let mut agenda: Vec<((Timestamp, u8, u64), Due)> = Vec::new();
        let (mut turned, mut more) = (Vec::new(), false);
        let asks: Vec<Cmd> = rooms.iter().map(|room| due_until(&room.keys.due, now, Some(limit))).collect();
        for (room, reply) in rooms.iter().zip(self.shared.link.ask_all(&asks).await?) {
            let mut found = read_scores(&value::array("ZRANGEBYSCORE", value::checked(reply)?)?)?;
            if found.len() == limit {
                // Of what is due at one instant the oldest submit comes first, so all of that instant must be known.
                let all = self.shared.link.ask(&due_until(&room.keys.due, found[limit - 1].1, None)).await?;
                found = read_scores(&value::array("ZRANGEBYSCORE", all)?)?;
            }
            let pages = found.iter().filter_map(|(one, _)| if let Listed::Page(first) = one { Some(*first) } else { None });
            let (all, enough) = (pages.clone().count(), limit.div_ceil(BATCH_MAX));
            let pages: Vec<u64> = pages.take(enough).collect();
            // A page comes up for what may be due: there may be less to do than there are lines.
            more |= all > enough || all > 0 && found.len() >= limit;
            let pages = self.take_up(room, pages, now).await?;
            let lives = self.come_up(room, found.into_iter().map(|(one, _)| one).collect(), &pages).await?;
            for life in lives.into_iter().filter(|life| life.call.due().is_none_or(|due| due <= now)) {
                let at = life.call.due().unwrap_or(now);
                agenda.push(((at, 0, life.sequence), Due::Call(Arc::clone(room), Box::new(life))));
            }
            if !pages.is_empty() {
                turned.push((Arc::clone(room), pages));
            }
        }
        for (at, worker) in self.silent_workers(u32::try_from(limit).unwrap_or(u32::MAX)).await? {
            agenda.push(((at, 1, 0), Due::Worker(worker)));
        }
        for (at, scope) in self.ended_leases(now, limit).await? {
            agenda.push(((at, 2, 0), Due::Lock(scope)));
        }
        agenda.sort_by_key(|(order, _)| *order);
        agenda.truncate(limit);
        Ok(ComeUp { agenda: agenda.into_iter().map(|(_, due)| due).collect(), pages: turned, more })
    }

    async fn fire(&self, agenda: Vec<Due>, now: Timestamp, fired: &mut Fired) -> Result<(), StoreError> {
        let mut policies: HashMap<String, u32> = HashMap::new();
        let mut batches: Vec<(Arc<Room>, Vec<Decided>)> = Vec::new();
        let mut order = Vec::new();
        for due in agenda {
            match due {
                Due::Worker(worker) => fired.workers_removed += u64::from(self.remove_worker(&worker).await?),
                Due::Lock(scope) => {
                    self.reap_lock(&scope).await?;
                    fired.locks_reaped += 1;
                }
                Due::Call(room, life) => {
                    if self.was_answered(&life, now).await? {
                        continue;
                    }
                    let max_deliveries = match policies.get(&room.member) {
                        Some(known) => *known,
                        None => {
                            let max = self.retry_policy(&room).await?.max_deliveries;
                            *policies.entry(room.member.clone()).or_insert(max)
                        }
                    };
                    let (after, reply) = step(life.call.clone(), CallCommand::ComeDue { max_deliveries }, now);
                    if reply == CallReply::NotDue {
                        continue;
                    }
                    order.push(life.call.call_id.clone());
                    let decided = Decided { before: *life, after, reply };
                    match batches.iter_mut().find(|(known, _)| known.member == room.member) {
                        Some((_, batch)) => batch.push(decided),
                        None => batches.push((room, vec![decided])),
                    }
                }
            }
        }
        let mut ended_calls = HashMap::new();
        for (room, decided) in batches {
            let moves = decided.iter().map(Decided::as_move).collect();
            let forgotten: Vec<CallId> =
                decided.iter().filter(|one| one.reply == CallReply::Forget).map(|one| one.before.call.call_id.clone()).collect();
            let done = self.apply(&room, moves).await?;
            self.forget_whereabouts(&forgotten).await?;
            for (one, _) in decided.iter().zip(done).filter(|(_, done)| *done) {
                self.dismiss_silent(one, now).await;
                match (&one.reply, ended(&room, &one.after), one.before.call.state) {
                    (CallReply::Forget, ..) => fired.forgotten += 1,
                    (_, Some(ended), _) => drop(ended_calls.insert(ended.call_id.clone(), ended)),
                    (_, None, CallState::Running) => fired.reclaimed += 1,
                    (_, None, _) => fired.promoted += 1,
                }
            }
        }
        fired.ended.extend(order.iter().filter_map(|call_id| ended_calls.remove(call_id)));
        Ok(())
    }

    /// Whether an old worker has answered a call that is about to end, and whoever waited for the answer is gone.
    async fn was_answered(&self, life: &Life, now: Timestamp) -> Result<bool, StoreError> {
        let ends = !life.call.state.has_ended() && now >= life.call.deadline;
        if !ends || life.channels.iter().all(|channel| is_inbox(channel)) {
            return Ok(false);
        }
        self.find_old_reply(&life.call.call_id).await
    }

    /// A worker that let a lease run out may be gone: its claims that wait end empty.
    async fn dismiss_silent(&self, one: &Decided, now: Timestamp) {
        let call = &one.before.call;
        let ran_out = call.state == CallState::Running && call.lease_until.is_some_and(|until| until <= now);
        if let Some(holder) = call.holder.as_ref().filter(|_| ran_out) {
            self.shared.queue.dismiss(holder);
            self.shared.held.remove(&call.call_id);
        }
    }

    /// In a Cluster the script cannot reach where ids are found.
    async fn forget_whereabouts(&self, forgotten: &[CallId]) -> Result<(), StoreError> {
        if forgotten.is_empty() || !self.shared.link.is_cluster() {
            return Ok(());
        }
        let mut forget = Cmd::new();
        forget.arg("HDEL").arg(self.shared.keys.whereabouts());
        for call_id in forgotten {
            forget.arg(call_id.as_str());
        }
        self.shared.link.ask(&forget).await.map(drop)
    }

    /// What is due next of everything.
    async fn look_at_agenda(&self) -> Result<Heads, StoreError> {
        self.write_down_all_deliveries().await?;
        let rooms = self.all_rooms().await?;
        let calls = self.heads(&rooms).await?.into_iter().flatten().min();
        Ok(Heads { calls, others: self.next_of_others().await?, functions: rooms.len(), age: Duration::ZERO })
    }

    /// The same, with what was seen of the calls.
    async fn look_at_others(&self, seen: Heads) -> Result<Heads, StoreError> {
        self.write_down_all_deliveries().await?;
        Ok(Heads { others: self.next_of_others().await?, ..seen })
    }

    /// When the next worker falls silent, or the next lease of a lock ends.
    async fn next_of_others(&self) -> Result<Option<Timestamp>, StoreError> {
        let (silence, lease_end) = tokio::try_join!(self.next_silence(), self.next_lease_end())?;
        Ok(silence.into_iter().chain(lease_end).min())
    }

    /// When the next call of each of these functions is due.
    async fn heads(&self, rooms: &[Arc<Room>]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        let head = |room: &Arc<Room>| {
            let mut head = Cmd::new();
            head.arg("ZRANGE").arg(&room.keys.due).arg(0).arg(0).arg("WITHSCORES");
            head
        };
        let heads: Vec<Cmd> = rooms.iter().map(head).collect();
        let read = |reply| Ok(read_scores(&value::array("ZRANGE", value::checked(reply)?)?)?.first().map(|(_, at)| *at));
        self.shared.link.ask_all(&heads).await?.into_iter().map(read).collect()
    }
}

struct Decided {
    before: Life,
    after: towpath_core::call::Call,
    reply: CallReply,
}

impl Decided {
    fn as_move(&self) -> Move {
        if self.reply == CallReply::Forget { Move::forget(self.before.clone()) } else { Move::new(self.before.clone(), self.after.clone()) }
    }
}

fn due_until(key: &str, until: Timestamp, limit: Option<usize>) -> Cmd {
    let mut ask = Cmd::new();
    ask.arg("ZRANGEBYSCORE").arg(key).arg("-inf").arg(until.as_millis()).arg("WITHSCORES");
    if let Some(limit) = limit {
        ask.arg("LIMIT").arg(0).arg(limit);
    }
    ask
}

fn read_scores(reply: &[redis::Value]) -> Result<Vec<(Listed, Timestamp)>, StoreError> {
    let mut found = Vec::with_capacity(reply.len() / 2);
    for pair in reply.chunks_exact(2) {
        #[expect(clippy::cast_possible_truncation, reason = "scores are instants in whole milliseconds, far below 2^53")]
        let at = value::score(&pair[1]).map(|score| Timestamp::from_millis(score as i64)).unwrap_or_default();
        found.push((Listed::read(&pair[0])?, at));
    }
    Ok(found)
}
