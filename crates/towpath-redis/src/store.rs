//! What an open store is made of.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use redis::{Cmd, Value};
use tokio::sync::mpsc;
use towpath_core::clock::Clock;
use towpath_core::names::FunctionKey;
use towpath_core::store::{Durability, StoreError};
use towpath_core::time::Timestamp;

use crate::agenda::Agenda;
use crate::calls::ears::Ears;
use crate::calls::inbox::Inboxes;
use crate::calls::load::read_member;
use crate::calls::queue::Queue;
use crate::held::HeldCalls;
use crate::keys::Keys;
use crate::link::{Link, Script};
use crate::news::{Heard, News};
use crate::options::RedisOptions;
use crate::room::Room;
use crate::value;

/// A store on Redis. Clones share it.
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) options: RedisOptions,
    pub(crate) keys: Keys,
    pub(crate) link: Link,
    /// The clock that judges.
    pub(crate) clock: Arc<dyn Clock>,
    /// The clock on the wall, for pauses that are about the network and not about calls.
    pub(crate) wall: Arc<dyn Clock>,
    /// Our name on reply lists; nobody else can guess it.
    pub(crate) caller: String,
    pub(crate) news: News,
    pub(crate) ears: Ears,
    pub(crate) inboxes: Inboxes,
    pub(crate) queue: Queue,
    pub(crate) held: HeldCalls,
    pub(crate) agenda: Agenda,
    rooms: Mutex<HashMap<FunctionKey, Arc<Room>>>,
}

impl RedisStore {
    /// Looks up or makes what this process keeps in mind about a function.
    pub(crate) fn room(&self, function: &FunctionKey) -> Arc<Room> {
        let mut rooms = self.shared.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = rooms.get(function) {
            return Arc::clone(room);
        }
        let room = Arc::new(Room::new(&self.shared.keys, function));
        rooms.insert(function.clone(), Arc::clone(&room));
        room
    }

    /// All functions that are known.
    pub(crate) async fn all_rooms(&self) -> Result<Vec<Arc<Room>>, StoreError> {
        let mut ask = Cmd::new();
        ask.arg("SMEMBERS").arg(self.shared.keys.functions());
        let members = value::array("SMEMBERS", self.shared.link.ask(&ask).await?)?;
        let mut functions: Vec<FunctionKey> = members.iter().filter_map(value::text).filter_map(read_member).collect();
        functions.sort();
        Ok(functions.iter().map(|function| self.room(function)).collect())
    }

    /// Stops what runs beside it and says goodbye to the server.
    pub async fn close(&self) {}
}

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// What an acknowledgement is worth here.
    pub(crate) fn durability(&self) -> Durability {
        Durability::Memory
    }

    /// Runs a script that takes something, and makes sure that it is kept as well as was asked for.
    pub(crate) async fn run_durably(&self, script: &Script, keys: &[&str], args: &[Vec<u8>]) -> Result<(Value, Durability), StoreError> {
        Ok((self.link.run(script, keys, args).await?, self.durability()))
    }

    pub(crate) fn location(&self) -> String {
        "redis".to_owned()
    }

    pub(crate) async fn prove_writable(&self) -> Result<(), StoreError> {
        let mut write = Cmd::new();
        write.arg("SET").arg(self.keys.probe()).arg(self.now().as_millis()).arg("PX").arg(60_000);
        self.link.ask(&write).await.map(drop)
    }
}

/// Tells the claims that wait what was heard from other processes.
async fn pass_on(mut heard: mpsc::UnboundedReceiver<Heard>, shared: Weak<Shared>) {
    while let Some(what) = heard.recv().await {
        let Some(shared) = shared.upgrade() else { return };
        let rooms = shared.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        match what {
            Heard::Ready(function) => {
                if let Some(room) = rooms.get(&function) {
                    room.ring();
                }
            }
            Heard::LookAgain => rooms.values().for_each(|room| room.ring()),
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("place", &self.shared.options.place).finish_non_exhaustive()
    }
}
