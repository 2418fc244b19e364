//! Workers over HTTP whose functions or whose server are in trouble: what is not affected goes on, and what ran is not run again.

use serde_json::{Value, json};

use crate::caller::Caller;
use crate::rig::{everysec_redis, serve};
use crate::support::{UNTIL_GO, wait_for};

/// Asks a server as a worker of any language does.
fn post(url: &str, path: &str, body: &Value) -> Value {
    towpath_server::push::install_tls();
    let http = reqwest::blocking::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let answer = http.post(format!("{url}{path}")).json(body).send().unwrap();
    assert!(answer.status().is_success(), "{path}: {answer:?}");
    answer.json().unwrap()
}

#[test]
fn a_function_with_a_broken_definition_keeps_the_calls_of_no_other_from_an_http_worker() {
    let redis = everysec_redis();
    let (first, second) = (serve(&redis.url()), serve(&redis.url()));
    let functions = json!([{ "name": "bad", "concurrency": 10 }, { "name": "good", "concurrency": 10 }]);
    post(&first.url, "/v1/workers", &json!({ "worker_id": "w-1", "functions": functions }));
    // The second server knows the worker, so that it does not ask for it again, and has read no definition.
    assert_eq!(post(&second.url, "/v1/workers/w-1/claim", &json!({ "max": 1 }))["calls"], json!([]));
    let caller = Caller::new();
    for n in 0..3 {
        caller.submit(&first.url, "bad", &format!("bad-{n}"));
        caller.submit(&first.url, "good", &format!("good-{n}"));
    }
    let definition = redis.cli(&["HGET", "towpath:function:{function:stream:__global__:bad}", "definition"]);
    redis.cli(&["HSET", "towpath:function:{function:stream:__global__:bad}", "definition", "of a later version"]);
    let mut delivered = Vec::new();
    wait_for("the calls of the good function", || {
        let claimed = post(&second.url, "/v1/workers/w-1/claim", &json!({ "max": 6, "wait_ms": 200 }));
        delivered.extend(claimed["calls"].as_array().unwrap().iter().map(|call| call["call_id"].as_str().unwrap().to_owned()));
        (delivered.len() >= 3).then_some(())
    });
    delivered.sort();
    assert_eq!(delivered, ["good-0", "good-1", "good-2"], "the bad one's are put back, not delivered unchecked");
    second.process.remark("a call of this function cannot be delivered");
    // Once its definition can be read, its calls are delivered, too.
    redis.cli(&["HSET", "towpath:function:{function:stream:__global__:bad}", "definition", definition.trim_end_matches('\n')]);
    wait_for("the calls of the other", || {
        let claimed = post(&second.url, "/v1/workers/w-1/claim", &json!({ "max": 6, "wait_ms": 200 }));
        delivered.extend(claimed["calls"].as_array().unwrap().iter().map(|call| call["call_id"].as_str().unwrap().to_owned()));
        (delivered.len() >= 6).then_some(())
    });
    assert!(delivered.iter().filter(|id| id.starts_with("bad-")).count() == 3, "{delivered:?}");
}

#[test]
fn a_result_that_the_store_did_not_allow_is_sent_again_and_the_call_runs_once() {
    let redis = everysec_redis();
    let server = serve(&redis.url());
    let script = format!("echo run >> runs; echo up > up; {UNTIL_GO}; echo 42");
    let worker = server.worker("once", &["--lease", "5m", "--exec", &script]);
    let id = server.submit("once", "{}", &["--timeout", "10m"]);
    server.line_of("up");
    // The rights of the server's user shrink while the program runs.
    redis.cli(&["ACL", "SETUSER", "default", "resetkeys", "~function:*"]);
    server.write("go", "");
    let cut_off = worker.event("trouble", |event| event["event"] == "cut_off");
    assert!(cut_off["message"].as_str().unwrap().contains("right"), "{cut_off}");
    worker.event("the end of the program", |event| event["event"] == "ended" && event["result"] == "ok");
    redis.cli(&["ACL", "SETUSER", "default", "allkeys"]);
    assert_eq!(server.run(&["calls", "wait", &id, "--timeout", "50s"]).exits(0).stdout, "42\n");
    assert_eq!(std::fs::read_to_string(server.path("runs")).unwrap(), "run\n", "it ran once");
    let call = server.call(&id);
    assert_eq!((&call["attempt"], &call["crashes"], &call["failures"]), (&json!(1), &json!(0), &json!(0)));
}
