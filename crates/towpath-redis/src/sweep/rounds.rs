//! Going from function to function, as long as the store is open. Where nothing happens there is nothing to find: a function at rest is
//! passed by until its stream has moved, and that is looked at for a few functions at a time.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Cmd;
use towpath_core::names::FunctionKey;
use towpath_core::store::StoreError;

use super::FALLEN_AFTER_MS;
use crate::pause::pause;
use crate::room::Room;
use crate::store::{RedisStore, Shared};
use crate::value;

/// Of the functions at rest so many are looked at in one round. When somebody went away it is all of them.
const LOOKED_AT_MAX: usize = 10;

/// Where an empty stream with one group ends. Nothing is lost in it as long as it ends there.
type Rest = String;

/// What is remembered from round to round.
#[derive(Default)]
struct Rounds {
    at_rest: HashMap<FunctionKey, Rest>,
    /// Where the next look at functions at rest begins.
    next: usize,
}

impl Rounds {
    async fn go(&mut self, store: &RedisStore, look_at_all: bool) {
        let mut rooms = store.rooms_in_use();
        rooms.sort_by(|one, other| one.function.cmp(&other.function));
        self.at_rest.retain(|function, _| rooms.iter().any(|room| room.function == *function));
        let (resting, restless): (Vec<_>, Vec<_>) = rooms.into_iter().partition(|room| self.at_rest.contains_key(&room.function));
        let count = if look_at_all { resting.len() } else { LOOKED_AT_MAX.min(resting.len()) };
        let begin = if resting.is_empty() { 0 } else { self.next % resting.len() };
        self.next = begin + count;
        for room in resting.iter().cycle().skip(begin).take(count).chain(&restless) {
            if let Err(error) = self.visit(store, room).await {
                tracing::debug!(function = %room.function, %error, "the stream was not swept; the next time will do");
            }
        }
    }

    async fn visit(&mut self, store: &RedisStore, room: &Arc<Room>) -> Result<(), StoreError> {
        if let Some(rest) = self.at_rest.remove(&room.function)
            && store.end_of_empty(room).await?.as_ref() == Some(&rest)
            && !store.was_served_by_old(&room.function)
        {
            self.at_rest.insert(room.function.clone(), rest);
            return Ok(());
        }
        if store.sweep_all(room).await?
            && let Some(rest) = store.end_of_empty(room).await?
        {
            self.at_rest.insert(room.function.clone(), rest);
        }
        Ok(())
    }
}

impl RedisStore {
    /// Where a stream ends, if it is empty and has its group.
    async fn end_of_empty(&self, room: &Room) -> Result<Option<Rest>, StoreError> {
        let mut about = Cmd::new();
        about.arg("XINFO").arg("STREAM").arg(&room.keys.stream);
        let about = match self.shared.link.ask(&about).await {
            Err(error) if error.to_string().contains("no such key") => return Ok(None),
            about => value::array("XINFO STREAM", about?)?,
        };
        let field = |name: &str| about.chunks_exact(2).find(|pair| value::text(&pair[0]) == Some(name)).map(|pair| &pair[1]);
        let number = |name: &str| field(name).and_then(value::number);
        let empty = number("length") == Some(0) && number("groups") == Some(1);
        Ok(field("last-generated-id").and_then(value::text).filter(|_| empty).map(str::to_owned))
    }
}

/// Sweeps the functions that this process has to do with, now and then and when somebody went away, as long as the store is open.
pub(crate) async fn sweep_for_ever(shared: Weak<Shared>) {
    let Some((mut every, mut departures)) =
        shared.upgrade().map(|shared| (shared.options.timing.sweep_every, shared.presence.departures()))
    else {
        return;
    };
    let mut rounds = Rounds::default();
    loop {
        let somebody_left = tokio::select! {
            () = pause(every) => false,
            left = departures.changed() => left.is_ok(),
        };
        if somebody_left {
            // What fell is not known as fallen before that.
            pause(Duration::from_millis(FALLEN_AFTER_MS)).await;
        }
        let Some(shared) = shared.upgrade() else { return };
        // Processes that started together need not look together.
        every = shared.options.timing.sweep_every;
        every += every * u32::from(shared.caller.as_bytes()[0]) / 1_500;
        rounds.go(&RedisStore { shared }, somebody_left).await;
    }
}
