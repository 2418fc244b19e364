//! Lists come in pages that are bounded in count and bytes, and following `next` shows everything once.

use serde_json::{Value, json};

use crate::support::{Server, server};

/// The names in all pages of a list, and how many pages there were.
async fn all(server: &Server, path: &str, list: &str, name: &str) -> (Vec<String>, usize) {
    let (mut names, mut pages, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let answer = server.get(&format!("{path}{}limit=2{cursor}", if path.contains('?') { '&' } else { '?' })).await;
        assert!(answer.text.len() < 2 << 20, "{} bytes", answer.text.len());
        let page = answer.with(200);
        let items = page[list].as_array().unwrap();
        assert!(items.len() <= 2, "{page}");
        names.extend(items.iter().map(|item| item[name].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(next) = page["next"].as_str() else { return (names, pages) };
        let next = percent_encoding::utf8_percent_encode(next, percent_encoding::NON_ALPHANUMERIC);
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test]
async fn functions_workers_and_batchers_come_page_by_page() {
    let server = server().await;
    let names = ["a", "b:c", "d", "e", "я"];
    for name in names {
        server.pull_worker(json!([{ "name": name }])).await;
        if !name.contains(':') {
            let path = format!("/v1/batches/{}/settings", percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC));
            server.put(&path, json!({ "key": ["id"] })).await.with(201);
        }
    }
    assert_eq!(all(&server, "/v1/functions", "functions", "name").await, (names.map(str::to_owned).to_vec(), 3));
    let (workers, pages) = all(&server, "/v1/workers", "workers", "worker_id").await;
    assert!(workers.is_sorted() && workers.len() == 5 && pages == 3, "{workers:?}");
    assert_eq!(all(&server, "/v1/batches", "batchers", "batcher").await.0, ["a", "d", "e", "input_contour", "я"]);
    for path in ["/v1/functions", "/v1/workers", "/v1/batches"] {
        server.get(&format!("{path}?limit=0")).await.error(400, "out_of_range");
        server.get(&format!("{path}?cursor=")).await.error(400, "invalid_name");
    }
}

#[tokio::test]
async fn a_page_of_functions_ends_with_the_one_that_reaches_a_mebibyte() {
    let server = server().await;
    for number in 0..5 {
        server
            .put(&format!("/v1/functions/f{number}"), json!({ "parameters": { "type": "object", "title": "x".repeat(400_000) } }))
            .await
            .with(200);
    }
    let page = server.get("/v1/functions").await.with(200);
    assert_eq!((page["functions"].as_array().map(Vec::len), &page["next"]), (Some(3), &json!("__global__:f2")));
    assert_eq!(server.get("/v1/functions?cursor=__global__:f2").await.with(200)["functions"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn messages_of_an_open_batch_come_page_by_page() {
    let server = server().await;
    server.put("/v1/batches/b/settings", json!({ "key": ["id"], "debounce_seconds": 3_600, "max_bytes": 16 << 20 })).await.with(201);
    for number in 0..7 {
        let message = json!({ "id": "k", "number": number, "text": "x".repeat(250_000) });
        server.post("/v1/batches/b/messages", message).await.with(202);
    }
    let (mut numbers, mut path) = (Vec::new(), "/v1/batches/b/keys/k".to_owned());
    loop {
        let page = server.get(&path).await.with(200);
        assert_eq!(page["size"], 7);
        let messages = page["messages"].as_array().unwrap();
        assert!(messages.len() <= 5, "{}", messages.len());
        numbers.extend(messages.iter().map(|message| message["number"].as_u64().unwrap()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/batches/b/keys/k?cursor={next}");
    }
    assert_eq!(numbers, (0..7).collect::<Vec<_>>());
}

#[tokio::test]
async fn of_a_lock_with_many_holders_a_list_has_some_and_their_number() {
    let server = server().await;
    for holder in 0..30 {
        let body = json!({ "kind": "semaphore", "limit": 100, "lock_id": format!("h-{holder}") });
        server.post("/v1/locks/s/acquire", body).await.with(200);
    }
    let listed: Value = server.get("/v1/locks?kind=semaphore").await.with(200)["locks"][0].clone();
    assert_eq!((listed["holders"].as_array().map(Vec::len), &listed["holder_count"]), (Some(20), &json!(30)));
    let shown = server.get("/v1/locks/s?kind=semaphore").await.with(200);
    assert_eq!((shown["holders"].as_array().map(Vec::len), &shown["holder_count"]), (Some(30), &json!(30)));
}
