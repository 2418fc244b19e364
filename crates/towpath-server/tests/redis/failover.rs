//! The master of a Redis dies and its replica takes over; and a Cluster, whose functions live on different servers.

use std::time::Duration;

use serde_json::Value;
use towpath::{CallError, CallId, StoreError, Towpath};
use towpath_core::store::StoreTrouble;
use towpath_redis_testing::{ClusterRig, RedisServer, SentinelRig, until};

use crate::caller::Caller;
use crate::crowd::{Crowd, calls_or, ids, is_kept, runtime};
use crate::pull_worker::{self, Pace, runs};
use crate::rig::serve;
use crate::support::wait_for;

const PATIENCE: Duration = Duration::from_secs(40);

#[test]
fn what_was_answered_stays_so_when_the_master_dies_and_what_no_replica_has_is_no_success() {
    let calls = calls_or(5_000);
    let mut rig = SentinelRig::with(RedisServer::build().append_only("everysec"));
    let store = format!("{}?durability=replicated", rig.url());
    let server = serve(&store);
    let _workers = [0, 1].map(|_| pull_worker::start(&server, "echo", Pace::QUICK));
    let (runtime, caller) = (runtime(), Caller::new());
    let towpath = runtime.block_on(Towpath::open(&store)).unwrap();
    let crowd = Crowd::call(&store, "echo", ids(calls), 128);
    crowd.has_heard(calls / 3);
    let dead = rig.kill_master();
    rig.wait_for_other_master(dead);
    let heard = crowd.heard();
    assert!(heard < calls, "all {calls} had their answer before the master died: this run proved nothing");

    // No replica follows the new master: nothing is acknowledged. Until a process has seen that, the outcome of a submit is unknown; then
    // nothing is taken.
    wait_for("the library to see it", || runtime.block_on(refused(&towpath, "unconfirmed")));
    wait_for("the server to see it", || {
        let (status, body) = caller.try_submit(&server.url, "echo", "unconfirmed-too", &Value::Null)?;
        let (code, effect) = (&body["error"]["code"], &body["error"]["effect"]);
        assert!(status == 503 || status == 504 && *effect == "unknown", "{status} {body}");
        (*code == "durability_below_minimum" && *effect == "none").then_some(())
    });

    // The Sentinels would do the same, some ten seconds later.
    rig.servers[dead].start_again();
    let master = &rig.servers[rig.master()];
    rig.servers[dead].cli(&["replicaof", "127.0.0.1", &master.port().to_string()]);
    until("the old master follows", PATIENCE, || master.cli(&["info", "replication"]).contains("state=online"));
    let told = crowd.told();
    assert_eq!(told.answers.len(), calls);
    let kept = is_kept(&store, &told);
    let runs = runs(&server.path("runs"));
    assert!(told.answers.keys().all(|id| runs.contains_key(id)), "what was answered has run");
    println!(
        "{calls} calls, {} answered by the second master, {} made again, {} questions without an answer",
        calls - heard,
        kept.crashes,
        told.troubles
    );
}

#[test]
fn calls_of_functions_on_different_masters_of_a_cluster_are_all_answered() {
    const CALLS: usize = 300;
    let rig = ClusterRig::start();
    // Nothing of this Cluster is on a disk, and nobody kills it.
    let store = format!("{}?durability=memory", rig.url());
    let (server, other_server) = (serve(&store), serve(&store));
    let functions = two_on_each(&rig);
    let servers = [&server, &other_server];
    let _workers: Vec<_> =
        functions.iter().enumerate().map(|(number, function)| pull_worker::start(servers[number % 2], function, Pace::QUICK)).collect();
    let ids_of = |function: &str| (0..CALLS).map(|number| format!("{function}-{number}")).collect();
    let crowds: Vec<Crowd> = functions.iter().map(|function| Crowd::call(&rig.url(), function, ids_of(function), 32)).collect();
    for (function, crowd) in functions.iter().zip(crowds) {
        let told = crowd.told();
        assert_eq!(told.answers.len(), CALLS, "{function}");
        is_kept(&rig.url(), &told);
    }
}

/// Whether a call is refused because too few replicas follow. Before that is seen, its outcome is unknown and the error names the call.
async fn refused(towpath: &Towpath, id: &str) -> Option<()> {
    match towpath.call::<Value, _>("echo", id).call_id(id).timeout(PATIENCE).detach().await {
        Err(CallError::Store { error: StoreError::Unavailable(StoreTrouble::BelowMinimum(why)), .. }) => {
            assert!(why.contains("0 follow(s)"), "{why}");
            Some(())
        }
        Err(CallError::Store { error: StoreError::Unavailable(_), .. }) => None,
        Err(CallError::Store { call_id, error: StoreError::Unknown(why) }) => {
            assert_eq!(call_id.as_ref().map(CallId::as_str), Some(id), "{why}");
            None
        }
        other => panic!("no replica has {id}, and yet: {other:?}"),
    }
}

/// Names of functions, two of which live on each master.
fn two_on_each(rig: &ClusterRig) -> Vec<String> {
    let names = (0..).map(|number| format!("function-{number}"));
    let mut on = vec![Vec::new(); rig.nodes.len()];
    for name in names {
        let there = &mut on[rig.owner_of(&format!("function:stream:__global__:{name}"))];
        if there.len() < 2 {
            there.push(name);
        }
        if on.iter().all(|there| there.len() == 2) {
            break;
        }
    }
    on.concat()
}
