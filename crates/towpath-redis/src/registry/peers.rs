//! Old peers: workers that were written from the seeds and know nothing of our keys, seen through the seeds' registry.
//!
//! An old worker tells nobody that it came, lives or left: it writes its meta hash and waits. So it is looked at when somebody asks, and
//! what was seen holds for five seconds; no call pays for it. Among a function's workers it stands as `old:<worker id>`, a name that no
//! worker of ours can have.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use serde::Deserialize;
use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, HEALTHY_FOR, REMEMBERED_FOR};

use super::functions::Definition;
use super::reply::{command, done, next};
use crate::keys;
use crate::store::RedisStore;

/// How long what was seen counts.
const SEEN_FOR: Duration = Duration::from_secs(5);
/// Of more functions than this, only those that were looked at lately are remembered.
const FUNCTIONS_MAX: usize = 4_096;
const OLD: &str = "old:";
/// What is read of a worker's meta hash, in this order.
const META: [&str; 7] = ["streamKey", "scope", "executionId", "lastHeartbeat", "proto", "caps", "parameters"];

/// What was last seen of each function's workers.
#[derive(Debug, Default)]
pub(crate) struct PeersSeen(Mutex<HashMap<FunctionKey, Seen>>, tokio::sync::Mutex<()>);

impl PeersSeen {
    /// Who serves these functions has just changed.
    pub(super) fn forget(&self, functions: &[FunctionKey]) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for function in functions {
            seen.remove(function);
        }
    }
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
}

impl Serving {
    /// What is taken for true when nobody can say: the way that everybody understands.
    pub(crate) const UNKNOWN: Self = Self { ours: false, old: false, all_take_inboxes: false };

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
        let _turn = self.shared.peers_seen.1.lock().await;
        self.look_at_peers(std::slice::from_ref(function)).await?;
        Ok(self.seen_lately(function).map_or(Serving::UNKNOWN, |seen| seen.serving))
    }

    /// The same, if it was looked at a moment ago.
    pub(crate) fn serving_as_seen(&self, function: &FunctionKey) -> Option<Serving> {
        self.seen_lately(function).map(|seen| seen.serving)
    }

    /// Whether an old worker served a function when it was last looked at, however long ago.
    pub(crate) fn was_served_by_old(&self, function: &FunctionKey) -> bool {
        let seen = self.shared.peers_seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(function).is_some_and(|seen| seen.serving.old)
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
        }
        done(self.shared.link.ask_all(&commands).await?)?;
        let mut seen = self.shared.peers_seen.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let seen = *self.shared.peers_seen.0.lock().unwrap_or_else(PoisonError::into_inner).get(function)?;
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

    async fn read_peers(&self, functions: &[FunctionKey]) -> Result<Vec<Peers>, StoreError> {
        let ask = functions.iter().flat_map(|function| {
            let keys = self.shared.keys.function(function);
            [
                command("SMEMBERS", &[keys::registry(&function.name)]),
                command("EXISTS", &[keys.stream]),
                command("HEXISTS", &[keys.definition.as_str(), "definition"]),
                command("ZRANGE", &[keys.workers.as_str(), "0", "-1"]),
            ]
        });
        let mut replies = self.shared.link.ask_all(&ask.collect::<Vec<_>>()).await?.into_iter();
        let mut listed = Vec::with_capacity(functions.len());
        for function in functions {
            let members: Vec<String> = next(&mut replies)?;
            let members = members.into_iter().filter_map(|member| WorkerId::new(member).ok()).collect();
            let (has_stream, known, counted) = (next(&mut replies)?, next(&mut replies)?, next(&mut replies)?);
            listed.push(Listed { function, members, has_stream, known, counted });
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
        listed.into_iter().map(|listed| self.judge(listed, &mut replies)).collect()
    }

    fn judge(&self, listed: Listed<'_>, metas: &mut std::vec::IntoIter<Value>) -> Result<Peers, StoreError> {
        let now = self.shared.now();
        let stream = self.shared.keys.function(listed.function).stream;
        let serving = Serving { ours: false, old: false, all_take_inboxes: true };
        let mut peers = Peers { known: listed.known, old: Vec::new(), gone: Vec::new(), serving };
        for member in listed.members {
            let meta = Meta::read(next(metas)?);
            let Some(heartbeat) = meta.heartbeat() else { continue };
            let serves = meta.serves(listed.function, &stream).unwrap_or(listed.has_stream);
            if !serves || now.since(heartbeat) >= REMEMBERED_FOR {
                continue;
            }
            if now.since(heartbeat) < HEALTHY_FOR {
                peers.serving.all_take_inboxes &= meta.takes_inboxes();
                peers.serving.old |= meta.is_old();
                peers.serving.ours |= !meta.is_old();
            }
            if meta.is_old() {
                peers.old.push(OldWorker { id: member, heartbeat, parameters: meta.parameters() });
            }
        }
        peers.old.sort_by_key(|worker| std::cmp::Reverse(worker.heartbeat));
        let still = |member: &str| peers.old.iter().any(|worker| member.strip_prefix(OLD) == Some(worker.id.as_str()));
        peers.gone = listed.counted.into_iter().filter(|member| member.starts_with(OLD) && !still(member)).collect();
        Ok(peers)
    }
}

/// Who is listed for a function, before anybody was asked.
struct Listed<'a> {
    function: &'a FunctionKey,
    members: Vec<WorkerId>,
    has_stream: bool,
    known: bool,
    /// Who stands among the function's workers now.
    counted: Vec<String>,
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

    fn takes_inboxes(&self) -> bool {
        self.0[5].as_ref().is_some_and(|caps| caps.split(',').any(|cap| cap.trim() == "inbox"))
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
