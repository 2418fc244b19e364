//! What callers do with runs: start, look, wait, send, ask.

use serde_json::{Value, json};

use crate::support::server;

#[tokio::test]
async fn a_start_with_the_same_reference_is_the_same_run() {
    let server = server().await;
    let start = |input: Value| json!({ "workflow": "order", "version": "1", "input": input, "reference": "order-42" });
    let first = server.post("/v1/runs", start(json!({ "a": 1, "b": 2 }))).await.with(201);
    assert_eq!((&first["existing"], &first["state"], &first["durability"]), (&json!(false), &json!("ready"), &json!("memory")));
    let again = server
        .post_bytes("/v1/runs", r#"{"workflow":"order","version":"1","input":{ "b":2.0,"a":1 },"reference":"order-42"}"#)
        .await
        .with(200);
    assert_eq!((&again["existing"], &again["run_id"]), (&json!(true), &first["run_id"]), "the same input, written otherwise");
    let other = server.post("/v1/runs", start(json!({ "a": 2 }))).await.error(409, "reference_conflict");
    assert_eq!((&other["details"]["run_id"], other["field"].as_str()), (&first["run_id"], Some("reference")));
    let mut taken = start(json!({ "a": 2 }));
    taken["on_conflict"] = json!("return_existing");
    assert_eq!(server.post("/v1/runs", taken).await.with(200)["run_id"], first["run_id"]);
    let run_id = first["run_id"].as_str().unwrap();
    server.run_verb(run_id, "terminate", json!({})).await.with(200);
    let mut anew = start(json!({ "a": 2 }));
    anew["reuse"] = json!("after_closed");
    assert_ne!(server.post("/v1/runs", anew).await.with(201)["run_id"], first["run_id"]);
}

#[tokio::test]
async fn a_start_without_a_version_takes_the_only_one_that_is_known() {
    let server = server().await;
    let bare = json!({ "workflow": "order" });
    let unknown = server.post("/v1/runs", bare.clone()).await.error(404, "workflow_not_found");
    assert_eq!(unknown["details"]["versions"], json!([]));
    let _worker = server.run_worker("order").await;
    let started = server.post("/v1/runs", bare.clone()).await.with(201);
    assert_eq!(server.run(started["run_id"].as_str().unwrap()).await["version"], "1");
    server.post("/v1/runs", json!({ "workflow": "order", "version": "2" })).await.with(201);
    assert_eq!(server.post("/v1/runs", bare).await.error(404, "workflow_not_found")["details"]["versions"], json!(["1", "2"]));
}

#[tokio::test]
async fn a_start_warns_while_no_worker_was_seen() {
    let server = server().await;
    let start = json!({ "workflow": "order", "version": "1" });
    assert_eq!(server.post("/v1/runs", start.clone()).await.with(201)["warnings"], json!(["no_worker_seen"]));
    let worker = server.run_worker("order").await;
    assert_eq!(server.post("/v1/runs", start.clone()).await.with(201)["warnings"], json!([]));
    worker.claim().await.complete(json!(1)).await;
    worker.leave().await;
    assert_eq!(server.post("/v1/runs", start).await.with(201)["warnings"], json!([]), "a worker has executed runs of it");
}

#[tokio::test]
async fn a_run_says_why_it_is_not_moving() {
    let server = server().await;
    let why = async |run_id: &str| server.run(run_id).await["why"].as_str().unwrap_or_default().to_owned();
    let run_id = server.start_run("order", json!(1)).await;
    assert!(why(&run_id).await.starts_with("no worker is known to serve order@1: start one"), "{}", why(&run_id).await);
    server.run_verb(&run_id, "pause", json!({})).await.with(200);
    assert!(why(&run_id).await.starts_with("paused: go on with"));
    server.run_verb(&run_id, "resume", json!({})).await.with(200);
    let worker = server.run_worker("order").await;
    assert!(why(&run_id).await.contains("for a free worker that serves order@1"));
    let mut held = worker.claim().await;
    assert_eq!(why(&run_id).await, format!("worker {} executes it", worker.id));
    held.open(json!({ "kind": "event", "name": "approved", "deadline_ms": 60_000 })).await;
    assert_eq!(held.park().await["held"], false);
    assert!(why(&run_id).await.starts_with("waits for event 'approved', or a timer until 2"), "{}", why(&run_id).await);
    let shown = server.run(&run_id).await;
    assert_eq!((&shown["waits_for"]["events"], shown["waits_for"]["timers"].as_array().map(Vec::len)), (&json!(["approved"]), Some(1)));
    let delayed = server.post("/v1/runs", json!({ "workflow": "order", "version": "1", "delay_ms": 60_000 })).await.with(201);
    assert_eq!(delayed["state"], "delayed");
    assert!(why(delayed["run_id"].as_str().unwrap()).await.starts_with("starts at 2"));
}

#[tokio::test]
async fn runs_are_listed_page_by_page_and_by_filter() {
    let server = server().await;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(server.start_run(if number < 3 { "order" } else { "mail" }, json!(number)).await);
    }
    server.run_verb(&ids[0], "cancel", json!({ "reason": "not wanted" })).await.with(200);
    let listed = async |query: &str| {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("/v1/runs?limit=2&{query}{cursor}")).await.with(200);
            found.extend(page["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        found.sort();
        found
    };
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    assert_eq!(listed("").await, sorted(ids.clone()));
    assert_eq!(listed("workflow=mail").await, sorted(ids[3..].to_vec()));
    assert_eq!(listed("state=cancelled,failed").await, [ids[0].clone()]);
    assert_eq!(listed("workflow=order&state=ready").await, sorted(ids[1..3].to_vec()));
    assert_eq!(listed("version=2").await, Vec::<String>::new());
    assert_eq!(listed("until=1").await, Vec::<String>::new());
    let brief = server.get("/v1/runs?state=cancelled").await.with(200);
    assert_eq!(brief["runs"][0]["outcome"], Value::Null, "lists carry no payloads");
}

#[tokio::test]
async fn a_wait_ends_with_the_run() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!(1)).await;
    let path = format!("/v1/runs/{run_id}/wait");
    assert_eq!(server.get(&format!("{path}?wait_ms=0")).await.with(202)["state"], "ready");
    let mut held = worker.claim().await;
    let waited = async { server.get(&format!("{path}?wait_ms=60000")).await.with(200) };
    let (waited, ()) = tokio::join!(waited, held.complete(json!({ "total": 1e3 })));
    assert_eq!((&waited["state"], &waited["outcome"]["data"]), (&json!("completed"), &json!({ "total": 1e3 })));
    assert_eq!(server.get(&path).await.with(200)["outcome"]["kind"], "completed", "a run that has closed is not waited for");
}

#[tokio::test]
async fn events_reach_runs_by_id_and_by_reference() {
    let server = server().await;
    let start = |reference: &str| json!({ "workflow": "order", "version": "1", "reference": reference });
    let one = server.post("/v1/runs", start("one")).await.with(201)["run_id"].as_str().unwrap().to_owned();
    let two = server.post("/v1/runs", start("two")).await.with(201)["run_id"].as_str().unwrap().to_owned();
    let event = json!({ "event": "approved", "data": { "granted": true }, "reference": "click-7" });
    let sent = server.run_verb(&one, "send", event.clone()).await.with(202);
    assert_eq!(
        (&sent["result"], &sent["number"], &sent["run_id"], &sent["durability"]),
        (&json!("accepted"), &json!(1), &json!(one), &json!("memory"))
    );
    assert_eq!(server.run_verb(&one, "send", event).await.with(202)["result"], "duplicate");
    assert_eq!(server.run(&one).await["unconsumed_events"], 1);
    server.run_verb(&two, "cancel", json!({})).await.with(200);
    let closed = server.run_verb(&two, "send", json!({ "event": "approved" })).await.error(409, "run_closed");
    assert_eq!(closed["details"]["state"], "cancelled");
    let many = json!({ "event": "approved", "workflow": "order", "references": ["one", "two", "three"] });
    let results = server.post("/v1/runs:send", many).await.with(202)["results"].clone();
    let words =
        |results: &Value| results.as_array().unwrap().iter().map(|sent| sent["result"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(words(&results), ["accepted", "run_closed", "run_not_found"]);
    assert_eq!((&results[0]["run_id"], &results[0]["reference"], &results[1]["state"]), (&json!(one), &json!("one"), &json!("cancelled")));
    let by_id = server.post("/v1/runs:send", json!({ "event": "again", "run_ids": [one, two] })).await.with(202);
    assert_eq!(words(&by_id["results"]), ["accepted", "run_closed"]);
}

#[tokio::test]
async fn a_start_with_an_event_starts_or_sends() {
    let server = server().await;
    let start = json!({ "workflow": "order", "version": "1", "reference": "cart-1", "event": { "event": "added", "data": "tea" } });
    let first = server.post("/v1/runs", start.clone()).await.with(201);
    assert_eq!(first["event"], "accepted");
    let mut second = start.clone();
    second["event"]["data"] = json!("milk");
    second["event"]["reference"] = json!("second");
    let again = server.post("/v1/runs", second).await.with(200);
    assert_eq!((&again["run_id"], &again["event"]), (&first["run_id"], &json!("accepted")));
    let held = server.run_worker("order").await.claim().await;
    let data: Vec<&Value> = held.run["facts"].as_array().unwrap().iter().map(|fact| &fact["data"]).collect();
    assert_eq!(data, [&json!("tea"), &json!("milk")]);
}

#[tokio::test]
async fn a_run_is_cancelled_terminated_paused_and_resumed() {
    let server = server().await;
    let run_id = server.start_run("order", json!(1)).await;
    assert_eq!(server.run_verb(&run_id, "pause", json!({})).await.with(200)["state"], "ready");
    let worker = server.run_worker("order").await;
    assert!(worker.claims_nothing().await, "a paused run is given to no worker");
    assert_eq!(server.run_verb(&run_id, "resume", json!({})).await.with(200)["state"], "ready");
    let mut held = worker.claim().await;
    let asked = server.run_verb(&run_id, "cancel", json!({ "reason": "not wanted" })).await.with(200);
    assert_eq!(asked["state"], "running", "its code is asked to end it");
    let fact = server
        .post(&format!("/v1/run-workers/{}/renew", worker.id), json!({ "runs": [{ "run_id": run_id, "epoch": held.run["epoch"] }] }))
        .await
        .with(200);
    assert_eq!((&fact["runs"][0]["cancel_requested"], &fact["runs"][0]["latest_fact"]), (&json!(true), &json!(1)));
    held.commit(json!([{ "fact": 1 }]), json!({ "kind": "cancel", "reason": "not wanted" })).await;
    let shown = server.run(&run_id).await;
    assert_eq!((&shown["state"], &shown["outcome"]["reason"]), (&json!("cancelled"), &json!("not wanted")));
    assert_eq!(server.journal_kinds(&run_id).await, ["begin", "cancel", "close"]);
    for verb in ["cancel", "terminate", "pause", "resume"] {
        server.run_verb(&run_id, verb, json!({})).await.error(409, "run_closed");
    }
    let other = server.start_run("order", json!(2)).await;
    server.run_verb(&other, "terminate", json!({ "reason": "a person said so" })).await.with(200);
    assert_eq!(server.run(&other).await["outcome"], json!({ "kind": "terminated", "reason": "a person said so" }));
}

#[tokio::test]
async fn an_export_has_everything_and_its_last_line() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!({ "id": 12_345_678_901_234_567_890_u64 })).await;
    server.run_verb(&run_id, "send", json!({ "event": "approved", "data": 1 })).await.with(202);
    let mut held = worker.claim().await;
    held.task("reserve", json!("ok")).await;
    let mut body = held.body(&json!([]), &json!({ "kind": "stay" }));
    body["publish"] = json!({ "progress": 0.5 });
    server.run_verb(&run_id, "commit", body).await.with(200);
    let exported = server.get(&format!("/v1/runs/{run_id}/export")).await;
    assert_eq!(exported.headers["content-type"], "application/x-ndjson");
    let lines: Vec<Value> = exported.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line.as_object().unwrap().keys().next().unwrap().as_str()).collect();
    assert_eq!(kinds, ["run", "entry", "entry", "entry", "fact", "published", "end"]);
    assert!(exported.text.contains("12345678901234567890"), "numbers keep all their digits");
    assert_eq!(server.get(&format!("/v1/runs/{run_id}/published")).await.with(200)["published"], json!({ "progress": 0.5 }));
    let page = server.get(&format!("/v1/runs/{run_id}/journal?from=1&limit=1")).await.with(200);
    assert_eq!(
        (&page["entries"][0]["number"], &page["entries"][0]["body"]["name"], &page["next"]),
        (&json!(1), &json!("reserve"), &json!(2))
    );
}

#[tokio::test]
async fn workflows_are_listed_with_their_runs_and_workers() {
    let server = server().await;
    server.start_run("order", json!(1)).await;
    server.start_run("order", json!(2)).await;
    let _worker = server.run_worker("mail").await;
    let listed = server.get("/v1/workflows").await.with(200)["workflows"].clone();
    let streams: Vec<&str> = listed.as_array().unwrap().iter().map(|workflow| workflow["stream"].as_str().unwrap()).collect();
    assert_eq!(streams, ["workflow/mail/1", "workflow/order/1"]);
    assert_eq!((&listed[0]["pull_workers"], &listed[1]["runs"]), (&json!(1), &json!({ "ready": 2 })));
    assert!(listed[1]["oldest_ready_at"].is_i64());
    let page = server.get("/v1/workflows?limit=1").await.with(200);
    let rest = server.get(&format!("/v1/workflows?cursor={}", page["next"].as_str().unwrap().replace('/', "%2F"))).await.with(200);
    assert_eq!(rest["workflows"][0]["workflow"], "order");
}
