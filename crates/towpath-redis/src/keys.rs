//! Every key, built in one place. Keys that a seed names are written exactly so; our own carry the function's stream as their hash tag, so
//! that in a Cluster all that belongs to a function lies in one slot.

use std::sync::Arc;

use crate::options::RedisOptions;
use towpath_core::limit::StateName;
use towpath_core::names::{CallId, FunctionKey, FunctionName, LimitScope, WorkerId};

use crate::batches;
use crate::locks::keys::COUNTER;
use crate::runs;

/// The keys of a store.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Arc<str>,
    database: i64,
}

impl Keys {
    pub(crate) fn new(prefix: &str, database: i64) -> Self {
        Self { prefix: Arc::from(prefix), database }
    }

    /// The keys of the store that these options lead to.
    pub(crate) fn of(options: &RedisOptions) -> Self {
        Self::new(&options.prefix, options.database)
    }

    /// The start of all keys of our own.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// All that belongs to one function.
    pub(crate) fn function(&self, function: &FunctionKey) -> PartitionKeys {
        self.shard(function, 0)
    }

    /// All that belongs to one partition of a function. The first, which all functions have, is 0.
    pub(crate) fn shard(&self, function: &FunctionKey, shard: u16) -> PartitionKeys {
        let stream = format!("function:stream:{}:{}", function.scope, function.name);
        let stream = if shard == 0 { stream } else { format!("{stream}#{shard}") };
        let tagged = tagged(&stream);
        let own = |name: &str| format!("{}:{name}:{tagged}", self.prefix);
        PartitionKeys {
            calls: own("calls"),
            queue: own("queue"),
            running: own("running"),
            delayed: own("delayed"),
            deadlines: own("deadlines"),
            dead: own("dead"),
            parked: own("parked"),
            exported: own("exported"),
            owed: own("owed"),
            legacy: own("legacy"),
            buckets: own("buckets"),
            ended: own("ended") + ":",
            listed: own("listed") + ":",
            held: own("held") + ":",
            idempotency: own("key") + ":",
            definition: own("function"),
            workers: own("workers"),
            work: Arc::from(format!("{}:work:{}:{tagged}", self.prefix, self.database)),
            group: format!("group:{}", function.name),
            stream,
        }
    }

    /// String: the format of this data set.
    pub(crate) fn format(&self) -> String {
        format!("{}:format", self.prefix)
    }

    /// Pub/sub channel on which one process hears how calls that it waits for ended.
    pub(crate) fn replies(&self, process: &str) -> String {
        format!("{}:replies:{process}", self.prefix)
    }

    /// String: the claim of a worker that waits, or the calls that a submit has handed to it.
    pub(crate) fn claim(&self, worker: &str) -> String {
        format!("{}:claim:{worker}", self.prefix)
    }

    /// String: the function of a call whose id does not tell it.
    pub(crate) fn reservation(&self, call_id: &CallId) -> String {
        format!("{}:id:{{{call_id}}}", self.prefix)
    }

    /// Set: the functions that are known, each as `scope \n name`, and the streams that they are spread over as `scope \n name \n number`.
    pub(crate) fn functions(&self) -> String {
        format!("{}:functions", self.prefix)
    }

    /// Hash: worker id -> what it said when it registered, JSON.
    pub(crate) fn workers(&self) -> String {
        format!("{}:workers", self.prefix)
    }

    /// Sorted set: worker id by the instant of its latest heartbeat.
    pub(crate) fn heartbeats(&self) -> String {
        format!("{}:heartbeats", self.prefix)
    }

    /// Counter: rises whenever a process looks whether the data set is still the same. A lower value than before is an older copy.
    pub(crate) fn pulse(&self) -> String {
        format!("{}:pulse", self.prefix)
    }

    /// String: the name of this data set. Whoever finds none writes one; another one means that the data is not what it was.
    pub(crate) fn incarnation(&self) -> String {
        format!("{}:incarnation", self.prefix)
    }

    /// Hash: what somebody noticed to be lost -> when, and what.
    pub(crate) fn losses(&self) -> String {
        format!("{}:losses", self.prefix)
    }

    /// Hash: `version` and `updated_at` of the shared configuration.
    pub(crate) fn config(&self) -> String {
        format!("{}:config", self.prefix)
    }

    /// Pub/sub channel on which processes tell each other to look again. Channels are shared by all databases of a server.
    pub(crate) fn news(&self, database: i64) -> String {
        format!("{}:news:{database}", self.prefix)
    }

    /// By algorithm: what is remembered of a rule. The counter of a window that old callers share has the seed's name.
    pub(crate) fn limit(&self, scope: &LimitScope, state: &StateName, is_the_seeds: bool) -> String {
        let seeds = format!("n8n-ratelimit-{scope}");
        match state.as_str().strip_prefix("w:").filter(|_| is_the_seeds) {
            Some(window) => format!("{seeds}-{window}"),
            None => format!("{}:{{{seeds}}}:{state}", self.prefix),
        }
    }

    /// Sorted set: rules of limits that have counted something, in byte order; for lists.
    pub(crate) fn limit_index(&self) -> String {
        format!("{}:limit:index:{{limits}}", self.prefix)
    }

    /// Sorted set: the same by the instant after which nothing of them can be in use.
    pub(crate) fn limit_over(&self) -> String {
        format!("{}:limit:over:{{limits}}", self.prefix)
    }

    /// String beside another key: written so that a connection has written something there, which replicas then confirm.
    pub(crate) fn confirmed(&self, beside: &str) -> String {
        format!("{}:confirmed:{{{}}}", self.prefix, hash_tag(beside).unwrap_or(beside))
    }

    /// A key that is written to prove that the store can write.
    pub(crate) fn probe(&self) -> String {
        format!("{}:probe", self.prefix)
    }
}

/// The keys of one partition. What each holds is said in `docs/redis-keys.md`.
#[derive(Clone, Debug)]
pub(crate) struct PartitionKeys {
    /// Hash: call id -> record, of open calls and dead letters; beside it large requests and progress reports.
    pub(crate) calls: String,
    /// Sorted set: queued calls by sequence.
    pub(crate) queue: String,
    /// Sorted set: running calls by the end of their lease.
    pub(crate) running: String,
    /// Sorted set: delayed calls by the end of their delay.
    pub(crate) delayed: String,
    /// Sorted set: open calls by their deadline.
    pub(crate) deadlines: String,
    /// Sorted set: dead letters by sequence.
    pub(crate) dead: String,
    /// Set: running calls that wait for a nested call.
    pub(crate) parked: String,
    /// Sorted set: queued calls that wait in the stream for a legacy worker, by sequence.
    pub(crate) exported: String,
    /// Set: ended calls whose legacy caller has not been answered yet.
    pub(crate) owed: String,
    /// Hash: what is remembered about legacy peers of this function.
    pub(crate) legacy: String,
    /// Sorted set: the buckets of ended calls by the end of their retention.
    pub(crate) buckets: String,
    /// Start of the names of buckets. Hash: call id -> record, of ended calls.
    pub(crate) ended: String,
    /// Start of the names of their lists. Sorted set: ended calls by sequence.
    pub(crate) listed: String,
    /// Start of names. Set: the calls that a worker holds, if the store counts them.
    pub(crate) held: String,
    /// Start of names. String: the call that an idempotency key leads to.
    pub(crate) idempotency: String,
    /// Hash: `definition` (JSON), `max_backlog` (`-` none), `max_concurrent`, `offer:worker` -> its concurrency, if it left that to the store.
    pub(crate) definition: String,
    /// Sorted set: the workers that offer it, by the instant of their latest heartbeat.
    pub(crate) workers: String,
    /// Pub/sub channel: calls have come into an empty queue, or there is room for more.
    pub(crate) work: Arc<str>,
    /// Stream, of the seeds: entries of legacy callers, and calls for legacy workers.
    pub(crate) stream: String,
    /// Consumer group of that stream.
    pub(crate) group: String,
}

impl PartitionKeys {
    /// All keys whose names need nothing else.
    pub(crate) fn all(&self) -> [&str; 14] {
        [
            &self.calls,
            &self.queue,
            &self.running,
            &self.delayed,
            &self.deadlines,
            &self.dead,
            &self.exported,
            &self.buckets,
            &self.parked,
            &self.owed,
            &self.legacy,
            &self.definition,
            &self.workers,
            &self.stream,
        ]
    }

    /// What a submit looks at and writes to, in the order of its script.
    pub(crate) fn of_submits(&self) -> [&str; 9] {
        [
            &self.calls,
            &self.queue,
            &self.deadlines,
            &self.delayed,
            &self.definition,
            &self.workers,
            &self.buckets,
            &self.exported,
            &self.running,
        ]
    }

    /// What a change writes to, in the order of its script.
    pub(crate) fn of_changes(&self) -> [&str; 8] {
        [&self.calls, &self.queue, &self.running, &self.delayed, &self.exported, &self.dead, &self.deadlines, &self.buckets]
    }
}

/// The stream's name with the hash tag that puts a key beside it. A name with braces may have a tag of its own already.
pub(crate) fn tagged(stream: &str) -> String {
    match hash_tag(stream) {
        Some(tag) => format!("{{{tag}}}:{stream}"),
        None => format!("{{{stream}}}"),
    }
}

/// What a Cluster takes for the hash tag of a key: what stands between the first `{` and the next `}`, if there is anything.
pub(crate) fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    rest.split_once('}').map(|(tag, _)| tag).filter(|tag| !tag.is_empty())
}

/// What a key of ours or of the wire may hold, as `TYPE` says it; `None` when nothing is known about it.
pub(crate) fn kind_of(prefix: &str, key: &str) -> Option<&'static [&'static str]> {
    if let Some(own) = key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(':')) {
        if let Some(kind) = batches::keys::kind_of(own) {
            return Some(kind);
        }
        if let Some(kind) = runs::keys::kind_of(own) {
            return Some(kind);
        }
        if own.starts_with('{') {
            return kind_of_scope(own);
        }
        let (room, of_function) = own.split_once(":{").map_or((own, false), |(room, _)| (room, true));
        return match (room, of_function) {
            ("calls" | "ended" | "function" | "legacy", true) => Some(&["hash"]),
            ("queue" | "running" | "delayed" | "deadlines" | "dead" | "exported" | "buckets" | "listed" | "workers", true)
            | ("heartbeats", false) => Some(&["zset"]),
            ("parked" | "owed" | "held", true) | ("functions", false) => Some(&["set"]),
            ("key" | "id", true) | ("format" | "pulse", false) => Some(&["string"]),
            ("lock:index" | "lock:used", false) | ("limit:index" | "limit:over", true) => Some(&["zset"]),
            ("lock:audit", false) => Some(&["list"]),
            (set, _) if set.starts_with("lock:exec:") => Some(&["set"]),
            (claim, _) if claim.starts_with("claim:") => Some(&["string"]),
            ("workers" | "config" | "losses", false) => Some(&["hash"]),
            ("incarnation", _) | ("confirmed", true) => Some(&["string"]),
            _ => None,
        };
    }
    if key.starts_with(COUNTER) {
        return Some(&["string"]);
    }
    if let Some(kind) = batches::keys::kind_of_seeds(key) {
        return Some(kind);
    }
    if key.starts_with("workflow/") {
        return Some(&["stream"]);
    }
    let rest = key.strip_prefix("function:")?;
    match rest.split_once(':') {
        // Each may also be the set of a function whose name begins so.
        Some(("stream", _)) => Some(&["stream", "set"]),
        Some(("meta", _)) => Some(&["hash", "set"]),
        Some(("response", call)) if call.starts_with("sent:") => Some(&["string", "set"]),
        Some(("response", _)) => Some(&["list", "set"]),
        None if key == GLOBAL_CONFIG => Some(&["string"]),
        _ => Some(&["set"]),
    }
}

/// The same of a key that begins with the hash tag of a lock or a limit. What a limit remembers differs by its rule.
fn kind_of_scope(own: &str) -> Option<&'static [&'static str]> {
    match own.rsplit_once(':')? {
        (limit, _) if limit.starts_with("{n8n-ratelimit-") || limit.starts_with("{batch:") => None,
        (_, "s" | "meta") => Some(&["string"]),
        (_, "w" | "d" | "p") => Some(&["zset"]),
        (_, "q" | "v" | "x") => Some(&["hash"]),
        _ => None,
    }
}

/// Why a function cannot be kept in a Cluster: no key of ours could lie beside its stream.
pub(crate) fn unfit_for_cluster(function: &FunctionKey) -> Option<String> {
    let stream = format!("function:stream:{}:{}", function.scope, function.name);
    let fits = hash_tag(&stream).is_some() || !stream.contains(['{', '}']);
    (!fits).then(|| {
        format!(
            "the name of function '{function}' has a brace without its partner, which a Redis Cluster cannot place: choose another name"
        )
    })
}

/// Hash of the seeds: what a worker says about one function it serves.
pub(crate) fn meta(worker: &WorkerId, function: &FunctionName) -> String {
    meta_of(worker.as_str(), function)
}

/// The same of a legacy worker, whose id may be any text.
pub(crate) fn meta_of(worker: &str, function: &FunctionName) -> String {
    format!("function:meta:{worker}:{function}")
}

/// Set of the seeds: the workers that serve a function of that name, in whatever scope.
pub(crate) fn registry(function: &FunctionName) -> String {
    format!("function:{function}")
}

/// List of the seeds: the answer to one call.
pub(crate) fn response(call_id: &CallId) -> String {
    format!("function:response:{call_id}")
}

/// String of the seeds: the shared configuration, JSON.
pub(crate) const GLOBAL_CONFIG: &str = "function:global_config";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use towpath_core::names::{ExecutionId, FunctionName, LockScope, Scope};
    use towpath_core::permit::PermitKind;

    use super::*;
    use crate::locks::keys::SharedKeys;

    fn function(scope: &str, name: &str) -> FunctionKey {
        FunctionKey { scope: Scope::new(scope).unwrap(), name: FunctionName::new(name).unwrap() }
    }

    #[test]
    fn a_functions_own_keys_have_the_hash_tag_of_its_stream_or_it_is_refused() {
        let keys = Keys::new("towpath", 0);
        for name in ["add", "a:b", "{a}", "x{a}y{b}", "{{a}}"] {
            let function = function("__global__", name);
            let of = keys.function(&function);
            let slot = |key: &str| hash_tag(key).unwrap_or(key).to_owned();
            assert_eq!(slot(&of.calls), slot(&of.stream), "{name}");
            assert_eq!(unfit_for_cluster(&function), None, "{name}");
        }
        for name in ["a}", "{", "a{}b", "}{"] {
            assert!(unfit_for_cluster(&function("__global__", name)).is_some(), "{name}");
        }
    }

    #[test]
    fn of_every_key_is_known_what_it_holds() {
        let keys = Keys::new("mine", 0);
        let of = keys.function(&function("wf-7", "a{b}c"));
        let of_function = [
            (of.calls, "hash"),
            (of.queue, "zset"),
            (of.running, "zset"),
            (of.delayed, "zset"),
            (of.deadlines, "zset"),
            (of.dead, "zset"),
            (of.parked, "set"),
            (of.exported, "zset"),
            (of.owed, "set"),
            (of.legacy, "hash"),
            (of.buckets, "zset"),
            (of.ended + "256.1024", "hash"),
            (of.listed + "256.1024", "zset"),
            (of.held + "w", "set"),
            (of.idempotency + "k", "string"),
            (of.definition, "hash"),
            (of.workers, "zset"),
            (of.stream, "stream"),
        ];
        let of_all = [
            (keys.functions(), "set"),
            (keys.workers(), "hash"),
            (keys.heartbeats(), "zset"),
            (keys.format(), "string"),
            (keys.pulse(), "string"),
            (keys.reservation(&CallId::new("c{1}").unwrap()), "string"),
            (keys.incarnation(), "string"),
            (format!("{}:{{7}}", keys.incarnation()), "string"),
            (keys.losses(), "hash"),
            (keys.confirmed("function:response:inbox:c"), "string"),
            (keys.config(), "hash"),
            (registry(&FunctionName::new("add").unwrap()), "set"),
            (meta(&WorkerId::new("w1").unwrap(), &FunctionName::new("add").unwrap()), "hash"),
            (response(&CallId::new("c1").unwrap()), "list"),
            (GLOBAL_CONFIG.to_owned(), "string"),
        ];
        for (key, kind) in of_function.into_iter().chain(of_all).chain(keys_of_locks()) {
            assert_eq!(kind_of("mine", &key).and_then(<[_]>::first), Some(&kind), "{key}");
        }
        for key in ["mine:else", "others:calls:{x}", "mine", "minefield:functions"] {
            assert_eq!(kind_of("mine", key), None, "{key}");
        }
    }

    fn keys_of_locks() -> Vec<(String, &'static str)> {
        let mut all = Vec::new();
        for (is_cluster, scope) in [(false, "a:{b"), (true, "x{a}y"), (true, "a:w")] {
            let (shared, scope) = (SharedKeys::new("mine", 0, is_cluster), LockScope::new(scope).unwrap());
            let of = shared.lock(&scope);
            all.extend([(of.counter, "string"), (of.meta, "string"), (of.seeds_meta, "string"), (of.record, "string")]);
            all.extend([(of.waiters, "zset"), (of.alive, "zset")]);
            all.extend([(shared.execution(&ExecutionId::new("a:{7}").unwrap()), "set"), (shared.index.clone(), "zset")]);
            all.extend([(shared.audit.clone(), "list"), (shared.used.clone(), "zset")]);
            let kinds = ["zset", "hash", "zset", "zset", "hash", "hash"];
            let permits = shared.permits(PermitKind::Semaphore, &scope);
            all.extend(permits.own().into_iter().map(str::to_owned).zip(kinds));
        }
        all
    }

    #[test]
    fn no_two_functions_share_a_key() {
        let keys = Keys::new("towpath", 0);
        let names = [("a", "b"), ("a", "b:c"), ("__global__", "b"), ("a", "{b}"), ("a", "b}"), ("a", "calls"), ("calls", "a")];
        let mut seen = HashSet::new();
        for (scope, name) in names {
            let of = keys.function(&function(scope, name));
            for key in [of.stream, of.calls, of.queue, of.ended, of.definition] {
                assert!(seen.insert(key.clone()), "{key}");
            }
        }
    }
}
