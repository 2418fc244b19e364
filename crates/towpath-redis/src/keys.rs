//! Every key, built in one place. Keys that a seed names are written exactly so; our own carry the function's stream as their hash tag, so
//! that in a Cluster all that belongs to a function lies in one slot.

use std::sync::Arc;

use crate::options::{Place, RedisOptions};
use towpath_core::limit::StateName;
use towpath_core::names::{CallId, FunctionKey, FunctionName, LimitScope, WorkerId};

use crate::batches;
use crate::locks::keys::COUNTER;

/// The keys of a store.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Arc<str>,
    /// All keys lie on one server, so that what all functions share can be in one of them.
    together: bool,
}

impl Keys {
    pub(crate) fn new(prefix: &str, together: bool) -> Self {
        Self { prefix: Arc::from(prefix), together }
    }

    /// The keys of the store that these options lead to.
    pub(crate) fn of(options: &RedisOptions) -> Self {
        Self::new(&options.prefix, !matches!(options.place, Place::Cluster(_)))
    }

    /// What our own keys begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// All that belongs to one function.
    pub(crate) fn function(&self, function: &FunctionKey) -> FunctionKeys {
        self.shard(function, 0)
    }

    /// All that belongs to one of the streams that a function is spread over. The first, which all functions have, is 0.
    pub(crate) fn shard(&self, function: &FunctionKey, shard: u16) -> FunctionKeys {
        let (stream, line) = (format!("function:stream:{}:{}", function.scope, function.name), Self::line(function));
        let (stream, line) = if shard == 0 { (stream, line) } else { (format!("{stream}#{shard}"), format!("{line}\t{shard}")) };
        let tagged = tagged(&stream);
        let own = |room: &str| format!("{}:{room}:{tagged}", self.prefix);
        FunctionKeys {
            calls: if self.together { self.calls() } else { own("calls") },
            line,
            requests: if self.together { format!("{}:requests", self.prefix) } else { own("requests") },
            outcomes: own("outcomes"),
            progress: own("progress"),
            due: own("due"),
            index: own("index"),
            pages: if self.together { format!("{}:pages", self.prefix) } else { own("pages") },
            ready: own("ready"),
            aside: own("aside"),
            touched: own("touched"),
            dead: own("dead"),
            counts: own("counts"),
            busy: own("busy"),
            idempotency: own("idempotency"),
            definition: own("function"),
            workers: own("workers"),
            group: format!("group:{}", function.name),
            stream,
        }
    }

    /// How a function stands in a record, whichever of its streams it is in.
    pub(crate) fn line(function: &FunctionKey) -> String {
        format!("{}\t{}", function.scope, function.name)
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

    /// Hash: call id -> its record, of all functions, where one server has all keys.
    pub(crate) fn calls(&self) -> String {
        format!("{}:calls", self.prefix)
    }

    /// Hash: call id -> its record as it was before a transaction that comes to nothing. Seen by nobody: it is gone when that ends.
    pub(crate) fn kept(&self) -> String {
        format!("{}:kept", self.prefix)
    }

    /// Hash: call id -> its function, as `scope \n name`. Only in a Cluster, where each function's calls lie with it.
    pub(crate) fn whereabouts(&self) -> String {
        format!("{}:where", self.prefix)
    }

    /// Counter: the latest submit sequence.
    pub(crate) fn sequence(&self) -> String {
        format!("{}:sequence", self.prefix)
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

    /// List: answers to the calls of one process. In a Cluster it lies with the function it is about, hence its hash tag.
    pub(crate) fn inbox(caller: &str, function: Option<&FunctionKeys>) -> String {
        match function {
            None => format!("function:response:inbox:{caller}"),
            Some(function) => format!("function:response:inbox:{caller}:{}", tagged(&function.stream)),
        }
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

/// The keys of one function. What each holds is said in `docs/redis-keys.md`.
#[derive(Clone, Debug)]
pub(crate) struct FunctionKeys {
    /// Stream, of the seeds: calls as they come in.
    pub(crate) stream: String,
    /// Consumer group of that stream.
    pub(crate) group: String,
    /// Hash: call id -> its record. In a Cluster each function has its own, else all share one.
    pub(crate) calls: String,
    /// How the function stands in a record: scope, tab, name, and if it is not the first of its streams one more tab and which it is.
    pub(crate) line: String,
    /// Hash: call id -> its request. One for all functions if one server has all keys.
    pub(crate) requests: String,
    /// Hash: call id -> outcome, latest failure, replay.
    pub(crate) outcomes: String,
    /// Hash: call id -> latest progress report.
    pub(crate) progress: String,
    /// Sorted set: call id by the instant at which something happens to it by itself.
    pub(crate) due: String,
    /// Sorted set: call id, or page, by submit sequence.
    pub(crate) index: String,
    /// Hash: the first submit sequence of calls that came together -> their ids. One for all functions if one server has all keys.
    pub(crate) pages: String,
    /// Sorted set: queued calls that are no longer in the stream, by submit sequence. They are delivered first.
    pub(crate) ready: String,
    /// Set: running calls that are no longer in the stream.
    pub(crate) aside: String,
    /// Set: calls in the stream that are not as it took them. What their entries say is not all there is.
    pub(crate) touched: String,
    /// Sorted set: dead letters by submit sequence.
    pub(crate) dead: String,
    /// Hash: how many calls are queued, delayed, running, parked, dead.
    pub(crate) counts: String,
    /// Hash: `r:worker` -> calls it runs, `p:worker` -> how many of them are parked.
    pub(crate) busy: String,
    /// Hash: idempotency key -> call id.
    pub(crate) idempotency: String,
    /// Hash: `definition` (JSON), `max_backlog`, `max_concurrent`, `offer:worker` -> its concurrency, if it left that to the store.
    pub(crate) definition: String,
    /// Sorted set: the workers that offer it, by the instant of their latest heartbeat.
    pub(crate) workers: String,
}

impl FunctionKeys {
    /// What a submit looks at and writes to, besides the calls themselves, in the order in which its script wants it.
    pub(crate) fn of_submits(&self) -> [&str; 7] {
        [&self.due, &self.index, &self.counts, &self.idempotency, &self.definition, &self.workers, &self.stream]
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
        if own.starts_with('{') {
            return kind_of_scope(own);
        }
        let (room, of_function) = own.split_once(":{").map_or((own, false), |(room, _)| (room, true));
        return match (room, of_function) {
            ("calls" | "requests" | "outcomes" | "progress" | "pages" | "counts" | "busy" | "idempotency" | "function", true) => {
                Some(&["hash"])
            }
            ("due" | "index" | "ready" | "dead" | "workers", true) | ("heartbeats", false) => Some(&["zset"]),
            ("aside" | "touched", true) | ("functions", false) => Some(&["set"]),
            ("lock:index" | "lock:used", false) | ("limit:index" | "limit:over", true) => Some(&["zset"]),
            ("lock:audit", false) => Some(&["list"]),
            (set, _) if set.starts_with("lock:exec:") => Some(&["set"]),
            ("workers" | "where" | "calls" | "kept" | "requests" | "pages" | "config" | "losses", false) => Some(&["hash"]),
            ("sequence", false) | ("incarnation", _) | ("confirmed", true) => Some(&["string"]),
            _ => None,
        };
    }
    if key.starts_with(COUNTER) {
        return Some(&["string"]);
    }
    if let Some(kind) = batches::keys::kind_of_seeds(key) {
        return Some(kind);
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

/// List: an old worker's answer to a call that was put into the stream again. Whoever put it there reads it; on its own list somebody may
/// wait who would take the answer and tell nobody.
pub(crate) fn response_to_put_back(call_id: &CallId) -> String {
    format!("function:response:back:{call_id}")
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
        let keys = Keys::new("towpath", false);
        for name in ["add", "a:b", "{a}", "x{a}y{b}", "{{a}}"] {
            let function = function("__global__", name);
            let of = keys.function(&function);
            let slot = |key: &str| hash_tag(key).unwrap_or(key).to_owned();
            assert_eq!(slot(&of.calls), slot(&of.stream), "{name}");
            assert_eq!(slot(&Keys::inbox("c", Some(&of))), slot(&of.stream), "{name}");
            assert_eq!(unfit_for_cluster(&function), None, "{name}");
        }
        for name in ["a}", "{", "a{}b", "}{"] {
            assert!(unfit_for_cluster(&function("__global__", name)).is_some(), "{name}");
        }
    }

    #[test]
    fn of_every_key_is_known_what_it_holds() {
        let keys = Keys::new("mine", false);
        let of = keys.function(&function("wf-7", "a{b}c"));
        let of_function = [
            (of.calls, "hash"),
            (of.requests, "hash"),
            (of.outcomes, "hash"),
            (of.progress, "hash"),
            (of.pages, "hash"),
            (of.due, "zset"),
            (of.index, "zset"),
            (of.ready, "zset"),
            (of.aside, "set"),
            (of.touched, "set"),
            (of.dead, "zset"),
            (of.counts, "hash"),
            (of.busy, "hash"),
            (of.idempotency, "hash"),
            (of.definition, "hash"),
            (of.workers, "zset"),
            (of.stream, "stream"),
        ];
        let of_all = [
            (keys.functions(), "set"),
            (keys.workers(), "hash"),
            (keys.heartbeats(), "zset"),
            (keys.whereabouts(), "hash"),
            (keys.calls(), "hash"),
            (Keys::new("mine", true).function(&function("wf-7", "a")).requests, "hash"),
            (Keys::new("mine", true).function(&function("wf-7", "a")).pages, "hash"),
            (keys.sequence(), "string"),
            (keys.incarnation(), "string"),
            (format!("{}:{{7}}", keys.incarnation()), "string"),
            (keys.losses(), "hash"),
            (keys.kept(), "hash"),
            (keys.confirmed("function:response:inbox:c"), "string"),
            (keys.config(), "hash"),
            (Keys::inbox("c", None), "list"),
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
        let keys = Keys::new("towpath", false);
        let names = [("a", "b"), ("a", "b:c"), ("__global__", "b"), ("a", "{b}"), ("a", "b}"), ("a", "calls"), ("calls", "a")];
        let mut seen = HashSet::new();
        for (scope, name) in names {
            let of = keys.function(&function(scope, name));
            for key in [of.stream, of.calls, of.requests, of.due, of.ready, of.definition] {
                assert!(seen.insert(key.clone()), "{key}");
            }
        }
    }
}
