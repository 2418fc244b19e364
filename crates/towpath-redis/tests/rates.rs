//! Functions with a rate on a real server: workers of several processes share it, by the server's clock.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath::limits::{RuleName, Rules};
use towpath::{CallContext, FunctionOptions, HandlerError, RunningWorker, Timestamp, Towpath};
use towpath_redis_testing::RedisServer;

type Begun = Arc<Mutex<BTreeMap<String, Timestamp>>>;

async fn serve(towpath: &Towpath, begun: &Begun) -> RunningWorker {
    let (begun, clock) = (Arc::clone(begun), Arc::clone(towpath.clock()));
    let handler = move |number: u32, ctx: CallContext| {
        let before = begun.lock().unwrap().insert(ctx.call_id().to_string(), clock.now());
        assert!(before.is_none(), "{} ran twice", ctx.call_id());
        async move { Ok::<_, HandlerError>(number) }
    };
    towpath.worker().function_with(FunctionOptions::new("send").rate("calm"), handler).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_several_processes_share_a_rate_and_every_call_runs_once() {
    const CALLS: u32 = 60;
    const APART: Duration = Duration::from_millis(20);
    let redis = RedisServer::start();
    let begun = Begun::default();
    let (here, there) = (Towpath::open(&redis.url()).await.unwrap(), Towpath::open(&redis.url()).await.unwrap());
    let rules = Rules::one("r=gcra:50/1s".parse().unwrap());
    here.limit_policies().put(None, &RuleName::new("calm").unwrap(), &rules).await.unwrap();
    let workers = [serve(&here, &begun).await, serve(&there, &begun).await];
    let caller = Towpath::open(&redis.url()).await.unwrap();
    let calls = (0..CALLS).map(|number| caller.call::<u32, _>("send", &number).into_future());
    let answers = futures_util::future::join_all(calls).await;
    assert_eq!(answers, (0..CALLS).map(Ok).collect::<Vec<_>>());
    let mut times: Vec<Timestamp> = begun.lock().unwrap().values().copied().collect();
    times.sort_unstable();
    assert_eq!(times.len(), CALLS as usize);
    let took = times[times.len() - 1].since(times[0]);
    // The last turn is so much later than the first; each process may see the server's clock a few milliseconds off.
    assert!(took + Duration::from_millis(10) >= APART * (CALLS - 1), "{took:?}");
    for worker in workers {
        assert_eq!(worker.drain().await.handed_back, 0);
    }
}
