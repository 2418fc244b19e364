//! Maps that every call goes through several times. The standard library's guard against names that were chosen to collide takes longer than
//! all the rest of a look-up; this one guards by a secret too, and takes a fraction of it.

use foldhash::fast::RandomState;

pub(crate) type QuickMap<K, V> = std::collections::HashMap<K, V, RandomState>;
pub(crate) type QuickSet<K> = std::collections::HashSet<K, RandomState>;
