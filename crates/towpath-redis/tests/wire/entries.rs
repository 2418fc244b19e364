//! Entries as legacy callers write them, with what they leave out, and the replies that they get.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use towpath::{FunctionOptions, Towpath};
use towpath_redis_testing::until;

use crate::rig::{ADD, Add, Ours, Rig, SOON, STREAM, Sum, reply_list};

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_answered_whatever_its_entry_leaves_out() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().start(&towpath).await;
    for left_out in ["timeout", "inputItem", "functionName", "timestamp", "responseChannel"] {
        let reply = rig.legacy_call(&["--without", left_out]).await;
        assert_eq!(reply["data"]["sum"], 42, "without {left_out}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_of_generation_b_that_waits_for_ever_gets_its_answer() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().scope("fnAddWorkflow001").start(&towpath).await;
    let reply = rig.legacy_call(&["--scope", "fnAddWorkflow001", "--without", "timeout", "--patience-s", "0"]).await;
    assert_eq!(reply["data"]["sum"], 42, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_caller_hears_only_of_the_last_attempt() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let ours = Ours::new().fails_twice();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    rig.legacy_entry("call-1", &[]);
    assert_eq!(rig.legacy_answer("call-1")["data"]["sum"], 42);
    assert_eq!(runs.of("call-1"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_answered_whatever_its_timeout_says() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().start(&towpath).await;
    // Who waits for ever says 0.
    for (number, timeout) in ["0", "", "soon", "-1", "1e4", "30000.5", "18446744073709551615", "99999999999999999999"].iter().enumerate() {
        let call_id = format!("call-{number}");
        rig.legacy_entry(&call_id, &["timeout", timeout]);
        assert_eq!(rig.legacy_answer(&call_id)["data"]["sum"], 42, "timeout '{timeout}'");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn params_that_are_not_json_are_answered_with_an_error_and_never_delivered() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let handler = |_: serde_json::Value, _: towpath::CallContext| async { Ok(Sum { sum: 42 }) };
    let _worker = towpath.worker().function(ADD, handler).start().await.expect("the server is there");
    for (number, params) in ["", "{", "[object Object]"].iter().enumerate() {
        let call_id = format!("call-{number}");
        let list = reply_list(&call_id);
        rig.cli(&["XADD", STREAM, "*", "callId", &call_id, "params", params, "responseChannel", &list]);
        let reply = rig.legacy_answer(&call_id);
        assert_eq!((&reply["success"], &reply["code"]), (&json!(false), &json!("invalid_params")), "params '{params}': {reply}");
        assert!(reply["error"].as_str().is_some_and(|text| text.contains("JSON")), "params '{params}': {reply}");
        let call_id = towpath::CallId::new(call_id).expect("an id");
        let view = towpath.store().call(&call_id).await.expect("the server is there").expect("it is known");
        assert_eq!((view.call.state, view.call.delivery), (towpath::CallState::Failed, 0));
    }
    rig.legacy_entry("call-sound", &[]);
    assert_eq!(rig.legacy_answer("call-sound")["success"], true);
    rig.until_nothing_pends();
}

#[tokio::test(flavor = "multi_thread")]
async fn params_that_do_not_fit_are_answered_with_an_error() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().start(&towpath).await;
    for (number, params) in ["null", "{\"a\": \"two\"}"].iter().enumerate() {
        let call_id = format!("call-{number}");
        let list = reply_list(&call_id);
        rig.cli(&["XADD", STREAM, "*", "callId", &call_id, "params", params, "responseChannel", &list]);
        let reply = rig.legacy_answer(&call_id);
        assert_eq!(reply["success"], false, "params '{params}': {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_told_to_a_legacy_caller_as_plain_text() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().fails_with("no such order").start(&towpath).await;
    let reply = rig.legacy_call(&[]).await;
    assert_eq!(reply["success"], false);
    assert_eq!(reply["error"], json!("no such order"));
    assert!(reply["callId"].is_string() && reply["timestamp"].is_i64(), "{reply}");
    assert_eq!(reply.get("data"), None, "an error has no data");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_are_no_calls_are_acknowledged_and_not_tried_again() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    rig.cli(&["XADD", STREAM, "*", "init", "stream_initialization", "timestamp", "1794765741330"]);
    rig.cli(&["XADD", STREAM, "*", "callId", "", "params", "{}"]);
    rig.cli(&["XADD", STREAM, "*", "callId", "two\nlines", "params", "{}"]);
    rig.legacy_entry("call-1", &[]);
    assert_eq!(rig.legacy_answer("call-1")["data"]["sum"], 42);
    rig.until_nothing_pends();
    assert_eq!(runs.ids(), ["call-1"]);
    until("they are gone", SOON, || !rig.entries().contains("init"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_whose_call_id_cannot_be_used_is_told_so() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    for (number, call_id) in ["two\nlines", &"x".repeat(300), "inbox:1"].iter().enumerate() {
        let name = format!("refused-{number}");
        rig.cli(&["XADD", STREAM, "*", "callId", call_id, "params", "{\"a\":2,\"b\":40}", "responseChannel", &reply_list(&name)]);
        let reply = rig.legacy_answer(&name);
        assert_eq!((&reply["success"], &reply["code"]), (&json!(false), &json!("invalid_call_id")), "{reply}");
        assert_eq!(reply["callId"], json!(call_id), "{reply}");
        assert!(reply["error"].is_string() && reply["timestamp"].is_i64(), "{reply}");
        assert_ne!(rig.cli(&["PTTL", &reply_list(&name)]), "-1");
    }
    rig.cli(&["SET", &reply_list("taken"), "a text"]);
    rig.cli(&["XADD", STREAM, "*", "callId", "two\nlines", "responseChannel", &reply_list("taken")]);
    rig.legacy_entry("call-1", &[]);
    assert_eq!(rig.legacy_answer("call-1")["data"]["sum"], 42);
    rig.until_nothing_pends();
    assert_eq!(rig.cli(&["TTL", &reply_list("taken")]), "-1", "a key of another program stays as it is");
    assert_eq!(runs.ids(), ["call-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_entry_that_a_legacy_worker_writes_when_it_starts_disturbs_nobody() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let mut legacy = rig.legacy_worker(&["--init-entry"]).await;
    legacy.order("leave").await;
    legacy.hear("left").await;
    assert_eq!(rig.legacy_call(&[]).await["data"]["sum"], 42);
    assert_eq!(runs.ids().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_kept_for_a_minute_and_then_goes() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().start(&towpath).await;
    rig.legacy_entry("call-1", &[]);
    rig.legacy_answer("call-1");
    let left_ms: i64 = rig.cli(&["PTTL", &reply_list("call-1")]).parse().expect("a number");
    assert!((1..=60_000).contains(&left_ms), "{left_ms}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_call_whose_time_is_over_is_answered_and_not_run() {
    let rig = Rig::start();
    rig.legacy_entry("call-1", &["timeout", "1"]);
    rig.legacy_entry("call-2", &["timeout", "30000"]);
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let reply = rig.legacy_answer("call-1");
    assert_eq!(reply["success"], false, "{reply}");
    assert!(reply["error"].as_str().is_some_and(|text| text.contains("timed out")), "{reply}");
    assert_eq!(rig.legacy_answer("call-2")["data"]["sum"], 42);
    assert_eq!(runs.ids(), ["call-2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_marked_as_sent_for_workers_of_generation_b() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().start(&towpath).await;
    rig.legacy_entry("call-1", &[]);
    rig.legacy_answer("call-1");
    assert_eq!(rig.cli(&["GET", "function:response:sent:call-1"]), "1");
    let left_s: i64 = rig.cli(&["TTL", "function:response:sent:call-1"]).parse().expect("a number");
    assert!((1..=60).contains(&left_s), "{left_s}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_goes_to_reply_lists_only() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    rig.cli(&["XADD", STREAM, "*", "callId", "call-1", "params", "{\"a\":2,\"b\":40}", "responseChannel", "bull:jobs:wait"]);
    rig.legacy_entry("call-2", &[]);
    rig.legacy_answer("call-2");
    runs.reach(2).await;
    rig.until_nothing_pends();
    assert_eq!(rig.cli(&["EXISTS", "bull:jobs:wait"]), "0", "a key of somebody else");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_both_a_legacy_and_a_new_caller_use_is_one_call() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let first: Sum = call_as(&towpath, "call-1").await;
    rig.legacy_entry("call-1", &[]);
    rig.legacy_entry("call-2", &[]);
    rig.legacy_answer("call-2");
    rig.until_nothing_pends();
    assert_eq!((first.sum, runs.of("call-1")), (42, 1));
}

async fn call_as(towpath: &Towpath, call_id: &str) -> Sum {
    towpath.call(ADD, &Add { a: 2, b: 40 }).call_id(call_id).await.expect("it is answered")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_caller_is_told_which_parameter_is_missing_and_its_call_never_runs() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let handler = move |params: serde_json::Value, _: towpath::CallContext| {
        count.fetch_add(1, Ordering::Relaxed);
        async move { Ok(params) }
    };
    let parameters = json!([{"name": "a", "type": "number", "required": true}, {"name": "b", "default": 40}]);
    let options = FunctionOptions::new(ADD).parameters(parameters);
    let _worker = towpath.worker().function_with(options, handler).start().await.expect("the server is there");
    rig.cli(&["XADD", STREAM, "*", "callId", "call-1", "params", "{\"b\":1}", "responseChannel", &reply_list("call-1")]);
    let reply = rig.legacy_answer("call-1");
    assert_eq!((&reply["success"], &reply["code"]), (&json!(false), &json!("invalid_params")), "{reply}");
    assert!(reply["error"].as_str().is_some_and(|text| text.contains("parameter 'a': expected a number, got nothing")), "{reply}");
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    rig.cli(&["XADD", STREAM, "*", "callId", "call-2", "params", "{\"a\":2}", "responseChannel", &reply_list("call-2")]);
    assert_eq!(rig.legacy_answer("call-2")["data"], json!({"a": 2, "b": 40}));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_made_of_entries_are_counted_once_by_function() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().start(&towpath).await;
    for id in ["one", "two"] {
        rig.legacy_entry(id, &[]);
        assert_eq!(rig.legacy_answer(id)["data"]["sum"], 42);
    }
    let imported = towpath.store().take_imported();
    assert_eq!(imported.iter().map(|(function, count)| (function.name.as_str(), *count)).collect::<Vec<_>>(), [(ADD, 2)]);
    assert_eq!(towpath.store().take_imported(), [], "they were told");
}
