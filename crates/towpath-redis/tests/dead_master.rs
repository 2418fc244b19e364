//! One of three masters of a Cluster is killed and has no replica: functions of the other two go on, lists say what is missing, and everything
//! is as before when it comes back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath::SystemClock;
use towpath_conformance::words::{SubmitWords, call_id, definition, function, new_call, ok, seconds, worker_id};
use towpath_core::call::CallState;
use towpath_core::inspect::{CallFilter, LimitQuery, LockQuery, PageRequest};
use towpath_core::store::{
    BatchStore, CallStore, ClaimCalls, ClaimFunction, CompleteCalls, Completed, InspectStore, RegistryStore, StoreError, Submitted,
    TimerStore,
};
use towpath_core::worker::{Offer, RegisterWorker};
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::ClusterRig;

const SOON: Duration = Duration::from_secs(30);
const CALLS: usize = 40;

struct Rig {
    cluster: ClusterRig,
    store: RedisStore,
    /// Of each master the name of a function that it has.
    names: Vec<String>,
}

impl Rig {
    async fn start() -> Self {
        let cluster = ClusterRig::start_partial();
        let options = RedisOptions::parse(&cluster.url()).expect("the rig names itself");
        let store = RedisStore::open(options, Arc::new(SystemClock::new())).await.expect("the Cluster is whole");
        let on = |node: usize| {
            let has = |name: &String| cluster.owner_of(&format!("{{function:stream:__global__:{name}}}")) == node;
            (0..100).map(|number| format!("f{number}")).find(has).expect("slots are spread")
        };
        let names: Vec<String> = (0..3).map(on).collect();
        let offers = names.iter().map(|name| Offer { definition: definition(name), concurrency: None }).collect();
        let worker = RegisterWorker { worker_id: worker_id("w1"), kind: "rust".to_owned(), offers };
        store.register(worker).await.expect("the Cluster is whole");
        Self { cluster, store, names }
    }

    async fn submit(&self, id: &str, name: &str, timeout: Duration) -> Result<Submitted, StoreError> {
        self.store.submit(new_call(id, name).timeout(timeout).retain(seconds(600))).await
    }

    /// Takes one call of these functions, and answers it.
    async fn run_one(&self, names: &[&str]) -> Option<String> {
        let functions = names.iter().map(|name| ClaimFunction { function: function(name), max: 1 }).collect();
        let (worker, lease) = (worker_id("w1"), seconds(30));
        let want = ClaimCalls { worker, functions, max: 1, lease, wait: SOON, takes_any: false };
        let delivery = self.store.claim(want).await.expect("some function can be asked").pop()?;
        let answered = self.store.complete(CompleteCalls::one(worker_id("w1"), delivery.id.clone(), ok("1"))).await;
        assert!(matches!(answered.as_deref(), Ok([Completed::Recorded { .. }])), "{answered:?}");
        Some(delivery.id.call_id.to_string())
    }

    /// How long calls of these functions take, one after the other.
    async fn time_of_calls(&self, start: &str, names: &[&str]) -> Duration {
        let begun = now();
        for number in 0..CALLS {
            let (id, name) = (format!("{start}-{number}"), names[number % names.len()]);
            // The reservation of an id lies in a slot of its own, which may be away.
            let id = towpath_core::names::CallId::for_function(&call_id(&id), &function(name)).to_string();
            let taken = self.submit(&id, name, seconds(60)).await;
            assert!(matches!(taken, Ok(Submitted::Accepted { .. })), "{id} of {name}: {taken:?}");
            assert_eq!(self.run_one(names).await.as_deref(), Some(id.as_str()));
        }
        now() - begun
    }

    async fn until_fired(&self, id: &str) {
        let begun = now();
        loop {
            self.store.fire_due(100).await.expect("timers of living masters are fired");
            let call = self.store.call(&call_id(id)).await.expect("it can be asked for").expect("it is kept").call;
            if call.state == CallState::Expired {
                return;
            }
            assert!(now() - begun < SOON, "its deadline did not come: {:?}", call.state);
            pause(Duration::from_millis(50)).await;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test of speed measures the real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "servers live by the real clock")]
async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_of_living_masters_go_on_and_everything_heals() {
    let mut rig = Rig::start().await;
    for dead in 0..3 {
        let names = rig.names.clone();
        let (lost, living): (Vec<&str>, Vec<&str>) =
            (vec![names[dead].as_str()], (0..3).filter(|node| *node != dead).map(|node| names[node].as_str()).collect());
        let before = rig.time_of_calls(&format!("before-{dead}"), &living).await;
        let waits = towpath_core::names::CallId::for_function(&call_id(&format!("waits-{dead}")), &function(lost[0])).to_string();
        rig.submit(&waits, lost[0], seconds(600)).await.expect("the Cluster is whole");
        rig.cluster.nodes[dead].kill();

        // The first to notice waits for its connection to break.
        let mut running = rig.time_of_calls(&format!("noticed-{dead}"), &living).await;
        running = running.min(rig.time_of_calls(&format!("during-{dead}"), &living).await);
        assert!(running < before * 5 + seconds(2), "{running:?} instead of {before:?}");
        let late = towpath_core::names::CallId::for_function(&call_id(&format!("late-{dead}")), &function(living[0])).to_string();
        rig.submit(&late, living[0], Duration::from_millis(300)).await.expect("its master lives");
        rig.until_fired(&late).await;

        let store = &rig.store;
        let functions = store.functions().await.expect("functions of living masters are listed");
        let listed: Vec<&str> = functions.iter().map(|view| view.definition.key.name.as_str()).collect();
        assert!(living.iter().all(|name| listed.contains(name)) && !listed.contains(&lost[0]), "{listed:?}");
        let calls = store.calls(&CallFilter { brief: true, ..CallFilter::default() }, PageRequest::first(200)).await;
        let calls = calls.expect("calls of living masters are listed").items;
        assert!(calls.iter().any(|view| view.call.call_id.as_str() == late));
        store.workers().await.expect("a list without those that cannot be read");
        let query = LockQuery { prefix: String::new(), after: None, limit: 10, also: Vec::new(), scan: false };
        store.locks(&query).await.expect("a list without those that cannot be read");
        store.limits(&LimitQuery { prefix: String::new(), after: None, limit: 10 }).await.expect("the same");
        store.batchers().await.expect("the same");
        for number in 0..20 {
            let dropped = store.drop_dead(&call_id(&format!("never-{number}"))).await;
            assert!(dropped.is_err(), "whether there is such a call is not known: {dropped:?}");
        }
        let begun = now();
        let refused = rig.submit(&format!("{waits}x"), lost[0], seconds(60)).await;
        assert!(refused.is_err() && now() - begun < seconds(10), "{refused:?}");

        rig.cluster.nodes[dead].start_again();
        let begun = now();
        loop {
            let listed = rig.store.functions().await.unwrap_or_default().len();
            if listed == 3 {
                break;
            }
            assert!(now() - begun < SOON, "{listed} functions are listed");
            pause(Duration::from_millis(100)).await;
        }
        // What was accepted before is delivered.
        assert_eq!(rig.run_one(&lost).await.as_deref(), Some(waits.as_str()));
        rig.time_of_calls(&format!("after-{dead}"), &[names[0].as_str(), &names[1], &names[2]]).await;
        rig.store.heartbeat(&worker_id("w1")).await.expect("the Cluster is whole");
        assert_eq!(rig.store.workers().await.expect("the Cluster is whole").len(), 1);
    }
}
