//! Deliveries that are written down a moment later. What the stream gives to a worker of this process is its own already: most calls are
//! answered before anybody could have asked who has them, and then their answer is all there is to write. The others are written down when
//! they have been held for a while, or when somebody here wants to know.
//!
//! If this process dies meanwhile, the entry is pending with its worker, and whoever sweeps the stream delivers it again after the worker's
//! lease. If the call has changed meanwhile, the answer finds another version, and is decided on anew.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use towpath_core::call::{CallCommand, CallRequest, CallState, Claim, step};
use towpath_core::names::CallId;
use towpath_core::store::{ClaimCalls, Delivery, StoreError};
use towpath_core::time::{Timestamp, millis};

use super::entry::Entry;
use super::load::Found;
use super::take::delivery;
use crate::pause::pause;
use crate::room::Room;
use crate::store::{RedisStore, Shared};

/// What is held for so long is written down.
const WRITTEN_AFTER: Duration = Duration::from_secs(1);
/// A call that ends sooner by itself is written down first: at its deadline everybody shall see that it ran.
const SHORTEST: Duration = Duration::from_secs(3);
/// An original is this young when the stream takes it. An older one may be the copy that an old worker makes of what it gives up.
const COPIED_AFTER_MS: u64 = 5_000;

impl RedisStore {
    /// Delivers what was just read from the stream, if all of it can be delivered without a look at the records.
    pub(super) async fn deliver_at_once(
        &self,
        room: &Arc<Room>,
        want: &ClaimCalls,
        count: u64,
        entries: &[Entry],
    ) -> Option<Vec<Delivery>> {
        let now = self.shared.now();
        let enough = entries.len() as u64 <= count;
        if !enough || !self.is_in_process(want) || !room.is_unlimited_for(want, now) {
            return None;
        }
        if self.serving(&room.function).await.is_ok_and(|serving| !serving.may_be_old()) && !self.was_served_by_old(&room.function) {
            let claimed = entries.iter().map(|entry| self.claimed(room, want, entry, now)).collect::<Option<Vec<_>>>()?;
            let (delivered, requests): (Vec<Found>, Vec<CallRequest>) = claimed.into_iter().unzip();
            let deliveries = delivered.iter().zip(requests).map(|(found, request)| delivery(&found.life.call, request, now)).collect();
            self.shared.agenda.note(now + want.lease);
            if self.shared.held.put_unwritten(delivered) {
                tokio::spawn(write_down_in_time(Keeper(Arc::downgrade(&self.shared))));
            }
            return Some(deliveries);
        }
        None
    }

    pub(super) fn is_in_process(&self, want: &ClaimCalls) -> bool {
        want.in_process || self.shared.options.timing.all_workers_in_process
    }

    /// The entry's call in the hands of a worker, and what is asked.
    fn claimed(&self, room: &Arc<Room>, want: &ClaimCalls, entry: &Entry, now: Timestamp) -> Option<(Found, CallRequest)> {
        let waiting = entry.life()?;
        let deadline_is_far = now + SHORTEST < waiting.call.deadline;
        if !deadline_is_far || self.may_be_copy(entry) || self.shared.held.get(&waiting.call.call_id).is_some() {
            return None;
        }
        let claim = Claim { worker: want.worker.clone(), lease: want.lease };
        let (call, _claimed) = step(waiting.call.clone(), CallCommand::Claim(claim), now);
        let life = Arc::new(waiting.with(call));
        (life.call.state == CallState::Running).then(|| {
            let (request, asked) = entry.asked(&room.function);
            // A record says nothing of what stands apart.
            let asked = Some(if waiting.kept == 0 { Bytes::new() } else { asked });
            (Found { room: Arc::clone(room), life, on_server: Some(Arc::new(waiting)), asked }, request)
        })
    }

    fn may_be_copy(&self, entry: &Entry) -> bool {
        let added = entry.taken_ms().zip(entry.timestamp_ms);
        self.shared.lives_by_the_server && added.is_none_or(|(taken, said)| taken.abs_diff(said) > COPIED_AFTER_MS)
    }

    /// Writes a call's delivery down, if that was not done yet: somebody wants to know.
    pub(crate) async fn write_down_delivery_of(&self, call_id: &CallId) -> Result<(), StoreError> {
        match self.shared.held.unwritten(call_id) {
            Some(found) => self.write_down_deliveries(vec![found]).await,
            None => Ok(()),
        }
    }

    /// Writes all deliveries down that were not yet.
    pub(crate) async fn write_down_all_deliveries(&self) -> Result<(), StoreError> {
        let unwritten = self.shared.held.unwritten_since(Timestamp::from_millis(i64::MAX));
        if unwritten.is_empty() { Ok(()) } else { self.write_down_deliveries(unwritten).await }
    }

    async fn write_down_deliveries(&self, mut unwritten: Vec<Found>) -> Result<(), StoreError> {
        while !unwritten.is_empty() {
            let mut changed = Vec::new();
            while let Some(first) = unwritten.first() {
                let room = Arc::clone(&first.room);
                let (mut of_room, others) = unwritten.into_iter().partition::<Vec<_>, _>(|found| found.room.member == room.member);
                unwritten = others;
                let moves: Vec<_> = of_room.iter().map(|found| found.moved_to(found.life.call.clone())).collect();
                let after: Vec<_> = moves.iter().map(|one| Arc::clone(one.result())).collect();
                let done = self.apply(&room, moves).await?;
                for ((found, life), done) in of_room.drain(..).zip(after).zip(done) {
                    if done {
                        self.shared.held.is_written(Found::new(found.room, life));
                    } else {
                        changed.push(found);
                    }
                }
            }
            unwritten = self.still_ours(changed).await?;
        }
        Ok(())
    }

    /// Of deliveries whose calls have changed, those that are still ours. The others are lost, and their worker shall know.
    async fn still_ours(&self, changed: Vec<Found>) -> Result<Vec<Found>, StoreError> {
        let ids: Vec<CallId> = changed.iter().map(|found| found.life.call.call_id.clone()).collect();
        let mut ours = Vec::new();
        for (mine, there) in changed.into_iter().zip(self.load_all(&ids).await?) {
            let call_id = mine.life.call.call_id.clone();
            let holder = mine.life.call.holder.clone();
            if self.shared.held.unwritten(&call_id).is_none() {
                continue; // it was answered meanwhile
            }
            match there.and_then(|there| rebased(&mine, &there)) {
                Some(found) => {
                    self.shared.held.put(found.clone());
                    ours.push(found);
                }
                None => {
                    self.shared.held.remove(&call_id);
                    if let Some(holder) = holder {
                        self.shared.news.publish(&format!("a:{holder}")).await;
                    }
                }
            }
        }
        Ok(ours)
    }
}

/// A delivery that is not written down, on what the server has now. `None`: the call does not wait for this delivery any more.
pub(super) fn rebased(mine: &Found, there: &Found) -> Option<Found> {
    let (waiting, running) = (&there.life, &mine.life);
    let waits_for_it =
        waiting.call.state == CallState::Queued && waiting.entry == running.entry && waiting.call.delivery + 1 == running.call.delivery;
    waits_for_it.then(|| {
        let life = Arc::new(waiting.with(running.call.clone()));
        Found { room: Arc::clone(&mine.room), life, on_server: Some(Arc::clone(waiting)), asked: None }
    })
}

/// Who looks after deliveries that are not written down. When it goes, and be it with its runtime, the next delivery brings another. Two
/// for a moment do no harm.
struct Keeper(Weak<Shared>);

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.held.is_left_alone();
        }
    }
}

/// Writes deliveries down when they were held for a while, as long as there are such.
async fn write_down_in_time(keeper: Keeper) {
    loop {
        pause(WRITTEN_AFTER / 2).await;
        let Some(shared) = keeper.0.upgrade() else { return };
        if !shared.held.is_to_be_looked_after() {
            return;
        }
        let before = Timestamp::from_millis(shared.now().as_millis().saturating_sub(millis(WRITTEN_AFTER)));
        let unwritten = shared.held.unwritten_since(before);
        if let Err(error) = (RedisStore { shared }).write_down_deliveries(unwritten).await {
            tracing::debug!(%error, "deliveries were not written down; the next time will do");
        }
    }
}
