//! Calls: made, waited for, listed, cancelled.

use reqwest::Method;
use serde_json::json;

use crate::support::{answer, server};

#[tokio::test]
async fn a_call_is_answered_with_its_result_byte_for_byte() {
    let server = server().await;
    let _worker = server.with_functions().await;
    let params = r#"{"big":123456789012345678901234567890,"tiny":1e-400,"huge":1e400,"minus":-0,"nul":"\u0000","twice":1,"twice":2}"#;
    let response = server.post_bytes("/v1/functions/echo/call", format!(r#"{{"params":{params}}}"#)).await;
    assert!(response.text.contains(&format!(r#""data":{params}"#)), "{}", response.text);
    assert_eq!(response.status, 200);
    assert!(response.text.contains(r#""durability":"memory""#), "{}", response.text);
}

#[tokio::test]
async fn a_pulled_call_gets_its_params_and_its_caller_the_result_unchanged() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "carry" }])).await;
    let number = "123456789012345678901234567890.5e400";
    let call = server.post_bytes("/v1/functions/carry/call", format!(r#"{{"params": [ {number} ]}}"#));
    let work = async {
        let claimed =
            answer(server.request(Method::POST, &format!("/v1/workers/{}/claim", worker.id)).json(&json!({ "wait_ms": 10_000 }))).await;
        assert!(claimed.text.contains(&format!(r#""params":[ {number} ]"#)), "{}", claimed.text);
        let delivery_id = claimed.text.split(r#""delivery_id":""#).nth(1).unwrap().split('"').next().unwrap();
        let result = format!(r#"{{"results":[{{"delivery_id":"{delivery_id}","success":true,"data":{{ "n":{number} }}}}]}}"#);
        server.post_bytes(&format!("/v1/workers/{}/complete", worker.id), result).await.with(200)
    };
    let (called, _) = tokio::join!(call, work);
    assert!(called.text.contains(&format!(r#""data":{{ "n":{number} }}"#)), "{}", called.text);
}

#[tokio::test]
async fn a_failed_call_is_424_with_the_handlers_error() {
    let server = server().await;
    let _worker = server.with_functions().await;
    let error = server.post("/v1/functions/fail/call", json!({})).await.error(424, "call_failed");
    assert_eq!(error["details"]["error"], json!({ "code": "out_of_stock", "message": "there are none left", "details": { "sku": "a-1" } }));
    assert!(error["details"]["call_id"].is_string());
    assert_eq!(error["effect"], "unknown");
}

#[tokio::test]
async fn a_call_that_fails_in_every_attempt_is_a_dead_letter_and_says_so() {
    let server = server().await;
    let _worker = server.with_functions().await;
    let error = server.post("/v1/functions/stubborn/call", json!({})).await.error(424, "call_failed");
    assert_eq!(error["details"]["dead"], "exhausted");
    assert!(error["hint"].as_str().unwrap().contains("/v1/dead-letters/"), "{error}");
}

#[tokio::test]
async fn a_call_nobody_runs_times_out_queued_and_one_that_runs_too_long_running() {
    let server = server().await;
    let _worker = server.with_functions().await;
    server.put("/v1/functions/unserved", json!({})).await.with(200);
    let queued = server.post("/v1/functions/unserved/call", json!({ "timeout_ms": 30 })).await.error(504, "call_timed_out");
    assert_eq!((&queued["details"]["phase"], &queued["effect"]), (&json!("queued"), &json!("unknown")));
    let running = server.post("/v1/functions/never/call", json!({ "timeout_ms": 200 })).await.error(504, "call_timed_out");
    assert_eq!(running["details"]["phase"], "running");
    let path = format!("/v1/calls/{}", running["details"]["call_id"].as_str().unwrap());
    assert_eq!(server.get(&path).await.with(200)["outcome"]["kind"], "timed_out");
}

#[tokio::test]
async fn a_call_that_times_out_is_made_again_if_its_caller_asks_for_that() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "slow" }])).await;
    let call = server.post("/v1/functions/slow/call", json!({ "params": { "n": 1 }, "timeout_ms": 500, "retries_on_timeout": 3 }));
    let work = async {
        let first = worker.claim_one().await;
        let second = worker.claim_one().await;
        assert_eq!(worker.complete(&second, json!("well")).await, "accepted");
        (first["call_id"].clone(), second["call_id"].clone())
    };
    let (answered, (first, second)) = tokio::join!(call, work);
    let answered = answered.with(200);
    assert_eq!((&answered["data"], &answered["call_id"]), (&json!("well"), &second));
    assert_ne!(first, second, "it is a new call");
    let path = format!("/v1/calls/{}", first.as_str().unwrap());
    assert_eq!(server.get(&path).await.with(200)["state"], "timed_out");
}

#[tokio::test]
async fn retries_on_timeout_are_refused_where_they_would_be_the_same_call() {
    let server = server().await;
    let _worker = server.with_functions().await;
    for body in [
        json!({ "retries_on_timeout": 1, "call_id": "c-1" }),
        json!({ "retries_on_timeout": 1, "idempotency_key": "k" }),
        json!({ "retries_on_timeout": 11 }),
    ] {
        let error = server.post("/v1/functions/echo/call", body).await.error(400, "out_of_range");
        assert_eq!((&error["field"], &error["effect"]), (&json!("retries_on_timeout"), &json!("none")));
    }
    server.post("/v1/functions/echo/calls", json!({ "retries_on_timeout": 1 })).await.error(400, "out_of_range");
    server.post("/v1/functions/echo/call", json!({ "retries_on_timeout": 3 })).await.with(200);
}

#[tokio::test]
async fn a_try_that_may_have_run_is_told_though_the_last_one_only_waited() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "slow" }])).await;
    let call = server.post("/v1/functions/slow/call", json!({ "timeout_ms": 500, "retries_on_timeout": 1 }));
    let (answered, claimed) = tokio::join!(call, worker.claim_one());
    let error = answered.error(504, "call_timed_out");
    assert_eq!((&error["details"]["phase"], &error["details"]["call_id"]), (&json!("running"), &claimed["call_id"]));
}

#[tokio::test]
async fn whoever_waits_no_longer_gets_202_and_can_ask_again() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "later" }])).await;
    let accepted = server.post("/v1/functions/later/call", json!({ "wait_ms": 0, "params": { "n": 1 } })).await.with(202);
    assert_eq!((&accepted["state"], &accepted["existing"]), (&json!("queued"), &json!(false)));
    let path = format!("/v1/calls/{}?wait_ms=10000", accepted["call_id"].as_str().unwrap());
    let work = async {
        let delivery = worker.claim_one().await;
        worker.complete(&delivery, json!("done")).await
    };
    let (seen, completed) = tokio::join!(server.get(&path), work);
    let seen = seen.with(200);
    assert_eq!(completed, "accepted");
    assert_eq!((&seen["state"], &seen["outcome"]["data"], &seen["params"]["n"]), (&json!("completed"), &json!("done"), &json!(1)));
}

#[tokio::test]
async fn a_detached_call_is_kept_and_its_outcome_found_by_id() {
    let server = server().await;
    let _worker = server.with_functions().await;
    let accepted = server.post("/v1/functions/echo/calls", json!({ "params": [1, 2], "call_id": "order/17" })).await.with(202);
    assert_eq!(accepted["call_id"], "order/17");
    let seen = server.get("/v1/calls/order%2F17?wait_ms=10000").await.with(200);
    assert_eq!((&seen["state"], &seen["outcome"]["data"]), (&json!("completed"), &json!([1, 2])));
    server.post("/v1/functions/echo/calls", json!({ "wait_ms": 5 })).await.error(400, "invalid_field");
}

#[tokio::test]
async fn the_same_idempotency_key_is_the_same_call_from_header_or_field() {
    let server = server().await;
    let _worker = server.with_functions().await;
    let with_header = |params| {
        let request = server.request(Method::POST, "/v1/functions/echo/call").header("idempotency-key", "once");
        answer(request.json(&json!({ "params": params })))
    };
    let first = with_header(json!(1)).await.with(200);
    let again = server.post("/v1/functions/echo/call", json!({ "params": 1, "idempotency_key": "once" })).await.with(200);
    assert_eq!(first["call_id"], again["call_id"]);
    let detached = server.post("/v1/functions/echo/calls", json!({ "params": 1, "idempotency_key": "once" })).await.with(202);
    assert_eq!((&detached["existing"], &detached["call_id"]), (&json!(true), &first["call_id"]));
    let other = with_header(json!(2)).await.error(422, "idempotency_conflict");
    assert_eq!((&other["field"], &other["details"]["call_id"]), (&json!("idempotency_key"), &first["call_id"]));
}

#[tokio::test]
async fn the_same_call_id_is_the_same_call_and_not_another() {
    let server = server().await;
    let _worker = server.with_functions().await;
    let call = |params| server.post("/v1/functions/echo/call", json!({ "params": params, "call_id": "c-1" }));
    assert_eq!(call(1).await.with(200), call(1).await.with(200));
    assert_eq!(call(2).await.error(422, "idempotency_conflict")["field"], "call_id");
}

#[tokio::test]
async fn calls_are_listed_newest_first_in_pages_and_by_filter() {
    let server = server().await;
    let _worker = server.with_functions().await;
    for n in 0..5 {
        server.post("/v1/functions/echo/call", json!({ "params": n })).await.with(200);
    }
    server.post("/v1/functions/fail/call", json!({})).await.error(424, "call_failed");
    let brief = server.get("/v1/calls?state=completed&limit=1").await.with(200);
    let call = &brief["calls"][0];
    assert_eq!((call["state"].as_str(), call["outcome"].clone()), (Some("completed"), json!({ "kind": "ok" })), "{call}");
    assert!(["params", "input_item", "depth", "progress"].iter().all(|field| call.get(field).is_none()), "{call}");
    let first = server.get("/v1/calls?state=completed&limit=3&payloads=true").await.with(200);
    let params = |page: &serde_json::Value| {
        page["calls"].as_array().unwrap().iter().map(|call| call["params"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(params(&first), [4, 3, 2]);
    let second =
        server.get(&format!("/v1/calls?state=completed&limit=3&payloads=true&after={}", first["next"].as_str().unwrap())).await.with(200);
    assert_eq!(params(&second), [1, 0]);
    assert!(second["next"].is_null(), "{second}");
    let failed = server.get("/v1/calls?state=failed,dead&function=fail").await.with(200);
    assert_eq!(failed["calls"][0]["outcome"]["error"]["code"], "out_of_stock");
    assert_eq!(server.get("/v1/calls?scope=elsewhere").await.with(200)["calls"], json!([]));
}

#[tokio::test]
async fn a_queued_call_is_cancelled_at_once_and_its_caller_learns_of_it() {
    let server = server().await;
    server.put("/v1/functions/unserved", json!({})).await.with(200);
    let call = server.post("/v1/functions/unserved/call", json!({ "call_id": "c-1" }));
    let cancel = async {
        // The call is there as soon as a wait for it finds it.
        while server.get("/v1/calls/c-1").await.status != 200 {
            tokio::task::yield_now().await;
        }
        server.delete("/v1/calls/c-1").await.with(200)
    };
    let (called, cancelled) = tokio::join!(call, cancel);
    assert_eq!(cancelled["result"], "cancelled");
    called.error(409, "call_cancelled");
    assert_eq!(server.delete("/v1/calls/c-1").await.with(200)["result"], "already_ended");
}

#[tokio::test]
async fn the_worker_of_a_running_call_is_told_to_stop_while_its_heartbeat_waits() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "long" }])).await;
    server.post("/v1/functions/long/calls", json!({ "call_id": "c-1" })).await.with(202);
    let delivery = worker.claim_one().await;
    let beat = worker.post("heartbeat", json!({ "delivery_ids": [delivery["delivery_id"]], "wait_ms": 20_000 }));
    let cancel = async { server.delete("/v1/calls/c-1").await.with(200) };
    let (beat, cancelled) = tokio::join!(beat, cancel);
    assert_eq!(cancelled["result"], "requested");
    assert_eq!(beat.with(200)["cancelled"], json!([delivery["delivery_id"]]));
    let result =
        json!({ "delivery_id": delivery["delivery_id"], "success": false, "error": { "code": "cancelled", "message": "stopped" } });
    worker.post("complete", json!({ "results": [result] })).await.with(200);
    assert_eq!(server.get("/v1/calls/c-1").await.with(200)["state"], "cancelled");
}

#[tokio::test]
async fn progress_reaches_whoever_waits_for_it() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "long" }])).await;
    server.post("/v1/functions/long/calls", json!({ "call_id": "c-1" })).await.with(202);
    let delivery = worker.claim_one().await;
    let watch = server.get("/v1/calls/c-1?wait_ms=20000&after_progress=0");
    let report = worker.post("progress", json!({ "delivery_id": delivery["delivery_id"], "progress": { "done": 1 } }));
    let (seen, reported) = tokio::join!(watch, report);
    reported.with(200);
    let seen = seen.with(200);
    assert_eq!((&seen["progress"]["number"], &seen["progress"]["value"]["done"]), (&json!(1), &json!(1)));
    assert_eq!(seen["state"], "running");
}

#[tokio::test]
async fn an_unknown_function_is_404_with_the_closest_names() {
    let server = server().await;
    let _worker = server.with_functions().await;
    let error = server.post("/v1/functions/ecko/call", json!({ "wait_for_function_ms": 0 })).await.error(404, "function_not_found");
    assert_eq!((&error["field"], &error["details"]["closest"]), (&json!("name"), &json!(["echo"])));
    assert!(error["hint"].as_str().unwrap().contains("'echo'"), "{error}");
}

#[tokio::test]
async fn a_call_waits_for_a_function_that_comes_a_moment_later() {
    let server = server().await;
    let call = server.post("/v1/functions/echo/call", json!({ "params": 7 }));
    let (called, _worker) = tokio::join!(call, server.with_functions());
    assert_eq!(called.with(200)["data"], 7);
}

#[tokio::test]
async fn a_caller_may_refuse_to_wait_for_a_worker() {
    let server = server().await;
    server.put("/v1/functions/unserved", json!({})).await.with(200);
    server.post("/v1/functions/unserved/call", json!({ "fail_without_workers": true })).await.error(503, "no_workers");
}

#[tokio::test]
async fn the_trace_of_a_request_travels_into_the_call_and_a_broken_one_does_not() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "traced" }])).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (header, expected) in [(trace.to_owned(), json!(trace)), ("x".repeat(5_000), json!(null))] {
        answer(server.request(Method::POST, "/v1/functions/traced/calls").header("traceparent", header).json(&json!({}))).await.with(202);
        let delivery = worker.claim_one().await;
        assert_eq!(delivery["traceparent"], expected);
        worker.complete(&delivery, json!(null)).await;
    }
}

#[tokio::test]
async fn two_hundred_callers_at_once_get_their_own_answers() {
    let server = server().await;
    let _worker = server.with_functions().await;
    let calls = (0..200).map(|n| {
        let request = server.request(Method::POST, "/v1/functions/echo/call").json(&json!({ "params": n }));
        tokio::spawn(async move { (n, answer(request).await.with(200)) })
    });
    for call in calls.collect::<Vec<_>>() {
        let (n, body) = call.await.unwrap();
        assert_eq!(body["data"], n);
    }
}
