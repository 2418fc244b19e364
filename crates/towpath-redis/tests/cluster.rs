//! The Redis store keeps every promise on a Cluster of three masters too, where nothing spans two functions.

mod old_caller;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use old_caller::PlainClient;
use towpath_conformance::backend::{Backend, OldCaller, UnderTest};
use towpath_conformance::differential::batches::explore as explore_batches;
use towpath_conformance::differential::explore;
use towpath_conformance::differential::locks::{OldCallers, explore as explore_locks};
use towpath_conformance::histories::check_batches;
use towpath_conformance::limits_differential;
use towpath_conformance::suite::{all_cases, all_cases_of_batches, all_cases_of_old_callers, run};
use towpath_conformance::words::{
    BATCH_LEASE, MessageWords, batch_id, batch_token, batcher, claim_batch, function, given_up, message, offer, seconds, worker_id,
};
use towpath_core::batch::{BatcherId, ClaimReply, FinishBatch, FinishReply, IngestReply, ReclaimBatch, ReplayReply, Rules, Skip, Verb};
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::inspect::{BatchCounts, DeadLetterQuery};
use towpath_core::names::BatchId;
use towpath_core::store::{BatchStore, InspectStore, RegistryStore, Store};
use towpath_core::worker::RegisterWorker;
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::{ClusterRig, RedisServer, until};

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

impl ThreeMasters {
    async fn fresh_with_prefix(&self, clock: Arc<dyn Clock>, prefix: &str) -> Box<dyn UnderTest> {
        for node in &self.rig.nodes {
            node.cli(&["FLUSHALL"]);
        }
        let mut options = RedisOptions::parse(&self.rig.url()).expect("the rig names itself");
        prefix.clone_into(&mut options.prefix);
        let store = open(&options, &clock).await;
        let ports: Vec<u16> = self.rig.nodes.iter().map(RedisServer::port).collect();
        let old = Arc::new(PlainClient::connect(&ports, 0, place_of).await);
        Box::new(ClusterUnderTest { store, options, clock, old })
    }
}

#[async_trait]
impl Backend for ThreeMasters {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        self.fresh_with_prefix(clock, "towpath").await
    }

    fn hears_exactly(&self) -> bool {
        false
    }
}

/// The same for batches, where each store has names of its own: what is told to one may come so late that the next would hear it.
struct ThreeMastersForBatches {
    masters: ThreeMasters,
    stores: AtomicU64,
}

impl ThreeMastersForBatches {
    fn start() -> Self {
        Self { masters: ThreeMasters { rig: ClusterRig::start() }, stores: AtomicU64::new(0) }
    }
}

#[async_trait]
impl Backend for ThreeMastersForBatches {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        let prefix = format!("store{}", self.stores.fetch_add(1, Ordering::Relaxed));
        self.masters.fresh_with_prefix(clock, &prefix).await
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

#[tokio::test]
async fn every_case_of_batches_holds_on_a_cluster() {
    let backend = ThreeMastersForBatches::start();
    for case in all_cases_of_batches() {
        println!("{}", case.name);
        run(&backend, case.run).await;
    }
}

#[tokio::test]
async fn random_operations_on_batches_agree_with_the_model_on_a_cluster() {
    let backend = ThreeMastersForBatches::start();
    if let Err(divergence) = explore_batches(&backend, 0..15, 250).await {
        panic!("the Cluster and the model disagree.\n{divergence}");
    }
}

#[tokio::test]
async fn no_history_of_batches_on_a_cluster_loses_a_message_or_settles_a_batch_twice_or_out_of_order() {
    check_batches(&ThreeMastersForBatches::start(), 0..3, 700).await;
}

fn spread(name: &str) -> BatcherId {
    BatcherId { partitions: Some(8), ..batcher(name) }
}

#[tokio::test]
async fn a_batcher_that_is_spread_over_a_cluster_is_one_batcher() {
    const KEYS: usize = 60;
    let (rig, clock) = (ClusterRig::start(), VirtualClock::new());
    let options = RedisOptions::parse(&rig.url()).expect("the rig names itself");
    let store = open(&options, &(Arc::new(clock.clone()) as Arc<dyn Clock>)).await;
    let (orders, rules) = (spread("orders"), Rules::default());
    let messages: Vec<_> = (0..KEYS).flat_map(|key| ["1", "2"].map(|text| message(&format!("k-{key:02}"), text).id(text))).collect();
    let replies = store.batch_ingest(&orders, &rules, messages.clone()).await.unwrap();
    let sizes: Vec<u64> = replies.iter().map(|reply| if let IngestReply::Accepted { size, .. } = reply { *size } else { 0 }).collect();
    assert_eq!(sizes, [1, 2].repeat(KEYS), "each is answered in its own place");
    let again = store.batch_ingest(&orders, &rules, messages).await.unwrap();
    assert!(again.iter().all(|reply| matches!(reply, IngestReply::Duplicate { .. })), "{again:?}");
    let holds = |node: &RedisServer| node.cli(&["KEYS", "towpath:{batch:orders:*"]).lines().any(|key| !key.trim().is_empty());
    assert!(rig.nodes.iter().all(holds), "every master has some");

    clock.advance(seconds(10));
    let due = store.batch_due(&orders, 50).await.unwrap();
    assert_eq!((due.keys.len(), due.next), (50, Some(due.now)));
    let mut rest = due.keys;
    for (number, key) in rest.drain(..).enumerate() {
        let want = claim_batch(&orders, key.as_str(), &format!("b-{number}"), &rules);
        assert!(matches!(store.batch_claim(want).await.unwrap(), ClaimReply::Claimed(batch) if batch.messages.len() == 2));
    }
    let (taken, free) = (claim_batch(&orders, "k-59", "b-7", &rules), claim_batch(&orders, "k-59", "b-59", &rules));
    assert_eq!(store.batch_claim(taken).await.unwrap(), ClaimReply::Skip(Skip::Gone), "that id flies in another part");
    assert!(matches!(store.batch_claim(free).await.unwrap(), ClaimReply::Claimed(_)));

    clock.advance(BATCH_LEASE);
    assert_eq!(store.batch_due(&orders, 100).await.unwrap().flights.len(), 51);
    for number in 0..50 {
        let id = batch_id(&format!("b-{number}"));
        let want = ReclaimBatch { batcher: orders.clone(), batch_id: id, token: batch_token("again"), lease: BATCH_LEASE };
        let ClaimReply::Claimed(batch) = store.batch_reclaim(want).await.unwrap() else { panic!("b-{number} is due") };
        let letter = given_up(&orders, &batch, "rejected_404", clock.now());
        let verb = if number < 20 { Verb::Dead(letter) } else { Verb::Ack };
        let settle = FinishBatch { batcher: orders.clone(), batch_id: batch.batch_id, key: None, token: batch.token, verb };
        assert_eq!(store.batch_finish(settle).await.unwrap(), FinishReply::Done);
        clock.advance(seconds(1));
    }
    let ids: Vec<BatchId> = (0..20).map(|number| batch_id(&format!("b-{number}"))).collect();
    for newest_first in [false, true] {
        let mut expected = ids.clone();
        if newest_first {
            expected.reverse();
        }
        let mut query = DeadLetterQuery { newest_first, limit: 7, ..DeadLetterQuery::default() };
        let mut listed = Vec::new();
        loop {
            let page = store.dead_letters(&orders, &query).await.unwrap();
            listed.extend(page.items.into_iter().map(|letter| letter.id));
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        assert_eq!(listed, expected);
    }
    let replayed = store.dead_letter_replay(&orders, ids[..5].to_vec()).await.unwrap();
    assert_eq!(replayed, [ReplayReply::Replayed; 5]);
    assert_eq!(store.dead_letter_replay(&orders, ids[..1].to_vec()).await.unwrap(), [ReplayReply::InFlight]);
    assert_eq!(store.dead_letter_drop(&orders, ids[4..6].to_vec(), "ops").await.unwrap(), [false, true]);
    let counts = store.batch_counts(&orders).await.unwrap();
    assert_eq!(counts, BatchCounts { open_keys: 9, open_messages: 18, in_flight: 6, dead_letters: 14 });
}
