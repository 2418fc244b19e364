//! The Redis store keeps every promise on a Cluster of three masters too, where nothing spans two functions.

mod old_caller;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use old_caller::PlainClient;
use towpath_conformance::backend::{Backend, OldCaller, UnderTest};
use towpath_conformance::differential::explore;
use towpath_conformance::differential::locks::{OldCallers, explore as explore_locks};
use towpath_conformance::limits_differential;
use towpath_conformance::suite::{all_cases, all_cases_of_old_callers, run};
use towpath_conformance::words::{function, offer, worker_id};
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::store::{InspectStore, RegistryStore, Store};
use towpath_core::worker::RegisterWorker;
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::{ClusterRig, RedisServer, until};

/// Old workflows cannot speak to a Cluster; this one knows where it keeps identities, so that the scripts meet the same damage there.
fn where_it_lies(key: &str) -> String {
    key.strip_suffix(":meta").map_or_else(|| key.to_owned(), |counter| format!("towpath:{{{counter}}}:meta"))
}

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
        let old = Arc::new(PlainClient::of(&ports, 0, where_it_lies).await);
        Box::new(ClusterUnderTest { store, options, clock, old })
    }

    fn counts_without_gaps(&self) -> bool {
        false
    }

    fn hears_exactly(&self) -> bool {
        false
    }
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

/// What a store says about itself, as soon as it says something.
async fn problem(store: &RedisStore) -> String {
    let says = async {
        loop {
            if let Some(problem) = store.probe().await.expect("the Cluster is up").problems.pop() {
                return problem;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), says).await.expect("nobody notices")
}

#[tokio::test]
async fn a_flush_of_any_master_is_noticed_and_its_workers_register_again() {
    let rig = ClusterRig::start();
    let options = RedisOptions::parse(&rig.url()).expect("the rig names itself");
    let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new());
    let first = rig.owner_of("towpath:incarnation");
    for flushed in (0..rig.nodes.len()).filter(|node| *node != first) {
        let store = open(&options, &clock).await;
        let elsewhere = (0..).map(|number| format!("f{number}"));
        let name = elsewhere.into_iter().find(|name| rig.owner_of(&format!("function:stream:__global__:{name}")) == flushed);
        let name = name.expect("slots are spread evenly");
        let worker = RegisterWorker { worker_id: worker_id("w1"), kind: "rust".to_owned(), offers: vec![offer(&name)] };
        store.register(worker).await.unwrap();
        assert_eq!(store.probe().await.unwrap().problems, [] as [String; 0]);
        rig.nodes[flushed].cli(&["FLUSHALL"]);
        let says = problem(&store).await;
        assert!(says.contains("one master of the Cluster was flushed"), "{says}");
        let find = async {
            while store.find(&function(&name), clock.now()).await.unwrap().is_none_or(|found| found.healthy_workers == 0) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), find).await.expect("the worker does not come back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_is_no_loss() {
    let rig = ClusterRig::start();
    let options = RedisOptions::parse(&rig.url()).expect("the rig names itself");
    let store = open(&options, &(Arc::new(VirtualClock::new()) as Arc<dyn Clock>)).await;
    let marks = rig.nodes.iter().flat_map(|node| {
        let keys = node.cli(&["KEYS", "towpath:incarnation:*"]);
        keys.lines().map(str::to_owned).filter(|key| !key.is_empty()).collect::<Vec<_>>()
    });
    let mark = marks.into_iter().next().expect("each master has one");
    let (from, looks) = (rig.owner_of(&mark), looks_at_marks(&rig));
    rig.move_slot_of(&mark, (from + 1) % rig.nodes.len());
    // Of two more looks one began after the move.
    until("it is looked again", Duration::from_secs(30), || looks_at_marks(&rig) > looks + 2 * 5);
    assert_eq!(store.probe().await.unwrap().problems, [] as [String; 0]);
}

/// How many keys were read so far, on all masters.
fn looks_at_marks(rig: &ClusterRig) -> u64 {
    let gets = |node: &RedisServer| {
        let stats = node.cli(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls=").map(str::to_owned));
        line.and_then(|line| line.split(',').next().and_then(|count| count.parse::<u64>().ok())).unwrap_or(0)
    };
    rig.nodes.iter().map(gets).sum()
}

#[tokio::test]
async fn random_operations_agree_with_the_model_on_a_cluster() {
    let backend = ThreeMasters { rig: ClusterRig::start() };
    if let Err(divergence) = explore(&backend, 0..30, 300).await {
        panic!("the Cluster and the model disagree.\n{divergence}");
    }
}

#[tokio::test]
async fn random_limits_agree_with_the_model_on_a_cluster() {
    let backend = ThreeMasters { rig: ClusterRig::start() };
    if let Err(why) = limits_differential::check(&backend, 12_000).await {
        panic!("{why}");
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
