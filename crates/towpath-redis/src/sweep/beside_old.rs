//! Functions that old workers serve. An old worker reads the stream and nothing else, leaves in it what it has finished, and destroys the
//! group for everybody when it goes: so the stream is trimmed more often, and what waits outside it is put back when nobody else would run
//! it.

use std::sync::{Arc, Weak};

use redis::Cmd;
use towpath_core::names::FunctionKey;
use towpath_core::store::StoreError;
use towpath_core::time::millis;
use towpath_core::worker::HEALTHY_FOR;

use super::TRIM_AFTER;
use crate::pause::pause;
use crate::room::Room;
use crate::script::{Args, BACK};
use crate::store::{RedisStore, Shared};
use crate::value;

/// So many calls are put back at once.
const BACK_MAX: usize = 500;
/// So many entries are looked at in one breath, which includes their payloads; as long as that removes much, it is done again.
const LOOK_AT: usize = 200;
const ENOUGH: i64 = 100;
const LOOK_ROUNDS: usize = 20;
/// So many functions are asked about at once.
const LOOKS_MAX: usize = 256;

impl RedisStore {
    /// Looks who serves these functions, and looks after those that old workers serve.
    pub(crate) async fn look_beside_old(&self, functions: &[FunctionKey]) -> Result<(), StoreError> {
        for some in functions.chunks(LOOKS_MAX) {
            self.look_at_peers_now(some).await?;
            self.tend_beside_old(some).await?;
        }
        Ok(())
    }

    /// Looks after those functions that old workers serve.
    async fn tend_beside_old(&self, functions: &[FunctionKey]) -> Result<(), StoreError> {
        for some in functions.chunks(LOOKS_MAX) {
            self.look_at_peers(some).await?;
            for function in some.iter().filter(|function| self.was_served_by_old(function)) {
                self.tend(&self.room(function)).await?;
            }
        }
        Ok(())
    }

    async fn tend(&self, room: &Arc<Room>) -> Result<(), StoreError> {
        for _round in 0..LOOK_ROUNDS {
            if self.trim(room, LOOK_AT).await?.removed < ENOUGH {
                break;
            }
        }
        if self.serving(&room.function).await?.is_only_old() {
            self.put_back(room).await?;
        }
        Ok(())
    }

    /// Puts calls that wait outside the stream into it again, if no worker of ours would take them. An old worker answers on a list,
    /// which we read and tell whoever waits for the call.
    async fn put_back(&self, room: &Room) -> Result<(), StoreError> {
        let (keys, now) = (&room.keys, self.shared.now().as_millis());
        let mut args = Args::with_capacity(4);
        args.number(now.saturating_sub(millis(HEALTHY_FOR)));
        args.number(now);
        args.push(room.function.name.as_str());
        args.number(BACK_MAX);
        let names = [keys.calls.as_str(), &keys.requests, &keys.ready, &keys.workers, &keys.stream];
        let reply = value::array("putting calls back", self.shared.link.run_args(&BACK, &names, &args).await?)?;
        if !reply.is_empty() {
            tracing::info!(function = %room.function, count = reply.len(), "calls that wait are put into the stream again: only old workers serve the function");
        }
        for call_id in reply.iter().map(value::call_id) {
            self.await_old_reply_to_put_back(&call_id?);
        }
        Ok(())
    }

    /// Makes the group where the stream ends now, if there is none. An old worker would do the same when it comes, behind the call that is
    /// about to be submitted, which nobody would read then. What was there before is not read again: it may be finished.
    pub(crate) async fn make_group_for_old(&self, room: &Room) {
        let mut make = Cmd::new();
        make.arg("XGROUP").arg("CREATE").arg(&room.keys.stream).arg(&room.keys.group).arg("$").arg("MKSTREAM");
        // As a rule it is there; and if the server cannot be asked, the submit says so.
        drop(self.shared.link.ask(&make).await);
    }
}

/// Looks after the functions that old workers serve, as long as the store is open, and now and then looks for such functions.
pub(crate) async fn tend_for_ever(shared: Weak<Shared>) {
    let mut since_look = std::time::Duration::ZERO;
    loop {
        pause(TRIM_AFTER).await;
        let Some(shared) = shared.upgrade() else { return };
        since_look += TRIM_AFTER;
        let look = since_look >= shared.options.timing.look_for_old_every;
        if look {
            since_look = std::time::Duration::ZERO;
        }
        let store = RedisStore { shared };
        let mut functions: Vec<FunctionKey> = store.rooms_in_use().iter().map(|room| room.function.clone()).collect();
        let tended = if look {
            store.look_beside_old(&functions).await
        } else {
            functions.retain(|function| store.was_served_by_old(function));
            store.tend_beside_old(&functions).await
        };
        if let Err(error) = tended {
            tracing::debug!(%error, "functions of old workers were not looked after; the next time will do");
        }
    }
}
