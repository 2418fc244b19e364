//! A Redis without room: nothing new is taken, what is there is worked off, and when there is room all goes on by itself.

use crate::caller::Caller;
use crate::rig::{everysec_redis, serve};
use crate::support::wait_for;

#[test]
fn a_worker_that_comes_to_a_full_redis_works_off_what_waits_there() {
    let redis = everysec_redis();
    let server = serve(&redis.url());
    server.run(&["functions", "define", "upper"]).exits(0);
    let waiting: Vec<String> = (0..3).map(|_| server.submit("upper", r#""hi""#, &[])).collect();
    let granted = server.run(&["lock", "acquire", "excel", "--lock-id", "me", "--ttl", "600", "--json"]).exits(0).json();
    let fence = granted["fence"].to_string();
    server.run(&["batch", "settings", "orders", "--set", r#"key=["customer"]"#, "--set", r#"target={"function":"upper"}"#]).exits(0);
    server.run(&["batch", "push", "orders", r#"{"customer":"anna"}"#, "--debounce", "60s"]).exits(0);
    redis.cli(&["config", "set", "maxmemory", "1"]);

    for late in [&["call", "upper", r#""late""#][..], &["batch", "push", "orders", r#"{"customer":"anna"}"#], &["lock", "acquire", "new"]] {
        let refused = server.run(&[late, &["--json"]].concat()).error();
        assert_eq!((refused["code"].as_str(), refused["effect"].as_str()), (Some("store_full"), Some("none")), "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("maxmemory"), "{refused}");
    }
    let _worker = server.worker("upper", &["--exec", "tr a-z A-Z"]);
    for call_id in &waiting {
        server.run(&["calls", "wait", call_id]).exits(0).prints("HI");
    }
    server.run(&["lock", "renew", "excel", "--fence", &fence]).exits(0);
    server.run(&["lock", "release", "excel", "--fence", &fence]).exits(0);

    redis.cli(&["config", "set", "maxmemory", "0"]);
    server.run(&["call", "upper", r#""again""#]).exits(0).prints("AGAIN");
    server.run(&["batch", "show", "orders", "anna", "--json"]).exits(0).prints(r#""size":1"#);
}

#[test]
fn a_server_on_a_redis_that_takes_nothing_new_is_not_ready_and_says_why() {
    let mut redis = everysec_redis();
    let (server, caller) = (serve(&redis.url()), Caller::new());
    let ready = || caller.ask_status(&server.url, "/readyz");
    let not_ready = |status: u16| {
        let (_, body) = wait_for(&format!("not to be ready with {status}"), || {
            caller.get(&server.url, "/readyz").filter(|(said, _)| *said == status) // an answer that is no JSON is "ready"
        });
        body["error"].clone()
    };
    assert_eq!(ready(), Some(200));
    redis.cli(&["config", "set", "maxmemory", "1"]);
    let error = not_ready(507);
    assert_eq!(error["code"], "store_full", "{error}");
    assert!(error["message"].as_str().unwrap().contains("maxmemory"), "{error}");
    assert_eq!(caller.ask_status(&server.url, "/healthz"), Some(200));
    let (status, health) = caller.get(&server.url, "/v1/health").unwrap();
    assert_eq!((status, &health["status"]), (200, &"degraded".into()), "{health}");
    assert!(health["problems"][0].as_str().unwrap().starts_with("nothing new is accepted"), "{health}");
    redis.cli(&["config", "set", "maxmemory", "0"]);
    wait_for("to be ready again", || (ready() == Some(200)).then_some(()));

    redis.kill();
    assert_eq!(not_ready(503)["code"], "store_unavailable");
    redis.start_again();
    wait_for("to be ready again", || (ready() == Some(200)).then_some(()));
}
