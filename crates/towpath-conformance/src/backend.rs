//! What a store hands in to be tested: a way to make an empty one, and a way to restart it.

use std::sync::Arc;

use async_trait::async_trait;
use towpath_core::batch::Layout;
use towpath_core::clock::Clock;
use towpath_core::store::{BatchStore, RunStore, Store};

use crate::model::ModelStore;

/// A kind of store.
#[async_trait]
pub trait Backend: Send + Sync {
    /// An empty store that lives by this clock alone. Two of them share nothing.
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest>;

    /// Which keys the batcher of the cases has; `None` is the store's choice.
    fn layout(&self) -> Option<Layout> {
        None
    }

    /// Whether turns are heard in the order in which they came, and none of before. Where several servers tell of them, only those at one
    /// lock are in order, and one may be on its way for longer than it takes to begin to listen.
    fn hears_exactly(&self) -> bool {
        true
    }
}

/// One store under test. Dropping it leaves nothing behind.
#[async_trait]
pub trait UnderTest: Send + Sync {
    /// The store as it is open now.
    fn store(&self) -> Arc<dyn Store>;

    /// Stops the store as the end of its process would, and opens what it has kept, under the same clock.
    async fn reopen(&mut self);

    /// The batches of the store, where it has any. The cases that need them are a suite of their own, [`batches_suite!`](crate::batches_suite).
    fn batches(&self) -> Option<Arc<dyn BatchStore>> {
        None
    }

    /// The runs of the store, where it has any. The cases that need them are a suite of their own, [`runs_suite!`](crate::runs_suite).
    fn runs(&self) -> Option<Arc<dyn RunStore>> {
        None
    }

    /// The commands of an old caller on the same keys, where old callers can reach the store at all. The cases that need them are a suite
    /// of their own, [`old_callers_suite!`](crate::old_callers_suite).
    fn old_caller(&self) -> Option<Arc<dyn OldCaller>> {
        None
    }
}

/// What old workflows do to the keys that they share with us: plain commands, one after the other. That a key ran out is a `del`.
#[async_trait]
pub trait OldCaller: Send + Sync {
    /// `INCR`.
    async fn incr(&self, key: &str) -> i64;
    /// `GET`.
    async fn get(&self, key: &str) -> Option<String>;
    /// `SET`.
    async fn set(&self, key: &str, value: &str);
    /// `DEL`.
    async fn del(&self, key: &str);
}

/// The model as a kind of store. It obeys the law it states.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelBackend;

#[async_trait]
impl Backend for ModelBackend {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        Box::new(ModelUnderTest { store: ModelStore::new(clock) })
    }
}

struct ModelUnderTest {
    store: ModelStore,
}

#[async_trait]
impl UnderTest for ModelUnderTest {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn reopen(&mut self) {
        self.store = self.store.reopened();
    }

    fn batches(&self) -> Option<Arc<dyn BatchStore>> {
        Some(Arc::new(self.store.clone()))
    }

    fn runs(&self) -> Option<Arc<dyn RunStore>> {
        Some(Arc::new(self.store.clone()))
    }

    fn old_caller(&self) -> Option<Arc<dyn OldCaller>> {
        Some(Arc::new(self.store.clone()))
    }
}
