//! The embedded store keeps every promise that the law of the stores states.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use towpath_conformance::backend::{Backend, UnderTest};
use towpath_core::clock::Clock;
use towpath_core::store::Store;
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

struct SqliteFile;

struct OnDisk {
    store: Arc<SqliteStore>,
    clock: Arc<dyn Clock>,
    folder: tempfile::TempDir,
}

fn open(folder: PathBuf, clock: &Arc<dyn Clock>) -> Arc<SqliteStore> {
    let options = OpenOptions { location: Location::Path(folder), owner: "the conformance suite".to_owned() };
    Arc::new(SqliteStore::open(&options, Arc::clone(clock)).unwrap())
}

#[async_trait]
impl Backend for SqliteFile {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path().to_owned(), &clock);
        Box::new(OnDisk { store, clock, folder })
    }
}

#[async_trait]
impl UnderTest for OnDisk {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = open(self.folder.path().to_owned(), &self.clock);
    }
}

towpath_conformance::suite!(SqliteFile);

towpath_conformance::differential!(SqliteFile, seeds = 200, operations = 300);
