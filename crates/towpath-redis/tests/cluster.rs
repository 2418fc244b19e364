//! The Redis store keeps every promise on a Cluster of three masters too, where nothing spans two functions.

mod old_caller;

use std::sync::Arc;

use async_trait::async_trait;
use old_caller::PlainClient;
use towpath_conformance::backend::{Backend, OldCaller, UnderTest};
use towpath_conformance::differential::explore;
use towpath_conformance::differential::locks::{OldCallers, explore as explore_locks};
use towpath_conformance::suite::{all_cases, all_cases_of_old_callers, run};
use towpath_core::clock::Clock;
use towpath_core::store::Store;
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::{ClusterRig, RedisServer};

/// One Cluster, emptied for every case.
struct ThreeMasters {
    rig: ClusterRig,
}

struct ClusterUnderTest {
    store: RedisStore,
    options: RedisOptions,
    clock: Arc<dyn Clock>,
    old: Arc<PlainClient>,
}

#[async_trait]
impl Backend for ThreeMasters {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        for node in &self.rig.nodes {
            node.cli(&["FLUSHALL"]);
        }
        let options = RedisOptions::parse(&self.rig.url()).expect("the rig names itself");
        let store = open(&options, &clock).await;
        let ports: Vec<u16> = self.rig.nodes.iter().map(RedisServer::port).collect();
        let old = Arc::new(PlainClient::connect(&ports, 0, place_of).await);
        Box::new(ClusterUnderTest { store, options, clock, old })
    }

    fn counts_without_gaps(&self) -> bool {
        false
    }

    fn hears_exactly(&self) -> bool {
        false
    }
}

/// Old workflows cannot speak to a Cluster. This one knows where it keeps identities, so that the scripts meet the same damage there.
fn place_of(key: &str) -> String {
    key.strip_suffix(":meta").map_or_else(|| key.to_owned(), |counter| format!("towpath:{{{counter}}}:meta"))
}

async fn open(options: &RedisOptions, clock: &Arc<dyn Clock>) -> RedisStore {
    RedisStore::open_by_clock(options.clone(), Arc::clone(clock)).await.expect("the Cluster is up")
}

#[async_trait]
impl UnderTest for ClusterUnderTest {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = open(&self.options, &self.clock).await;
    }

    fn old_caller(&self) -> Option<Arc<dyn OldCaller>> {
        Some(Arc::clone(&self.old) as Arc<dyn OldCaller>)
    }
}

#[tokio::test]
async fn the_whole_suite_holds_on_a_cluster() {
    let backend = ThreeMasters { rig: ClusterRig::start() };
    for case in all_cases().into_iter().chain(all_cases_of_old_callers()) {
        println!("{}", case.name);
        run(&backend, case.run).await;
    }
}

#[tokio::test]
async fn random_operations_agree_with_the_model_on_a_cluster() {
    let backend = ThreeMasters { rig: ClusterRig::start() };
    if let Err(divergence) = explore(&backend, 0..30, 300).await {
        panic!("the Cluster and the model disagree.\n{divergence}");
    }
}

#[tokio::test]
async fn random_operations_on_locks_agree_with_the_model_on_a_cluster() {
    let backend = ThreeMasters { rig: ClusterRig::start() };
    for old in [OldCallers::None, OldCallers::Some] {
        if let Err(divergence) = explore_locks(&backend, old, 0..20, 200).await {
            panic!("the Cluster and the model disagree.\n{divergence}");
        }
    }
}
