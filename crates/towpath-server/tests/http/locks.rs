//! Locks over HTTP: taken, waited for, renewed, released, listed, forced open, cleaned up.

use serde_json::{Value, json};
use towpath_server::settings::Settings;

use crate::support::{Server, answer, client, server, server_with, settings};

async fn acquire(server: &Server, scope: &str, body: Value) -> Value {
    server.post(&format!("/v1/locks/{scope}/acquire"), body).await.with(200)
}

#[tokio::test]
async fn a_lock_is_granted_with_all_that_workflows_expect() {
    let server = server().await;
    let body = json!({ "lock_id": "a", "execution_id": "4711", "workflow_id": "wf", "workflow_name": "Import", "ttl_seconds": "600" });
    let granted = acquire(&server, "excel", body).await;
    for (field, expected) in [
        ("outcome", json!("granted")),
        ("acquired", json!(true)),
        ("count", json!(1)),
        ("scope", json!("excel")),
        ("lock_id", json!("a")),
        ("workflow_id", json!("wf")),
        ("workflow_name", json!("Import")),
        ("execution_id", json!("4711")),
        ("holds", json!(1)),
        ("key", json!("n8n-lock-excel")),
        ("meta_key", json!("n8n-lock-excel:meta")),
    ] {
        assert_eq!(granted[field], expected, "{field}");
    }
    assert!(granted["fence"].as_u64().is_some_and(|fence| fence > 0));
    assert!(granted["lease_remaining_ms"].as_u64().is_some_and(|left| left > 590_000), "decimal text is a number: {granted}");
    assert!(granted["locked_at"].as_str().is_some_and(|at| at.ends_with('Z')));
}

#[tokio::test]
async fn a_lock_without_an_execution_says_so_in_every_answer() {
    let server = server().await;
    for kind in ["exclusive", "semaphore"] {
        let mut body = json!({ "lock_id": "a", "kind": kind });
        if kind == "semaphore" {
            body["limit"] = json!(2);
        }
        assert_eq!(acquire(&server, "s", body).await["execution_id"], "unknown", "{kind}");
    }
    let waiting = server.post("/v1/locks/s/acquire", json!({ "lock_id": "b", "wait": false })).await.error(409, "lock_held");
    assert_eq!(waiting["details"]["holder"]["execution_id"], "unknown", "the identity beside the lock says the same");
}

#[tokio::test]
async fn a_lock_renewed_without_a_length_keeps_its_own() {
    let server = server().await;
    let day = 86_400_000_u64;
    for kind in ["exclusive", "semaphore", "write"] {
        let mut body = json!({ "lock_id": "a", "kind": kind, "ttl_seconds": 7 * 86_400, "lease_ms": day });
        if kind == "semaphore" {
            body["limit"] = json!(1);
        }
        let granted = acquire(&server, "s", body).await;
        let mut renewal = json!({ "fence": granted["fence"], "kind": kind });
        if kind != "exclusive" {
            renewal["lock_id"] = json!("a");
        }
        let renew = async |renewal: &Value| {
            let renewed = server.post("/v1/locks/s/renew", renewal.clone()).await.with(200);
            renewed["lease_remaining_ms"].as_u64().unwrap()
        };
        assert_eq!(renew(&renewal).await, day, "{kind}");
        let mut shorter = renewal.clone();
        shorter["lease_ms"] = json!(60_000);
        assert_eq!((renew(&shorter).await, renew(&renewal).await), (60_000, 60_000), "{kind}");
    }
}

#[tokio::test]
async fn a_held_lock_is_a_conflict_that_names_its_holder() {
    let server = server().await;
    acquire(&server, "s", json!({ "lock_id": "a", "workflow_name": "Import" })).await;
    // As workflows ask.
    let held = server.post("/v1/locks/s/acquire", json!({ "wait_till_lock_released": false })).await.error(409, "lock_held");
    assert_eq!(
        held["message"],
        "Lock acquisition failed (fail-fast): scope 's' is held (count=1). Caller passed wait_till_lock_released=false."
    );
    assert_eq!((&held["details"]["outcome"], &held["details"]["holder"]["workflow_name"]), (&json!("held"), &json!("Import")));
    let late = server.post("/v1/locks/s/acquire", json!({ "max_wait_seconds": 0.05 })).await.error(409, "lock_held");
    assert_eq!(
        (&late["message"], &late["details"]["outcome"]),
        (&json!("Lock acquisition timed out after 0.05s waiting for scope 's'."), &json!("timed_out"))
    );
    assert_eq!(server.get("/v1/locks/s").await.with(200)["waiters"], json!([]), "who timed out has left the queue");
    let same = server.post("/v1/locks/s/acquire", json!({ "lock_id": "a" })).await.error(409, "lock_held");
    assert_eq!(same["details"]["outcome"], "self");
}

#[tokio::test]
async fn a_waiter_is_granted_when_the_holder_leaves() {
    let server = server().await;
    let holder = acquire(&server, "s", json!({})).await;
    let waiting = server.post("/v1/locks/s/acquire", json!({ "max_wait_seconds": 30 }));
    let leaving = async {
        while server.get("/v1/locks/s").await.with(200)["waiters"].as_array().is_none_or(Vec::is_empty) {
            tokio::task::yield_now().await;
        }
        server.post("/v1/locks/s/release", json!({ "fence": holder["fence"] })).await.with(200)
    };
    let (granted, released) = tokio::join!(waiting, leaving);
    assert_eq!((&released["outcome"], &released["idempotent"]), (&json!("released"), &json!(false)));
    assert!(granted.with(200)["fence"].as_u64() > holder["fence"].as_u64());
}

#[tokio::test]
async fn a_repeated_question_gets_the_same_answer_and_a_late_one_is_spent() {
    let server = server().await;
    let body = json!({ "request_id": "q-1", "lock_id": "a" });
    let first = acquire(&server, "s", body.clone()).await;
    let second = acquire(&server, "s", body.clone()).await;
    assert_eq!((&second["outcome"], &second["fence"]), (&json!("replayed"), &first["fence"]));
    server.post("/v1/locks/s/release", json!({ "fence": first["fence"] })).await.with(200);
    let spent = server.post("/v1/locks/s/acquire", body).await.error(409, "lock_held");
    assert_eq!(spent["details"]["outcome"], "spent");
}

#[tokio::test]
async fn a_lease_is_renewed_and_a_lost_one_is_a_conflict() {
    let server = server().await;
    let granted = acquire(&server, "s", json!({ "lease_ms": 5_000, "ttl_seconds": 600 })).await;
    let renewed = server.post("/v1/locks/s/renew", json!({ "fence": granted["fence"], "lease_ms": 20_000 })).await.with(200);
    assert_eq!(renewed["lease_remaining_ms"], 20_000);
    server.post("/v1/locks/s/release", json!({ "fence": granted["fence"] })).await.with(200);
    let lost = server.post("/v1/locks/s/renew", json!({ "fence": granted["fence"] })).await.error(409, "lock_lost");
    assert_eq!(lost["details"]["reason"], "absent");
}

#[tokio::test]
async fn a_release_is_safe_to_repeat_and_never_touches_the_next_holder() {
    let server = server().await;
    let first = acquire(&server, "s", json!({ "lock_id": "a" })).await;
    assert_eq!(server.post("/v1/locks/s/release", json!({ "lock_id": "a" })).await.with(200)["outcome"], "released");
    acquire(&server, "s", json!({ "lock_id": "b", "execution_id": "e", "workflow_id": "w", "workflow_name": "W" })).await;
    for body in [json!({ "fence": first["fence"] }), json!({ "lock_id": "a" })] {
        let again = server.post("/v1/locks/s/release", body).await.with(200);
        assert_eq!((&again["outcome"], &again["idempotent"]), (&json!("already"), &json!(true)));
    }
    let stranger = server.post("/v1/locks/s/release", json!({ "lock_id": "c" })).await.error(409, "lock_lost");
    let since = server.get("/v1/locks/s").await.with(200)["holder"]["locked_at"].as_str().unwrap().to_owned();
    assert_eq!(stranger["message"], format!("LOGIC ERROR: Lock held by W (id: w, execution: e) since {since}, not by lock_id=c"));
    assert_eq!(server.post("/v1/locks/never/release", json!({ "lock_id": "a" })).await.with(200)["outcome"], "absent");
}

#[tokio::test]
async fn semaphores_and_read_write_locks_have_units() {
    let server = server().await;
    let units =
        |lock_id: &str, weight: u32| json!({ "kind": "semaphore", "limit": 4, "weight": weight, "lock_id": lock_id, "wait": false });
    let gpu = acquire(&server, "gpu", units("a", 3)).await;
    server.post("/v1/locks/gpu/acquire", units("b", 2)).await.error(409, "lock_held");
    let renew = json!({ "kind": "semaphore", "lock_id": "a", "fence": gpu["fence"] });
    assert_eq!(server.post("/v1/locks/gpu/renew", renew).await.with(200)["outcome"], "renewed");
    let give_back = json!({ "kind": "semaphore", "lock_id": "a", "fence": gpu["fence"] });
    assert_eq!(server.post("/v1/locks/gpu/release", give_back.clone()).await.with(200)["outcome"], "released");
    assert_eq!(server.post("/v1/locks/gpu/release", give_back).await.with(200)["outcome"], "already");
    for reader in ["r1", "r2"] {
        acquire(&server, "doc", json!({ "kind": "read", "lock_id": reader })).await;
    }
    server.post("/v1/locks/doc/acquire", json!({ "kind": "write", "wait": false })).await.error(409, "lock_held");
    acquire(&server, "doc", json!({ "wait": false })).await;
}

#[tokio::test]
async fn locks_are_listed_shown_and_forced_open_with_what_was_seen() {
    let server = server().await;
    for scope in ["b", "a", "%D0%B7%D0%B0%D0%BC%D0%BE%D0%BA"] {
        acquire(&server, scope, json!({ "lock_id": "x" })).await;
    }
    let page = server.get("/v1/locks?limit=2").await.with(200);
    let scopes =
        |page: &Value| page["locks"].as_array().unwrap().iter().map(|lock| lock["scope"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!((scopes(&page), page["next"].as_str()), (vec!["a".to_owned(), "b".to_owned()], Some("b")));
    assert_eq!(scopes(&server.get("/v1/locks?cursor=b").await.with(200)), ["замок"]);
    assert_eq!(scopes(&server.get("/v1/locks?prefix=a").await.with(200)), ["a"]);
    server.get("/v1/locks/never").await.error(404, "lock_not_found");
    let seen = server.get("/v1/locks/a").await.with(200);
    let force = async |counter: &Value, reason: &str| {
        let request = server.request(reqwest::Method::DELETE, "/v1/locks/a").json(&json!({ "counter": counter, "reason": reason }));
        answer(request).await
    };
    force(&json!("7"), "stuck").await.error(409, "lock_changed");
    force(&seen["counter"], " ").await.error(400, "invalid_field");
    assert_eq!(force(&seen["counter"], "stuck").await.with(200)["holder"]["lock_id"], "x");
    acquire(&server, "a", json!({ "wait": false })).await;
}

#[tokio::test]
async fn ids_may_be_numbers_and_yes_or_no_may_be_text_as_workflows_write_them() {
    let server = server().await;
    acquire(&server, "excel", json!({ "execution_id": 4711, "workflow_id": 12, "wait_till_lock_released": "false" })).await;
    let held = server.get("/v1/locks/excel").await.with(200);
    assert_eq!(held["holder"]["execution_id"], "4711", "{held}");
    server.post("/v1/locks/excel/acquire", json!({ "lock_id": "other", "wait": "False" })).await.with(409);
    server.post("/v1/locks/excel/acquire", json!({ "wait": "no" })).await.with(400);
    let cleaned = server.post("/v1/locks:cleanup", json!({ "execution_id": 4711, "lockScopes": [] })).await.with(200);
    assert_eq!(cleaned["scopes"], json!(["excel"]));
}

#[tokio::test]
async fn a_failed_execution_is_cleaned_up_in_the_shape_that_workflows_know() {
    let server = server().await;
    for (scope, execution) in [("a", "4711"), ("b", "4711"), ("c", "4712")] {
        acquire(&server, scope, json!({ "execution_id": execution })).await;
    }
    acquire(&server, "gpu", json!({ "kind": "semaphore", "limit": 1, "execution_id": "4711" })).await;
    let body = json!({ "execution_id": "4711", "lock_scopes": ["c", "never"], "scan": true });
    let cleaned = server.post("/v1/locks:cleanup", body.clone()).await.with(200);
    assert_eq!(cleaned, json!({ "cleaned": true, "cleaned_count": 3, "scopes": ["a", "b", "sem:gpu"] }));
    let nothing = server.post("/v1/locks:cleanup", body).await.with(200);
    assert_eq!(nothing, json!({ "cleaned": false, "cleaned_count": 0, "scopes": [], "reason": "no locks owned by failed execution" }));
}

#[tokio::test]
async fn a_question_can_be_taken_back() {
    let server = server().await;
    let granted = acquire(&server, "s", json!({ "request_id": "q" })).await;
    let cancelled = server.post("/v1/locks/s/cancel", json!({ "request_id": "q" })).await.with(200);
    assert_eq!(cancelled, json!({ "outcome": "was_granted", "fence": granted["fence"] }));
    assert_eq!(server.post("/v1/locks/s/cancel", json!({ "request_id": "q" })).await.with(200)["outcome"], "not_queued");
}

#[tokio::test]
async fn a_stopping_server_keeps_the_place_of_who_waits() {
    let server = server().await;
    acquire(&server, "s", json!({})).await;
    let url = format!("http://{}/v1/locks/s/acquire", server.addr());
    let question = client().post(url).json(&json!({ "request_id": "q", "max_wait_seconds": 600 }));
    let waiting = tokio::spawn(answer(question));
    while server.get("/v1/locks/s").await.with(200)["waiters"].as_array().is_none_or(Vec::is_empty) {
        tokio::task::yield_now().await;
    }
    server.running.stop().await;
    let answer = waiting.await.unwrap().with(202);
    assert_eq!((&answer["outcome"], &answer["acquired"]), (&json!("waiting"), &json!(false)));
    assert_eq!((&answer["request_id"], &answer["rank"]), (&json!("q"), &json!(0)));
}

/// Asks in the background, and waits until so many wait.
async fn waits(server: &Server, request_id: &str, how_many: usize) -> tokio::task::JoinHandle<crate::support::Answer> {
    let url = format!("http://{}/v1/locks/s/acquire", server.addr());
    let question = client().post(url).json(&json!({ "request_id": request_id, "max_wait_seconds": 600 }));
    let waiting = tokio::spawn(answer(question));
    while server.get("/v1/locks/s").await.with(200)["waiters"].as_array().map_or(0, Vec::len) != how_many {
        tokio::task::yield_now().await;
    }
    waiting
}

#[tokio::test]
async fn whoever_waits_keeps_its_place_though_the_server_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let on_disk = || Settings { store: format!("sqlite:{}", folder.path().display()), ..settings() };
    let server = server_with(on_disk()).await;
    let holder = acquire(&server, "s", json!({})).await;
    let (first, second) = (waits(&server, "first", 1).await, waits(&server, "second", 2).await);
    server.running.stop().await;
    for (waiting, rank) in [(first, 0), (second, 1)] {
        assert_eq!(waiting.await.unwrap().with(202)["rank"], rank);
    }
    let server = server_with(on_disk()).await;
    // The second comes back before the first.
    let (second, first) = (waits(&server, "second", 2).await, waits(&server, "first", 2).await);
    server.post("/v1/locks/s/release", json!({ "fence": holder["fence"] })).await.with(200);
    let granted = first.await.unwrap().with(200);
    assert_eq!((&granted["outcome"], &granted["request_id"]), (&json!("granted"), &json!("first")));
    server.post("/v1/locks/s/release", json!({ "fence": granted["fence"] })).await.with(200);
    assert_eq!(second.await.unwrap().with(200)["request_id"], "second");
}

#[tokio::test]
async fn grants_and_losses_are_counted_for_prometheus() {
    let server = server().await;
    for _ in 0..2 {
        let fence = acquire(&server, "s", json!({})).await["fence"].clone();
        server.post("/v1/locks/s/release", json!({ "fence": fence })).await.with(200);
    }
    acquire(&server, "s", json!({ "kind": "semaphore", "limit": 2 })).await;
    let fence = acquire(&server, "t", json!({ "lock_id": "a" })).await["fence"].clone();
    let counter = server.get("/v1/locks/t").await.with(200)["counter"].clone();
    let force = json!({ "counter": counter, "reason": "it hangs" });
    answer(server.request(reqwest::Method::DELETE, "/v1/locks/t").json(&force)).await.with(200);
    server.post("/v1/locks/t/renew", json!({ "fence": fence })).await.error(409, "lock_lost");
    let text = server.get("/metrics").await.text;
    for line in [
        r#"towpath_lock_grants_total{previous="none"} 2"#,
        r#"towpath_lock_grants_total{previous="released"} 1"#,
        r#"towpath_permit_grants_total{kind="sem"} 1"#,
        r#"towpath_locks_lost_total{reason="absent"} 1"#,
        "towpath_lock_attempts_of_old_workflows_total 0",
        r#"towpath_lock_wait_seconds_count{kind="lock"} 3"#,
        r#"towpath_lock_wait_seconds_count{kind="sem"} 1"#,
        r#"towpath_lock_hold_seconds_count{kind="lock"} 3"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn semaphores_and_read_write_locks_are_listed_and_shown() {
    let server = server().await;
    for (scope, lock_id) in [("gpu", "a"), ("gpu", "b"), ("disk", "a")] {
        let body = json!({ "kind": "semaphore", "limit": 4, "weight": 2, "lock_id": lock_id, "execution_id": "4711" });
        acquire(&server, scope, body).await;
    }
    acquire(&server, "doc", json!({ "kind": "read", "lock_id": "r" })).await;
    acquire(&server, "s", json!({})).await;
    let listed = async |query: &str| {
        let page = server.get(&format!("/v1/locks?{query}")).await.with(200);
        page["locks"].as_array().unwrap().iter().map(|lock| format!("{} {}", lock["kind"], lock["scope"])).collect::<Vec<_>>()
    };
    assert_eq!(listed("kind=semaphore").await, [r#""semaphore" "disk""#, r#""semaphore" "gpu""#]);
    assert_eq!(listed("kind=semaphore&prefix=g").await, [r#""semaphore" "gpu""#]);
    assert_eq!(listed("kind=rw").await, [r#""rw" "doc""#]);
    assert_eq!(listed("").await, [r#""exclusive" "s""#]);
    let first = server.get("/v1/locks?kind=semaphore&limit=1").await.with(200);
    assert_eq!((&first["next"], first["locks"].as_array().unwrap().len()), (&json!("disk"), 1));
    let gpu = server.get("/v1/locks/gpu?kind=semaphore").await.with(200);
    let holders = gpu["holders"].as_array().unwrap();
    assert_eq!((holders.len(), &holders[0]["lock_id"], &holders[0]["weight"]), (2, &json!("a"), &json!(2)));
    assert_eq!((&holders[1]["execution_id"], &gpu["fence_high"]), (&json!("4711"), &holders[1]["fence"]));
    server.get("/v1/locks/gpu").await.error(404, "lock_not_found");
    server.get("/v1/locks/gpu?kind=rw").await.error(404, "lock_not_found");
}

#[tokio::test]
async fn scopes_of_the_shared_configuration_are_cleaned_up_without_being_named() {
    let server = server().await;
    let config = json!({ "value": { "lock_scopes": ["a", "b:meta", 7, "c"], "mode": "night" } });
    server.put("/v1/config", config).await.with(200);
    for (scope, execution) in [("a", "4711"), ("c", "4712")] {
        acquire(&server, scope, json!({ "execution_id": execution })).await;
    }
    let cleaned = server.post("/v1/locks:cleanup", json!({ "execution_id": "4711" })).await.with(200);
    assert_eq!(cleaned, json!({ "cleaned": true, "cleaned_count": 1, "scopes": ["a"] }));
    assert_eq!(server.get("/v1/locks?scan=true").await.with(200)["locks"].as_array().unwrap().len(), 1);
}
