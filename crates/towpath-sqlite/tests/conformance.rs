//! The law, on SQLite files.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use towpath_conformance::backend::{Backend, UnderTest};
use towpath_core::clock::Clock;
use towpath_core::store::Store;
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

/// A file per store, in a folder of its own.
#[derive(Clone, Copy, Debug, Default)]
struct SqliteBackend;

struct File {
    folder: TempDir,
    clock: Arc<dyn Clock>,
    store: Arc<SqliteStore>,
}

fn open(folder: &TempDir, clock: &Arc<dyn Clock>) -> Arc<SqliteStore> {
    let options = OpenOptions { location: Location::Path(folder.path().to_owned()), owner: "the law".to_owned() };
    Arc::new(SqliteStore::open(&options, Arc::clone(clock)).unwrap())
}

#[async_trait]
impl Backend for SqliteBackend {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder, &clock);
        Box::new(File { folder, clock, store })
    }
}

#[async_trait]
impl UnderTest for File {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = open(&self.folder, &self.clock);
    }
}

towpath_conformance::suite!(SqliteBackend);
