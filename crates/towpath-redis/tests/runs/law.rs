//! The Redis store keeps every promise about runs, and agrees with the model, on one server and on three masters.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use towpath_conformance::backend::{Backend, UnderTest};
use towpath_conformance::runs_differential::check;
use towpath_conformance::suite::{all_cases_of_runs, run};
use towpath_core::clock::Clock;
use towpath_core::store::{RunStore, Store};
use towpath_redis::{RedisOptions, RedisStore, acl_rule};
use towpath_redis_testing::{ClusterRig, RedisServer};

/// One server for all cases; each case has a database to itself.
static SERVER: LazyLock<RedisServer> = LazyLock::new(|| RedisServer::build().databases(100_000).start());
static NEXT_DATABASE: AtomicI64 = AtomicI64::new(0);

struct UnderOptions {
    store: RedisStore,
    options: RedisOptions,
    clock: Arc<dyn Clock>,
}

async fn under_test(options: RedisOptions, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
    let store = open(&options, &clock).await;
    Box::new(UnderOptions { store, options, clock })
}

async fn open(options: &RedisOptions, clock: &Arc<dyn Clock>) -> RedisStore {
    RedisStore::open_by_clock(options.clone(), Arc::clone(clock)).await.expect("the server is up")
}

#[async_trait]
impl UnderTest for UnderOptions {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = open(&self.options, &self.clock).await;
    }

    fn runs(&self) -> Option<Arc<dyn RunStore>> {
        Some(Arc::new(self.store.clone()))
    }
}

struct Standalone;

#[async_trait]
impl Backend for Standalone {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        let mut options = RedisOptions::standalone("127.0.0.1", SERVER.port());
        options.database = NEXT_DATABASE.fetch_add(1, Ordering::Relaxed);
        under_test(options, clock).await
    }
}

mod standalone {
    use super::Standalone;

    towpath_conformance::runs_suite!(Standalone);
    towpath_conformance::runs_differential!(Standalone, seeds = 40, operations = 200);
}

/// One Cluster, emptied for every case.
struct ThreeMasters(ClusterRig);

#[async_trait]
impl Backend for ThreeMasters {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        for node in &self.0.nodes {
            node.cli(&["FLUSHALL"]);
        }
        under_test(RedisOptions::parse(&self.0.url()).expect("the rig names itself"), clock).await
    }

    fn hears_exactly(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn every_promise_about_runs_holds_on_three_masters() {
    let masters = ThreeMasters(ClusterRig::start());
    for case in all_cases_of_runs() {
        println!("{}", case.name);
        run(&masters, case.run).await;
    }
    if let Err(why) = check(&masters, 5, 200).await {
        panic!("{why}");
    }
}

/// A server as seen by a user that has no more rights than `towpath doctor --print-acl` gives.
struct WithThePrintedRights(RedisServer);

#[async_trait]
impl Backend for WithThePrintedRights {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        self.0.cli(&["FLUSHALL"]);
        let mut options = RedisOptions::standalone("127.0.0.1", self.0.port());
        (options.username, options.password) = (Some("towpath".to_owned()), Some("secret".to_owned()));
        under_test(options, clock).await
    }
}

#[tokio::test]
async fn every_promise_about_runs_holds_under_the_printed_rights() {
    let server = RedisServer::start();
    let rule = acl_rule("towpath", "secret", "towpath");
    assert_eq!(server.cli(&rule.split_whitespace().collect::<Vec<_>>()).trim(), "OK");
    let restricted = WithThePrintedRights(server);
    for case in all_cases_of_runs() {
        println!("{}", case.name);
        run(&restricted, case.run).await;
    }
    assert_eq!(restricted.0.cli(&["ACL", "LOG"]).trim(), "", "something was refused");
}
