//! A Redis whose settings change under a running server.

use std::time::Duration;

use serde_json::Value;

use crate::caller::Caller;
use crate::rig::{everysec_redis, serve};
use crate::scene::now;
use crate::support::{Server, wait_for};

/// A change is seen by then, plus what a command line takes to start.
const SEEN_WITHIN: Duration = Duration::from_secs(6);

fn durability(server: &Server) -> String {
    health(server)["durability"].as_str().unwrap().to_owned()
}

fn health(server: &Server) -> Value {
    Caller::new().get(&server.url, "/v1/health").expect("the server answers").1
}

#[test]
fn a_server_takes_nothing_new_while_its_redis_keeps_nothing_and_takes_it_again_by_itself() {
    let redis = everysec_redis();
    let server = serve(&redis.url());
    server.run(&["functions", "define", "upper"]).exits(0);
    let waiting = server.submit("upper", r#""hi""#, &[]);
    server.run(&["batch", "settings", "orders", "--set", r#"key=["customer"]"#, "--set", r#"target={"function":"upper"}"#]).exits(0);
    server.run(&["batch", "push", "orders", r#"{"customer":"anna"}"#, "--debounce", "8s"]).exits(0);
    let granted = server.run(&["lock", "acquire", "excel", "--lock-id", "me", "--ttl", "600", "--json"]).exits(0).json();

    let changed = now();
    redis.cli(&["config", "set", "appendonly", "no"]);
    wait_for("the server to see it", || (durability(&server) == "memory").then_some(()));
    assert!(changed.elapsed() < SEEN_WITHIN, "{:?}", changed.elapsed());
    for late in [&["call", "upper", r#""late""#][..], &["batch", "push", "orders", r#"{"customer":"anna"}"#], &["lock", "acquire", "new"]] {
        let refused = server.run(&[late, &["--json"]].concat()).error();
        assert_eq!((refused["code"].as_str(), refused["effect"].as_str()), (Some("durability_below_minimum"), Some("none")), "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("appendonly yes"), "{refused}");
    }
    let health = health(&server);
    assert_eq!(health["status"], "degraded");
    assert!(health["problems"][0].as_str().unwrap().contains("new work is refused"), "{health}");
    server.process.remark("new work is refused, and accepted work goes on");

    // Accepted work ends: a call, a batch whose delivery is a call, a lock.
    let _worker = server.worker("upper", &["--exec", "tr a-z A-Z"]);
    server.run(&["calls", "wait", &waiting]).exits(0).prints("HI");
    let calls = || server.run(&["calls", "list", "--json"]).exits(0).stdout;
    wait_for("the batch to be delivered", || calls().contains("batch-").then_some(()));
    server.run(&["lock", "release", "excel", "--fence", &granted["fence"].to_string()]).exits(0);

    redis.cli(&["config", "set", "appendonly", "yes"]);
    wait_for("new work to be taken again", || (durability(&server) == "everysec").then_some(()));
    let taken = server.run(&["call", "upper", r#""again""#, "--json"]).exits(0).json();
    assert_eq!(taken["durability"], "everysec", "{taken}");
    server.process.remark("new work is taken again");
}
