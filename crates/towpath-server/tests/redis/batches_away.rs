//! Batches while their Redis is away (seed 004, errors): what is refused says so rightly, what was accepted is delivered once, and the
//! dispatcher goes on by itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use reqwest::blocking::Client;
use serde_json::{Value, json};
use towpath_redis_testing::FaultProxy;

use crate::batch_histories::Producer;
use crate::crowd::runtime;
use crate::rig::{durable_redis, serve};
use crate::scene::for_a_while;
use crate::support::wait_for;

/// How long a batch waits for more.
const DEBOUNCE: Duration = Duration::from_secs(2);

type Inbox = Arc<Mutex<Vec<Value>>>;

async fn take(State(inbox): State<Inbox>, body: Bytes) {
    inbox.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
}

/// How often each text has come.
fn texts(inbox: &Inbox) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for payload in inbox.lock().unwrap().iter() {
        for message in payload["messages"].as_array().unwrap_or_else(|| panic!("{payload}")) {
            *counts.entry(message["text"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn while_redis_is_away_pushes_are_refused_rightly_and_what_was_accepted_is_delivered_once_it_is_back() {
    let mut redis = durable_redis();
    let proxy = FaultProxy::before(redis.port());
    let server = serve(&proxy.url());
    let (runtime, inbox) = (runtime(), Inbox::default());
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let target = format!("http://{}/take", listener.local_addr().unwrap());
    let router = Router::new().fallback(take).with_state(inbox.clone());
    runtime.spawn(async move { axum::serve(listener, router).await });
    let settings = json!({ "debounce_seconds": DEBOUNCE.as_secs(), "key": ["customer"], "target": { "url": target }, "allow_targets": ["127.0.0.1"], "max_attempts": 20 });
    Producer::new().keep(&server.url, "orders", &settings);
    let http = Client::builder().no_proxy().tls_certs_only([]).timeout(Duration::from_secs(30)).build().unwrap();
    let push = |text: &str| -> (u16, Value) {
        let message = json!({ "customer": "anna", "message_id": text, "text": text });
        let answer = http.post(format!("{}/v1/batches/orders/messages", server.url)).json(&message).send().unwrap();
        (answer.status().as_u16(), answer.json().unwrap())
    };
    for text in ["one", "two"] {
        assert!(push(text).0 < 300);
    }

    // The server has taken it and its answer is lost: that is unknown, and the same message again is one message.
    proxy.cut_before_answer();
    let (status, body) = push("unsure");
    let is_told_rightly = status < 300 || body["error"]["effect"] == "unknown";
    assert!(is_told_rightly, "it was taken: {status} {body}");

    redis.kill();
    proxy.cut();
    let refused = wait_for("a push to be refused for certain", || {
        let (status, body) = push("late");
        assert!(status >= 500, "nobody can have taken it: {status} {body}");
        (body["error"]["effect"] == "none").then_some(body)
    });
    assert_eq!(refused["error"]["code"], "store_unavailable", "{refused}");
    // The deadline of the batch passes meanwhile.
    for_a_while(DEBOUNCE + Duration::from_secs(1));
    assert_eq!(texts(&inbox), BTreeMap::new(), "nothing can be delivered");

    redis.start_again();
    let (status, body) = wait_for("pushes to be taken again", || Some(push("unsure")).filter(|(status, _)| *status < 300));
    assert!(status < 300, "{body}");
    assert!(push("after").0 < 300);
    let delivered = wait_for("everything that was accepted to be delivered", || {
        let texts = texts(&inbox);
        ["one", "two", "unsure", "after"].iter().all(|text| texts.contains_key(*text)).then_some(texts)
    });
    let expected: BTreeMap<String, usize> = ["after", "one", "two", "unsure"].into_iter().map(|text| (text.to_owned(), 1)).collect();
    assert_eq!(delivered, expected, "each once, and nothing that was refused");
    let shown = wait_for("the batches to be settled", || {
        let shown = Producer::new().get(&server.url, "/v1/batches/orders")?;
        (shown["open_messages"] == 0 && shown["in_flight"] == 0).then_some(shown)
    });
    assert_eq!(shown["dead_letters"], 0, "{shown}");
}
