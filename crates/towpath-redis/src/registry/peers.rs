//! Old peers: workers that were written from the seeds and know nothing of our keys, seen through the seeds' registry.
//!
//! An old worker tells nobody that it came, lives or left: it writes its meta hash and waits. So it is looked at when somebody asks, and
//! what was seen holds for five seconds; no call pays for it. Among a function's workers it stands as `old:<worker id>`, a name that no
//! worker of ours can have. Whether any old worker is there at all is one question for all functions together.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use serde::Deserialize;
use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, HEALTHY_FOR, REMEMBERED_FOR};

use super::functions::Definition;
use super::reply::{command, done, instant, next, read};
use crate::keys;
use crate::quick::QuickMap;
use crate::store::RedisStore;

/// How long what was seen counts.
const SEEN_FOR: Duration = Duration::from_secs(5);
/// Of more functions than this, only those that were looked at lately are remembered.
const FUNCTIONS_MAX: usize = 4_096;
const OLD: &str = "old:";
/// A worker that is listed and says nothing is looked at again after so long: it may be an old one that comes back.
const GHOST_FOR: Duration = Duration::from_secs(60);
/// More workers than this are not remembered by name.
const FAMILIAR_MAX: usize = 16_384;
/// What is read of a worker's meta hash, in this order.
const META: [&str; 7] = ["streamKey", "scope", "executionId", "lastHeartbeat", "proto", "caps", "parameters"];

/// What was last seen of each function's workers.
#[derive(Debug, Default)]
pub(crate) struct PeersSeen {
    functions: Mutex<QuickMap<FunctionKey, Seen>>,
    /// Held by the one who looks for all who find that what was seen is stale.
    looking: tokio::sync::Mutex<()>,
    /// Workers that are no old workers, and until when that need not be looked at again.
    familiar: Mutex<HashMap<WorkerId, Timestamp>>,
}

impl PeersSeen {
    /// Who serves these functions has just changed.
    pub(super) fn forget(&self, functions: &[FunctionKey]) {
        let mut seen = lock(&self.functions);
        for function in functions {
            seen.remove(function);
        }
    }

    fn is_familiar(&self, worker: &WorkerId, now: Timestamp) -> bool {
        lock(&self.familiar).get(worker).is_some_and(|until| now < *until)
    }

    fn note_familiar(&self, worker: &WorkerId, until: Timestamp) {
        let mut familiar = lock(&self.familiar);
        if familiar.len() >= FAMILIAR_MAX {
            familiar.clear();
        }
        familiar.insert(worker.clone(), until);
    }
}

/// Whether a function's worker is one that knows nothing of us.
pub(super) fn is_old(worker: &str) -> bool {
    worker.starts_with(OLD)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here can panic half way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Timestamp,
    /// The count of changes of functions: when it moves, everything is looked at again.
    changes: u64,
    serving: Serving,
}

/// Who serves a function, as far as it decides how a call is written and where it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Serving {
    /// A healthy worker of ours.
    ours: bool,
    /// A healthy old worker.
    old: bool,
    /// Every healthy worker can push its answers to an inbox; nobody at all is no obstacle.
    pub(crate) all_take_inboxes: bool,
    /// Over how many more streams its calls are spread: none, unless every healthy worker reads them all.
    pub(crate) shards: u16,
}

impl Serving {
    /// What is taken for true when nobody can say: the way that everybody understands.
    pub(crate) const UNKNOWN: Self = Self { ours: false, old: false, all_take_inboxes: false, shards: 0 };

    /// An old worker may be the one that takes a call: it serves the function, or it is as likely to come as one of ours.
    pub(crate) fn may_be_old(self) -> bool {
        self.old || !self.ours
    }

    pub(crate) fn has_ours(self) -> bool {
        self.ours
    }

    pub(crate) fn is_only_old(self) -> bool {
        self.old && !self.ours
    }
}

/// A function's workers as the seeds' registry shows them.
struct Peers {
    /// Whether the function is known to us, so that its old workers shall be counted.
    known: bool,
    /// Old workers that were heard of lately, the latest first.
    old: Vec<OldWorker>,
    /// Those that stand among the function's workers and are no longer seen.
    gone: Vec<String>,
    /// Those of ours that were heard later than what stands with the function, and when.
    heard_since: Vec<(String, f64)>,
    serving: Serving,
}

struct OldWorker {
    id: WorkerId,
    heartbeat: Timestamp,
    parameters: Option<Payload>,
}

impl RedisStore {
    /// Who serves a function.
    pub(crate) async fn serving(&self, function: &FunctionKey) -> Result<Serving, StoreError> {
        if let Some(seen) = self.seen_lately(function) {
            return Ok(seen.serving);
        }
        // A thousand callers that find this stale at once ask one question.
        let _turn = self.shared.peers_seen.looking.lock().await;
        self.look_at_peers(std::slice::from_ref(function)).await?;
        Ok(self.seen_lately(function).map_or(Serving::UNKNOWN, |seen| seen.serving))
    }

    /// The same, if it was looked at a moment ago.
    pub(crate) fn serving_as_seen(&self, function: &FunctionKey) -> Option<Serving> {
        self.seen_lately(function).map(|seen| seen.serving)
    }

    /// Whether an old worker served a function when it was last looked at, however long ago.
    pub(crate) fn was_served_by_old(&self, function: &FunctionKey) -> bool {
        lock(&self.shared.peers_seen.functions).get(function).is_some_and(|seen| seen.serving.old)
    }

    /// Whether somebody served a function when it was last looked at.
    pub(crate) fn was_served(&self, function: &FunctionKey) -> bool {
        lock(&self.shared.peers_seen.functions).get(function).is_some_and(|seen| seen.serving.old || seen.serving.ours)
    }

    /// Whether nobody is listed for any of these functions but workers that are known not to be old. `false`: look at each function.
    pub(crate) async fn all_are_familiar(&self, functions: &[FunctionKey]) -> Result<bool, StoreError> {
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
            let listed: Vec<String> = read(reply)?;
            let familiar = |worker: String| WorkerId::new(worker).is_ok_and(|worker| self.shared.peers_seen.is_familiar(&worker, now));
            if !listed.into_iter().all(familiar) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts old workers among the functions' workers, unless that was done a moment ago.
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
            commands.extend(self.count_old(function, peers));
            commands.extend(self.count_ours(function, peers));
        }
        done(self.shared.link.ask_all(&commands).await?)?;
        let mut seen = lock(&self.shared.peers_seen.functions);
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
        let seen = *lock(&self.shared.peers_seen.functions).get(function)?;
        let changes = self.shared.news.function_changes();
        (seen.changes == changes && self.shared.now().since(seen.at) < SEEN_FOR).then_some(seen)
    }

    /// Makes a function known that only an old worker serves, so that calls of it are taken. `false`: nobody serves it.
    pub(super) async fn adopt(&self, function: &FunctionKey) -> Result<bool, StoreError> {
        let now = self.shared.now();
        let peers = self.read_peers(std::slice::from_ref(function)).await?;
        let Some(peers) = peers.into_iter().next() else { return Ok(false) };
        let Some(newest) = peers.old.first().filter(|worker| now.since(worker.heartbeat) < HEALTHY_FOR) else { return Ok(false) };
        let parameters = newest.parameters.clone();
        let definition = FunctionDefinition { parameters, ..FunctionDefinition::new(function.clone()) };
        let changed = self.write_offer(&definition, Definition::Adopt, None).await?;
        done(self.shared.link.ask_all(&self.count_old(function, &peers)).await?)?;
        tracing::info!(%function, worker = %newest.id, "a function is known through an old worker");
        self.tell_of_functions(&[(function, changed)]).await;
        Ok(true)
    }

    fn count_old(&self, function: &FunctionKey, peers: &Peers) -> Vec<redis::Cmd> {
        let workers = self.shared.keys.function(function).workers;
        let heard = peers.old.iter().map(|worker| {
            let heartbeat = worker.heartbeat.as_millis().to_string();
            command("ZADD", &[workers.clone(), heartbeat, format!("{OLD}{}", worker.id)])
        });
        let gone = peers.gone.iter().map(|member| command("ZREM", &[&workers, member]));
        heard.chain(gone).collect()
    }

    /// A worker of ours says only once that it lives, for all its functions. Only where it is still listed: it may be leaving.
    fn count_ours(&self, function: &FunctionKey, peers: &Peers) -> Vec<redis::Cmd> {
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
        let mut replies = self.shared.link.ask_all(&ask.collect::<Vec<_>>()).await?.into_iter();
        let mut listed = Vec::with_capacity(functions.len());
        for function in functions {
            let members: Vec<String> = next(&mut replies)?;
            let members = members.into_iter().filter_map(|member| WorkerId::new(member).ok()).collect();
            let (has_stream, known, shards) = (next(&mut replies)?, next(&mut replies)?, next::<Option<u16>>(&mut replies)?.unwrap_or(0));
            self.room(function).note_shards(shards);
            listed.push(Listed { function, members, has_stream, known, shards, counted: next(&mut replies)? });
        }
        self.read_metas(listed).await
    }

    async fn read_metas(&self, listed: Vec<Listed<'_>>) -> Result<Vec<Peers>, StoreError> {
        let ask = listed.iter().flat_map(|listed| {
            listed.members.iter().map(|member| {
                let mut ask = command("HMGET", &[keys::meta(member, &listed.function.name)]);
                ask.arg(&META);
                ask
            })
        });
        let mut replies = self.shared.link.ask_all(&ask.collect::<Vec<_>>()).await?.into_iter();
        let counted = listed.iter().flat_map(|listed| listed.counted.iter().map(|(worker, _)| worker.clone()));
        let ours: BTreeSet<String> = counted.filter(|worker| !is_old(worker)).collect();
        let ours: Vec<String> = ours.into_iter().collect();
        let heard = self.latest_heartbeats(&ours).await?;
        let heard = ours.into_iter().zip(heard).filter_map(|(worker, heard)| Some((worker, heard?))).collect();
        listed.into_iter().map(|listed| self.judge(listed, &mut replies, &heard)).collect()
    }

    /// `heard`: when each of ours was last heard.
    fn judge(&self, listed: Listed<'_>, metas: &mut std::vec::IntoIter<Value>, heard: &HashMap<String, f64>) -> Result<Peers, StoreError> {
        let now = self.shared.now();
        let stream = self.shared.keys.function(listed.function).stream;
        let serving = Serving { ours: false, old: false, all_take_inboxes: true, shards: listed.shards };
        let mut peers = Peers { known: listed.known, old: Vec::new(), gone: Vec::new(), heard_since: Vec::new(), serving };
        for member in listed.members {
            let meta = Meta::read(next(metas)?);
            let Some(heartbeat) = meta.heartbeat() else {
                self.shared.peers_seen.note_familiar(&member, now + GHOST_FOR);
                continue;
            };
            if !meta.is_old() {
                self.shared.peers_seen.note_familiar(&member, Timestamp::MAX);
            }
            // A hash of ours may be older than the latest heartbeat.
            let heartbeat = heard.get(member.as_str()).filter(|_| !meta.is_old()).map_or(heartbeat, |heard| heartbeat.max(instant(*heard)));
            let serves = meta.serves(listed.function, &stream).unwrap_or(listed.has_stream);
            if !serves || now.since(heartbeat) >= REMEMBERED_FOR {
                continue;
            }
            if now.since(heartbeat) < HEALTHY_FOR {
                peers.serving.all_take_inboxes &= meta.can("inbox");
                peers.serving.shards = peers.serving.shards.min(if meta.can("shards") { u16::MAX } else { 0 });
                peers.serving.old |= meta.is_old();
                peers.serving.ours |= !meta.is_old();
            }
            if meta.is_old() {
                peers.old.push(OldWorker { id: member, heartbeat, parameters: meta.parameters() });
            }
        }
        peers.old.sort_by_key(|worker| std::cmp::Reverse(worker.heartbeat));
        let still = |member: &str| peers.old.iter().any(|worker| member.strip_prefix(OLD) == Some(worker.id.as_str()));
        let (old, ours): (Vec<_>, Vec<_>) = listed.counted.into_iter().partition(|(member, _)| is_old(member));
        peers.gone = old.into_iter().map(|(member, _)| member).filter(|member| !still(member)).collect();
        let since = |(member, known): (String, f64)| heard.get(&member).filter(|heard| **heard > known).map(|heard| (member, *heard));
        peers.heard_since = ours.into_iter().filter_map(since).collect();
        Ok(peers)
    }
}

/// Who is listed for a function, before anybody was asked.
struct Listed<'a> {
    function: &'a FunctionKey,
    members: Vec<WorkerId>,
    has_stream: bool,
    known: bool,
    shards: u16,
    /// Who stands among the function's workers now, and when each was last heard as far as it is known there.
    counted: Vec<(String, f64)>,
}

/// What a worker's meta hash says.
struct Meta([Option<String>; META.len()]);

impl Meta {
    fn read(fields: Vec<Option<String>>) -> Self {
        let mut fields = fields.into_iter();
        Self(std::array::from_fn(|_| fields.next().flatten().filter(|text| !text.is_empty())))
    }

    fn heartbeat(&self) -> Option<Timestamp> {
        self.0[3].as_ref()?.parse().ok().map(Timestamp::from_millis)
    }

    /// Whether it serves this function. The name is in the hash's key, the scope is not; and an hour after it came, an old worker's hash
    /// expires and its next heartbeat leaves one that says nothing else. `None`: nobody can tell.
    fn serves(&self, function: &FunctionKey, stream: &str) -> Option<bool> {
        let [stream_key, scope, execution, ..] = &self.0;
        let by_scope = || scope.as_ref().or(execution.as_ref()).map(|scope| scope == function.scope.as_str());
        stream_key.as_ref().map(|key| key == stream).or_else(by_scope)
    }

    fn is_old(&self) -> bool {
        self.0[4].is_none()
    }

    fn can(&self, wanted: &str) -> bool {
        self.0[5].as_ref().is_some_and(|caps| caps.split(',').any(|cap| cap.trim() == wanted))
    }

    /// Its parameters, if they are a list such as the seeds have. Anything else would refuse calls that the old worker takes.
    fn parameters(&self) -> Option<Payload> {
        #[derive(Deserialize)]
        struct Parameter {
            name: String,
            #[serde(rename = "type")]
            kind: String,
        }
        const TYPES: [&str; 6] = ["string", "number", "boolean", "object", "array", "any"];
        let text = self.0[6].as_ref()?;
        let list: Vec<Parameter> = serde_json::from_str(text).ok()?;
        let mut names: Vec<&str> = list.iter().map(|parameter| parameter.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let sound = list.iter().all(|parameter| !parameter.name.is_empty() && TYPES.contains(&parameter.kind.as_str()));
        (sound && names.len() == list.len()).then(|| Payload::from_json(text.clone()))
    }
}
