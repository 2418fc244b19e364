//! A caller whose connection is cut after its request went through and before the answer came: it repeats, and the call runs once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use towpath::{Observer, StoreError, Towpath};
use towpath_redis_testing::FaultProxy;

use crate::caller::Caller;
use crate::crowd::{ids, runtime};
use crate::pull_worker::{self, Pace, runs};
use crate::rig::{durable_redis, serve};

const CALLS: usize = 100;
const LONG: Duration = Duration::from_secs(40);

/// Counts replies that were lost.
#[derive(Default)]
struct Lost(AtomicUsize);

impl Observer for Lost {
    fn store_error(&self, error: &StoreError) {
        if matches!(error, StoreError::Unknown(_)) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_call_whose_submit_lost_its_reply_runs_once() {
    let redis = durable_redis();
    let server = serve(&redis.url());
    let _worker = pull_worker::start(&server, "echo", Pace { lease_ms: 30_000, ..Pace::QUICK });
    let proxy = FaultProxy::before(redis.port());
    let lost = Arc::new(Lost::default());
    runtime().block_on(async {
        let observer: Arc<dyn Observer> = Arc::<Lost>::clone(&lost);
        let towpath = Towpath::builder().observer(observer).open(&proxy.url()).await.unwrap();
        for id in ids(CALLS) {
            proxy.cut_before_answer();
            let answer: Value = towpath.call("echo", &id).call_id(&id).timeout(LONG).await.unwrap_or_else(|error| panic!("{id}: {error}"));
            assert_eq!(answer["params"], id.as_str());
        }
    });
    let lost = lost.0.load(Ordering::Relaxed);
    println!("{CALLS} calls, {lost} replies lost");
    assert!(lost >= CALLS / 10, "{lost} replies of {CALLS} submits were lost: this run proved little");
    once_each(&runs(&server.path("runs")));
}

#[test]
fn a_request_that_is_repeated_because_its_answer_was_lost_leads_to_one_run() {
    let redis = durable_redis();
    let server = serve(&redis.url());
    let _worker = pull_worker::start(&server, "echo", Pace { lease_ms: 30_000, ..Pace::QUICK });
    let port = server.url.rsplit(':').next().unwrap().parse().unwrap();
    let proxy = FaultProxy::before(port);
    let (caller, mut unanswered) = (Caller::new(), 0);
    for id in ids(CALLS) {
        proxy.cut_before_answer();
        while caller.try_submit(&proxy.url().replace("redis:", "http:"), "echo", &id, &json!(id)).is_none() {
            unanswered += 1;
        }
        assert_eq!(caller.ended(&server.url, &id)["outcome"]["data"]["params"], id.as_str());
    }
    assert!(unanswered >= CALLS, "{unanswered} answers were lost: this run proved nothing");
    once_each(&runs(&server.path("runs")));
}

fn once_each(runs: &std::collections::BTreeMap<String, u32>) {
    let other: Vec<_> =
        ids(CALLS).into_iter().map(|id| (runs.get(&id).copied().unwrap_or(0), id)).filter(|(times, _)| *times != 1).collect();
    assert!(other.is_empty(), "calls that did not run once: {other:?}");
}
