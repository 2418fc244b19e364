//! Holders are stopped for twice their lease, and go on writing: what they write to is not fooled.

use std::time::Duration;

use towpath::Towpath;
use towpath::locks::{Acquired, LockGuard, LockWait};
use towpath_redis_testing::{Resource, ResourceLink};

use crate::client::{Client, Orders};
use crate::rig::{Rig, SOON, open, pause, until};

/// Fifty processes are stopped, ten at a time.
const ROUNDS: u32 = 5;
const AT_ONCE: u32 = 10;
const LEASE: Duration = Duration::from_secs(1);

fn scope(number: u32) -> String {
    format!("s{number}")
}

async fn acquire(towpath: &Towpath, number: u32) -> LockGuard {
    let acquired = towpath.lock(scope(number)).lease(LEASE).wait(LockWait::UpTo(SOON)).acquire().await;
    match acquired {
        Ok(Acquired::Granted(guard)) => guard,
        other => panic!("{number}: {other:?}"),
    }
}

/// The role of a process: takes its lock, and writes under it without ever asking whether it still has it.
pub(crate) async fn write_whatever_happens(orders: Orders) {
    let store = open(&orders.url).await;
    let towpath = Towpath::builder().clock(store.clock()).with_store(std::sync::Arc::new(store));
    let guard = acquire(&towpath, orders.number).await;
    let mut resource = ResourceLink::connect(orders.resource);
    loop {
        resource.tell(&format!("write {} {}", scope(orders.number), guard.fence()));
        pause(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_holders_write_after_they_were_stopped_for_too_long_is_refused_each_time() {
    let rig = Rig::start();
    let resource = Resource::start();
    let towpath = rig.towpath().await;
    let (mut stale, mut stops) = (0, 0);
    for round in 0..ROUNDS {
        let numbers: Vec<u32> = (0..AT_ONCE).map(|number| round * AT_ONCE + number).collect();
        let of_round = || numbers.iter().map(|number| resource.book(&scope(*number)));
        let start = |number: &u32| Client::start("stubborn", &Orders { url: rig.server.url(), resource: resource.port(), number: *number });
        let stubborn: Vec<Client> = numbers.iter().map(start).collect();
        until("they write everywhere", async || of_round().all(|book| book.accepted > 0)).await;
        stubborn.iter().for_each(Client::stop);
        stops += stubborn.len();
        pause(LEASE * 2).await;
        let mut link = ResourceLink::connect(resource.port());
        let mut guards = Vec::new();
        for number in &numbers {
            let old = resource.book(&scope(*number)).highest;
            let guard = acquire(&towpath, *number).await;
            assert!(guard.fence().as_u64() > old, "{number}: {} after {old}", guard.fence());
            assert!(link.tell(&format!("write {} {}", scope(*number), guard.fence())), "{number}: the new holder may write");
            guards.push(guard);
        }
        let accepted: Vec<u32> = of_round().map(|book| book.accepted).collect();
        assert!(of_round().all(|book| book.refused == 0), "they stand still");
        stubborn.iter().for_each(Client::go_on);
        until("all of them have tried to write", async || of_round().all(|book| book.refused > 0)).await;
        assert_eq!(of_round().map(|book| book.accepted).collect::<Vec<_>>(), accepted, "no write of an old holder was accepted");
        stale += of_round().map(|book| book.refused).sum::<u32>();
        for (number, guard) in numbers.iter().zip(guards) {
            assert_eq!(guard.reason(), None, "{number}: the new holder has it still");
            assert_eq!(resource.book(&scope(*number)).highest, guard.fence().as_u64());
        }
    }
    println!("{stops} holders were stopped past their lease; {stale} stale writes were tried and refused, none accepted");
}
