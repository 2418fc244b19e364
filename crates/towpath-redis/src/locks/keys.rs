//! The keys of locks and permits. Those that old workflows know are written exactly so; our own carry them as their hash tag.

use towpath_core::names::{ExecutionId, LockScope};
use towpath_core::permit::PermitKind;

use crate::keys::{hash_tag, tagged};

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
    /// Sorted set: what lists shall have that is in no other index, by until when: queues, old workflows' locks that were met, and all that
    /// semaphores and read/write locks are.
    pub(crate) used: String,
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
            used: format!("{prefix}:lock:used"),
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
        let counter = scope.key();
        // A name with a hash tag of its own lies where that says.
        let place = if self.is_cluster { tagged(&counter) } else { format!("{{{counter}}}") };
        let own = |room: &str| format!("{}:{place}:{room}", self.prefix);
        let seeds_meta = scope.meta_key();
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
        if let Some(text) = key.strip_prefix(COUNTER) {
            return LockScope::new(text.strip_suffix(META).unwrap_or(text)).ok();
        }
        let (_, place) = key.strip_prefix(&*self.prefix)?.strip_suffix(":w")?.split_once(COUNTER)?;
        let mut scopes = [place.strip_suffix('}'), Some(place)].into_iter().flatten().filter_map(|text| LockScope::new(text).ok());
        scopes.find(|scope| self.lock(scope).waiters == key)
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
            keys.extend([&*shared.index, &*shared.used]);
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
    /// Its own, which lie together.
    pub(crate) fn own(&self) -> [&str; 6] {
        self.all.each_ref().map(String::as_str)
    }

    /// In the order in which the scripts want them.
    pub(crate) fn in_order<'a>(&'a self, shared: &'a SharedKeys) -> Vec<&'a str> {
        let mut keys = self.own().to_vec();
        if !shared.is_cluster {
            keys.push(&shared.used);
        }
        keys
    }
}

/// How an execution's set, and that of all that is in use, names a lock.
pub(crate) fn lock_member(scope: &LockScope) -> String {
    format!("lock:{scope}")
}

fn permit_member(kind: PermitKind, scope: &LockScope) -> String {
    format!("{kind}:{scope}")
}

/// Why a scope cannot be kept in a Cluster.
pub(crate) fn unfit_for_cluster(scope: &LockScope) -> Option<String> {
    let counter = scope.key();
    let fits = hash_tag(&counter).is_some() || !counter.contains(['{', '}']);
    (!fits).then(|| {
        format!("the name of lock '{scope}' has a brace without its partner, which a Redis Cluster cannot place: choose another name")
    })
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
        for is_cluster in [false, true] {
            let keys = SharedKeys::new("towpath", 0, is_cluster);
            for text in ["a", "a:b", "{a}", "x{a}y", "замок", "x:s", "n8n-lock-a"] {
                let of = keys.lock(&scope(text));
                for key in [&of.counter, &of.seeds_meta, &of.waiters] {
                    assert_eq!(keys.scope_of(key), Some(scope(text)), "{key}");
                }
                assert_eq!((keys.scope_of(&of.alive), keys.scope_of(&of.record)), (None, None));
            }
            assert_eq!(keys.scope_of("other:n8n-lock-a"), None);
        }
        assert_eq!(SharedKeys::pattern("a*[b"), "*n8n-lock-a\\*\\[b*");
    }

    #[test]
    fn the_keys_of_a_lock_share_a_slot_or_it_is_refused() {
        let keys = SharedKeys::new("towpath", 0, true);
        let slot = |key: &str| hash_tag(key).unwrap_or(key).to_owned();
        for text in ["a", "a:b", "{a}", "x{a}y{b}", "a{{b}}"] {
            let of = keys.lock(&scope(text));
            for key in [&of.meta, &of.record, &of.waiters, &of.alive] {
                assert_eq!(slot(key), slot(&of.counter), "{key}");
            }
            assert_eq!(unfit_for_cluster(&scope(text)), None, "{text}");
        }
        for text in ["a}", "{", "a{}b", "}{"] {
            assert!(unfit_for_cluster(&scope(text)).is_some(), "{text}");
        }
        for text in ["a", "{a}", "a}", "{", "}{"] {
            let of = keys.permits(PermitKind::Semaphore, &scope(text));
            let slots: std::collections::HashSet<String> = of.own().into_iter().map(slot).collect();
            assert_eq!(slots.len(), 1, "{text}");
        }
    }
}
