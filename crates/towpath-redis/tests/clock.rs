//! Machines whose clocks disagree by hours share one Redis as if they did not: its server's clock judges.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use towpath_conformance::words::{definition, function, new_call, seconds, worker_id};
use towpath_core::clock::{Clock, Sleep};
use towpath_core::store::{CallStore, ClaimCalls, ClaimFunction, InspectStore, RegistryStore, Submitted, TimerStore};
use towpath_core::time::Timestamp;
use towpath_core::worker::{Offer, RegisterWorker};
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::RedisServer;

const HOUR_MS: i64 = 3_600_000;

/// A machine's clock that was set wrong.
#[derive(Debug)]
struct WrongClock {
    off_ms: i64,
}

impl Clock for WrongClock {
    #[expect(clippy::disallowed_methods, reason = "a machine's own clock, but wrong")]
    fn now(&self) -> Timestamp {
        let right = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis();
        Timestamp::from_millis(i64::try_from(right).expect("before the year 292277026") + self.off_ms)
    }

    #[expect(clippy::disallowed_methods, reason = "a machine's own clock, but wrong")]
    fn sleep_until(&self, at: Timestamp) -> Sleep {
        Box::pin(tokio::time::sleep(at.since(self.now())))
    }
}

async fn on_machine(server: &RedisServer, off_ms: i64) -> RedisStore {
    let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    RedisStore::open(options, Arc::new(WrongClock { off_ms })).await.expect("the server is up")
}

fn claim() -> ClaimCalls {
    let functions = [ClaimFunction { function: function("add"), max: 1 }].into();
    ClaimCalls { worker: worker_id("w-1"), functions, max: 1, lease: seconds(30), wait: seconds(20), takes_any: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_from_a_machine_an_hour_ahead_is_served_by_one_an_hour_behind() {
    let server = RedisServer::start();
    let (ahead, behind) = (on_machine(&server, HOUR_MS).await, on_machine(&server, -HOUR_MS).await);
    let offers = vec![Offer { definition: definition("add"), concurrency: None }];
    behind.register(RegisterWorker { worker_id: worker_id("w-1"), kind: "rust".to_owned(), offers }).await.unwrap();
    let workers = ahead.workers().await.unwrap();
    assert!(workers[0].healthy, "its heartbeat is recent by the server's clock: {workers:?}");

    let submitted = ahead.submit(new_call("c-1", "add")).await.unwrap();
    assert!(matches!(submitted, Submitted::Accepted { .. }), "{submitted:?}");
    let delivery = behind.claim(claim()).await.unwrap().pop().expect("it is delivered, not expired");
    assert!(delivery.remaining > seconds(30) && delivery.remaining <= seconds(60), "{:?}", delivery.remaining);
    for store in [&ahead, &behind] {
        store.fire_due(100).await.unwrap();
        let call = store.call(&delivery.id.call_id).await.unwrap().expect("it is kept").call;
        assert_eq!(call.state.as_str(), "running", "nobody's clock has ended its lease");
    }
    let apart = ahead.clock().now().as_millis() - behind.clock().now().as_millis();
    assert!(Duration::from_millis(apart.unsigned_abs()) < seconds(5), "both tell the server's time: {apart} ms");
}
