//! A Cluster: one line to each node, requests go to the node that has the slot and follow where it moves.
//!
//! The redis crate's own Cluster connection repeats what was under way when a connection broke. Here nothing is repeated that may have
//! happened: only what a node has refused is sent to another.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use redis::{Cmd, Value};
use tokio::sync::{Mutex as AsyncMutex, watch};
use towpath_core::store::StoreError;

use super::dial::Dialer;
use super::error::trouble;
use super::line::{Line, Target};
use super::slots::{SlotMap, slot_of, slot_of_key};
use crate::options::Address;

/// More often than a slot can move while one request is under way.
const MOST_REDIRECTIONS: usize = 8;

pub(super) struct Cluster {
    dialer: Arc<Dialer>,
    lives: watch::Sender<u64>,
    entrances: Vec<Address>,
    lines: Mutex<HashMap<Address, Arc<Line>>>,
    known: Mutex<Known>,
    /// Held by the one who asks for the slots; the others wait for what they hear.
    learning: AsyncMutex<()>,
}

/// What we know of the slots, and how often we have asked.
#[derive(Clone, Default)]
struct Known {
    version: u64,
    map: Arc<SlotMap>,
}

/// A command with a key and those without that follow it: they go to the same node.
struct Unit {
    slot: Option<u16>,
    first: usize,
    count: usize,
}

enum Redirection {
    Moved(Address),
    Ask(Address),
}

impl Cluster {
    /// Enters through any node and connects to all.
    pub(super) async fn open(dialer: Arc<Dialer>, entrances: Vec<Address>, lives: watch::Sender<u64>) -> Result<Self, StoreError> {
        let (lines, known) = (Mutex::default(), Mutex::default());
        let cluster = Self { dialer, lives, entrances, lines, known, learning: AsyncMutex::default() };
        cluster.learn(0).await?;
        let nodes: Vec<Arc<Line>> = cluster.known().map.nodes().map(|node| cluster.line(node)).collect();
        // A node that is away keeps only its own slots from working.
        join_all(nodes.iter().map(|line| line.wire())).await;
        Ok(cluster)
    }

    /// Sends at once to the node that has the slot. At most one of the commands has a key. Without a slot any node will do, and it is the
    /// same one as long as it is there.
    pub(super) async fn send(&self, slot: Option<u16>, commands: &[Cmd]) -> Result<Vec<Value>, StoreError> {
        let mut version = self.version();
        let mut line = self.owner_or_learn(slot).await?;
        let mut asking = false;
        for _ in 0..MOST_REDIRECTIONS {
            let sent =
                if asking { line.send(&with_asking(commands)).await.map(without_asking(commands)) } else { line.send(commands).await };
            let (next, ask) = match sent {
                Ok(replies) => match replies.iter().find_map(redirection) {
                    None => return Ok(replies),
                    Some(Redirection::Ask(node)) => (self.line(&node), true),
                    Some(Redirection::Moved(node)) => {
                        // What it says is enough to go on with, also if nobody tells us the rest.
                        let _ = self.learn(version).await;
                        (if node.host.is_empty() { self.owner(slot)? } else { self.line(&node) }, false)
                    }
                },
                // It was not reached: maybe another node has taken over.
                Err(failure @ StoreError::Unavailable(_)) => {
                    self.learn(version).await?;
                    let next = self.owner(slot)?;
                    let same = Arc::ptr_eq(&next, &line);
                    if same && slot.is_some() {
                        return Err(failure);
                    }
                    (if same { self.other_than(&line).ok_or(failure)? } else { next }, false)
                }
                Err(unknown) => return Err(unknown),
            };
            (line, asking, version) = (next, ask, self.version());
        }
        Err(trouble("the slots of the Redis Cluster move all the time; try again".to_owned()))
    }

    /// Sends all, each to its node: a command without a key goes where the one before it goes. Those for one node stay in order.
    pub(super) async fn send_all(&self, commands: &[Cmd]) -> Result<Vec<Value>, StoreError> {
        let units = units(commands);
        if let [unit] = units.as_slice() {
            return self.send(unit.slot, commands).await;
        }
        let (mut replies, mut failures) = (Vec::with_capacity(commands.len()), Vec::new());
        for reply in self.send_each(commands).await {
            match reply {
                Ok(reply) => replies.push(reply),
                Err(failure) => failures.push(failure),
            }
        }
        let unknown = failures.iter().position(|failure| !matches!(failure, StoreError::Unavailable(_))).unwrap_or(0);
        match failures.into_iter().nth(unknown) {
            None => Ok(replies),
            Some(StoreError::Unavailable(cause)) if !replies.is_empty() => {
                Err(StoreError::Unknown(format!("only a part was done: {cause}")))
            }
            Some(failure) => Err(failure),
        }
    }

    /// The same, where each command has a reply or a failure of its own: a node that is away keeps no other from answering.
    pub(super) async fn send_each(&self, commands: &[Cmd]) -> Vec<Result<Value, StoreError>> {
        let units = units(commands);
        let mut replies: Vec<Result<Value, StoreError>> = vec![Ok(Value::Nil); commands.len()];
        let mut by_node: Vec<(Arc<Line>, Vec<&Unit>)> = Vec::new();
        for unit in &units {
            match self.owner_or_learn(unit.slot).await {
                Ok(line) => match by_node.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &line)) {
                    Some((_, for_node)) => for_node.push(unit),
                    None => by_node.push((line, vec![unit])),
                },
                Err(failure) => replies[unit.first..unit.first + unit.count].fill(Err(failure)),
            }
        }
        let sent = join_all(by_node.iter().map(|(line, units)| self.send_units(line, units, commands))).await;
        for ((_, units), sent) in by_node.iter().zip(sent) {
            let places = units.iter().flat_map(|unit| unit.first..unit.first + unit.count);
            match sent {
                Ok(for_node) => places.zip(for_node).for_each(|(place, reply)| replies[place] = Ok(reply)),
                Err(failure) => places.for_each(|place| replies[place] = Err(failure.clone())),
            }
        }
        replies
    }

    /// Sends what belongs to one node at once, then one by one what the node redirects.
    async fn send_units(&self, line: &Line, units: &[&Unit], commands: &[Cmd]) -> Result<Vec<Value>, StoreError> {
        let of_unit = |unit: &Unit| &commands[unit.first..unit.first + unit.count];
        let together: Vec<Cmd> = units.iter().flat_map(|unit| of_unit(unit)).cloned().collect();
        let mut replies = match line.send(&together).await {
            Ok(replies) => replies.into_iter(),
            Err(StoreError::Unavailable(_)) => {
                let one_by_one = join_all(units.iter().map(|unit| self.send(unit.slot, of_unit(unit)))).await;
                return joined(one_by_one);
            }
            Err(unknown) => return Err(unknown),
        };
        let mut all = Vec::with_capacity(together.len());
        for unit in units {
            let mut of_this: Vec<Value> = replies.by_ref().take(unit.count).collect();
            if of_this.iter().any(|reply| redirection(reply).is_some()) {
                of_this = self.send(unit.slot, of_unit(unit)).await.map_err(|failure| match failure {
                    StoreError::Unavailable(cause) if !all.is_empty() => StoreError::Unknown(format!("only a part was done: {cause}")),
                    failure => failure,
                })?;
            }
            all.extend(of_this);
        }
        Ok(all)
    }

    /// The line to the node that has the slot. Without a slot it is always the same one, so that its clock goes on evenly.
    pub(super) fn owner(&self, slot: Option<u16>) -> Result<Arc<Line>, StoreError> {
        let known = self.known();
        let node = known.map.owner(slot.unwrap_or(0)).or_else(|| known.map.nodes().next().filter(|_| slot.is_none()));
        let node = node.ok_or_else(|| {
            trouble("no node of the Redis Cluster has the slot; see `redis-cli cluster info`, work goes on by itself".to_owned())
        })?;
        Ok(self.line(node))
    }

    /// The same, when nobody may have had the slot the last time we asked.
    async fn owner_or_learn(&self, slot: Option<u16>) -> Result<Arc<Line>, StoreError> {
        if let Ok(line) = self.owner(slot) {
            return Ok(line);
        }
        self.learn(self.version()).await?;
        self.owner(slot)
    }

    /// A line to each master.
    pub(super) fn masters(&self) -> Vec<Arc<Line>> {
        let map = self.known().map;
        let nodes: BTreeSet<&Address> = map.nodes().collect();
        nodes.into_iter().map(|node| self.line(node)).collect()
    }

    /// For each master a key that lies there, as long as it has the slot.
    pub(super) fn key_on_each(&self, name: &str) -> Vec<String> {
        let map = self.known().map;
        let mut keys: HashMap<&Address, String> = HashMap::new();
        let masters: HashSet<&Address> = map.nodes().collect();
        // Every master is met long before: slots are spread evenly over numbers.
        for number in 0..u32::from(u16::MAX) {
            if keys.len() == masters.len() {
                break;
            }
            let key = format!("{name}:{{{number}}}");
            if let Some(node) = map.owner(slot_of_key(key.as_bytes())) {
                keys.entry(node).or_insert(key);
            }
        }
        keys.into_values().collect()
    }

    /// A node that answers, for what any can do.
    pub(super) fn other_than(&self, line: &Arc<Line>) -> Option<Arc<Line>> {
        self.lines().values().find(|other| !Arc::ptr_eq(other, line) && other.alive().is_some()).cloned()
    }

    /// The line to a node.
    pub(super) fn line(&self, node: &Address) -> Arc<Line> {
        let mut lines = self.lines();
        let new = || Arc::new(Line::new(Target::Fixed(node.clone()), Arc::clone(&self.dialer), self.lives.clone()));
        Arc::clone(lines.entry(node.clone()).or_insert_with(new))
    }

    /// How often we have asked for the slots.
    pub(super) fn version(&self) -> u64 {
        self.known().version
    }

    /// Asks who has which slots, unless somebody has asked since `version`.
    pub(super) async fn learn(&self, version: u64) -> Result<(), StoreError> {
        let _one_at_a_time = self.learning.lock().await;
        let known = self.known();
        if known.version > version {
            return Ok(());
        }
        let mut question = Cmd::new();
        question.arg("CLUSTER").arg("SLOTS");
        let mut failure = None;
        for node in known.map.nodes().chain(&self.entrances) {
            let answer = self.line(node).send(std::slice::from_ref(&question)).await;
            let answer = answer.and_then(|mut replies| super::error::checked(replies.pop().unwrap_or(Value::Nil)));
            match answer.map(|reply| SlotMap::read(reply, node)) {
                Ok(Some(map)) => {
                    self.lines().retain(|node, _| map.nodes().any(|kept| kept == node));
                    *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Known { version: version + 1, map: Arc::new(map) };
                    return Ok(());
                }
                Ok(None) => failure = Some(trouble(format!("the Redis server at {node} knows no slots of a Cluster: has it joined one?"))),
                // Nothing was to be written, so nothing can have been.
                Err(StoreError::Unknown(cause)) => failure = Some(trouble(cause)),
                Err(unavailable) => failure = Some(unavailable),
            }
        }
        Err(failure.unwrap_or_else(|| trouble("no node of the Redis Cluster is known".to_owned())))
    }

    fn known(&self) -> Known {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Address, Arc<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cuts commands into units. What stands before the first key goes where that goes.
fn units(commands: &[Cmd]) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for (at, command) in commands.iter().enumerate() {
        match (slot_of(command), units.last_mut()) {
            (Some(slot), Some(unit)) if unit.slot.is_none() => (unit.slot, unit.count) = (Some(slot), unit.count + 1),
            (None, Some(unit)) => unit.count += 1,
            (slot, _) => units.push(Unit { slot, first: at, count: 1 }),
        }
    }
    units
}

fn joined(parts: Vec<Result<Vec<Value>, StoreError>>) -> Result<Vec<Value>, StoreError> {
    let something_done = parts.iter().any(|part| !matches!(part, Err(StoreError::Unavailable(_))));
    let mut all = Vec::new();
    for part in parts {
        match part {
            Ok(replies) => all.extend(replies),
            Err(StoreError::Unavailable(cause)) if something_done => {
                return Err(StoreError::Unknown(format!("only a part was done: {cause}")));
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(all)
}

/// A node that takes over a slot wants to hear this before each command with a key.
fn with_asking(commands: &[Cmd]) -> Vec<Cmd> {
    let mut asking = Cmd::new();
    asking.arg("ASKING");
    let before = |command: &Cmd| slot_of(command).map(|_| asking.clone());
    commands.iter().flat_map(|command| before(command).into_iter().chain([command.clone()])).collect()
}

fn without_asking(commands: &[Cmd]) -> impl FnOnce(Vec<Value>) -> Vec<Value> {
    let asked: Vec<bool> = commands.iter().flat_map(|command| slot_of(command).map(|_| true).into_iter().chain([false])).collect();
    move |replies| replies.into_iter().zip(asked).filter(|(_, is_asking)| !is_asking).map(|(reply, _)| reply).collect()
}

/// Where a node sends us: `MOVED 3999 10.0.0.2:6381`.
fn redirection(reply: &Value) -> Option<Redirection> {
    let Value::ServerError(error) = reply else { return None };
    let node = || {
        let (host, port) = error.details()?.split_whitespace().nth(1)?.rsplit_once(':')?;
        Some(Address { host: host.to_owned(), port: port.parse().ok()? })
    };
    match error.code() {
        "MOVED" => node().map(Redirection::Moved),
        "ASK" => node().map(Redirection::Ask),
        _ => None,
    }
}
