//! Three messages, ten seconds of silence, one text: the worked example, byte for byte, by a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use towpath::{Towpath, VirtualClock};
use towpath_server::metrics::Metrics;
use towpath_server::serve;
use towpath_server::settings::Settings;

use super::receiver::Receiver;
use crate::support::{Server, settings};

async fn server_by(clock: &VirtualClock, receiver: &Receiver) -> Server {
    let metrics = Arc::new(Metrics::new());
    let towpath = Towpath::builder().clock(Arc::new(clock.clone())).observer(metrics.clone()).open("memory:").await.unwrap();
    let running = serve::start_on(towpath, metrics, Settings { allow_loopback_targets: true, ..settings() }).await.unwrap();
    let server = Server::on(running);
    let target = json!({ "target": { "url": format!("{}/200", receiver.base) } });
    server.put("/v1/batches/input_contour/settings", target).await.with(200);
    server
}

fn message(text: &str, second: u32) -> Value {
    json!({
        "channel": "telegram", "external_user_id": "77", "external_chat_id": "123456789", "text": text,
        "timestamp": format!("2024-12-11T10:00:{second:02}Z"), "client_phone": "+79990000000", "client_name": "Анна", "bot_token": "123:ABC",
        "meta": { "own": 1 }, "media": {}, "tenant_id": "a1b2c3d4", "message_id": format!("m-{second}"), "trace_id": "t-1",
    })
}

#[tokio::test]
async fn three_messages_and_silence_are_posted_once_as_one_text_and_every_field_is_the_old_workers() {
    let (receiver, clock) = (Receiver::start().await, VirtualClock::new());
    let server = server_by(&clock, &receiver).await;
    let mut past = 0;
    for (at, text) in [(1, "Привет"), (3, "Разбил экран"), (5, "iPhone 14")] {
        clock.advance(Duration::from_secs(at - past));
        past = at;
        let answer = server.post("/v1/batches/input_contour/messages", message(text, u32::try_from(at).unwrap())).await.with(202);
        assert_eq!((&answer["accepted"], &answer["batch_key"]), (&json!(true), &json!("a1b2c3d4:telegram:123456789")));
        assert_eq!(answer["deadline"], json!(towpath::Clock::now(&clock).as_millis() + 10_000));
    }
    clock.advance(Duration::from_millis(9_999));
    let open = server.get("/v1/batches/input_contour/keys/a1b2c3d4:telegram:123456789").await.with(200);
    assert_eq!((&open["size"], &open["messages"][0]["bot_token"]), (&json!(3), &json!("[redacted]")), "a millisecond is missing");
    clock.advance(Duration::from_millis(1));
    let got = receiver.gets(1).await.remove(0);
    let mut payload = got.json();
    let meta = payload.as_object_mut().unwrap().remove("meta").unwrap();
    assert_eq!(
        payload,
        json!({
            "channel": "telegram", "bot_token": "123:ABC", "external_user_id": "77", "external_chat_id": "123456789",
            "client_name": "Анна", "client_phone": "+79990000000", "text": "Привет\n\nРазбил экран\n\niPhone 14",
            "timestamp": "2024-12-11T10:00:01Z", "message_ids": ["m-1", "m-3", "m-5"], "trace_id": "t-1", "media": {},
        })
    );
    for (name, value) in [("batched", json!(true)), ("batch_size", json!(3)), ("batch_reason", json!("debounce"))] {
        assert_eq!(meta[name], value);
    }
    assert_eq!((&meta["external_chat_id"], &meta["close_reason"]), (&json!("123456789"), &json!("silence_reached")));
    assert_eq!((got.header("webhook-id"), got.header("towpath-attempt")), (meta["batch_id"].as_str().unwrap(), "1"));
    super::settled(&server, "input_contour").await;
    assert_eq!(receiver.got().len(), 1);
}

#[tokio::test]
async fn a_message_every_four_seconds_is_cut_off_after_three_hundred() {
    let (receiver, clock) = (Receiver::start().await, VirtualClock::new());
    let server = server_by(&clock, &receiver).await;
    for number in 0..75 {
        let mut one = message(&number.to_string(), 0);
        one["message_id"] = json!(number);
        server.post("/v1/batches/input_contour/messages", one).await.with(202);
        assert!(receiver.got().is_empty());
        clock.advance(Duration::from_secs(4));
    }
    let meta = receiver.gets(1).await[0].json()["meta"].clone();
    assert_eq!((&meta["close_reason"], &meta["batch_size"]), (&json!("max_wait_reached"), &json!(75)));
}

#[tokio::test]
async fn cyrillic_emoji_voice_and_long_texts_come_out_as_they_went_in() {
    let (receiver, clock) = (Receiver::start().await, VirtualClock::new());
    let server = server_by(&clock, &receiver).await;
    let long = "Длинный текст 🚂 \u{0}\"\\".repeat(3_000);
    assert!(long.len() > 100_000);
    let mut voice = message("", 2);
    voice["media"] = json!({ "voice_transcribed_text": "алло 👩‍👩‍👧‍👦" });
    for message in [message("👋🏽 привет", 1), voice, message(&long, 3)] {
        server.post("/v1/batches/input_contour/messages", message).await.with(202);
    }
    clock.advance(Duration::from_secs(10));
    let payload = receiver.gets(1).await[0].json();
    assert_eq!(payload["text"], json!(format!("👋🏽 привет\n\n[Голосовое]: алло 👩‍👩‍👧‍👦\n\n{long}")));
}
