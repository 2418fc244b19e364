//! The embedded store keeps every promise that the law of the stores states: on disk, and in memory as far as memory goes.

use std::sync::Arc;

use async_trait::async_trait;
use towpath_conformance::backend::{Backend, UnderTest};
use towpath_core::clock::Clock;
use towpath_core::store::{BatchStore, RunStore, Store};
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

fn open(location: Location, clock: &Arc<dyn Clock>) -> Arc<SqliteStore> {
    let options = OpenOptions { location, owner: "the conformance suite".to_owned(), renew_leases: false };
    Arc::new(SqliteStore::open(&options, Arc::clone(clock)).expect("a fresh folder, or one that was closed, can be opened"))
}

struct OnDisk;

struct FileUnderTest {
    store: Arc<SqliteStore>,
    clock: Arc<dyn Clock>,
    folder: tempfile::TempDir,
}

#[async_trait]
impl Backend for OnDisk {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let store = open(Location::Path(folder.path().to_owned()), &clock);
        Box::new(FileUnderTest { store, clock, folder })
    }
}

#[async_trait]
impl UnderTest for FileUnderTest {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn batches(&self) -> Option<Arc<dyn BatchStore>> {
        Some(Arc::clone(&self.store) as Arc<dyn BatchStore>)
    }

    fn runs(&self) -> Option<Arc<dyn RunStore>> {
        Some(Arc::clone(&self.store) as Arc<dyn RunStore>)
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = open(Location::Path(self.folder.path().to_owned()), &self.clock);
    }
}

mod on_disk {
    use super::OnDisk;

    towpath_conformance::suite!(OnDisk);
    towpath_conformance::batches_suite!(OnDisk);
    towpath_conformance::runs_suite!(OnDisk);
    towpath_conformance::runs_differential!(OnDisk, seeds = 30, operations = 200);
    towpath_conformance::differential!(OnDisk, seeds = 200, operations = 300);
    towpath_conformance::limits_differential!(OnDisk, operations = 12_000);
    towpath_conformance::batch_histories!(OnDisk, 8 of 700);
    towpath_conformance::batches_differential!(OnDisk, seeds = 60, operations = 300);
    towpath_conformance::lock_differential!(OnDisk, OldCallers::None, seeds = 100, operations = 200);
}

/// Nothing in memory survives a restart, so there is none: what is left is that reads go another way than on disk.
struct InMemory;

struct MemoryUnderTest {
    store: Arc<SqliteStore>,
}

#[async_trait]
impl Backend for InMemory {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        Box::new(MemoryUnderTest { store: open(Location::Memory, &clock) })
    }
}

#[async_trait]
impl UnderTest for MemoryUnderTest {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn batches(&self) -> Option<Arc<dyn BatchStore>> {
        Some(Arc::clone(&self.store) as Arc<dyn BatchStore>)
    }

    fn runs(&self) -> Option<Arc<dyn RunStore>> {
        Some(Arc::clone(&self.store) as Arc<dyn RunStore>)
    }

    async fn reopen(&mut self) {}
}

mod in_memory {
    use super::InMemory;

    towpath_conformance::suite!(InMemory);
    towpath_conformance::batches_suite!(InMemory);
    towpath_conformance::runs_suite!(InMemory);
    towpath_conformance::batches_differential!(InMemory, seeds = 100, operations = 300);
    towpath_conformance::limits_differential!(InMemory, operations = 12_000);
    towpath_conformance::batch_histories!(InMemory, 25 of 700);
    towpath_conformance::histories!(InMemory, locks = 20 of 3_000, permits = 8 of 2_500);
}
