//! Probes, health, metrics, the page at the door.

use serde_json::json;

use towpath_server::settings::Settings;

use crate::support::{server, server_with, settings};

#[tokio::test]
async fn a_fresh_server_is_alive_ready_and_well() {
    let server = server().await;
    assert_eq!(server.get("/healthz").await.text, "ok\n");
    assert_eq!(server.get("/readyz").await.text, "ready\n");
    let health = server.get("/v1/health").await.with(200);
    assert_eq!((&health["status"], &health["durability"], &health["problems"]), (&json!("ok"), &json!("memory"), &json!([])));
    let page = server.get("/").await;
    assert!(page.text.contains("/openapi.json"), "{}", page.text);
    assert_eq!(page.headers["content-type"], "text/plain; charset=utf-8");
}

#[tokio::test]
async fn a_server_whose_files_were_removed_is_not_ready_and_takes_nothing_more() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("data");
    let server = server_with(Settings { store: format!("sqlite:{}", folder.display()), ..settings() }).await;
    server.put("/v1/functions/add", json!({})).await.with(200);
    std::fs::remove_dir_all(&folder).unwrap();
    let refused = server.post("/v1/functions/add/calls", json!({})).await.error(503, "store_broken");
    assert!(refused["message"].as_str().unwrap().contains("was removed or replaced"), "{refused}");
    assert_eq!(refused["effect"], "none");
    server.get("/readyz").await.error(503, "store_broken");
    assert_eq!(server.get("/healthz").await.text, "ok\n", "it goes on, so that the open files can be copied");
}

#[tokio::test]
async fn health_says_what_to_do_about_calls_that_nobody_serves() {
    let server = server().await;
    server.put("/v1/functions/unserved", json!({})).await.with(200);
    server.post("/v1/functions/unserved/calls", json!({})).await.with(202);
    let health = server.get("/v1/health").await.with(200);
    assert_eq!((&health["status"], &health["backlog"], &health["functions"]), (&json!("degraded"), &json!(1), &json!(1)));
    let problem = health["problems"][0].as_str().unwrap();
    assert_eq!(problem, "1 call of 'unserved' waits and no healthy worker serves it: start one");
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let server = server().await;
    let _worker = server.with_functions().await;
    server.post("/v1/functions/echo/call", json!({})).await.with(200);
    server.post("/v1/functions/stubborn/call", json!({})).await.error(424, "call_failed");
    server.get("/v1/calls/nothing").await.error(404, "call_not_found");
    let metrics = server.get("/metrics").await;
    assert!(metrics.headers["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    for line in [
        r#"towpath_calls_submitted_total{scope="__global__",function="echo"} 1"#,
        r#"towpath_calls_ended_total{scope="__global__",function="echo",state="completed"} 1"#,
        r#"towpath_calls_ended_total{scope="__global__",function="stubborn",state="dead"} 1"#,
        r#"towpath_call_duration_seconds_count{scope="__global__",function="echo"} 1"#,
        r#"towpath_retries_total{scope="__global__",function="stubborn"} 1"#,
        r#"towpath_dead_letters{scope="__global__",function="stubborn"} 1"#,
        r#"towpath_backlog{scope="__global__",function="echo"} 0"#,
        r#"towpath_http_requests_total{method="GET",route="/v1/calls/{call_id}",status="404"} 1"#,
        "towpath_build_info{version=",
        "# EOF",
    ] {
        assert!(metrics.text.contains(line), "{line}\nis not in\n{}", metrics.text);
    }
}

#[tokio::test]
async fn a_clients_own_request_id_comes_back() {
    let server = server().await;
    let request = server.request(reqwest::Method::GET, "/v1/calls/nothing").header("x-request-id", "trace-17");
    let answer = crate::support::answer(request).await;
    assert_eq!(answer.error(404, "call_not_found")["request_id"], "trace-17");
}
