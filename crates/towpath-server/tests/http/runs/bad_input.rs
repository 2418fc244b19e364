//! Hostile and mistaken requests about runs, as tables: each is answered with a status, a code and the field at fault, and leaves nothing
//! behind.

use serde_json::{Value, json};

use crate::support::{Answer, Server, server};

#[track_caller]
fn is_refused(answer: Answer, what: &str, status: u16, code: &str, field: &str) {
    let error = &answer.body["error"];
    let got = (answer.status.as_u16(), error["code"].as_str().unwrap_or_default(), error["field"].as_str().unwrap_or_default());
    assert_eq!(got, (status, code, field), "{what}: {}", answer.text);
    assert_eq!(answer.error(status, code)["effect"], "none", "{what}");
}

async fn check(server: &Server, path: &str, table: Vec<(Value, u16, &str, &str)>) {
    for (body, status, code, field) in table {
        is_refused(server.post(path, body.clone()).await, &body.to_string().chars().take(300).collect::<String>(), status, code, field);
    }
}

const NO_RUN: &str = "0123456789-0123456789abcdefghjkmnpqrs";

#[tokio::test]
async fn starts_that_cannot_be() {
    let server = server().await;
    let long = "x".repeat(300);
    let start = |more: Value| {
        let mut body = json!({ "workflow": "order", "version": "1" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let table = vec![
        (json!({}), 400, "missing_field", "workflow"),
        (json!({ "workflow": "" }), 400, "invalid_name", "workflow"),
        (json!({ "workflow": "a\nb" }), 400, "invalid_name", "workflow"),
        (json!({ "workflow": long }), 400, "invalid_name", "workflow"),
        (json!({ "workflow": 5 }), 400, "invalid_field", "workflow"),
        (start(json!({ "version": "" })), 400, "invalid_name", "version"),
        (start(json!({ "version": "v".repeat(65) })), 400, "invalid_name", "version"),
        (start(json!({ "shard": "s".repeat(65) })), 400, "invalid_name", "shard"),
        (start(json!({ "reference": "" })), 400, "invalid_name", "reference"),
        (start(json!({ "reference": long })), 400, "invalid_name", "reference"),
        (start(json!({ "on_conflict": "ignore" })), 400, "invalid_field", "on_conflict"),
        (start(json!({ "reuse": "always" })), 400, "invalid_field", "reuse"),
        (start(json!({ "delay_ms": -1 })), 400, "out_of_range", "delay_ms"),
        (start(json!({ "delay_ms": 604_800_001 })), 400, "out_of_range", "delay_ms"),
        (start(json!({ "delay_ms": "5m" })), 400, "invalid_field", "delay_ms"),
        (start(json!({ "deadline_ms": 0 })), 400, "out_of_range", "deadline_ms"),
        (start(json!({ "retain_ms": 0 })), 400, "out_of_range", "retain_ms"),
        (start(json!({ "dealy_ms": 5 })), 400, "unknown_field", "dealy_ms"),
        (start(json!({ "event": [] })), 400, "invalid_field", "event"),
        (start(json!({ "event": { "event": "" } })), 400, "invalid_name", "event.event"),
        (start(json!({ "event": { "event": "a", "reference": "" } })), 400, "invalid_name", "event.reference"),
        (start(json!({ "input": "x".repeat(1_100_000) })), 413, "payload_too_large", "input"),
        (start(json!({ "event": { "event": "a", "data": "x".repeat(1_100_000) } })), 413, "payload_too_large", "data"),
    ];
    check(&server, "/v1/runs", table).await;
    let huge = r#"{"workflow":"order","version":"1","input":{"n":1e400}}"#;
    is_refused(server.post_bytes("/v1/runs", huge).await, huge, 422, "unencodable_input", "input");
    is_refused(server.post_bytes("/v1/runs", "{").await, "{", 400, "invalid_json", "body");
    assert_eq!(server.get("/v1/runs").await.with(200)["runs"], json!([]), "nothing was started");
}

#[tokio::test]
async fn questions_about_runs_that_cannot_be() {
    let server = server().await;
    for path in ["", "/wait", "/journal", "/published", "/export"] {
        is_refused(server.get(&format!("/v1/runs/nonsense{path}")).await, path, 400, "invalid_name", "run_id");
        is_refused(server.get(&format!("/v1/runs/{NO_RUN}{path}")).await, path, 404, "run_not_found", "run_id");
    }
    for verb in ["cancel", "terminate", "pause", "resume"] {
        is_refused(server.run_verb("nonsense", verb, json!({})).await, verb, 400, "invalid_name", "run_id");
        is_refused(server.run_verb(NO_RUN, verb, json!({})).await, verb, 404, "run_not_found", "run_id");
    }
    is_refused(server.run_verb(NO_RUN, "cancel", json!({ "reason": "x".repeat(3_000) })).await, "reason", 400, "invalid_field", "reason");
    is_refused(server.run_verb(NO_RUN, "cancel", json!({ "why": "x" })).await, "why", 400, "unknown_field", "why");
    for (query, code, field) in [
        ("state=queued", "invalid_field", "state"),
        ("cause=bad_luck", "invalid_field", "cause"),
        ("parent=nonsense", "invalid_name", "parent"),
        ("cursor=nonsense", "invalid_field", "cursor"),
        ("limit=0", "out_of_range", "limit"),
        ("limit=201", "out_of_range", "limit"),
        ("workflow=", "invalid_name", "workflow"),
        ("since=yesterday", "invalid_field", "since"),
        ("sort=asc", "unknown_field", "sort"),
    ] {
        is_refused(server.get(&format!("/v1/runs?{query}")).await, query, 400, code, field);
    }
    is_refused(server.get(&format!("/v1/runs/{NO_RUN}/wait?wait_ms=60001")).await, "wait", 400, "out_of_range", "wait_ms");
}

#[tokio::test]
async fn events_that_cannot_be() {
    let server = server().await;
    let run_id = server.start_run("order", json!(1)).await;
    let table = vec![
        (json!({}), 400, "missing_field", "event"),
        (json!({ "event": "" }), 400, "invalid_name", "event"),
        (json!({ "event": "a", "reference": "" }), 400, "invalid_name", "reference"),
        (json!({ "event": "a", "date": 1 }), 400, "unknown_field", "date"),
        (json!({ "event": "a", "data": "x".repeat(1_100_000) }), 413, "payload_too_large", "data"),
    ];
    check(&server, &format!("/v1/runs/{run_id}/send"), table).await;
    is_refused(server.run_verb(NO_RUN, "send", json!({ "event": "a" })).await, "no run", 404, "run_not_found", "run_id");
    let ids: Vec<&str> = vec![NO_RUN; 1_001];
    let table = vec![
        (json!({ "event": "a" }), 400, "missing_field", "run_ids"),
        (json!({ "event": "a", "references": ["r"] }), 400, "missing_field", "workflow"),
        (json!({ "event": "a", "run_ids": [run_id], "workflow": "order" }), 422, "ambiguous", "run_ids"),
        (json!({ "event": "a", "run_ids": [run_id, "nonsense"] }), 400, "invalid_name", "run_ids[1]"),
        (json!({ "event": "a", "workflow": "order", "references": [""] }), 400, "invalid_name", "references[0]"),
        (json!({ "event": "a", "run_ids": ids }), 413, "batch_too_large", "run_ids"),
    ];
    check(&server, "/v1/runs:send", table).await;
    assert_eq!(server.run(&run_id).await["unconsumed_events"], 0, "nothing was sent");
}

#[tokio::test]
async fn workers_that_cannot_be() {
    let server = server().await;
    let worker = |more: Value| {
        let mut body = json!({ "build": "b", "workflows": [{ "workflow": "order", "version": "1" }] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let table = vec![
        (json!({ "workflows": [] }), 400, "missing_field", "build"),
        (worker(json!({ "build": "" })), 400, "invalid_name", "build"),
        (worker(json!({ "workflows": [] })), 400, "invalid_field", "workflows"),
        (worker(json!({ "workflows": [{ "workflow": "order" }] })), 400, "missing_field", "workflows[0].version"),
        (
            worker(json!({ "workflows": [{ "workflow": "a", "version": "1" }, { "workflow": "", "version": "1" }] })),
            400,
            "invalid_name",
            "workflows[1].workflow",
        ),
        (worker(json!({ "worker_id": "a:b" })), 400, "invalid_name", "worker_id"),
        (worker(json!({ "lease_ms": 499 })), 400, "out_of_range", "lease_ms"),
        (worker(json!({ "lease_ms": 3_600_001 })), 400, "out_of_range", "lease_ms"),
    ];
    check(&server, "/v1/run-workers", table).await;
    let known = server.run_worker("order").await;
    let path = |verb: &str| format!("/v1/run-workers/{}/{verb}", known.id);
    check(
        &server,
        &path("claim"),
        vec![
            (json!({ "max": 0 }), 400, "out_of_range", "max"),
            (json!({ "max": 101 }), 400, "out_of_range", "max"),
            (json!({ "wait_ms": 60_001 }), 400, "out_of_range", "wait_ms"),
        ],
    )
    .await;
    check(
        &server,
        &path("renew"),
        vec![
            (json!({ "runs": [{ "run_id": "nonsense", "epoch": 1 }] }), 400, "invalid_name", "runs[0].run_id"),
            (json!({ "runs": [{ "run_id": NO_RUN }] }), 400, "missing_field", "runs[0].epoch"),
        ],
    )
    .await;
    is_refused(server.post("/v1/run-workers/unknown/claim", json!({})).await, "claim", 404, "worker_not_found", "worker_id");
}

#[tokio::test]
async fn commits_that_do_not_fit_are_refused_and_write_nothing() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!(1)).await;
    let mut held = worker.claim().await;
    let done = held.task("reserve", json!(1)).await;
    let sleep = held.open(json!({ "kind": "sleep", "sleep_ms": 3_600_000 })).await;
    let event = held.open(json!({ "kind": "event", "name": "approved" })).await;
    server.run_verb(&run_id, "send", json!({ "event": "other" })).await.with(202);
    let no_step = "0".repeat(32);
    let steps = |steps: Value| held.body(&steps, &json!({ "kind": "stay" }));
    let new = |step: Value| steps(json!([{ "step": step }]));
    let then = |then: Value| held.body(&json!([]), &then);
    let many: Vec<Value> = vec![json!({ "step": { "kind": "task", "name": "a" } }); 501];
    let table = vec![
        (new(json!({})), 400, "missing_field", "steps[0].step.kind"),
        (new(json!({ "kind": "mark", "name": "a" })), 422, "bad_step", "steps[0].step.kind"),
        (new(json!({ "kind": "task" })), 422, "bad_step", "steps[0].step.name"),
        (new(json!({ "kind": "task", "name": "" })), 400, "invalid_name", "steps[0].step.name"),
        (new(json!({ "kind": "task", "name": "a", "sleep_ms": 1 })), 422, "bad_step", "steps[0].step.sleep_ms"),
        (new(json!({ "kind": "task", "name": "a", "key": "k".repeat(257) })), 422, "bad_step", "steps[0].step.key"),
        (new(json!({ "kind": "sleep" })), 422, "bad_step", "steps[0].step.sleep_ms"),
        (new(json!({ "kind": "sleep", "sleep_ms": 1, "until": 1 })), 422, "bad_step", "steps[0].step.sleep_ms"),
        (new(json!({ "kind": "sleep", "name": "nap", "sleep_ms": 1 })), 422, "bad_step", "steps[0].step.name"),
        (new(json!({ "kind": "event", "name": "a", "deadline_ms": 0 })), 400, "out_of_range", "steps[0].step.deadline_ms"),
        (new(json!({ "kind": "child", "name": "a" })), 422, "bad_step", "steps[0].step.version"),
        (new(json!({ "kind": "child", "name": "a", "version": "1", "on_close": "kill" })), 422, "bad_step", "steps[0].step.on_close"),
        (new(json!({ "kind": "send", "name": "a" })), 422, "bad_step", "steps[0].step.to"),
        (new(json!({ "kind": "send", "name": "a", "to": "nonsense" })), 400, "invalid_name", "steps[0].step.to"),
        (steps(json!([{}])), 422, "bad_entry", "steps[0]"),
        (steps(json!([{ "step": { "kind": "task", "name": "a" }, "step_id": done }])), 422, "bad_entry", "steps[0]"),
        (steps(json!([{ "step_id": "nonsense", "out": "ok" }])), 400, "invalid_name", "steps[0].step_id"),
        (steps(json!([{ "step_id": no_step, "out": "ok" }])), 422, "bad_entry", "steps[0].step_id"),
        (steps(json!([{ "step_id": done, "out": "ok" }])), 422, "bad_entry", "steps[0].step_id"),
        (steps(json!([{ "step_id": sleep, "out": "ok" }])), 422, "bad_entry", "steps[0].out"),
        (steps(json!([{ "step_id": sleep, "out": "ok", "fact": 1 }])), 422, "bad_entry", "steps[0]"),
        (steps(json!([{ "step_id": sleep, "fact": 1 }])), 422, "bad_entry", "steps[0].fact"),
        (steps(json!([{ "step_id": event, "fact": 1 }])), 422, "bad_entry", "steps[0].fact"),
        (steps(json!([{ "step_id": event, "fact": 9 }])), 422, "bad_entry", "steps[0].fact"),
        (steps(json!([{ "fact": 1 }])), 422, "bad_entry", "steps[0].fact"),
        (steps(json!([{ "step": { "kind": "task", "name": "a" }, "value": 1 }])), 422, "bad_entry", "steps[0].out"),
        (steps(json!([{ "step": { "kind": "task", "name": "a" }, "out": "fine" }])), 422, "bad_entry", "steps[0].out"),
        (steps(json!([{ "step": { "kind": "task", "name": "a" }, "out": "err" }])), 422, "bad_entry", "steps[0].error"),
        (
            steps(json!([{ "step": { "kind": "task", "name": "a" }, "out": "ok", "error": { "message": "x" } }])),
            422,
            "bad_entry",
            "steps[0].error",
        ),
        (steps(json!(many)), 413, "batch_too_large", "steps"),
        (then(json!({ "kind": "vanish" })), 400, "invalid_field", "then.kind"),
        (then(json!({ "kind": "fail" })), 400, "missing_field", "then.error"),
        (then(json!({ "kind": "block" })), 400, "missing_field", "then.cause"),
        (then(json!({ "kind": "block", "cause": "poisoned" })), 400, "invalid_field", "then.cause"),
        (then(json!({ "kind": "park", "value": 1 })), 400, "invalid_field", "then.value"),
        (then(json!({ "kind": "complete", "value": "x".repeat(1_100_000) })), 413, "payload_too_large", "value"),
    ];
    check(&server, &format!("/v1/runs/{run_id}/commit"), table).await;
    let mut published = held.body(&json!([]), &json!({ "kind": "stay" }));
    published["publish"] = json!({ "$blocked": 1 });
    is_refused(server.run_verb(&run_id, "commit", published).await, "publish", 400, "invalid_name", "publish");
    assert_eq!(server.journal_kinds(&run_id).await, ["begin", "open", "done", "open", "open"], "nothing was written");
    held.complete(json!("it goes on")).await;
}

#[tokio::test]
async fn a_commit_to_a_run_that_no_worker_has_is_lost() {
    let server = server().await;
    let body = json!({ "worker_id": "w", "epoch": 1, "revision": 0 });
    assert_eq!(server.run_verb(NO_RUN, "commit", body.clone()).await.with(200)["result"], "lost");
    let ready = server.start_run("order", json!(1)).await;
    assert_eq!(server.run_verb(&ready, "commit", body).await.with(200)["result"], "lost");
}
