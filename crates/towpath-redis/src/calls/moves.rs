//! Changing calls as decided, unless somebody was faster: then it is decided again on what is there now.

use std::sync::Arc;

use bytes::Bytes;
use redis::Value;
use towpath_core::call::{Call, CallCommand, CallReply, CallState, step};
use towpath_core::names::CallId;
use towpath_core::store::{CallNews, Ended, StoreError, StoreTrouble};
use towpath_core::time::Timestamp;

use super::effects::{Effects, Guard};
use super::load::Found;
use crate::lane::heard;
use crate::link::{Beside, Transaction};
use crate::quick::QuickSet;
use crate::record::Life;
use crate::room::Room;
use crate::script::{MOVE, RESTORE};
use crate::store::RedisStore;
use crate::value;

/// A reply stays so long for a caller that was cut off; as the seeds have it.
pub(crate) const REPLY_KEPT_MS: u64 = 60_000;

/// So many answers are worth a transaction.
const MANY: usize = 32;

/// A change of one call.
#[derive(Clone)]
pub(crate) struct Move {
    pub(crate) before: Arc<Life>,
    /// `None`: it is forgotten.
    pub(crate) after: Option<Arc<Life>>,
    pub(super) heard_on: Option<String>,
    /// A worker of this process has read the call from the stream, and this was asked.
    pub(super) asked: Option<Bytes>,
}

impl Move {
    fn to(before: Arc<Life>, after: Life) -> Self {
        Self { before, after: Some(Arc::new(after)), heard_on: None, asked: None }
    }

    /// From what was seen to what was decided.
    pub(crate) fn new(before: impl Into<Arc<Life>>, after: Call) -> Self {
        let before = before.into();
        let entry = if leaves_the_stream(&before, &after) { String::new() } else { before.entry.clone() };
        // Whoever waits is told with the end itself, and nobody after it.
        let channels = if after.state.has_ended() { Arc::default() } else { Arc::clone(&before.channels) };
        let life = before.next(entry, channels, after);
        Self::to(before, life)
    }

    /// From what was seen to nothing.
    pub(crate) fn forget(before: impl Into<Arc<Life>>) -> Self {
        Self { before: before.into(), after: None, heard_on: None, asked: None }
    }

    /// The same call with one more list on which somebody waits for it.
    pub(crate) fn tell_too(before: Arc<Life>, channel: String) -> Self {
        let channels = before.channels.iter().cloned().chain([channel]).collect();
        let life = before.next(before.entry.clone(), channels, before.call.clone());
        Self::to(before, life)
    }

    /// The same call, waiting outside the stream because its entry is lost.
    pub(crate) fn outside(before: Life) -> Self {
        let life = before.next(String::new(), before.channels.clone(), before.call.clone());
        Self::to(Arc::new(before), life)
    }

    /// Whether it is of a call that a worker of this process has read, and nobody has touched since as far as is known.
    fn is_of_what_was_read(&self) -> bool {
        let asked_as_kept = self.asked.as_ref().is_some_and(|asked| asked.len() == self.before.kept);
        asked_as_kept && self.before.version == 1 && self.acknowledges()
    }

    /// Whether an entry of the stream is acknowledged with it.
    fn acknowledges(&self) -> bool {
        !self.before.entry.is_empty() && self.after.as_ref().is_some_and(|after| after.entry.is_empty())
    }

    /// The call as it will be, if there will be one.
    pub(crate) fn result(&self) -> &Arc<Life> {
        self.after.as_ref().unwrap_or(&self.before)
    }

    /// The reply came to this list: nobody needs to be told there.
    pub(crate) fn heard_on(mut self, list: String) -> Self {
        self.heard_on = Some(list);
        self
    }

    pub(super) fn ends(&self) -> bool {
        !self.before.call.state.has_ended() && self.after.as_ref().is_some_and(|after| after.call.state.has_ended())
    }

    pub(super) fn is_put_off(&self) -> bool {
        let is_delayed = |life: &Life| life.call.state == CallState::Delayed;
        !is_delayed(&self.before) && self.after.as_deref().is_some_and(is_delayed)
    }

    /// Whether the call waits outside the stream from now on.
    fn makes_ready(&self) -> bool {
        let waits_outside = |life: &Life| life.call.state == CallState::Queued && life.entry.is_empty();
        !waits_outside(&self.before) && self.after.as_deref().is_some_and(waits_outside)
    }

    /// Whether another call may run in its place.
    fn frees_room(&self) -> bool {
        let counts = |life: &Life| life.call.state == CallState::Running && !life.call.parked;
        counts(&self.before) && !self.after.as_deref().is_some_and(counts)
    }
}

/// Waiting calls are in the stream until they run; running ones until their lease is first prolonged, or until they are written down if
/// that was not done at once. After that the record alone says
/// who has them, so that one long call does not keep all younger ones from being trimmed, and no old peer takes it for abandoned.
fn leaves_the_stream(before: &Life, after: &Call) -> bool {
    match (before.call.state, after.state) {
        (CallState::Running, CallState::Running) => before.call.lease_until != after.lease_until,
        (CallState::Queued, CallState::Queued) => before.call.delivery != after.delivery,
        _ => true,
    }
}

impl RedisStore {
    /// Puts one command to a call: load, decide, save unless somebody was faster, tell. `None`: there is no such call.
    /// A decision that changes nothing is answered from what was loaded.
    pub(crate) async fn put(
        &self,
        call_id: &CallId,
        command: impl Fn(&Found, Timestamp) -> CallCommand,
    ) -> Result<Option<(Found, CallReply)>, StoreError> {
        loop {
            let Some(found) = self.load(call_id).await? else { return Ok(None) };
            let now = self.shared.now();
            let (after, reply) = step(found.life.call.clone(), command(&found, now), now);
            if !changes(&reply) {
                return Ok(Some((found, reply)));
            }
            if self.apply(&found.room, vec![found.moved_to(after.clone())]).await?[0] {
                let life = found.life.next(found.life.entry.clone(), found.life.channels.clone(), after);
                return Ok(Some((Found::new(found.room, life), reply)));
            }
        }
    }

    /// Makes changes of one function's calls and tells everybody whom it concerns. `false` where somebody was faster.
    pub(crate) async fn apply(&self, room: &Arc<Room>, moves: Vec<Move>) -> Result<Vec<bool>, StoreError> {
        let mut done = self.apply_all(vec![(Arc::clone(room), moves)]).await?;
        Ok(done.pop().unwrap_or_default())
    }

    /// The same with several functions at once.
    pub(crate) async fn apply_all(&self, changes: Vec<(Arc<Room>, Vec<Move>)>) -> Result<Vec<Vec<bool>>, StoreError> {
        let mut asked = Vec::with_capacity(changes.len());
        for (room, moves) in changes {
            let moves: Vec<Arc<Move>> = moves.into_iter().map(Arc::new).collect();
            let store = self.clone();
            let receivers = room.moves.ask(moves.iter().map(|one| (Arc::clone(&room), Arc::clone(one))), move |batch| {
                let store = store.clone();
                async move { store.flush_moves(batch).await }
            });
            asked.push((room, moves, receivers));
        }
        let mut all_done = Vec::with_capacity(asked.len());
        for (room, moves, receivers) in asked {
            let mut done = Vec::with_capacity(receivers.len());
            for receiver in receivers {
                done.push(heard(receiver).await?);
            }
            let made: Vec<&Move> = moves.iter().zip(&done).filter(|(_, done)| **done).map(|(made, _)| &**made).collect();
            self.tell(&room, &made).await;
            all_done.push(done);
        }
        Ok(all_done)
    }

    /// Makes all changes of a batch, except those of calls that somebody else has changed.
    async fn flush_moves(&self, moves: Vec<(Arc<Room>, Arc<Move>)>) -> Result<Vec<bool>, StoreError> {
        let mut done = vec![true; moves.len()];
        let mut seen = QuickSet::default();
        for (done, (_, one)) in done.iter_mut().zip(&moves) {
            *done = seen.insert(&one.before.call.call_id); // of two changes of one call the second has seen an old version
        }
        let (read, mut open): (Vec<usize>, Vec<usize>) =
            (0..moves.len()).filter(|place| done[*place]).partition(|place| moves[*place].1.is_of_what_was_read());
        let pick = |places: &[usize]| places.iter().map(|place| &moves[*place]).collect::<Vec<_>>();
        if !read.is_empty() && !self.run_moves_of_read(&pick(&read)).await? {
            open.extend(read);
        }
        while !open.is_empty() {
            let changed = self.run_moves(&pick(&open)).await?;
            if changed.is_empty() {
                break;
            }
            for place in changed {
                done[*open.get(place).ok_or_else(|| StoreError::Corrupt("a move that was not asked for was refused".to_owned()))?] = false;
            }
            open.retain(|place| done[*place]);
        }
        Ok(done)
    }

    /// Makes changes of calls that workers of this process have read from the stream, if nobody has touched one since. `false`: somebody
    /// has, so all are to be compared. What was acknowledged does no harm then, for the records still say that the calls wait.
    async fn run_moves_of_read(&self, moves: &[&(Arc<Room>, Arc<Move>)]) -> Result<bool, StoreError> {
        Ok(self.send_moves(moves, Guard::Untouched).await?.is_empty())
    }

    /// Makes these changes, or says which calls have changed and makes none. They are of one function, unless one server has all keys.
    async fn run_moves(&self, moves: &[&(Arc<Room>, Arc<Move>)]) -> Result<Vec<usize>, StoreError> {
        let places = self.send_moves(moves, Guard::Compared).await?;
        Ok(places.iter().filter_map(value::number).filter_map(|place| usize::try_from(place - 1).ok()).collect())
    }

    /// Sends changes with what the script shall look at first. What it gives is empty when they are made.
    async fn send_moves(&self, moves: &[&(Arc<Room>, Arc<Move>)], guard: Guard) -> Result<Vec<Value>, StoreError> {
        if guard == Guard::Untouched
            && moves.len() >= MANY
            && let Some(transaction) = self.shared.transaction().await
        {
            match self.send_moves_by(moves, guard, Some(transaction)).await {
                // Nothing was done. The script alone runs even then, and makes room.
                Err(StoreError::Unavailable(StoreTrouble::Full(_))) => {}
                sent => return sent,
            }
        }
        self.send_moves_by(moves, guard, None).await
    }

    async fn send_moves_by(
        &self,
        moves: &[&(Arc<Room>, Arc<Move>)],
        guard: Guard,
        transaction: Option<Transaction<'_>>,
    ) -> Result<Vec<Value>, StoreError> {
        let shared = &self.shared;
        let mut args = shared.pool.take();
        let compared = if guard == Guard::Compared { moves } else { &[] };
        args.number(compared.len());
        compared.iter().for_each(|(_, one)| args.push(one.before.call.call_id.as_str()));
        compared.iter().for_each(|(_, one)| args.written(|text| one.before.write_head(text)));
        let inboxes: Vec<Arc<str>> = moves.iter().map(|(room, _)| shared.inbox_of(room)).collect();
        let mut effects = Effects::new(!shared.link.is_cluster(), guard, &shared.pool);
        for (place, ((room, one), inbox)) in (1..).zip(moves.iter().zip(&inboxes)) {
            effects.gather(&room.keys, inbox, place, one);
        }
        for refused in shared.link.insist(&effects.take_elsewhere()).await? {
            value::checked(refused)?;
        }
        let (calls, kept) = (shared.keys.calls(), shared.keys.kept());
        let records = transaction.as_ref().and_then(|_| effects.take_records(&calls, &kept));
        let keys = effects.write(&mut args);
        let names: Vec<&str> = keys.iter().map(|name| &**name).collect();
        let moved = match transaction.zip(records) {
            Some((transaction, records)) => {
                let beside = Beside { command: ["HSET", &calls], words: &records, restore: &RESTORE, restore_keys: &[&calls, &kept] };
                let moved = transaction.run(&MOVE, &names, &args, &beside).await;
                shared.pool.put(records);
                moved.and_then(|moved| shared.guarantee.judge(&[]).map(|_| moved))
            }
            None => shared.run_durably(&MOVE, &names, &args).await.map(|(moved, _)| moved),
        };
        shared.pool.put(args);
        value::array("the move of calls", moved?)
    }

    /// Tells this process what it needs to know of changes that were just made; the script has told the others that wait for answers.
    async fn tell(&self, room: &Arc<Room>, made: &[&Move]) {
        let (mut brings_work, mut frees_room) = (false, false);
        for one in made {
            let Some(after) = &one.after else { continue };
            if one.ends() {
                self.shared.ears.tell_end(&after.call);
            } else if one.is_put_off() {
                self.shared.ears.tell(&after.call.call_id, &CallNews::Changed);
            }
            brings_work |= one.makes_ready();
            frees_room |= one.frees_room();
            if let Some(due) = after.call.due() {
                self.shared.agenda.note(due);
            }
        }
        self.note_acks(room, made.iter().filter(|one| one.acknowledges()).count() as u64);
        if brings_work || frees_room && room.is_limited_for_all() {
            self.brings_work(room).await;
        } else if frees_room && room.is_limited() {
            room.ring();
        }
    }

    /// Something waits outside the stream, or there is room for it: whoever waits in any process shall look.
    pub(crate) async fn brings_work(&self, room: &Room) {
        room.ring();
        self.shared.news.publish_ready(&room.function).await;
    }
}

/// Whether a reply says that the call is not as it was.
pub(crate) fn changes(reply: &CallReply) -> bool {
    use CallReply as R;
    !matches!(reply, R::NotClaimed | R::AlreadyRecorded | R::Lost(_) | R::AlreadyEnded | R::NotDue | R::NotDead)
}

/// For those who count: how this call ended, if it did.
pub(crate) fn ended(room: &Room, call: &Call) -> Option<Ended> {
    call.state.has_ended().then(|| Ended {
        call_id: call.call_id.clone(),
        function: room.function.clone(),
        state: call.state,
        took: call.ended_at.unwrap_or(call.submitted_at).since(call.submitted_at),
    })
}
