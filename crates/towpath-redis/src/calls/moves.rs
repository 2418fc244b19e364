//! Changing calls as decided, unless somebody was faster: then it is decided again on what is there now.

use std::sync::Arc;

use towpath_core::call::{Call, CallCommand, CallReply, CallState, step};
use towpath_core::names::CallId;
use towpath_core::store::{CallNews, Ended, StoreError};
use towpath_core::time::Timestamp;

use super::entry;
use super::load::Found;
use crate::lane::heard;
use crate::record::{Life, letter, write_tail};
use crate::room::Room;
use crate::script::{Args, MOVE};
use crate::store::RedisStore;
use crate::value;

/// A reply stays so long for a caller that was cut off; as the seeds have it.
pub(crate) const REPLY_KEPT_MS: u64 = 60_000;

/// A change of one call.
#[derive(Clone)]
pub(crate) struct Move {
    before: Life,
    /// `None`: it is forgotten.
    after: Option<Life>,
}

impl Move {
    /// From what was seen to what was decided.
    pub(crate) fn new(before: Life, after: Call) -> Self {
        let entry = if leaves_the_stream(&before, &after) { String::new() } else { before.entry.clone() };
        let life = Life { version: before.version + 1, entry, call: after, ..before.clone() };
        Self { before, after: Some(life) }
    }

    /// From what was seen to nothing.
    pub(crate) fn forget(before: Life) -> Self {
        Self { before, after: None }
    }

    /// The same call with one more list on which somebody waits for it.
    pub(crate) fn tell_too(before: Life, channel: String) -> Self {
        let mut life = Life { version: before.version + 1, ..before.clone() };
        life.channels.push(channel);
        Self { before, after: Some(life) }
    }

    /// The same call, waiting outside the stream because its entry is lost.
    pub(crate) fn outside(before: Life) -> Self {
        let life = Life { version: before.version + 1, entry: String::new(), ..before.clone() };
        Self { before, after: Some(life) }
    }

    /// Whether an entry of the stream is acknowledged with it.
    fn acknowledges(&self) -> bool {
        !self.before.entry.is_empty() && self.after.as_ref().is_some_and(|after| after.entry.is_empty())
    }

    /// The call as it will be.
    pub(crate) fn after_or(&self, otherwise: Life) -> Life {
        self.after.clone().unwrap_or(otherwise)
    }

    fn write(&self, args: &mut Args) {
        args.push(self.before.call.call_id.as_str());
        args.number(self.before.version);
        let Some(after) = &self.after else {
            for word in ["", "=", "-", "-0", ".", ".", ""] {
                args.push(word);
            }
            return;
        };
        let ended = !self.before.call.state.has_ended() && after.call.state.has_ended();
        args.push(after.write());
        if tail_differs(&self.before.call, &after.call) {
            args.push(write_tail(&after.call))
        } else {
            args.push("=")
        }
        match (self.before.call.due(), after.call.due()) {
            (before, after) if before == after => args.push("="),
            (_, None) => args.push("-"),
            (_, Some(due)) => args.number(due.as_millis()),
        }
        args.push(format!("{}{}", letter(after.call.state), u8::from(after.call.parked)));
        args.push(entry_effect(&self.before, after));
        args.push(if ended {
            "e"
        } else if is_put_off(&self.before.call, &after.call) {
            "c"
        } else {
            "."
        });
        let answers_a_list = ended && self.before.channels.iter().any(|channel| !entry::is_inbox(channel));
        args.push(if answers_a_list { entry::reply(&after.call) } else { Vec::new() });
    }
}

/// What becomes of the call's entry in the stream: see the script.
fn entry_effect(before: &Life, after: &Life) -> &'static str {
    match (before.call.state, after.call.state) {
        (CallState::Running, CallState::Running) if before.call.lease_until != after.call.lease_until => "h",
        (CallState::Running, CallState::Running) => ".",
        (CallState::Queued, CallState::Queued) if before.entry != after.entry => "r",
        (CallState::Running, CallState::Queued) | (CallState::Delayed, CallState::Queued) => "r",
        (CallState::Running, CallState::Delayed) => "y",
        (CallState::Running, _ended) => "a",
        (CallState::Queued, ended) if ended.has_ended() => "d",
        _ => ".",
    }
}

/// Waiting calls are in the stream until they run; running ones until their lease is first prolonged. After that the record alone says
/// who has them, so that one long call does not keep all younger ones from being trimmed, and no old peer takes it for abandoned.
fn leaves_the_stream(before: &Life, after: &Call) -> bool {
    match (before.call.state, after.state) {
        (CallState::Running, CallState::Running) => before.call.lease_until != after.lease_until,
        (CallState::Queued, CallState::Queued) => false,
        _ => true,
    }
}

fn tail_differs(before: &Call, after: &Call) -> bool {
    before.outcome != after.outcome || before.last_failure != after.last_failure || before.replayed_as != after.replayed_as
}

fn is_put_off(before: &Call, after: &Call) -> bool {
    before.state != CallState::Delayed && after.state == CallState::Delayed
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
            if self.apply(&found.room, vec![Move::new(found.life.clone(), after.clone())]).await?[0] {
                let life = Life { call: after, ..found.life };
                return Ok(Some((Found { life, ..found }, reply)));
            }
        }
    }

    /// Makes changes of one function's calls and tells everybody whom it concerns. `false` where somebody was faster.
    pub(crate) async fn apply(&self, room: &Arc<Room>, moves: Vec<Move>) -> Result<Vec<bool>, StoreError> {
        let told = moves.clone();
        let (store, flushed_room) = (self.clone(), Arc::clone(room));
        let receivers = room.moves.ask(moves, move |batch| {
            let (store, room) = (store.clone(), Arc::clone(&flushed_room));
            async move { store.flush_moves(&room, batch).await }
        });
        let mut done = Vec::with_capacity(receivers.len());
        for receiver in receivers {
            done.push(heard(receiver).await?);
        }
        let made: Vec<&Move> = told.iter().zip(&done).filter(|(_, done)| **done).map(|(made, _)| made).collect();
        self.tell(room, &made).await;
        Ok(done)
    }

    async fn flush_moves(&self, room: &Room, moves: Vec<Move>) -> Result<Vec<bool>, StoreError> {
        let keys = &room.keys;
        let (shared, cluster) = (&self.shared, self.shared.link.is_cluster());
        let mut args = Args::with_capacity(4 + moves.len() * 9);
        args.push(keys.group.as_str());
        args.flag(cluster);
        args.push(shared.inbox_of(room));
        args.number(REPLY_KEPT_MS);
        for one in &moves {
            one.write(&mut args);
        }
        let whereabouts = shared.keys.whereabouts();
        let mut names: Vec<&str> = vec![
            &keys.calls,
            &keys.requests,
            &keys.outcomes,
            &keys.progress,
            &keys.due,
            &keys.index,
            &keys.ready,
            &keys.aside,
            &keys.counts,
            &keys.busy,
            &keys.idempotency,
            &keys.stream,
            &keys.dead,
        ];
        if !cluster {
            names.push(&whereabouts);
        }
        let replies = value::array("the move of calls", shared.link.run(&MOVE, &names, &args).await?)?;
        if replies.len() != moves.len() {
            return Err(StoreError::Corrupt(format!("{} moves had {} replies", moves.len(), replies.len())));
        }
        Ok(replies.iter().map(|reply| value::number(reply) == Some(1)).collect())
    }

    /// Tells this process what it needs to know of changes that were just made; the script has told the others that wait for answers.
    async fn tell(&self, room: &Arc<Room>, made: &[&Move]) {
        let mut brings_work = false;
        for one in made {
            let Some(after) = &one.after else { continue };
            let (was, is) = (&one.before.call, &after.call);
            if !was.state.has_ended() && is.state.has_ended() {
                self.shared.ears.tell(&is.call_id, &CallNews::Ended(Arc::new(is.clone())));
            } else if is_put_off(was, is) {
                self.shared.ears.tell(&is.call_id, &CallNews::Changed);
            }
            let frees_room = was.state == CallState::Running && (is.state != CallState::Running || is.parked && !was.parked);
            brings_work |= entry_effect(&one.before, after) == "r" || frees_room && room.is_limited();
            if let Some(due) = is.due() {
                self.shared.agenda.note(due);
            }
        }
        self.note_acks(room, made.iter().filter(|one| one.acknowledges()).count() as u64);
        if brings_work {
            self.brings_work(room).await;
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
