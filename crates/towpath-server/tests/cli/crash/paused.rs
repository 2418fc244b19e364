//! A worker that stands still past its lease and comes back.

use nix::sys::signal::Signal;

use super::Caller;
use crate::support::Server;

#[test]
fn the_late_answer_of_a_paused_worker_is_refused_and_the_caller_saw_one_outcome() {
    let server = Server::start();
    let caller = Caller::new();
    let slow = r#"echo up > up; while [ ! -e go ]; do sleep 0.01; done; echo '"from the paused one"'"#;
    let paused = server.worker("slow-one", &["--exec", slow, "--lease", "1s"]);
    let id = server.submit("slow-one", "{}", &["--timeout", "60s"]);
    server.line_of("up");
    paused.signal(Signal::SIGSTOP);
    let _other = server.worker("slow-one", &["--exec", r#"echo '"from the other"'"#]);
    let seen = caller.ended(&server.url, &id);
    assert_eq!(seen["outcome"]["data"], "from the other", "{seen}");
    assert_eq!(seen["crashes"], 1, "the lease of the paused worker ran out");

    server.write("go", "");
    paused.signal(Signal::SIGCONT);
    let refused = paused.event("refused", |event| event["event"] == "refused");
    assert!(refused["delivery_id"].as_str().is_some_and(|delivery| delivery == format!("1-{id}")), "{refused}");
    assert_eq!(caller.ended(&server.url, &id)["outcome"], seen["outcome"], "the late answer changed nothing");
    assert!(caller.counter(&server, "towpath_lost_leases_total") > 0.0);
}
