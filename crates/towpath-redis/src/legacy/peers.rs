//! Legacy workers, seen through the seeds' registry.
//!
//! A legacy worker sends no notification when it comes, lives or leaves: it writes its meta hash and waits. So the store looks, and what it
//! has seen counts for five seconds; no call pays for it. Among a function's workers it stands as `legacy:<worker id>`, a name that no Towpath
//! worker can have. Whether there is any legacy worker at all is one question for all functions together.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use towpath_core::names::FunctionKey;
use towpath_core::payload::Payload;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, HEALTHY_FOR, REMEMBERED_FOR};

use super::meta::Meta;
use crate::keys;
use crate::quick::QuickMap;
use crate::registry::functions::Definition;
use crate::registry::reply::{command, done, instant, next, next_readable, read};
use crate::store::RedisStore;

/// How long a look counts.
const SEEN_FOR: Duration = Duration::from_secs(5);
/// Of more functions than this, only those that were looked at lately are remembered.
const FUNCTIONS_MAX: usize = 4_096;
const LEGACY: &str = "legacy:";
/// A worker that is listed without a heartbeat, or with an old one, is looked at again after this: it may be a legacy worker that comes back.
const GHOST_FOR: Duration = Duration::from_secs(60);
/// More workers than this are not remembered by name.
const FAMILIAR_MAX: usize = 16_384;

/// What was last seen of each function's workers.
#[derive(Debug, Default)]
pub(crate) struct PeersSeen {
    functions: Mutex<QuickMap<FunctionKey, Seen>>,
    /// Workers that are not legacy workers, and until when that need not be looked at again.
    familiar: Mutex<HashMap<String, Timestamp>>,
}

impl PeersSeen {
    /// The workers of these functions have just changed.
    pub(super) fn forget(&self, functions: &[FunctionKey]) {
        let mut seen = lock(&self.functions);
        for function in functions {
            seen.remove(function);
        }
    }

    fn is_familiar(&self, worker: &str, now: Timestamp) -> bool {
        lock(&self.familiar).get(worker).is_some_and(|until| now < *until)
    }

    fn note_familiar(&self, worker: &str, until: Timestamp) {
        let mut familiar = lock(&self.familiar);
        if familiar.len() >= FAMILIAR_MAX {
            familiar.clear();
        }
        familiar.insert(worker.to_owned(), until);
    }
}

/// Whether this member of a function's workers is a legacy worker.
pub(crate) fn is_legacy_worker(member: &str) -> bool {
    member.starts_with(LEGACY)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here can panic half way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Debug)]
struct Seen {
    at: Timestamp,
    /// The count of changes of functions: when it rises, everything is looked at again.
    changes: u64,
    serving: Serving,
}

/// The workers of a function, as far as it matters for its stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Serving {
    /// It has a healthy Towpath worker.
    pub(super) has_towpath: bool,
    /// It has a healthy legacy worker.
    pub(super) has_legacy: bool,
    /// Legacy workers that were heard of lately, the latest first.
    pub(super) legacy: Arc<[LegacyWorker]>,
}

/// A legacy worker that stands in the registry.
#[derive(Clone, Debug)]
pub(super) struct LegacyWorker {
    /// Any text: legacy peers have names that Towpath would refuse.
    pub(super) id: String,
    pub(super) heartbeat: Timestamp,
    parameters: Option<Payload>,
}

#[cfg(test)]
impl LegacyWorker {
    pub(super) fn heard(id: &str, heartbeat: Timestamp) -> Self {
        Self { id: id.to_owned(), heartbeat, parameters: None }
    }
}

/// A function's workers as the seeds' registry shows them.
struct Peers {
    /// The function is known, so its legacy workers are counted.
    known: bool,
    /// Legacy workers that stand among the function's workers and are no longer seen.
    gone: Vec<String>,
    /// Towpath workers that were heard later than stands with the function, and when.
    heard_since: Vec<(String, f64)>,
    serving: Serving,
}

impl RedisStore {
    /// The workers of a function when it was last looked at, however long ago that was.
    pub(super) fn last_serving(&self, function: &FunctionKey) -> Option<Serving> {
        lock(&self.shared.legacy.peers.functions).get(function).map(|seen| seen.serving.clone())
    }

    /// The same, unless functions or workers have changed since.
    pub(super) fn serving_unchanged(&self, function: &FunctionKey) -> Option<Serving> {
        let changes = self.shared.news.function_changes();
        lock(&self.shared.legacy.peers.functions).get(function).filter(|seen| seen.changes == changes).map(|seen| seen.serving.clone())
    }

    /// Whether all workers that are listed for these functions are known not to be legacy workers. `false`: look at each function.
    pub(super) async fn all_are_familiar(&self, functions: &[FunctionKey]) -> Result<bool, StoreError> {
        let mut lists: Vec<String> = functions.iter().map(|function| keys::registry(&function.name)).collect();
        lists.sort_unstable();
        lists.dedup();
        let ask = if self.shared.link.is_cluster() {
            lists.iter().map(|list| command("SMEMBERS", &[list])).collect()
        } else {
            vec![command("SUNION", &lists)]
        };
        let now = self.shared.now();
        for reply in self.shared.link.ask_all(&ask).await? {
            // A key of another type is the trouble of its function: each is looked at by itself then.
            let Ok(listed) = read::<Vec<Vec<u8>>>(reply) else { return Ok(false) };
            if !texts(listed).all(|worker| self.shared.legacy.peers.is_familiar(&worker, now)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts legacy workers among the functions' workers, unless that was done a moment ago.
    pub(crate) async fn look_at_peers(&self, functions: &[FunctionKey]) -> Result<(), StoreError> {
        let stale: Vec<FunctionKey> = functions.iter().filter(|function| self.seen_lately(function).is_none()).cloned().collect();
        self.look_at_peers_now(&stale).await
    }

    pub(crate) async fn look_at_peers_now(&self, functions: &[FunctionKey]) -> Result<(), StoreError> {
        // Before the look: a change that comes while we look makes it stale.
        let changes = self.shared.news.function_changes();
        let peers = self.read_peers(functions).await?;
        let mut commands = Vec::new();
        for (function, peers) in functions.iter().zip(&peers).filter(|(_, peers)| peers.known) {
            commands.extend(self.count_legacy(function, peers));
            commands.extend(self.count_towpath(function, peers));
        }
        for counted in self.shared.link.ask_apart(&commands).await {
            match counted {
                // It is the trouble of one function, and lists tell of it.
                Err(error) if !self.shared.is_local(&error) => return Err(error),
                _counted => {}
            }
        }
        let mut seen = lock(&self.shared.legacy.peers.functions);
        let at = self.shared.now();
        if seen.len() >= FUNCTIONS_MAX {
            seen.retain(|_, seen| at.since(seen.at) < SEEN_FOR);
        }
        for (function, peers) in functions.iter().zip(peers) {
            seen.insert(function.clone(), Seen { at, changes, serving: peers.serving });
        }
        Ok(())
    }

    fn seen_lately(&self, function: &FunctionKey) -> Option<Seen> {
        let seen = lock(&self.shared.legacy.peers.functions).get(function)?.clone();
        let changes = self.shared.news.function_changes();
        (seen.changes == changes && self.shared.now().since(seen.at) < SEEN_FOR).then_some(seen)
    }

    /// Makes a function known that only a legacy worker serves, so that calls of it are taken. `false`: it has no healthy worker.
    pub(crate) async fn adopt(&self, function: &FunctionKey) -> Result<bool, StoreError> {
        let now = self.shared.now();
        let peers = self.read_peers(std::slice::from_ref(function)).await?;
        let Some(peers) = peers.into_iter().next() else { return Ok(false) };
        let Some(newest) = peers.serving.legacy.first().filter(|worker| now.since(worker.heartbeat) < HEALTHY_FOR) else {
            return Ok(false);
        };
        let parameters = newest.parameters.clone();
        let definition = FunctionDefinition { parameters, ..FunctionDefinition::new(function.clone()) };
        let changed = self.write_offer(&definition, Definition::Adopt, None).await?;
        done(self.shared.link.ask_all(&self.count_legacy(function, &peers)).await?)?;
        tracing::info!(%function, worker = %newest.id, "a function is known through a legacy worker");
        self.tell_of_functions(&[(function, changed)]).await;
        Ok(true)
    }

    fn count_legacy(&self, function: &FunctionKey, peers: &Peers) -> Vec<redis::Cmd> {
        let workers = self.shared.keys.function(function).workers;
        let heard = peers.serving.legacy.iter().map(|worker| {
            let heartbeat = worker.heartbeat.as_millis().to_string();
            command("ZADD", &[workers.clone(), heartbeat, format!("{LEGACY}{}", worker.id)])
        });
        let gone = peers.gone.iter().map(|member| command("ZREM", &[&workers, member]));
        heard.chain(gone).collect()
    }

    /// A Towpath worker has one heartbeat for all its functions. It counts where the worker is still listed: it may be leaving.
    fn count_towpath(&self, function: &FunctionKey, peers: &Peers) -> Vec<redis::Cmd> {
        let workers = self.shared.keys.function(function).workers;
        let heard =
            |(worker, heard): &(String, f64)| command("ZADD", &[workers.as_str(), "XX", &instant(*heard).as_millis().to_string(), worker]);
        peers.heard_since.iter().map(heard).collect()
    }

    async fn read_peers(&self, functions: &[FunctionKey]) -> Result<Vec<Peers>, StoreError> {
        let ask = functions.iter().flat_map(|function| {
            let keys = self.shared.keys.function(function);
            [
                command("SMEMBERS", &[keys::registry(&function.name)]),
                command("EXISTS", &[keys.stream]),
                command("HEXISTS", &[keys.definition.as_str(), "definition"]),
                command("HGET", &[keys.definition.as_str(), "shards"]),
                command("ZRANGE", &[keys.workers.as_str(), "0", "-1", "WITHSCORES"]),
            ]
        });
        let mut replies = self.peers_replies(&ask.collect::<Vec<_>>()).await?;
        let mut listed = Vec::with_capacity(functions.len());
        for function in functions {
            let members = texts(next(&mut replies).unwrap_or_default()).collect();
            // A key of another type is the trouble of its function alone.
            let (has_stream, known) = (next_readable(&mut replies)?, next_readable(&mut replies)?);
            self.note_shards(function, next_readable::<Option<u16>>(&mut replies)?.unwrap_or(0));
            let counted: Vec<(Vec<u8>, f64)> = next_readable(&mut replies)?;
            let counted = counted.into_iter().filter_map(|(worker, heard)| Some((String::from_utf8(worker).ok()?, heard))).collect();
            listed.push(Listed { function, members, has_stream, known, counted });
        }
        self.read_metas(listed).await
    }

    /// Replies to questions about several functions. One whose key cannot be reached has nothing.
    async fn peers_replies(&self, asks: &[redis::Cmd]) -> Result<std::vec::IntoIter<Value>, StoreError> {
        let mut replies = Vec::with_capacity(asks.len());
        for reply in self.shared.link.ask_apart(asks).await {
            match reply {
                Err(error) if !self.shared.is_local(&error) => return Err(error),
                reply => replies.push(reply.unwrap_or(Value::Nil)),
            }
        }
        Ok(replies.into_iter())
    }

    async fn read_metas(&self, listed: Vec<Listed<'_>>) -> Result<Vec<Peers>, StoreError> {
        let ask = listed.iter().flat_map(|listed| {
            listed.members.iter().map(|member| {
                let mut ask = command("HMGET", &[keys::meta_of(member, &listed.function.name)]);
                ask.arg(&Meta::FIELDS);
                ask
            })
        });
        let mut replies = self.peers_replies(&ask.collect::<Vec<_>>()).await?;
        let counted = listed.iter().flat_map(|listed| listed.counted.iter().map(|(worker, _)| worker.clone()));
        let towpath: BTreeSet<String> = counted.filter(|worker| !is_legacy_worker(worker)).collect();
        let towpath: Vec<String> = towpath.into_iter().collect();
        let heard = self.latest_heartbeats(&towpath).await?;
        let heard = towpath.into_iter().zip(heard).filter_map(|(worker, heard)| Some((worker, heard?))).collect();
        listed.into_iter().map(|listed| self.judge(listed, &mut replies, &heard)).collect()
    }

    /// `heard`: when each Towpath worker was last heard.
    fn judge(&self, listed: Listed<'_>, metas: &mut std::vec::IntoIter<Value>, heard: &HashMap<String, f64>) -> Result<Peers, StoreError> {
        let now = self.shared.now();
        let stream = self.shared.keys.function(listed.function).stream;
        let (mut serving, mut legacy) = (Serving::default(), Vec::new());
        for member in listed.members {
            let meta = Meta::read(next(metas).unwrap_or_default());
            let Some(heartbeat) = meta.heartbeat() else {
                self.shared.legacy.peers.note_familiar(&member, now + GHOST_FOR);
                continue;
            };
            if !meta.is_legacy() {
                self.shared.legacy.peers.note_familiar(&member, Timestamp::MAX);
            }
            // The hash of a Towpath worker may be older than its latest heartbeat.
            let latest = heard.get(member.as_str()).filter(|_| !meta.is_legacy()).map_or(heartbeat, |heard| heartbeat.max(instant(*heard)));
            if now.since(latest) >= REMEMBERED_FOR {
                // Its process was killed. Its name stays in the list, and so may its hash: an hour after it came, that has no expiry.
                if meta.is_legacy() {
                    self.shared.legacy.peers.note_familiar(&member, now + GHOST_FOR);
                }
                continue;
            }
            if !meta.serves(listed.function, &stream).unwrap_or(listed.has_stream) {
                continue;
            }
            if now.since(latest) < HEALTHY_FOR {
                serving.has_legacy |= meta.is_legacy();
                serving.has_towpath |= !meta.is_legacy();
            }
            if meta.is_legacy() {
                legacy.push(LegacyWorker { id: member, heartbeat: latest, parameters: meta.parameters() });
            }
        }
        legacy.sort_by_key(|worker| std::cmp::Reverse(worker.heartbeat));
        let still = |member: &str| legacy.iter().any(|worker| member.strip_prefix(LEGACY) == Some(worker.id.as_str()));
        let (of_legacy, of_towpath): (Vec<_>, Vec<_>) = listed.counted.into_iter().partition(|(member, _)| is_legacy_worker(member));
        let gone = of_legacy.into_iter().map(|(member, _)| member).filter(|member| !still(member)).collect();
        let since = |(member, known): (String, f64)| heard.get(&member).filter(|heard| **heard > known).map(|heard| (member, *heard));
        let heard_since = of_towpath.into_iter().filter_map(since).collect();
        serving.legacy = legacy.into();
        Ok(Peers { known: listed.known, gone, heard_since, serving })
    }
}

/// Names that are text. Others are not of workers.
fn texts(names: Vec<Vec<u8>>) -> impl Iterator<Item = String> {
    names.into_iter().filter_map(|name| String::from_utf8(name).ok())
}

/// The workers that are listed for a function, before their hashes are read.
struct Listed<'a> {
    function: &'a FunctionKey,
    members: Vec<String>,
    has_stream: bool,
    known: bool,
    /// The members of the function's workers now, and when each was last heard as far as it is known there.
    counted: Vec<(String, f64)>,
}
