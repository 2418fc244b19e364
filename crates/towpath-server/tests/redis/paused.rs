//! A worker that stands still past its lease and comes back.

use nix::sys::signal::Signal;

use crate::caller::Caller;
use crate::careless::Careless;
use crate::rig::{durable_redis, serve};

#[test]
fn the_late_answer_of_a_paused_worker_is_refused_and_the_call_was_run_by_another() {
    let redis = durable_redis();
    let (server, other_server) = (serve(&redis.url()), serve(&redis.url()));
    let caller = Caller::new();
    let careless = Careless::start(&server, "slow-one");
    let id = server.submit("slow-one", "{}", &["--timeout", "60s", "--wait-for-function", "50s"]);
    assert_eq!(careless.claimed(&server), format!("1-{id}"));
    careless.process.signal(Signal::SIGSTOP);
    let _other = other_server.worker("slow-one", &["--exec", r#"echo '"from the other"'"#]);
    let seen = caller.ended(&server.url, &id);
    assert_eq!(seen["outcome"]["data"], "from the other", "{seen}");
    assert_eq!(seen["crashes"], 1, "the lease of the paused worker ran out");

    careless.process.signal(Signal::SIGCONT);
    let refused = careless.answers(&server);
    assert_eq!((&refused["result"], &refused["reason"]), (&"lost".into(), &"ended".into()), "{refused}");
    assert_eq!(caller.ended(&server.url, &id)["outcome"], seen["outcome"], "the late answer changed nothing");
    assert!(caller.counter(&server, "towpath_lost_leases_total") > 0.0);
}
