//! What a process remembers about limits, by scope and by something below it. A look-up costs the same for the first and for the
//! hundred-thousandth key of a scope, and the number of entries is bounded.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

use crate::names::LimitScope;

/// A map of bounded size. Entries live in two halves: when the young half is full it becomes the old one, and the old one is dropped. So an
/// entry is kept until at least half as many others as the bound were put after it, and no entry is ever looked for to make room.
///
/// ```
/// use towpath_core::limit::Recent;
/// use towpath_core::names::LimitScope;
///
/// let scope = LimitScope::new("acme").unwrap();
/// let mut recent = Recent::<String, u32>::holding(4);
/// for number in 0..5 {
///     recent.put(&scope, format!("u{number}"), number);
/// }
/// assert_eq!(recent.get(&scope, "u4"), Some(&4));
/// assert_eq!(recent.get(&scope, "u0"), None, "the oldest two went");
/// assert_eq!(recent.len(), 3);
/// ```
#[derive(Debug)]
pub struct Recent<K, V> {
    young: Half<K, V>,
    old: Half<K, V>,
    half: usize,
}

#[derive(Debug)]
struct Half<K, V> {
    scopes: HashMap<LimitScope, HashMap<K, V>>,
    len: usize,
}

impl<K, V> Default for Half<K, V> {
    fn default() -> Self {
        Self { scopes: HashMap::new(), len: 0 }
    }
}

impl<K: Eq + Hash, V> Half<K, V> {
    fn get<Q: Eq + Hash + ?Sized>(&self, scope: &LimitScope, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.scopes.get(scope)?.get(key)
    }

    fn put(&mut self, scope: &LimitScope, key: K, value: V) {
        if !self.scopes.contains_key(scope) {
            self.scopes.insert(scope.clone(), HashMap::new());
        }
        let is_new = self.scopes.get_mut(scope).is_some_and(|keys| keys.insert(key, value).is_none());
        self.len += usize::from(is_new);
    }

    fn forget(&mut self, scope: &LimitScope) {
        self.len -= self.scopes.remove(scope).map_or(0, |keys| keys.len());
    }
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// An empty map that never has more entries than this, and at least two.
    pub fn holding(entries_max: usize) -> Self {
        Self { young: Half::default(), old: Half::default(), half: (entries_max / 2).max(1) }
    }

    /// The value that was put last.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, scope: &LimitScope, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.young.get(scope, key).or_else(|| self.old.get(scope, key))
    }

    /// Puts a value, in place of the one before.
    pub fn put(&mut self, scope: &LimitScope, key: K, value: V) {
        if self.young.len >= self.half {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.put(scope, key, value);
    }

    /// Removes all entries of a scope.
    pub fn forget(&mut self, scope: &LimitScope) {
        self.young.forget(scope);
        self.old.forget(scope);
    }

    /// Number of entries in memory. A key that was put again while its first entry is in the old half counts twice.
    pub fn len(&self) -> usize {
        self.young.len + self.old.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;

    use super::*;

    thread_local! { static COMPARED: Cell<usize> = const { Cell::new(0) }; }

    #[derive(Debug)]
    struct Counted(u32);

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }

    impl Eq for Counted {}

    impl Hash for Counted {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    fn scope(name: &str) -> LimitScope {
        LimitScope::new(name).unwrap()
    }

    fn compared(work: impl FnOnce()) -> usize {
        let before = COMPARED.get();
        work();
        COMPARED.get() - before
    }

    #[test]
    fn the_hundred_thousandth_key_of_a_scope_costs_what_the_first_costs() {
        let (acme, mut recent) = (scope("acme"), Recent::holding(200_000));
        let put_and_get = |recent: &mut Recent<Counted, u32>, keys: std::ops::Range<u32>| {
            keys.for_each(|key| {
                recent.put(&acme, Counted(key), key);
                assert_eq!(recent.get(&acme, &Counted(key)), Some(&key));
            });
        };
        let first = compared(|| put_and_get(&mut recent, 0..1_000));
        put_and_get(&mut recent, 1_000..99_000);
        let last = compared(|| put_and_get(&mut recent, 99_000..100_000));
        assert!(first >= 1_000, "the counter counts");
        assert!(last <= first + 100, "{first} comparisons for the first thousand keys, {last} for the last");
    }

    #[test]
    fn a_flood_of_keys_or_of_scopes_stays_below_the_bound_and_keeps_the_latest() {
        let mut recent = Recent::holding(100);
        for number in 0..1_000_u32 {
            recent.put(&scope("one"), number, number);
            recent.put(&scope(&format!("s{number}")), 0, number);
            assert!(recent.len() <= 100);
        }
        for number in 980..1_000 {
            assert_eq!(recent.get(&scope("one"), &number), Some(&number));
        }
        assert_eq!(recent.get(&scope("one"), &10), None);
    }

    #[test]
    fn a_scope_is_forgotten_in_both_halves_and_an_entry_that_is_put_again_is_the_newer_one() {
        let mut recent = Recent::holding(4);
        let (acme, other) = (scope("acme"), scope("other"));
        for key in [1, 2, 3] {
            recent.put(&acme, key, "before");
        }
        recent.put(&acme, 1, "after");
        assert_eq!(recent.get(&acme, &1), Some(&"after"), "key 1 is in both halves");
        recent.put(&other, 1, "other");
        recent.forget(&acme);
        assert_eq!([1, 2, 3].map(|key| recent.get(&acme, &key)), [None; 3]);
        assert_eq!((recent.get(&other, &1), recent.len()), (Some(&"other"), 1));
        recent.forget(&acme);
        recent.forget(&other);
        assert!(recent.is_empty());
    }
}
