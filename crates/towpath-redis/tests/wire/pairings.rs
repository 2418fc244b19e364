//! Legacy and new callers with legacy and new workers: all four pairings.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use towpath::{CallError, CallId, CallState, FunctionKey, Payload, Towpath};
use towpath_core::worker::FunctionDefinition;

use crate::rig::{ADD, Add, GROUP, Ours, Peer, Rig, STREAM, Sum, reply_list};

const TWO_AND_FORTY: Add = Add { a: 2, b: 40 };

async fn state_of(towpath: &Towpath, call_id: &str) -> CallState {
    let call_id = CallId::new(call_id).expect("an id");
    towpath.store().call(&call_id).await.expect("the server is there").expect("the call is known").call.state
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_caller_gets_its_answer_from_a_worker_of_ours() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().start(&towpath).await;
    for seed in ["first", "second"] {
        let mut caller = rig.legacy_caller(&["--seed", seed]);
        let call_id = caller.hear("called").await["callId"].take();
        let reply = caller.hear("answer").await["reply"].take();
        assert!(reply["timestamp"].is_i64(), "{reply}");
        let expected = json!({"callId": call_id, "success": true, "data": {"sum": 42}, "timestamp": reply["timestamp"]});
        assert_eq!(reply, expected, "the four fields of the seeds and nothing else");
    }
    rig.until_nothing_pends();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_caller_finds_the_function_of_its_workflow() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().scope("fnAddWorkflow001").start(&towpath).await;
    let reply = rig.legacy_call(&["--scope", "fnAddWorkflow001"]).await;
    assert_eq!(reply["data"]["sum"], 42, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_caller_finds_nobody_after_our_worker_has_left() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let worker = Ours::new().start(&towpath).await;
    assert_eq!(rig.legacy_call(&[]).await["success"], true);
    worker.drain().await;
    rig.legacy_caller(&[]).hear("not found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_of_ours_gets_its_answer_from_a_legacy_worker_of_either_generation() {
    for generation in ["a", "b"] {
        let rig = Rig::start();
        let mut worker = rig.legacy_worker(&["--generation", generation]).await;
        let towpath = rig.towpath().await;
        let sum: Sum = towpath.call(ADD, &TWO_AND_FORTY).await.expect("a legacy worker answers");
        assert_eq!(sum, Sum { sum: 42 }, "generation {generation}");
        let call_id = worker.hear("took").await["fields"]["callId"].take();
        let call_id = call_id.as_str().expect("an id");
        assert_eq!(state_of(&towpath, call_id).await, CallState::Completed, "the answer ends the call");
        assert_eq!(rig.cli(&["EXISTS", &reply_list(call_id)]), "0", "the answer was taken from its list");
        rig.until_nothing_pends();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_worker_is_sent_all_seven_fields_and_a_list_of_the_calls_own() {
    let rig = Rig::start();
    let mut worker = rig.legacy_worker(&[]).await;
    let towpath = rig.towpath().await;
    for item in [None, Some(json!({"json": {"body": 1}, "pairedItem": {"item": 0}}))] {
        let call = towpath.call::<Sum, _>(ADD, &TWO_AND_FORTY);
        let call = if let Some(item) = &item { call.input_item(item) } else { call };
        call.await.expect("a legacy worker answers");
        let fields = worker.hear("took").await["fields"].take();
        let text = |name: &str| fields[name].as_str().unwrap_or_else(|| panic!("no {name} in {fields}")).to_owned();
        let parsed = |name: &str| serde_json::from_str::<Value>(&text(name)).unwrap_or_else(|_| panic!("{name} is no JSON in {fields}"));
        assert_eq!(text("functionName"), ADD);
        assert_eq!(parsed("params"), json!({"a": 2, "b": 40}));
        assert_eq!(text("responseChannel"), reply_list(&text("callId")), "a legacy worker knows no inbox");
        assert_eq!(text("timeout"), "30000");
        assert!(text("timestamp").parse::<u64>().is_ok_and(|ms| ms > 1_700_000_000_000), "{fields}");
        // Legacy workers read it without looking whether it is there.
        assert_eq!(parsed("inputItem"), item.unwrap_or_else(|| json!({})));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_call_id_is_the_answer_to_the_call_of_its_list() {
    let rig = Rig::start();
    let _worker = rig.legacy_worker(&["--bare-reply"]).await;
    let towpath = rig.towpath().await;
    let sum: Sum = towpath.call(ADD, &TWO_AND_FORTY).await.expect("a legacy worker answers");
    assert_eq!(sum, Sum { sum: 42 });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_legacy_worker_is_the_error_of_the_call() {
    let rig = Rig::start();
    let mut worker = rig.legacy_worker(&["--fail", "no such order"]).await;
    let towpath = rig.towpath().await;
    let error = towpath.call::<Sum, _>(ADD, &TWO_AND_FORTY).await.expect_err("the worker fails");
    let CallError::Failed { call_id, failure, .. } = error else { panic!("{error:?}") };
    assert_eq!(failure.message, "no such order");
    assert!(state_of(&towpath, call_id.as_str()).await.has_ended());
    worker.order("leave").await;
    assert_eq!(worker.took().await, [call_id.as_str()], "a legacy worker's error is final");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_runs_once_when_legacy_and_new_callers_and_workers_share_a_stream() {
    const EACH: usize = 40;
    for generation in ["a", "b"] {
        let rig = Rig::start();
        let towpath = rig.towpath().await;
        let ours = Ours::new().concurrency(2);
        let runs = ours.runs.clone();
        let worker;
        let mut legacy;
        if generation == "a" {
            legacy = rig.legacy_worker(&["--generation", "a"]).await;
            worker = ours.start(&towpath).await;
        } else {
            worker = ours.start(&towpath).await;
            legacy = rig.legacy_worker(&["--generation", "b", "--consumer", "consumer-1794765840668-5irpxa9iw45"]).await;
        }
        let mut caller = rig.legacy_caller(&["--count", &EACH.to_string()]);
        let calls: Vec<_> = (0..EACH).map(|_| tokio::spawn(towpath.call::<Sum, _>(ADD, &TWO_AND_FORTY).into_future())).collect();
        for call in calls {
            assert_eq!(call.await.expect("it does not panic").expect("it is answered"), Sum { sum: 42 });
        }
        for _ in 0..EACH {
            assert_eq!(caller.hear("answer").await["reply"]["data"]["sum"], 42);
        }
        worker.drain().await;
        let taken = times_taken(&mut legacy, runs.ids()).await;
        assert_eq!(taken.len(), 2 * EACH);
        assert!(taken.values().all(|times| *times == 1), "{taken:?}");
    }
}

/// How often each call was taken, by our workers and by a legacy one that leaves.
async fn times_taken(legacy: &mut Peer, ours: Vec<String>) -> HashMap<String, usize> {
    legacy.order("leave").await;
    let mut taken = HashMap::new();
    for call_id in legacy.took().await.into_iter().chain(ours) {
        *taken.entry(call_id).or_default() += 1;
    }
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_between_towpath_processes_uses_no_key_of_legacy_peers() {
    let rig = Rig::start();
    let (here, there) = (rig.towpath().await, rig.towpath().await);
    let gate = Arc::new(Semaphore::new(0));
    let ours = Ours::new().behind(&gate);
    let runs = ours.runs.clone();
    let _worker = ours.start(&there).await;
    let call = tokio::spawn(here.call::<Sum, _>(ADD, &TWO_AND_FORTY).into_future());
    runs.reach(1).await;
    let is_untouched = || rig.cli(&["XLEN", STREAM]) == "0" && rig.cli(&["KEYS", "function:response:*"]).is_empty();
    assert!(is_untouched());
    gate.add_permits(1);
    assert_eq!(call.await.expect("it does not panic").expect("it is answered"), Sum { sum: 42 });
    assert!(is_untouched());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_worker_that_comes_later_answers_calls_that_already_wait() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    // The function is known, and for now nobody serves it.
    Ours::new().start(&towpath).await.drain().await;
    let call = tokio::spawn(towpath.call::<Sum, _>(ADD, &TWO_AND_FORTY).into_future());
    towpath_redis_testing::until("the call waits", crate::rig::SOON, || rig.waiting() == 1);
    let _worker = rig.legacy_worker(&[]).await;
    assert_eq!(call.await.expect("it does not panic").expect("it is answered"), Sum { sum: 42 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_call_is_answered_by_a_legacy_worker_while_its_caller_is_away() {
    let rig = Rig::start();
    let mut worker = rig.legacy_worker(&["--hold"]).await;
    let here = rig.towpath().await;
    let call_id = here.call::<Sum, _>(ADD, &TWO_AND_FORTY).detach().await.expect("it is taken").call_id().to_string();
    worker.hear("took").await;
    let there = rig.towpath().await;
    let again = there.call::<Sum, _>(ADD, &TWO_AND_FORTY).call_id(&call_id).detach().await.expect("it is known");
    assert!(again.existing());
    let result = tokio::spawn(again.result());
    worker.order("answer").await;
    assert_eq!(result.await.expect("it does not panic").expect("it is answered"), Sum { sum: 42 }, "whoever asks is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_worker_gets_the_params_of_our_caller_with_defaults_filled_in() {
    let rig = Rig::start();
    let parameters = r#"[{"name":"a","type":"number","required":true,"defaultValue":""},{"name":"b","type":"number","defaultValue":"40"}]"#;
    let mut worker = rig.legacy_worker(&["--parameters", parameters]).await;
    let towpath = rig.towpath().await;
    let sum: Sum = towpath.call(ADD, &json!({"a": 2})).await.expect("a legacy worker answers");
    assert_eq!(sum, Sum { sum: 42 });
    assert_eq!(worker.hear("took").await["fields"]["params"], r#"{"a":2,"b":40}"#);
    let refused = towpath.call::<Sum, _>(ADD, &json!({"b": 1})).await.expect_err("`a` is missing");
    assert!(matches!(&refused, CallError::InvalidParams { problems, .. } if problems[0].parameter == "a"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_params_no_longer_fit_ends_with_an_error_and_no_legacy_worker_gets_it() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    // The function is known, and for now nobody serves it.
    Ours::new().start(&towpath).await.drain().await;
    let call = tokio::spawn(towpath.call::<Sum, _>(ADD, &TWO_AND_FORTY).into_future());
    towpath_redis_testing::until("the call waits", crate::rig::SOON, || rig.waiting() == 1);
    let mut definition = FunctionDefinition::new(FunctionKey::global(ADD.parse().expect("a name")));
    definition.parameters = Some(Payload::from_json(r#"[{"name":"c","type":"number","required":true}]"#));
    towpath.store().define(definition).await.expect("the server is there");
    let mut worker = rig.legacy_worker(&[]).await;
    let refused = call.await.expect("it does not panic").expect_err("`c` is missing");
    let CallError::Failed { failure, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(failure.code, "invalid_params");
    assert!(failure.message.contains("parameter 'c': expected a number, got nothing"), "{}", failure.message);
    worker.order("leave").await;
    assert_eq!(worker.took().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_a_dead_legacy_worker_are_checked_and_filled_in_before_another_one_gets_them() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let mut definition = FunctionDefinition::new(FunctionKey::global(ADD.parse().expect("a name")));
    definition.parameters = Some(Payload::from_json(r#"[{"name":"a","type":"number","required":true},{"name":"b","default":40}]"#));
    towpath.store().define(definition).await.expect("the server is there");
    rig.until_the_group_is_there();
    for (call_id, params) in [("call-1", "{\"a\":2}"), ("call-2", "{\"b\":2}")] {
        rig.cli(&["XADD", STREAM, "*", "callId", call_id, "params", params, "responseChannel", &reply_list(call_id)]);
    }
    rig.cli(&["XREADGROUP", "GROUP", GROUP, "consumer-1794765840668-5irpxa9iw45", "STREAMS", STREAM, ">"]);
    let mut worker = rig.legacy_worker(&[]).await;
    assert_eq!(rig.legacy_answer("call-1")["data"]["sum"], 42);
    let refused = rig.legacy_answer("call-2");
    assert_eq!((&refused["success"], &refused["code"]), (&json!(false), &json!("invalid_params")), "{refused}");
    assert!(refused["error"].as_str().is_some_and(|text| text.contains("parameter 'a': expected a number, got nothing")), "{refused}");
    worker.order("leave").await;
    assert_eq!(worker.took().await, ["call-1"]);
}
