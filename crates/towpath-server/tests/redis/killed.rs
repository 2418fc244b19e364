//! Thousands of calls while workers, the server and Redis itself are killed.

use nix::sys::signal::Signal;
use towpath_redis_testing::RedisServer;

use crate::caller::Caller;
use crate::crowd::{Crowd, calls_or, ids, is_kept};
use crate::pull_worker::{self, Pace, has_begun, runs};
use crate::rig::{durable_redis, serve, serve_at};
use crate::support::wait_for;

const AT_ONCE: usize = 256;

#[test]
fn every_call_ends_once_though_workers_are_killed() {
    const KILLS: usize = 6;
    // Most of its time it holds calls, so that a kill hits some.
    let slow = Pace { work_ms: 100, ..Pace::QUICK };
    let (redis, calls) = (durable_redis(), calls_or(20_000));
    let server = serve(&redis.url());
    let _steady = pull_worker::start(&server, "echo", Pace::QUICK);
    let mut doomed = pull_worker::start(&server, "echo", slow);
    let crowd = Crowd::call(&redis.url(), "echo", ids(calls), AT_ONCE);
    for kill in 0..KILLS {
        // In the first half: whoever comes last must find something left to claim.
        crowd.has_heard(calls * kill / (2 * KILLS));
        has_begun(&doomed, 2);
        doomed.signal(Signal::SIGKILL);
        doomed = pull_worker::start(&server, "echo", slow);
    }
    let told = crowd.told();
    assert_eq!(told.answers.len(), calls);
    let kept = is_kept(&redis.url(), &told);
    let runs = runs(&server.path("runs"));
    assert!(told.answers.keys().all(|id| runs.contains_key(id)), "what was answered has run");
    assert!(kept.crashes >= KILLS as u64, "{} calls were held by who was killed: this run proved nothing", kept.crashes);
    assert!(runs.values().any(|times| *times > 1), "no call ran again: this run proved nothing");
    assert!(Caller::new().counter(&server, "towpath_reclaims_total") > 0.0, "no lease ran out: this run proved nothing");
    println!("{calls} calls, {KILLS} kills of a worker, {} deliveries lost and made again", kept.crashes);
}

#[test]
fn every_call_ends_once_though_the_server_is_killed() {
    const KILLS: usize = 5;
    let (redis, calls) = (durable_redis(), calls_or(20_000));
    let mut server = serve(&redis.url());
    let _workers = [0, 1].map(|_| pull_worker::start(&server, "echo", Pace::QUICK));
    let crowd = Crowd::call(&redis.url(), "echo", ids(calls), AT_ONCE);
    let mut running_at_a_kill = 0;
    for kill in 0..KILLS {
        crowd.has_heard(calls * (kill + 1) / (KILLS + 1));
        running_at_a_kill += some_run(&redis, "echo");
        let (folder, address) = server.crash();
        server = serve_at(&redis.url(), folder, &address);
    }
    let told = crowd.told();
    assert_eq!(told.answers.len(), calls);
    let kept = is_kept(&redis.url(), &told);
    let runs = runs(&server.path("runs"));
    assert!(told.answers.keys().all(|id| runs.contains_key(id)), "what was answered has run");
    println!("{calls} calls, {KILLS} kills of the server, {running_at_a_kill} calls running then, {} made again", kept.crashes);
}

#[test]
fn every_call_ends_once_though_redis_is_killed() {
    const KILLS: usize = 5;
    let (mut redis, calls) = (durable_redis(), calls_or(20_000));
    let server = serve(&redis.url());
    let _workers = [0, 1].map(|_| pull_worker::start(&server, "echo", Pace::QUICK));
    let crowd = Crowd::call(&redis.url(), "echo", ids(calls), AT_ONCE);
    let mut running_at_a_kill = 0;
    for kill in 0..KILLS {
        crowd.has_heard(calls * (kill + 1) / (KILLS + 1));
        running_at_a_kill += some_run(&redis, "echo");
        redis.kill();
        redis.start_again();
    }
    let told = crowd.told();
    assert_eq!(told.answers.len(), calls);
    is_kept(&redis.url(), &told);
    redis.kill();
    redis.start_again();
    let kept = is_kept(&redis.url(), &told); // what is on the disk is the same
    let runs = runs(&server.path("runs"));
    assert!(told.answers.keys().all(|id| runs.contains_key(id)), "what was answered has run");
    // Callers may ride over a restart without hearing of it; that calls were under way is what makes it a test.
    assert!(running_at_a_kill >= KILLS as u64, "calls ran at every kill");
    println!(
        "{calls} calls, {KILLS} kills of Redis, {running_at_a_kill} calls running then, {} made again, {} questions without an answer",
        kept.crashes, told.troubles
    );
}

/// How many calls of a function run, by the store's own count, as soon as some do.
fn some_run(redis: &RedisServer, function: &str) -> u64 {
    let running = format!("towpath:running:{{function:stream:__global__:{function}}}");
    wait_for("calls to run", || redis.cli(&["zcard", &running]).parse().ok().filter(|running| *running > 0))
}
