//! A hundred thousand calls that wait, are worked off, and leave nothing behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use towpath::{CallContext, HandlerError, RunningWorker, Towpath};
use towpath_redis_testing::RedisServer;

use crate::crowd::{calls_or, runtime};
use crate::rig::durable_redis;
use crate::scene::now;
use crate::support::wait_for;

const STREAM: &str = "function:stream:__global__:count";
const KEPT_FOR: Duration = Duration::from_secs(2);

/// How often each call ran.
struct Count {
    runs: Vec<AtomicU8>,
    done: AtomicUsize,
}

#[test]
fn of_a_hundred_thousand_calls_each_runs_once_and_nothing_is_left_of_them() {
    let (redis, calls, runtime) = (durable_redis(), calls_or(100_000), runtime());
    let count = Arc::new(Count { runs: (0..calls).map(|_| AtomicU8::new(0)).collect(), done: AtomicUsize::new(0) });
    let begun = now();
    let towpath = runtime.block_on(async {
        let towpath = Towpath::open(&redis.url()).await.unwrap();
        drop(serve(&towpath, &count).await); // known from now on, and nobody serves it
        let submits = futures_util::stream::iter(0..calls).map(|number| {
            let call = towpath.call::<(), _>("count", &number).timeout(Duration::from_secs(120)).retain(KEPT_FOR);
            async move { call.detach().await.unwrap_or_else(|error| panic!("{number}: {error}")) }
        });
        submits.buffer_unordered(2_000).for_each(|_| async {}).await;
        towpath
    });
    println!("{calls} calls were taken in {:?}", begun.elapsed());
    assert_eq!(length(&redis), calls, "all of them wait");

    let workers: Vec<RunningWorker> = (0..3).map(|_| runtime.block_on(serve(&towpath, &count))).collect();
    wait_for("half of the calls to be done", || (count.done.load(Ordering::Relaxed) >= calls / 2).then_some(()));
    let left = length(&redis);
    assert!(left <= calls - calls / 4, "half of the calls are done, and {left} still wait");
    wait_for("all calls to be done", || (count.done.load(Ordering::Relaxed) >= calls).then_some(()));
    println!("they were done after {:?}", begun.elapsed());

    wait_for("all calls to end", || (redis.cli(&["hlen", &key("calls")]) == "0").then_some(()));
    for set in ["queue", "running", "delayed", "deadlines", "dead"] {
        assert_eq!(redis.cli(&["zcard", &key(set)]), "0", "{set}");
    }
    wait_for("Redis to expire what is kept of ended calls", || redis.cli(&["keys", "towpath:ended:*"]).trim().is_empty().then_some(()));
    assert_eq!(redis.cli(&["keys", "towpath:listed:*"]).trim(), "");
    let other = count.runs.iter().filter(|runs| runs.load(Ordering::Relaxed) != 1).count();
    assert_eq!(other, 0, "count in is count out");
    println!("nothing was left after {:?}", begun.elapsed());
    runtime.block_on(async {
        for worker in workers {
            worker.drain().await;
        }
    });
}

async fn serve(towpath: &Towpath, count: &Arc<Count>) -> RunningWorker {
    let count = Arc::clone(count);
    let worker = towpath.worker().concurrency(256).function("count", move |number: usize, _: CallContext| {
        count.runs[number].fetch_add(1, Ordering::Relaxed);
        count.done.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, HandlerError>(()) }
    });
    worker.start().await.unwrap()
}

fn length(redis: &RedisServer) -> usize {
    redis.cli(&["zcard", &key("queue")]).parse().unwrap()
}

fn key(room: &str) -> String {
    format!("towpath:{room}:{{{STREAM}}}")
}
