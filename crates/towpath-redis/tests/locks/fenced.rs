//! A holder is stopped for longer than its lease, and goes on writing: what it writes to is not fooled.

use std::time::Duration;

use towpath::Towpath;
use towpath::locks::{Acquired, LockGuard, LockWait};

use crate::client::{Client, Orders, Resource, ResourceLink};
use crate::rig::{Rig, SOON, open, pause, until};

const SCOPES: u32 = 50;
const LEASE: Duration = Duration::from_secs(2);

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

/// The role of the process: takes all locks, and writes under them without ever asking whether it still has them.
pub(crate) async fn write_whatever_happens(orders: Orders) {
    let store = open(&orders.url).await;
    let towpath = Towpath::builder().clock(store.clock()).with_store(std::sync::Arc::new(store));
    let mut guards = Vec::new();
    for number in 0..SCOPES {
        guards.push(acquire(&towpath, number).await);
    }
    let mut resource = ResourceLink::connect(orders.resource);
    loop {
        for (number, guard) in guards.iter().enumerate() {
            resource.tell(&format!("write s{number} {}", guard.fence()));
        }
        pause(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_holder_writes_after_it_was_stopped_for_too_long_is_refused() {
    let rig = Rig::start();
    let resource = Resource::start();
    let orders = Orders { url: rig.server.url(), resource: resource.port(), number: 0 };
    let stubborn = Client::start("stubborn", &orders);
    let all = || (0..SCOPES).map(|number| resource.book(&scope(number)));
    until("it writes everywhere", async || all().all(|book| book.accepted > 0)).await;
    stubborn.stop();
    let towpath = rig.towpath().await;
    let mut link = ResourceLink::connect(resource.port());
    let mut guards = Vec::new();
    for number in 0..SCOPES {
        let old = resource.book(&scope(number)).highest;
        let guard = acquire(&towpath, number).await;
        assert!(guard.fence().as_u64() > old, "{number}: {} after {old}", guard.fence());
        assert!(link.tell(&format!("write s{number} {}", guard.fence())), "{number}: the new holder may write");
        guards.push(guard);
    }
    let accepted: Vec<u32> = all().map(|book| book.accepted).collect();
    assert!(all().all(|book| book.refused == 0), "it stands still");
    stubborn.go_on();
    until("it has tried to write everywhere", async || all().all(|book| book.refused > 0)).await;
    assert_eq!(all().map(|book| book.accepted).collect::<Vec<_>>(), accepted, "no write of the old holder was accepted");
    for (number, guard) in guards.into_iter().enumerate() {
        assert_eq!(guard.reason(), None, "{number}: the new holder has it still");
        assert_eq!(resource.book(&scope(u32::try_from(number).expect("few"))).highest, guard.fence().as_u64());
    }
}
