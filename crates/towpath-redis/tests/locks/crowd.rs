//! Many clients in several processes contend for few locks, while processes are killed and stopped and the server is restarted. Nobody is let
//! in while another's lease lasts, and no fence is given twice or goes back.

use std::time::Duration;

use towpath_core::lock::{AcquireLock, AcquireReply, Grant, RenewLock, RenewReply};
use towpath_core::names::{LockId, LockScope, NodeId, RequestId};
use towpath_core::store::{LockNews, LockStore, LockWakes};
use towpath_redis::RedisStore;
use towpath_redis_testing::{RedisServer, Resource, ResourceLink};

use crate::client::{Client, Orders};
use crate::rig::{open, pause, scope, until, waiting};

const PROCESSES: u32 = 8;
const CLIENTS_EACH: u32 = 8;
const SCOPES: u32 = 3;
const LEASE: Duration = Duration::from_secs(1);

/// The role of a process: its clients take locks, renew them, write under them and leave, for ever.
pub(crate) async fn contend(orders: Orders) {
    let store = open(&orders.url).await;
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS_EACH {
        let name = format!("p{}-{}-{number}", orders.number, std::process::id());
        clients.spawn(client(store.clone(), orders.resource, name, number));
    }
    clients.join_all().await;
}

async fn client(store: RedisStore, resource: u16, name: String, number: u32) {
    let mut resource = ResourceLink::connect(resource);
    let node = NodeId::new(&name).expect("a node");
    let mut ear = store.lock_wakes(&node);
    for turn in 0_u32.. {
        let what = scope(&format!("s{}", (turn + number) % SCOPES));
        let asked_as = format!("{name}-{turn}");
        let (lock_id, request) = (LockId::new(&asked_as).expect("a lock id"), RequestId::new(&asked_as).expect("a request"));
        let question = waiting(&node, AcquireLock { lease: LEASE, ..AcquireLock::new(what.clone(), lock_id, request) });
        if let Some(grant) = ask_until_granted(&store, &mut ear, &question).await {
            hold(&store, &mut resource, &what, &grant, turn + number).await;
        }
    }
}

/// `None`: the question was spent, which can only be when nobody knew of its grant.
async fn ask_until_granted(store: &RedisStore, ear: &mut Box<dyn LockWakes>, question: &AcquireLock) -> Option<Grant> {
    loop {
        match store.lock_acquire(question.clone()).await {
            Ok(AcquireReply::Granted(grant) | AcquireReply::Replayed(grant)) => return Some(grant),
            Ok(AcquireReply::Busy(_)) => {
                let _woken_or_not = tokio::time::timeout(Duration::from_millis(500), next_turn(ear, question)).await;
            }
            Ok(AcquireReply::Spent) => return None,
            Ok(other) => panic!("{other:?}"),
            Err(_the_server_is_away) => pause(Duration::from_millis(50)).await,
        }
    }
}

async fn next_turn(ear: &mut Box<dyn LockWakes>, question: &AcquireLock) {
    while let LockNews::Turn(waiter) = ear.next().await {
        if Some(&waiter) == question.waiter.as_ref() {
            return;
        }
    }
}

/// Enters, renews now and then, and leaves. Whoever is refused or has lost its lock stops at once.
async fn hold(store: &RedisStore, resource: &mut ResourceLink, what: &LockScope, grant: &Grant, dice: u32) {
    let fence = grant.fence;
    if !resource.tell(&format!("enter {what} {fence} {} {}", grant.now.as_millis(), grant.lease_end.as_millis())) {
        return;
    }
    for _ in 0..dice % 3 {
        pause(Duration::from_millis(u64::from(dice % 7))).await;
        match store.lock_renew(RenewLock { scope: what.clone(), fence, lease: LEASE }).await {
            Ok(RenewReply::Renewed { lease_end, .. }) => {
                resource.tell(&format!("renewed {what} {fence} {}", lease_end.as_millis()));
                resource.tell(&format!("write {what} {fence}"));
            }
            Ok(RenewReply::Lost(_)) => {
                // It should stop here. The resource is what stands in the way of one that does not.
                resource.tell(&format!("write {what} {fence}"));
                return;
            }
            // Its lease lasts as long as it was told: others wait for that.
            Err(_the_server_is_away) => return,
        }
    }
    resource.tell(&format!("leave {what} {fence}"));
    // A release that is lost is made up for by the end of the lease.
    let _released_or_not = tokio::time::timeout(LEASE, release_quietly(store, what, grant)).await;
}

async fn release_quietly(store: &RedisStore, what: &LockScope, grant: &Grant) {
    let lease = towpath_core::lock::ReleaseLock { scope: what.clone(), fence: grant.fence };
    while store.lock_release(lease.clone()).await.is_err() {
        pause(Duration::from_millis(50)).await;
    }
}

fn entries(resource: &Resource) -> u32 {
    (0..SCOPES).map(|number| resource.book(&format!("s{number}")).accepted).sum()
}

async fn goes_on(resource: &Resource) {
    let before = entries(resource);
    until("the others go on", async || entries(resource) > before + 50).await;
}

/// Rounds of faults, unless the environment asks for another number: `TOWPATH_LOCK_ROUNDS=50`.
fn rounds() -> usize {
    std::env::var("TOWPATH_LOCK_ROUNDS").ok().and_then(|count| count.parse().ok()).unwrap_or(3)
}

/// Each round kills a process, stops one for twice its lease, and kills the server. At least one stale write must have been tried in the end.
#[tokio::test(flavor = "multi_thread")]
async fn among_clients_that_are_killed_and_stopped_and_a_server_that_is_killed_nobody_is_let_in_beside_another() {
    let mut server = RedisServer::build().append_only("always").start();
    let resource = Resource::start();
    let (url, port) = (server.url(), resource.port());
    let start = |number: u32| Client::start("crowd", &Orders { url: url.clone(), resource: port, number });
    let mut clients: Vec<Client> = (0..PROCESSES).map(start).collect();
    let at = |round: usize| round % PROCESSES as usize;
    let stale = || (0..SCOPES).map(|number| resource.book(&format!("s{number}")).refused).sum::<u32>();
    goes_on(&resource).await;
    let mut round = 0;
    while round < rounds() || (stale() == 0 && round < 20) {
        clients[at(round)] = start(100 + u32::try_from(round).expect("few"));
        goes_on(&resource).await;
        clients[at(round + 4)].stop();
        pause(LEASE * 2).await;
        goes_on(&resource).await;
        clients[at(round + 4)].go_on();
        goes_on(&resource).await;
        server.kill();
        server.start_again();
        goes_on(&resource).await;
        round += 1;
    }
    drop(clients);
    let mut accepted = 0;
    for number in 0..SCOPES {
        let book = resource.book(&format!("s{number}"));
        assert_eq!(book.wrong, Vec::<String>::new(), "s{number}");
        assert!(book.accepted > 100, "s{number}: a history in which nobody gets anything proves nothing: {book:?}");
        accepted += book.accepted;
    }
    let clients = PROCESSES * CLIENTS_EACH;
    println!("{clients} clients, {round} kills of a process, of the server, and stops past the lease each:");
    println!("{accepted} writes and grants, {} stale ones refused, nobody let in beside another, no fence twice or lower", stale());
    assert!(stale() > 0, "nobody tried to write under an old fence: this run proved nothing");
}
