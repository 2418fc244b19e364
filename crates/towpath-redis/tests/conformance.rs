//! The Redis store keeps every promise that the law of the stores states, on a real server.

mod old_caller;

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use old_caller::PlainClient;
use towpath_conformance::backend::{Backend, OldCaller, UnderTest};
use towpath_conformance::suite::{all_cases, all_cases_of_batches, all_cases_of_old_callers, run};
use towpath_core::batch::Layout;
use towpath_core::clock::Clock;
use towpath_core::store::{BatchStore, Store};
use towpath_redis::{RedisOptions, RedisStore, acl_options, acl_rule};
use towpath_redis_testing::RedisServer;

/// One server for all cases; each case has a database to itself.
static SERVER: LazyLock<RedisServer> = LazyLock::new(|| RedisServer::build().databases(100_000).start());
static NEXT_DATABASE: AtomicI64 = AtomicI64::new(0);

struct Standalone;

struct DatabaseUnderTest {
    store: RedisStore,
    options: RedisOptions,
    clock: Arc<dyn Clock>,
    old: Arc<PlainClient>,
}

#[async_trait]
impl Backend for Standalone {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        let mut options = RedisOptions::standalone("127.0.0.1", SERVER.port());
        options.database = NEXT_DATABASE.fetch_add(1, Ordering::Relaxed);
        under_test(&SERVER, options, clock).await
    }
}

async fn under_test(server: &RedisServer, options: RedisOptions, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
    let old = Arc::new(PlainClient::connect(&[server.port()], options.database, str::to_owned).await);
    let store = open(&options, &clock).await;
    Box::new(DatabaseUnderTest { store, options, clock, old })
}

async fn open(options: &RedisOptions, clock: &Arc<dyn Clock>) -> RedisStore {
    RedisStore::open_by_clock(options.clone(), Arc::clone(clock)).await.expect("the server is up")
}

#[async_trait]
impl UnderTest for DatabaseUnderTest {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn batches(&self) -> Option<Arc<dyn BatchStore>> {
        Some(Arc::new(self.store.clone()))
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = open(&self.options, &self.clock).await;
    }

    fn old_caller(&self) -> Option<Arc<dyn OldCaller>> {
        Some(Arc::clone(&self.old) as Arc<dyn OldCaller>)
    }
}

mod standalone {
    use super::Standalone;

    towpath_conformance::suite!(Standalone);
    towpath_conformance::differential!(Standalone, seeds = 200, operations = 300);
    towpath_conformance::limits_differential!(Standalone, operations = 12_000);
    towpath_conformance::old_callers_suite!(Standalone);
    towpath_conformance::lock_differential!(Standalone, OldCallers::None, seeds = 100, operations = 200);
    towpath_conformance::lock_differential!(Standalone, OldCallers::Some, seeds = 100, operations = 200);
    towpath_conformance::histories!(Standalone, locks = 20 of 3_000, permits = 8 of 2_500);
    towpath_conformance::mixed_fleet_histories!(Standalone, 20 of 3_000);
    towpath_conformance::batches_suite!(Standalone);
    towpath_conformance::batches_differential!(Standalone, seeds = 60, operations = 300);
    towpath_conformance::batch_histories!(Standalone, 25 of 700);
}

/// The same with the old worker's keys for the batcher of the cases.
struct WithTheOldWorkersKeys;

#[async_trait]
impl Backend for WithTheOldWorkersKeys {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        Standalone.fresh(clock).await
    }

    fn layout(&self) -> Option<Layout> {
        Some(Layout::Seed)
    }
}

mod with_the_old_workers_keys {
    use super::WithTheOldWorkersKeys;

    towpath_conformance::batches_suite!(WithTheOldWorkersKeys);
    towpath_conformance::batches_differential!(WithTheOldWorkersKeys, seeds = 60, operations = 300);
    towpath_conformance::batch_histories!(WithTheOldWorkersKeys, 25 of 700);
}

/// The same server, as seen by a user that has no more rights than `towpath doctor --print-acl` gives, with the optional ones.
struct WithThePrintedRights;

static RESTRICTED: LazyLock<RedisServer> = LazyLock::new(|| {
    let server = RedisServer::build().databases(1_000).start();
    let rule = acl_rule("towpath", "secret", "towpath");
    let words: Vec<&str> = rule.lines().find(|line| line.starts_with("ACL SETUSER")).expect("the rule").split_whitespace().collect();
    assert_eq!(server.cli(&words).trim(), "OK");
    for (rule, _) in acl_options("towpath") {
        assert_eq!(server.cli(&rule.split(' ').collect::<Vec<_>>()).trim(), "OK");
    }
    server
});

#[async_trait]
impl Backend for WithThePrintedRights {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        let mut options = RedisOptions::standalone("127.0.0.1", RESTRICTED.port());
        options.database = NEXT_DATABASE.fetch_add(1, Ordering::Relaxed) % 1_000;
        (options.username, options.password) = (Some("towpath".to_owned()), Some("secret".to_owned()));
        RESTRICTED.cli(&["-n", &options.database.to_string(), "FLUSHDB"]);
        under_test(&RESTRICTED, options, clock).await
    }

    fn layout(&self) -> Option<Layout> {
        Some(Layout::Seed)
    }
}

#[tokio::test]
async fn the_whole_suite_holds_under_the_printed_rights() {
    for case in all_cases().into_iter().chain(all_cases_of_old_callers()).chain(all_cases_of_batches()) {
        println!("{}", case.name);
        run(&WithThePrintedRights, case.run).await;
    }
    let refused = RESTRICTED.cli(&["ACL", "LOG"]);
    assert_eq!(refused.trim(), "", "something was refused");
}
