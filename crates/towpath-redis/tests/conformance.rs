//! The Redis store keeps every promise that the law of the stores states, on a real server.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use towpath_conformance::backend::{Backend, UnderTest};
use towpath_conformance::suite::{all_cases, run};
use towpath_core::clock::Clock;
use towpath_core::store::Store;
use towpath_redis::{RedisOptions, RedisStore, acl_rule};
use towpath_redis_testing::RedisServer;

/// One server for all cases; each case has a database to itself.
static SERVER: LazyLock<RedisServer> = LazyLock::new(|| RedisServer::build().databases(100_000).start());
static NEXT_DATABASE: AtomicI64 = AtomicI64::new(0);

struct Standalone;

struct DatabaseUnderTest {
    store: RedisStore,
    options: RedisOptions,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Backend for Standalone {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        let mut options = RedisOptions::standalone("127.0.0.1", SERVER.port());
        options.database = NEXT_DATABASE.fetch_add(1, Ordering::Relaxed);
        let store = open(&options, &clock).await;
        Box::new(DatabaseUnderTest { store, options, clock })
    }
}

async fn open(options: &RedisOptions, clock: &Arc<dyn Clock>) -> RedisStore {
    RedisStore::open_by_clock(options.clone(), Arc::clone(clock)).await.expect("the server is up")
}

#[async_trait]
impl UnderTest for DatabaseUnderTest {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = open(&self.options, &self.clock).await;
    }
}

mod standalone {
    use super::Standalone;

    towpath_conformance::suite!(Standalone);
    towpath_conformance::differential!(Standalone, seeds = 200, operations = 300);
}

/// The same server, as seen by a user that has no more rights than `towpath doctor --print-acl` gives.
struct WithThePrintedRights;

static RESTRICTED: LazyLock<RedisServer> = LazyLock::new(|| {
    let server = RedisServer::build().databases(1_000).start();
    let rule = acl_rule("towpath", "secret", "towpath");
    let words: Vec<&str> = rule.lines().find(|line| line.starts_with("ACL SETUSER")).expect("the rule").split_whitespace().collect();
    assert_eq!(server.cli(&words).trim(), "OK");
    server
});

#[async_trait]
impl Backend for WithThePrintedRights {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        let mut options = RedisOptions::standalone("127.0.0.1", RESTRICTED.port());
        options.database = NEXT_DATABASE.fetch_add(1, Ordering::Relaxed) % 1_000;
        (options.username, options.password) = (Some("towpath".to_owned()), Some("secret".to_owned()));
        RESTRICTED.cli(&["-n", &options.database.to_string(), "FLUSHDB"]);
        let store = open(&options, &clock).await;
        Box::new(DatabaseUnderTest { store, options, clock })
    }
}

#[tokio::test]
async fn the_whole_suite_holds_under_the_printed_rights() {
    for case in all_cases() {
        println!("{}", case.name);
        run(&WithThePrintedRights, case.run).await;
    }
    let refused = RESTRICTED.cli(&["ACL", "LOG"]);
    assert_eq!(refused.trim(), "", "something was refused");
}

/// The same server for workers that live in the process, whose deliveries are written down a moment later.
struct WithWorkersInProcess;

#[async_trait]
impl Backend for WithWorkersInProcess {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        let mut options = RedisOptions::standalone("127.0.0.1", SERVER.port());
        options.database = NEXT_DATABASE.fetch_add(1, Ordering::Relaxed);
        options.timing.all_workers_in_process = true;
        let store = open(&options, &clock).await;
        Box::new(DatabaseUnderTest { store, options, clock })
    }
}

mod in_process {
    use super::WithWorkersInProcess;

    towpath_conformance::suite!(WithWorkersInProcess);
    towpath_conformance::differential!(WithWorkersInProcess, seeds = 200, operations = 300);
}
