//! What a receiver's answer means, how a delivery is signed, and what a slow receiver holds back.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use towpath_server::settings::Settings;

use super::receiver::{Receiver, rude};
use super::{dead_letters, keep, posting, push, settled, until};
use crate::support::{server_with, settings};

#[tokio::test]
async fn every_answer_of_a_receiver_is_settled_as_the_table_says() {
    let (receiver, server) = (Receiver::start().await, posting().await);
    let url = |path: &str| json!({ "target": { "url": format!("{}/{path}", receiver.base) } });
    for status in [200, 201, 202, 204, 299, 301, 308, 400, 401, 404, 408, 409, 410, 422, 425, 429, 500, 502, 503, 599] {
        let batcher = format!("s{status}");
        keep(&server, &batcher, url(&status.to_string())).await;
        push(&server, &batcher, json!({ "id": 1 })).await;
        settled(&server, &batcher).await;
        let reasons: Vec<Value> = dead_letters(&server, &batcher).await.iter().map(|letter| letter["reason"].clone()).collect();
        let expected: Vec<Value> = match status {
            200..=299 => vec![],
            408 | 425 | 429 | 500.. => vec![json!("max_retries_exceeded")],
            _ => vec![json!(format!("rejected_{status}"))],
        };
        assert_eq!(reasons, expected, "{status}");
    }
    let tries = receiver.got().len();
    assert_eq!(tries, 5 + 8 + 2 * 7, "one attempt where the answer decides, two where it may be better the next time");
}

#[tokio::test]
async fn a_receiver_that_asks_for_time_gets_it() {
    let (receiver, server) = (Receiver::start().await, posting().await);
    keep(&server, "busy", json!({ "target": { "url": format!("{}/busy", receiver.base) } })).await;
    push(&server, "busy", json!({ "id": 1 })).await;
    settled(&server, "busy").await;
    let got = receiver.got();
    assert_eq!(got.len(), 2);
    assert!(got[1].at.since(got[0].at).as_millis() >= 950, "{:?}", got[1].at.since(got[0].at));
    assert_eq!((got[0].header("webhook-id"), got[0].header("idempotency-key")), (got[1].header("webhook-id"), got[1].header("webhook-id")));
    assert_eq!((got[0].header("towpath-attempt"), got[1].header("towpath-attempt")), ("1", "2"));
}

#[tokio::test]
async fn receivers_that_hang_break_off_redirect_or_never_stop_talking_do_no_harm() {
    let (receiver, server) = (Receiver::start().await, posting().await);
    let url = |path: &str| format!("{}/{path}", receiver.base);
    for (batcher, target, reason, count) in [
        ("hangs", url("hang"), Some("max_retries_exceeded"), 2),
        ("resets", rude().await, Some("max_retries_exceeded"), 0),
        ("redirects", url("redirect"), Some("rejected_307"), 1),
        ("endless", url("endless"), None, 1),
        ("nobody", "http://127.0.0.1:9/".to_owned(), Some("max_retries_exceeded"), 0),
    ] {
        let before = receiver.got().len();
        let more = json!({ "target": { "url": target }, "timeout_seconds": 0.5 });
        keep(&server, batcher, more).await;
        push(&server, batcher, json!({ "id": 1 })).await;
        settled(&server, batcher).await;
        let letters = dead_letters(&server, batcher).await;
        assert_eq!(letters.first().and_then(|letter| letter["reason"].as_str()), reason, "{batcher}");
        assert_eq!(receiver.got().len() - before, count, "{batcher}");
        if let Some(letter) = letters.first() {
            assert_eq!(letter["messages"], json!([{ "id": 1 }]), "nothing is lost by giving up");
        }
    }
}

#[tokio::test]
async fn a_good_status_with_an_error_inside_is_a_failure_where_that_is_set() {
    let (receiver, server) = (Receiver::start().await, posting().await);
    let target = json!({ "url": format!("{}/error_field", receiver.base) });
    keep(&server, "strict", json!({ "target": target, "error_field": "error" })).await;
    keep(&server, "easy", json!({ "target": target })).await;
    for batcher in ["strict", "easy"] {
        push(&server, batcher, json!({ "id": 1 })).await;
        settled(&server, batcher).await;
    }
    assert_eq!(dead_letters(&server, "strict").await[0]["reason"], "max_retries_exceeded");
    assert!(dead_letters(&server, "easy").await.is_empty());
}

#[tokio::test]
async fn a_good_status_with_an_error_inside_is_a_failure_for_the_old_workers_batcher() {
    let (receiver, server) = (Receiver::start().await, posting().await);
    let settings = |more: Value| {
        let mut settings = json!({ "debounce_seconds": 0, "backoff_base_ms": 1, "backoff_cap_ms": 1, "max_attempts": 2 });
        settings["target"] = json!({ "url": format!("{}/error_field", receiver.base) });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        settings
    };
    let message = |chat: u32| json!({ "channel": "telegram", "external_chat_id": chat, "text": "hi" });
    let shown = server.put("/v1/batches/input_contour/settings", settings(json!({}))).await.with(200);
    assert_eq!(shown["settings"]["error_field"], "error");
    push(&server, "input_contour", message(1)).await;
    settled(&server, "input_contour").await;
    let letters = dead_letters(&server, "input_contour").await;
    assert_eq!((letters.len(), &letters[0]["reason"]), (1, &json!("max_retries_exceeded")));
    assert_eq!(receiver.got().len(), 2, "it was tried as often as anything that fails");
    server.put("/v1/batches/input_contour/settings", settings(json!({ "error_field": "" }))).await.with(200);
    push(&server, "input_contour", message(2)).await;
    settled(&server, "input_contour").await;
    assert_eq!(dead_letters(&server, "input_contour").await.len(), 1, "an empty name switches it off");
}

#[tokio::test]
async fn a_receiver_that_hangs_on_one_key_holds_back_none_of_a_hundred_others() {
    let (receiver, server) = (Receiver::start().await, posting().await);
    keep(&server, "orders", json!({ "target": { "url": format!("{}/200", receiver.base) } })).await;
    push(&server, "orders", json!({ "id": "hang" })).await;
    receiver.gets(1).await;
    let messages: Vec<Value> = (0..100).map(|number| json!({ "id": number })).collect();
    let answer = push(&server, "orders", json!({ "messages": messages })).await;
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(100));
    until("all others to be acknowledged", async || {
        let body = server.get("/v1/batches/orders").await.with(200);
        (body["open_keys"] == 0 && body["in_flight"] == 1).then_some(())
    })
    .await;
    assert_eq!(receiver.got().len(), 101);
    push(&server, "orders", json!({ "id": "hang", "later": true })).await;
    receiver.release();
    let got = receiver.gets(102).await;
    assert_eq!(got[101].json()["messages"], json!([{ "id": "hang", "later": true }]), "what came meanwhile goes next");
    receiver.release();
}

/// The signature as a receiver computes it, with nothing of the server's code.
fn sign(secret: &str, id: &str, timestamp: &str, body: &[u8]) -> String {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[tokio::test]
async fn a_delivery_is_signed_with_the_batchers_own_secrets_and_never_goes_without_them() {
    const FIRST: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const SECOND: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    let (receiver, folder) = (Receiver::start().await, tempfile::tempdir().unwrap());
    let server = server_with(Settings { allow_loopback_targets: true, webhook_secrets: vec![SECOND.parse().unwrap()], ..settings() }).await;
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("file:{}", path.display())
    };
    let target = json!({ "url": format!("{}/200", receiver.base) });
    let both = json!([file("a", FIRST), file("b", SECOND)]);
    keep(&server, "two", json!({ "target": target, "secrets": both })).await;
    keep(&server, "servers", json!({ "target": target })).await;
    for batcher in ["two", "servers"] {
        push(&server, batcher, json!({ "id": 1 })).await;
        settled(&server, batcher).await;
    }
    let got = receiver.got();
    let signed = |place: usize, secret: &str, body: &[u8]| {
        sign(secret, got[place].header("webhook-id"), got[place].header("webhook-timestamp"), body)
    };
    let two = format!("{} {}", signed(0, FIRST, &got[0].body), signed(0, SECOND, &got[0].body));
    assert_eq!(got[0].header("webhook-signature"), two);
    assert_eq!(got[1].header("webhook-signature"), signed(1, SECOND, &got[1].body));
    let mut changed = got[1].body.clone();
    changed[0] ^= 1;
    assert_ne!(got[1].header("webhook-signature"), signed(1, SECOND, &changed));
    keep(&server, "none", json!({ "target": target, "secrets": ["env:TOWPATH_NO_SUCH_SECRET"] })).await;
    push(&server, "none", json!({ "id": 1 })).await;
    settled(&server, "none").await;
    assert_eq!(receiver.got().len(), 2, "nothing goes unsigned");
    assert!(dead_letters(&server, "none").await[0]["error"].as_str().unwrap().contains("not set"));
}

#[tokio::test]
async fn numbers_tell_what_became_of_messages_and_batches() {
    let (receiver, server) = (Receiver::start().await, posting().await);
    keep(&server, "orders", json!({ "target": { "url": format!("{}/404", receiver.base) } })).await;
    push(&server, "orders", json!({ "id": 1, "message_id": "m" })).await;
    server.post("/v1/batches/orders/messages", json!({ "id": 1, "message_id": "m" })).await.with(200);
    settled(&server, "orders").await;
    let text = server.get("/metrics").await.text;
    for line in [
        r#"towpath_batch_messages_ingested_total{batcher="orders"} 1"#,
        r#"towpath_batch_messages_duplicate_total{batcher="orders"} 1"#,
        r#"towpath_batches_closed_total{batcher="orders",reason="immediate"} 1"#,
        r#"towpath_batch_attempts_total{batcher="orders",reason="4xx"} 1"#,
        r#"towpath_batches_dead_total{batcher="orders",reason="rejected_404"} 1"#,
        r#"towpath_batch_dead_letters{batcher="orders"} 1"#,
        r#"towpath_batch_lateness_seconds_count{batcher="orders"} 1"#,
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
}
