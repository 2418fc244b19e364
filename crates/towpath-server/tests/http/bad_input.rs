//! Hostile and mistaken input, as one table: each line is answered with a status, a code and the field at fault, and never with a 500.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Server, answer, server};

/// A request that must be refused.
struct Bad {
    what: &'static str,
    method: Method,
    path: String,
    body: Vec<u8>,
    status: u16,
    code: &'static str,
    field: &'static str,
}

fn post(what: &'static str, path: &str, body: impl Into<Vec<u8>>, status: u16, code: &'static str, field: &'static str) -> Bad {
    Bad { what, method: Method::POST, path: path.to_owned(), body: body.into(), status, code, field }
}

fn get(what: &'static str, path: &str, status: u16, code: &'static str, field: &'static str) -> Bad {
    Bad { what, method: Method::GET, path: path.to_owned(), body: Vec::new(), status, code, field }
}

async fn send(server: &Server, bad: &Bad) -> Answer {
    let mut request = server.request(bad.method.clone(), &bad.path);
    if !bad.body.is_empty() {
        request = request.header("content-type", "application/json").body(bad.body.clone());
    }
    answer(request).await
}

async fn check(table: Vec<Bad>) {
    let server = server().await;
    let _worker = server.with_functions().await;
    for bad in &table {
        let answer = send(&server, bad).await;
        let error = &answer.body["error"];
        let got = (answer.status.as_u16(), error["code"].as_str().unwrap_or_default(), error["field"].as_str().unwrap_or_default());
        assert_eq!(got, (bad.status, bad.code, bad.field), "{}: {}", bad.what, answer.text);
        answer.error(bad.status, bad.code);
    }
    // Nothing of it has hurt the server.
    assert_eq!(server.post("/v1/functions/echo/call", json!({ "params": 1 })).await.with(200)["data"], 1);
}

const CALL: &str = "/v1/functions/echo/call";

#[tokio::test]
async fn bodies_that_are_no_json_or_too_much_of_it() {
    let nested = |levels: usize| format!("{{\"params\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
    check(vec![
        post("plain text", CALL, "hello", 400, "invalid_json", "body"),
        post("cut off", CALL, r#"{"params": {"a":"#, 400, "invalid_json", "body"),
        post("a byte order mark", CALL, "\u{feff}{}", 400, "invalid_json", "body"),
        post("something after the end", CALL, "{} {}", 400, "invalid_json", "body"),
        post("a comment", CALL, "{/* hi */}", 400, "invalid_json", "body"),
        post("not a number", CALL, r#"{"params": NaN}"#, 400, "invalid_json", "body"),
        post("not UTF-8", CALL, b"{\"params\": \"\xff\xfe\"}".to_vec(), 400, "invalid_json", "body"),
        post(
            "half a surrogate in a name",
            "/v1/workers",
            r#"{"functions":[{"name":"\ud800"}]}"#,
            400,
            "invalid_field",
            "functions[0].name",
        ),
        post("a control character in a string", CALL, "{\"params\": \"\u{0}\"}", 400, "invalid_json", "body"),
        post("nesting of 10,000", CALL, nested(10_000), 400, "too_deep", "body"),
        post("nesting of 1,000,000 that never closes", CALL, "[".repeat(1_000_000), 400, "too_deep", "body"),
        post("nesting of 65", CALL, nested(64), 400, "too_deep", "body"),
        post("10 MB", CALL, format!("{{\"params\":\"{}\"}}", "x".repeat(10_000_000)), 413, "payload_too_large", "body"),
        post(
            "params over the function's limit",
            CALL,
            format!("{{\"params\":\"{}\"}}", "x".repeat(2_000_000)),
            413,
            "payload_too_large",
            "params",
        ),
    ])
    .await;
}

#[tokio::test]
async fn fields_of_the_wrong_shape() {
    let register = "/v1/workers";
    check(vec![
        post("an array instead of an object", CALL, "[]", 400, "invalid_field", "body"),
        post("a string instead of an object", CALL, "\"x\"", 400, "invalid_field", "body"),
        post("a number as text", CALL, r#"{"timeout_ms":"5000"}"#, 400, "invalid_field", "timeout_ms"),
        post("a bool as text", CALL, r#"{"fail_without_workers":"yes"}"#, 400, "invalid_field", "fail_without_workers"),
        post("a name as a number", CALL, r#"{"scope":5}"#, 400, "invalid_field", "scope"),
        post("a worker of no kind", register, r#"{"kind":"","functions":[{"name":"a"}]}"#, 400, "invalid_name", "kind"),
        post("a misspelt field", CALL, r#"{"timeot_ms":5}"#, 400, "unknown_field", "timeot_ms"),
        post("the same field twice", CALL, r#"{"scope":"a","scope":"a"}"#, 400, "duplicate_field", "scope"),
        post("no functions field", register, "{}", 400, "missing_field", "functions"),
        post("no functions", register, r#"{"functions":[]}"#, 400, "invalid_field", "functions"),
        post("a function without a name", register, r#"{"functions":[{"name":"a"},{}]}"#, 400, "missing_field", "functions[1].name"),
        post(
            "the same function twice",
            register,
            r#"{"functions":[{"name":"a"},{"name":"a"}]}"#,
            400,
            "invalid_field",
            "functions[1].name",
        ),
        post(
            "a misspelt nested field",
            register,
            r#"{"functions":[{"name":"a","retry":{"tries":1}}]}"#,
            400,
            "unknown_field",
            "functions[0].retry.tries",
        ),
        post(
            "an unknown back-off",
            register,
            r#"{"functions":[{"name":"a","retry":{"backoff":{"kind":"random"}}}]}"#,
            400,
            "invalid_field",
            "functions[0].retry.backoff.kind",
        ),
        post(
            "parameters that define nothing",
            register,
            r#"{"functions":[{"name":"a","parameters":5}]}"#,
            400,
            "invalid_field",
            "functions[0].parameters",
        ),
        post(
            "a broken JSON Schema",
            register,
            r#"{"functions":[{"name":"a","parameters":{"type":"nonsense"}}]}"#,
            400,
            "invalid_field",
            "functions[0].parameters",
        ),
        post(
            "a result without an error",
            "/v1/workers/w/complete",
            r#"{"results":[{"delivery_id":"1-c","success":false}]}"#,
            400,
            "missing_field",
            "results[0].error",
        ),
        post(
            "a result with both",
            "/v1/workers/w/complete",
            r#"{"results":[{"delivery_id":"1-c","success":true,"error":{"message":"x"}}]}"#,
            400,
            "invalid_field",
            "results[0].error",
        ),
        post("dead letters without a filter", "/v1/dead-letters:drop", "[]", 400, "invalid_field", "body"),
        get("an unknown query parameter", "/v1/calls?stat=dead", 400, "unknown_field", "stat"),
        get("an unknown state", "/v1/calls?state=queued,lost", 400, "invalid_field", "state"),
        get("an unknown reason", "/v1/dead-letters?reason=bored", 400, "invalid_field", "reason"),
        get("a page that is none", "/v1/calls?after=x", 400, "invalid_field", "after"),
        get("bad UTF-8 in a query", "/v1/calls?function=%ff", 400, "invalid_field", "function"),
    ])
    .await;
}

#[tokio::test]
async fn numbers_out_of_range() {
    let number = |field: &str, number: &str| format!("{{\"{field}\":{number}}}");
    let mut table = Vec::new();
    for bad in
        ["0", "-1", "1.5", "1e400", "-1e400", "2592000001", "9223372036854775808", "18446744073709551616", "123456789012345678901234567890"]
    {
        table.push(post("timeout_ms", CALL, number("timeout_ms", bad), 400, "out_of_range", "timeout_ms"));
        table.push(post("retain_ms", CALL, number("retain_ms", bad), 400, "out_of_range", "retain_ms"));
    }
    for (field, bad) in [
        ("wait_ms", "60001"),
        ("wait_ms", "-1"),
        ("max", "0"),
        ("max", "1001"),
        ("max", "4294967296"),
        ("lease_ms", "99"),
        ("lease_ms", "604800001"),
    ] {
        table.push(post("claim", "/v1/workers/w/claim", number(field, bad), 400, "out_of_range", field));
    }
    table.push(post("wait_for_function_ms", CALL, number("wait_for_function_ms", "600001"), 400, "out_of_range", "wait_for_function_ms"));
    for (name, field, bad) in [
        ("failures", "attempts_before.failures", "-1"),
        ("failures", "attempts_before.failures", "1000001"),
        ("crashes", "attempts_before.crashes", "1.5"),
        ("crashes", "attempts_before.crashes", "4294967296"),
    ] {
        let body = format!(r#"{{"attempts_before":{}}}"#, number(name, bad));
        table.push(post("attempts before", CALL, body, 400, "out_of_range", field));
    }
    let offer = |text: &str| format!(r#"{{"functions":[{{"name":"a",{text}}}]}}"#);
    for (text, field) in [
        (r#""concurrency":0"#, "functions[0].concurrency"),
        (r#""concurrency":-1"#, "functions[0].concurrency"),
        (r#""retry":{"max_attempts":0}"#, "functions[0].retry.max_attempts"),
        (r#""retry":{"backoff":{"kind":"fixed","delay_ms":604800001}}"#, "functions[0].retry.backoff.delay_ms"),
        (r#""limits":{"max_payload_bytes":99999999}"#, "functions[0].limits.max_payload_bytes"),
    ] {
        table.push(post("offer", "/v1/workers", offer(text), 400, "out_of_range", field));
    }
    for (query, field) in [("limit=0", "limit"), ("limit=201", "limit"), ("limit=-1", "limit"), ("limit=99999999999999999999", "limit")] {
        table.push(get("list", &format!("/v1/calls?{query}"), 400, "out_of_range", field));
    }
    table.push(get("wait", "/v1/calls/c?wait_ms=2592000001", 400, "out_of_range", "wait_ms"));
    check(table).await;
}

#[tokio::test]
async fn a_number_out_of_range_is_answered_with_its_bounds() {
    let server = server().await;
    for body in [r#"{"timeout_ms":-5}"#, r#"{"timeout_ms":0}"#] {
        let error = server.post_bytes(CALL, body).await.error(400, "out_of_range");
        assert_eq!(error["details"], json!({ "min": 1, "max": 2_592_000_000_u64 }), "{body}");
    }
}

#[tokio::test]
async fn names_that_cannot_be_names() {
    let long = "n".repeat(300);
    let path = |name: &str| format!("/v1/functions/{name}/call");
    check(vec![
        post("a name of 300 bytes", &path(&long), "{}", 400, "invalid_name", "name"),
        post("NUL in a name", &path("a%00b"), "{}", 400, "invalid_name", "name"),
        post("a newline in a name", &path("a%0Ab"), "{}", 400, "invalid_name", "name"),
        post("bad UTF-8 in a name", &path("%ff%fe"), "{}", 400, "invalid_name", "path"),
        post("half a percent", &path("%e2%82"), "{}", 400, "invalid_name", "path"),
        post("a reserved name", &path("global_config"), "{}", 400, "invalid_name", "name"),
        post("a reserved beginning", &path("meta:x"), "{}", 400, "invalid_name", "name"),
        post("an empty scope", CALL, r#"{"scope":""}"#, 400, "invalid_name", "scope"),
        post("a scope with a colon", CALL, r#"{"scope":"a:b"}"#, 400, "invalid_name", "scope"),
        post("an empty call id", CALL, r#"{"call_id":""}"#, 400, "invalid_name", "call_id"),
        post("a reserved call id", CALL, r#"{"call_id":"inbox:1"}"#, 400, "invalid_name", "call_id"),
        post("an escaped NUL in a key", CALL, r#"{"idempotency_key":"\u0000"}"#, 400, "invalid_name", "idempotency_key"),
        post("a key of 300 bytes", CALL, format!(r#"{{"idempotency_key":"{long}"}}"#), 400, "invalid_name", "idempotency_key"),
        post("an empty name in an offer", "/v1/workers", r#"{"functions":[{"name":""}]}"#, 400, "invalid_name", "functions[0].name"),
        post(
            "a long name in an offer",
            "/v1/workers",
            format!(r#"{{"functions":[{{"name":"{long}"}}]}}"#),
            400,
            "invalid_name",
            "functions[0].name",
        ),
        post(
            "a worker id with a colon",
            "/v1/workers",
            r#"{"worker_id":"a:b","functions":[{"name":"a"}]}"#,
            400,
            "invalid_name",
            "worker_id",
        ),
        post("a delivery id that is none", CALL, r#"{"parent_delivery_id":"x"}"#, 400, "invalid_name", "parent_delivery_id"),
        post(
            "a delivery id that is none",
            "/v1/workers/w/complete",
            r#"{"results":[{"delivery_id":"","success":true}]}"#,
            400,
            "invalid_name",
            "results[0].delivery_id",
        ),
        get("NUL in a call id", "/v1/calls/a%00b", 400, "invalid_name", "call_id"),
        get("an empty function to list", "/v1/calls?function=", 400, "invalid_name", "function"),
        post("no name at all", "/v1/functions//call", "{}", 400, "invalid_name", "name"),
    ])
    .await;
}

#[tokio::test]
async fn things_that_are_not_there() {
    let quick = r#"{"wait_for_function_ms":0}"#;
    let mut table = vec![
        post("a function", "/v1/functions/nothing/call", quick, 404, "function_not_found", "name"),
        post("a function in a scope", CALL, r#"{"scope":"elsewhere","wait_for_function_ms":0}"#, 404, "function_not_found", "name"),
        get("a function", "/v1/functions/nothing", 404, "function_not_found", "name"),
        get("a call", "/v1/calls/nothing", 404, "call_not_found", "call_id"),
        get("a path as an id", "/v1/calls/..%2f..%2fetc%2fpasswd", 404, "call_not_found", "call_id"),
        get("a call that is waited for", "/v1/calls/nothing?wait_ms=10", 404, "call_not_found", "call_id"),
        post("a worker", "/v1/workers/nobody/claim", "{}", 404, "worker_not_found", "worker_id"),
        post("a worker", "/v1/workers/nobody/heartbeat", "{}", 404, "worker_not_found", "worker_id"),
        get("a dead letter", "/v1/dead-letters/nothing", 404, "dead_letter_not_found", "call_id"),
        post("a dead letter", "/v1/dead-letters/nothing/replay", "", 404, "dead_letter_not_found", "call_id"),
        get("a path", "/v2/calls", 404, "route_not_found", "path"),
        get("a path with a slash in a name", "/v1/functions/a/b", 404, "route_not_found", "path"),
        get("a path with a suffix", "/v1/calls;x", 404, "route_not_found", "path"),
        get("a path with two slashes", "//v1/calls", 404, "route_not_found", "path"),
        get("a path in capitals", "/V1/calls", 404, "route_not_found", "path"),
    ];
    for path in ["/v1/calls/nothing", "/v1/workers/nobody", "/v1/dead-letters/nothing", "/v1/functions/nothing"] {
        let (code, field) = match path {
            "/v1/calls/nothing" => ("call_not_found", "call_id"),
            "/v1/workers/nobody" => ("worker_not_found", "worker_id"),
            "/v1/functions/nothing" => ("function_not_found", "name"),
            _ => ("dead_letter_not_found", "call_id"),
        };
        table.push(Bad { method: Method::DELETE, ..get("deleting", path, 404, code, field) });
    }
    table.push(Bad { method: Method::PATCH, ..get("a method", "/v1/calls", 405, "method_not_allowed", "method") });
    table.push(Bad { method: Method::OPTIONS, ..get("a preflight", CALL, 405, "method_not_allowed", "method") });
    check(table).await;
}

#[tokio::test]
async fn only_json_is_taken_whatever_the_body_looks_like() {
    let server = server().await;
    let _worker = server.with_functions().await;
    let kinds = [
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("multipart/form-data; boundary=x"),
        Some("text/json"),
        Some("application/jsonp"),
        Some(""),
        None,
    ];
    for kind in kinds {
        let request = server.request(Method::POST, CALL).body(r#"{"params":1}"#);
        let request = match kind {
            Some(kind) => request.header("content-type", kind),
            None => request,
        };
        let error = answer(request).await.error(415, "unsupported_media_type");
        assert_eq!(error["field"], "content-type", "{kind:?}");
    }
    let zipped = server.request(Method::POST, CALL).header("content-type", "application/json").header("content-encoding", "gzip");
    answer(zipped.body("x")).await.error(415, "unsupported_media_type");
    for kind in ["application/json", "Application/JSON; charset=utf-8"] {
        let request = server.request(Method::POST, CALL).header("content-type", kind).body(r#"{"params":1}"#);
        assert_eq!(answer(request).await.with(200)["data"], 1);
    }
    assert_eq!(answer(server.request(Method::POST, CALL)).await.with(200)["data"], json!({}), "nothing at all is a call with no params");
}

#[tokio::test]
async fn names_with_all_sorts_of_characters_are_taken_literally() {
    let server = server().await;
    let names = ["a:b", "a/b", "{a}", "100%", "%2F", "a b", "заказ", "🚢", "a?b#c", "*", "\"", "<b>", &"x".repeat(256)];
    let offers: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    let worker = server.pull_worker(json!(offers)).await;
    for name in names {
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let submitted = server.post(&format!("/v1/functions/{encoded}/calls"), json!({})).await.with(202);
        let delivery = worker.claim_one().await;
        assert_eq!((&delivery["function_name"], &delivery["call_id"]), (&json!(name), &submitted["call_id"]));
        worker.complete(&delivery, json!(null)).await;
        let shown = server.get(&format!("/v1/functions/{encoded}")).await.with(200);
        assert_eq!(shown["name"], name);
    }
}

#[tokio::test]
async fn a_wrong_method_is_answered_with_the_right_ones() {
    let server = server().await;
    let refused = answer(server.request(Method::PUT, "/v1/calls/c-1")).await;
    let allowed = refused.headers["allow"].to_str().unwrap().to_owned();
    refused.error(405, "method_not_allowed");
    assert!(allowed.contains("GET") && allowed.contains("DELETE") && !allowed.contains("PUT"), "{allowed}");
}

#[tokio::test]
async fn a_name_of_dots_is_a_name_and_no_way_out() {
    let server = server().await;
    for name in ["..", ".", "..\\..", "%2e%2e"] {
        let request = format!("GET /v1/functions/{name} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let answer = server.raw(request).await;
        assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("function_not_found"), "{name}: {answer}");
    }
}

#[tokio::test]
async fn lists_in_requests_are_bounded() {
    let server = server().await;
    let ids: Vec<String> = (0..1_001).map(|n| format!("1-c{n}")).collect();
    let worker = server.pull_worker(json!([{ "name": "a" }])).await;
    let error = worker.post("heartbeat", json!({ "delivery_ids": ids })).await.error(413, "batch_too_large");
    assert_eq!((&error["field"], &error["details"]["limit"]), (&json!("delivery_ids"), &json!(1_000)));
    let results: Vec<Value> = ids.iter().map(|id| json!({ "delivery_id": id, "success": true })).collect();
    worker.post("complete", json!({ "results": results })).await.error(413, "batch_too_large");
    let progress = json!({ "delivery_id": "1-c", "progress": "x".repeat(70_000) });
    let error = worker.post("progress", progress).await.error(413, "payload_too_large");
    assert_eq!(error["field"], "progress");
}

#[tokio::test]
async fn a_parameter_that_is_sent_twice_and_a_number_out_of_range_are_refused_when_they_come() {
    let server = server().await;
    let parameters = json!([{ "name": "a", "type": "number" }]);
    server.put("/v1/functions/defined", json!({ "parameters": parameters })).await.with(200);
    for params in [r#"{"a": 1, "a": 2}"#, r#"{"a": 1e400}"#] {
        let request = server.request(Method::POST, "/v1/functions/defined/calls").header("content-type", "application/json");
        let error = answer(request.body(format!(r#"{{"params": {params}}}"#))).await.error(422, "invalid_params");
        assert_eq!(error["field"], "params.a", "{error}");
    }
}

#[tokio::test]
async fn params_that_the_function_does_not_take_name_the_parameter() {
    let server = server().await;
    let parameters = json!([{ "name": "a", "type": "integer", "required": true }, { "name": "b", "type": "string" }]);
    let schema = json!({ "type": "object", "properties": { "items": { "type": "array", "items": { "type": "integer" } } } });
    let _worker =
        server.pull_worker(json!([{ "name": "defined", "parameters": parameters }, { "name": "schema", "parameters": schema }])).await;
    let cases = [
        ("defined", json!({ "a": "one" }), "params.a"),
        ("defined", json!({ "a": 1, "b": 2 }), "params.b"),
        ("defined", json!({}), "params.a"),
        ("schema", json!({ "items": [1, "x"] }), "params.items.1"),
        ("defined", json!(1), "params"),
        ("schema", json!([]), "params"),
    ];
    for (function, params, field) in cases {
        let answer = server.post(&format!("/v1/functions/{function}/call"), json!({ "params": params })).await;
        let error = answer.error(422, "invalid_params");
        assert_eq!(error["field"], field, "{error}");
        let problem = &error["details"]["problems"][0];
        assert!(problem["expected"].is_string() && problem["got"].is_string(), "{problem}");
    }
}
