//! The keys of locks and permits. Those that old workflows know are written exactly so; our own carry them as their hash tag.

use towpath_core::names::{ExecutionId, LockScope};
use towpath_core::permit::PermitKind;

/// What stands before a scope in the key of its counter.
pub(crate) const COUNTER: &str = "n8n-lock-";
/// What stands behind a counter's key in that of its identity.
const META: &str = ":meta";

/// The keys that are no scope's own.
#[derive(Clone, Debug)]
pub(crate) struct SharedKeys {
    prefix: String,
    /// Sorted set: scope by the end of its lease.
    pub(crate) index: String,
    /// List: the latest forced releases, the newest first.
    pub(crate) audit: String,
    /// What stands before an execution's id in the set of what it holds.
    pub(crate) executions: String,
    /// What stands before a node's id in the channel on which it hears of its turns. Channels are shared by all databases of a server.
    pub(crate) channels: String,
    /// Whether the keys of two scopes may lie on two servers.
    pub(crate) is_cluster: bool,
}

impl SharedKeys {
    pub(crate) fn new(prefix: &str, database: i64, is_cluster: bool) -> Self {
        Self {
            prefix: prefix.to_owned(),
            index: format!("{prefix}:lock:index"),
            audit: format!("{prefix}:lock:audit"),
            executions: format!("{prefix}:lock:exec:"),
            channels: format!("{prefix}:wake:{database}:"),
            is_cluster,
        }
    }

    /// Set: what an execution holds, and maybe more.
    pub(crate) fn execution(&self, execution_id: &ExecutionId) -> String {
        format!("{}{execution_id}", self.executions)
    }

    pub(crate) fn lock(&self, scope: &LockScope) -> LockKeys {
        let counter = format!("{COUNTER}{scope}");
        let own = |room: &str| format!("{}:{{{counter}}}:{room}", self.prefix);
        let seeds_meta = format!("{counter}{META}");
        LockKeys {
            meta: if self.is_cluster { own("meta") } else { seeds_meta.clone() },
            record: own("s"),
            waiters: own("w"),
            alive: own("d"),
            seeds_meta,
            counter,
        }
    }

    pub(crate) fn permits(&self, kind: PermitKind, scope: &LockScope) -> PermitKeys {
        let member = permit_member(kind, scope);
        let own = |room: &str| format!("{}:{{{member}}}:{room}", self.prefix);
        PermitKeys { all: ["p", "q", "w", "d", "v", "x"].map(own), member }
    }

    /// A pattern of all keys by which a lock whose scope begins so may be known: its counter, its identity, its queue.
    pub(crate) fn pattern(scopes_begin: &str) -> String {
        let mut pattern = format!("*{COUNTER}");
        for character in scopes_begin.chars() {
            if matches!(character, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern.push('*');
        pattern
    }

    /// The scope that a key of the pattern is about, if it shows that the lock may be in use.
    pub(crate) fn scope_of(&self, key: &str) -> Option<LockScope> {
        let text = match key.strip_prefix(COUNTER) {
            Some(text) => text.strip_suffix(META).unwrap_or(text),
            None => key.strip_prefix(&*format!("{}:{{{COUNTER}", self.prefix))?.strip_suffix("}:w")?,
        };
        LockScope::new(text).ok()
    }
}

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(crate) struct LockKeys {
    /// String, of the seed: what old workflows increment.
    pub(crate) counter: String,
    /// String: the identity of the holder, where the scripts keep it.
    pub(crate) meta: String,
    /// The same, where the seed has it. In a Cluster it lies elsewhere than the counter and is a copy.
    pub(crate) seeds_meta: String,
    /// String: tenure, fences, the latest release.
    pub(crate) record: String,
    /// Sorted set: who waits, by arrival.
    pub(crate) waiters: String,
    /// Sorted set: until when each who waits is believed to be there.
    pub(crate) alive: String,
}

impl LockKeys {
    /// In the order in which the scripts want them.
    pub(crate) fn in_order<'a>(&'a self, shared: &'a SharedKeys) -> Vec<&'a str> {
        let mut keys = vec![&*self.counter, &*self.meta, &*self.record, &*self.waiters, &*self.alive];
        if !shared.is_cluster {
            keys.push(&shared.index);
        }
        keys
    }
}

/// The keys of one semaphore or read/write lock.
#[derive(Clone, Debug)]
pub(crate) struct PermitKeys {
    all: [String; 6],
    /// How an execution's set names it.
    pub(crate) member: String,
}

impl PermitKeys {
    /// In the order in which the scripts want them.
    pub(crate) fn in_order(&self) -> [&str; 6] {
        self.all.each_ref().map(String::as_str)
    }
}

/// How an execution's set names a lock.
pub(crate) fn lock_member(scope: &LockScope) -> String {
    format!("lock:{scope}")
}

fn permit_member(kind: PermitKind, scope: &LockScope) -> String {
    format!("{kind}:{scope}")
}

/// Why a scope cannot be kept in a Cluster.
pub(crate) fn unfit_for_cluster(scope: &LockScope) -> Option<String> {
    scope
        .as_str()
        .contains(['{', '}'])
        .then(|| format!("the name of lock '{scope}' has a brace, by which a Redis Cluster would part its keys: choose another name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> LockScope {
        LockScope::new(text).unwrap()
    }

    #[test]
    fn old_workflows_find_their_keys_as_they_spell_them() {
        let keys = SharedKeys::new("towpath", 0, false).lock(&scope("excel-fileId-123"));
        assert_eq!((&*keys.counter, &*keys.meta), ("n8n-lock-excel-fileId-123", "n8n-lock-excel-fileId-123:meta"));
        assert_eq!(keys.record, "towpath:{n8n-lock-excel-fileId-123}:s");
    }

    #[test]
    fn a_key_that_shows_a_lock_names_its_scope_and_others_name_none() {
        let keys = SharedKeys::new("towpath", 0, false);
        for text in ["a", "a:b", "{a}", "замок", "x:s"] {
            let of = keys.lock(&scope(text));
            for key in [&of.counter, &of.meta, &of.waiters] {
                assert_eq!(keys.scope_of(key), Some(scope(text)), "{key}");
            }
            assert_eq!(keys.scope_of(&of.alive), None);
        }
        assert_eq!(keys.scope_of("other:n8n-lock-a"), None);
        assert_eq!(SharedKeys::pattern("a*[b"), "*n8n-lock-a\\*\\[b*");
    }

    #[test]
    fn a_brace_is_refused_where_slots_are() {
        assert!(unfit_for_cluster(&scope("a{b}")).is_some() && unfit_for_cluster(&scope("a}")).is_some());
        assert_eq!(unfit_for_cluster(&scope("a:b")), None);
    }
}
