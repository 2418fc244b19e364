//! Many clients in several processes contend for few locks, while processes are killed and stopped and the server is restarted. Nobody is let
//! in while another's lease lasts, and no fence is given twice or goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use towpath_core::lock::{AcquireLock, AcquireReply, Grant, RenewLock, RenewReply};
use towpath_core::names::{LockId, LockScope, NodeId, RequestId};
use towpath_core::store::{LockNews, LockStore, LockWakes};
use towpath_redis::RedisStore;
use towpath_redis_testing::{Book, RedisServer, Resource, ResourceLink};

use crate::client::{Client, Orders};
use crate::rig::{open, pause, scope, until, waiting};

const PROCESSES: u32 = 8;
const CLIENTS_EACH: u32 = 8;
const SCOPES: u32 = 3;
const LEASE: Duration = Duration::from_secs(1);

/// Whether the next client of this process that gets in is to stop the whole process, once.
type Drowsy = Arc<AtomicBool>;

/// The role of a process: its clients take locks, renew them, write under them and leave, for ever.
pub(crate) async fn contend(orders: Orders) {
    contend_and(orders, Drowsy::default()).await;
}

/// The same, but the first of its clients that gets in stops the process, and writes when it goes on.
pub(crate) async fn contend_and_fall_asleep(orders: Orders) {
    contend_and(orders, Arc::new(AtomicBool::new(true))).await;
}

async fn contend_and(orders: Orders, drowsy: Drowsy) {
    let store = open(&orders.url).await;
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS_EACH {
        let name = format!("p{}-{}-{number}", orders.number, std::process::id());
        clients.spawn(client(store.clone(), ResourceLink::connect(orders.resource), name, number, drowsy.clone()));
    }
    clients.join_all().await;
}

async fn client(store: RedisStore, mut resource: ResourceLink, name: String, number: u32, drowsy: Drowsy) {
    let node = NodeId::new(&name).expect("a node");
    let mut ear = store.lock_wakes(&node);
    for turn in 0_u32.. {
        let what = scope(&format!("s{}", (turn + number) % SCOPES));
        let asked_as = format!("{name}-{turn}");
        let (lock_id, request) = (LockId::new(&asked_as).expect("a lock id"), RequestId::new(&asked_as).expect("a request"));
        let question = waiting(&node, AcquireLock { lease: LEASE, ..AcquireLock::new(what.clone(), lock_id, request) });
        if let Some(grant) = ask_until_granted(&store, &mut ear, &question).await {
            hold(&store, &mut resource, &what, &grant, turn + number, &drowsy).await;
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
async fn hold(store: &RedisStore, resource: &mut ResourceLink, what: &LockScope, grant: &Grant, dice: u32, drowsy: &AtomicBool) {
    let fence = grant.fence;
    if !resource.tell(&format!("enter {what} {fence} {} {}", grant.now.as_millis(), grant.lease_end.as_millis())) {
        return;
    }
    if drowsy.swap(false, Ordering::Relaxed) {
        raise(Signal::SIGSTOP).expect("a process may stop itself");
        // It does not know how long it slept, and does not ask.
        resource.tell(&format!("write {what} {fence}"));
    }
    for _ in 0..dice % 3 {
        pause(Duration::from_millis(u64::from(dice % 7))).await;
        match store.lock_renew(RenewLock { scope: what.clone(), fence, lease: Some(LEASE) }).await {
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

fn books(resource: &Resource) -> Vec<Book> {
    (0..SCOPES).map(|number| resource.book(&format!("s{number}"))).collect()
}

fn stale(resource: &Resource) -> u32 {
    books(resource).iter().map(|book| book.refused).sum()
}

/// Until every scope has been entered or written to by somebody several times more.
async fn goes_on(resource: &Resource) {
    let before = books(resource);
    let is_further = |(now, before): (&Book, &Book)| now.accepted > before.accepted + 15;
    until("the others go on", async || books(resource).iter().zip(&before).all(is_further)).await;
}

/// Rounds of faults, unless the environment asks for another number: `TOWPATH_LOCK_ROUNDS=50`.
fn rounds() -> u32 {
    std::env::var("TOWPATH_LOCK_ROUNDS").ok().and_then(|count| count.parse().ok()).unwrap_or(3)
}

/// Each round kills a process, has one stopped for twice its lease wherever it is, another as soon as it is inside, and kills the server.
#[tokio::test(flavor = "multi_thread")]
async fn among_clients_that_are_killed_and_stopped_and_a_server_that_is_killed_nobody_is_let_in_beside_another() {
    let mut server = RedisServer::build().append_only("always").start();
    let resource = Resource::start();
    let (url, port) = (server.url(), resource.port());
    let start = |role: &str, number: u32| Client::start(role, &Orders { url: url.clone(), resource: port, number });
    let mut clients: Vec<Client> = (0..PROCESSES).map(|number| start("crowd", number)).collect();
    let at = |round: u32| (round % PROCESSES) as usize;
    goes_on(&resource).await;
    for round in 0..rounds() {
        let stale_before = stale(&resource);
        clients[at(round)] = start("drowsy crowd", 100 + round);
        until("it has stopped while it was inside", async || clients[at(round)].stands_still()).await;
        clients[at(round + 4)].stop();
        pause(LEASE * 2).await;
        goes_on(&resource).await;
        clients[at(round)].go_on();
        clients[at(round + 4)].go_on();
        until("it has written under its old fence", async || stale(&resource) > stale_before).await;
        server.kill();
        server.start_again();
        goes_on(&resource).await;
    }
    drop(clients);
    for (number, book) in books(&resource).into_iter().enumerate() {
        assert_eq!(book.wrong, Vec::<String>::new(), "s{number}");
    }
    let accepted: u32 = books(&resource).iter().map(|book| book.accepted).sum();
    let clients = PROCESSES * CLIENTS_EACH;
    println!("{clients} clients, {} kills of a process, of the server, and stops past the lease each:", rounds());
    println!(
        "{accepted} writes and grants, {} stale ones refused, nobody let in beside another, no fence twice or lower",
        stale(&resource)
    );
}
