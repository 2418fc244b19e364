//! Many processes at the same runs at once: no event is lost, and none is consumed twice.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use towpath_conformance::words::{event, run_id, start, waits_for};
use towpath_core::run::{Commit, RunId};
use towpath_core::store::{ClaimedRun, EventSent, RunCommitted, RunStore};
use towpath_redis::RedisStore;

use crate::rig::{Rig, claim, commit_of, soon, started};

const RUNS: u8 = 3;
const SENDERS: u8 = 4;
const EVENTS_EACH: usize = 40;

type Consumed = Arc<Mutex<Vec<(RunId, u64)>>>;

fn count(consumed: &Consumed) -> usize {
    consumed.lock().expect("no test panicked").len()
}

/// Consumes all facts that a run has, and parks it. Other processes send meanwhile.
async fn execute(store: &RedisStore, claimed: ClaimedRun, consumed: &Consumed) {
    let (mut revision, mut seen, mut facts) = (claimed.run.revision, 0, claimed.facts.clone());
    loop {
        let numbers: Vec<u64> = facts.iter().map(|fact| fact.number).collect();
        seen = numbers.iter().copied().max().unwrap_or(seen);
        let park = waits_for(&["paid"]);
        let digest = Arc::from(format!("{revision}"));
        let commit = Commit { revision, digest, consumed: numbers.clone(), seen, ..commit_of(&claimed, park) };
        match store.commit_run(&claimed.run.run_id, commit).await.expect("the server is there") {
            RunCommitted::Committed { committed, facts: more } => {
                let of_run = numbers.into_iter().map(|number| (claimed.run.run_id.clone(), number));
                consumed.lock().expect("no test panicked").extend(of_run);
                if !committed.has_facts {
                    return;
                }
                (revision, facts) = (committed.revision, more);
            }
            other => panic!("the claim is this worker's, but: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_many_processes_send_are_each_consumed_once() {
    let rig = Rig::start();
    let first = rig.store().await;
    for number in 0..RUNS {
        started(&first, start("order", number)).await;
    }
    let consumed = Consumed::default();
    let all = usize::from(SENDERS) * EVENTS_EACH;
    let mut tasks = Vec::new();
    for sender in 0..SENDERS {
        let store = rig.store().await;
        tasks.push(tokio::spawn(async move {
            for number in 0..EVENTS_EACH {
                let run_id = run_id("order", u8::try_from(number).expect("few events") % RUNS);
                let sent = store.send_event(&run_id, event("paid", &format!("{sender}"))).await;
                assert!(matches!(sent, Ok(EventSent::Accepted { .. })), "{sent:?}");
            }
        }));
    }
    for worker in ["w1", "w2"] {
        let (store, consumed) = (rig.store().await, Arc::clone(&consumed));
        tasks.push(tokio::spawn(async move {
            while count(&consumed) < all {
                for claimed in claim(&store, worker, "order", 2).await {
                    execute(&store, claimed, &consumed).await;
                }
            }
        }));
    }
    for task in tasks {
        soon(task).await.expect("no task panicked");
    }
    let consumed = consumed.lock().expect("no test panicked");
    assert_eq!((consumed.len(), consumed.iter().collect::<BTreeSet<_>>().len()), (all, all), "each once");
    assert_eq!(rig.entries("order"), 0, "and all runs are parked");
}
