//! The two keys of a lock as old workflows reach them. Whatever they do is one command at a time, and nobody is told.

use std::sync::Arc;

use async_trait::async_trait;
use towpath_core::lock::{Counter, LockState};
use towpath_core::names::LockScope;

use super::ModelStore;
use crate::backend::OldCaller;

/// What a key is for.
enum Key {
    Counter,
    Meta,
}

fn parse(key: &str) -> (LockScope, Key) {
    let rest = key.strip_prefix("n8n-lock-").unwrap_or_else(|| panic!("old callers know no key '{key}'"));
    let (scope, kind) = rest.strip_suffix(":meta").map_or((rest, Key::Counter), |scope| (scope, Key::Meta));
    (LockScope::new(scope).unwrap_or_else(|refused| panic!("{refused}")), kind)
}

impl ModelStore {
    fn command<R>(&self, key: &str, run: impl FnOnce(&mut LockState, Key) -> R) -> R {
        let (scope, kind) = parse(key);
        self.transition(|state, _| {
            let mut lock = state.records.locks.remove(&scope).unwrap_or_default();
            let reply = run(&mut lock, kind);
            if lock.is_known() {
                state.records.locks.insert(scope, lock);
            }
            reply
        })
    }
}

#[async_trait]
impl OldCaller for ModelStore {
    async fn incr(&self, key: &str) -> i64 {
        self.command(key, |lock, kind| {
            assert!(matches!(kind, Key::Counter), "nobody counts identities");
            let value = lock.counter.as_ref().map_or(0, Counter::value) + 1;
            lock.counter = Some(Counter::new(value.to_string()));
            value
        })
    }

    async fn get(&self, key: &str) -> Option<String> {
        self.command(key, |lock, kind| match kind {
            Key::Counter => lock.counter.as_ref().map(ToString::to_string),
            Key::Meta => lock.meta.as_ref().map(ToString::to_string),
        })
    }

    async fn set(&self, key: &str, value: &str) {
        self.command(key, |lock, kind| match kind {
            Key::Counter => lock.counter = Some(Counter::new(value)),
            Key::Meta => lock.meta = Some(Arc::from(value)),
        });
    }

    async fn del(&self, key: &str) {
        self.command(key, |lock, kind| match kind {
            Key::Counter => lock.counter = None,
            Key::Meta => lock.meta = None,
        });
    }
}
