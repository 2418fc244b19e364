//! A dead letter's request, submitted again.

use std::sync::Arc;

use towpath_core::call::{Call, CallCommand, CallReply, step};
use towpath_core::names::{CallId, IdempotencyKey};
use towpath_core::store::{Replayed, StoreError};
use towpath_core::time::millis;

use super::entry::{added_fields, empty_item};
use super::load::Found;
use super::reserve::Reserved;
use crate::record::Life;
use crate::script::{Args, REPLAY};
use crate::store::RedisStore;
use crate::value;

impl RedisStore {
    pub(crate) async fn replay(&self, dead: &CallId, replay_id: CallId) -> Result<Replayed, StoreError> {
        loop {
            let Some(found) = self.load(dead).await? else { return Ok(Replayed::NotDead) };
            let now = self.shared.now();
            let settle = CallCommand::Settle { replayed_as: Some(replay_id.clone()) };
            let (settled, reply) = step(found.life.call.clone(), settle, now);
            if reply != CallReply::Settled {
                return Ok(Replayed::NotDead);
            }
            let Reserved::Sequence(sequence) = self.reserve(&found.room, &replay_id).await? else { return Ok(Replayed::NotDead) };
            let old = &found.life.call;
            let new = Call::submitted(replay_id.clone(), now, old.deadline.since(old.submitted_at), old.retain);
            match self.run_replay(&found, settled, new, sequence).await? {
                1 => return Ok(Replayed::Submitted),
                0 => {} // somebody was faster: look again
                _taken => {
                    self.unreserve(&found.room, &replay_id).await?;
                    return Ok(Replayed::NotDead);
                }
            }
        }
    }

    async fn run_replay(&self, found: &Found, settled: Call, new: Call, sequence: u64) -> Result<i64, StoreError> {
        let (shared, room, keys) = (&self.shared, &found.room, &found.room.keys);
        let view = self.views(room, std::slice::from_ref(&settled.call_id)).await?.pop().flatten();
        let Some(request) = view.map(|view| view.request) else { return Ok(0) };
        let cluster = shared.link.is_cluster();
        let mut args = Args::default();
        args.flag(cluster);
        args.push(settled.call_id.as_str());
        args.number(found.life.version);
        let due = settled.due().unwrap_or(settled.deadline);
        let settled_life = found.life.next(found.life.entry.clone(), Arc::clone(&found.life.channels), settled);
        let (life, tail) = settled_life.write(&keys.line);
        args.push(life);
        args.push(tail.unwrap_or_default());
        args.number(due.as_millis());
        let (new_id, new_due, timeout) = (new.call_id.clone(), new.deadline, new.deadline.since(new.submitted_at));
        let key = request.idempotency_key.clone();
        args.push(new_id.as_str());
        args.number(sequence);
        let mut rest = Vec::new();
        let submitted_at = new.submitted_at;
        Life::submitted(new, key.clone(), Vec::new()).write_rest(&keys.line, &mut rest);
        args.push(rest);
        args.number(new_due.as_millis());
        args.push(key.as_ref().map_or("", IdempotencyKey::as_str));
        args.number(found.life.kept);
        for (name, value) in [("callId", new_id.as_str()), ("functionName", room.function.name.as_str())] {
            args.push(name);
            args.push(value);
        }
        args.push("params");
        args.push(request.params.as_bytes());
        if let Some(item) = request.input_item.as_ref().filter(|item| !item.is_empty()) {
            args.push("inputItem");
            args.push(item.as_bytes());
        }
        for (name, value) in [("responseChannel", crate::keys::response(&new_id).as_str()), ("proto", "1")] {
            args.push(name);
            args.push(value);
        }
        for (name, value) in [("timeout", millis(timeout)), ("timestamp", submitted_at.as_millis())] {
            args.push(name);
            args.number(value);
        }
        for word in added_fields(&request) {
            args.push(word);
        }
        for word in empty_item(&request) {
            args.push(*word);
        }
        let counter = shared.keys.sequence();
        let mut names: Vec<&str> = vec![
            &keys.calls,
            &keys.requests,
            &keys.outcomes,
            &keys.due,
            &keys.index,
            &keys.counts,
            &keys.idempotency,
            &keys.stream,
            &keys.dead,
        ];
        if !cluster {
            names.push(&counter);
        }
        let (reply, _) = shared.run_durably(&REPLAY, &names, &args).await?;
        shared.agenda.note(due.min(new_due));
        value::number(&reply).ok_or_else(|| value::strange("a replay", &reply))
    }
}
