//! A Redis without room: nothing new is taken, what is there is worked off, and when there is room all goes on by itself.

use crate::rig::{everysec_redis, serve};

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
