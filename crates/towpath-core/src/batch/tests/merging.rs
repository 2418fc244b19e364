//! What is sent.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn merged(settings: &Settings, messages: &[&str]) -> Value {
    serde_json::from_str(merge(settings, &batch(messages)).unwrap().as_str()).unwrap()
}

fn text(settings: &Settings, messages: &[&str]) -> String {
    merged(settings, messages)["text"].as_str().unwrap().to_owned()
}

const SEED: [&str; 3] = [
    r#"{"channel": "telegram", "external_user_id": "u1", "external_chat_id": "123456789", "text": "Привет",
        "timestamp": "2024-12-11T10:00:01Z", "client_phone": null, "client_name": "Иван", "bot_token": "1:A",
        "meta": {"x": 1}, "tenant_id": "a1b2c3d4", "message_id": "m1", "trace_id": "t1", "debounce_seconds": 10}"#,
    r#"{"channel": "telegram", "external_chat_id": "123456789", "text": "iPhone 14", "timestamp": "2024-12-11T10:00:05Z", "message_id": 3}"#,
    r#"{"channel": "telegram", "external_chat_id": "123456789", "text": "Разбил экран", "timestamp": "2024-12-11T10:00:03Z"}"#,
];

#[test]
fn the_old_workers_example_comes_out_byte_for_byte_in_its_order_of_fields() {
    let payload = merge(&input_contour(), &batch(&SEED)).unwrap();
    let expected = concat!(
        r#"{"channel":"telegram","bot_token":"1:A","external_user_id":"u1","external_chat_id":"123456789","client_name":"Иван","#,
        r#""client_phone":null,"text":"Привет\n\nРазбил экран\n\niPhone 14","timestamp":"2024-12-11T10:00:01Z","message_ids":["m1",3],"#,
        r#""trace_id":"t1","media":{},"meta":{"batched":true,"batch_size":3,"batch_reason":"debounce","external_chat_id":"123456789","#,
        r#""close_reason":"silence_reached","batch_id":"b-1","batch_key":"a1b2c3d4:telegram:123456789","attempt":1,"#,
        r#""first_message_at":"2027-01-15T08:00:01.000Z","last_message_at":"2027-01-15T08:00:05.000Z"}}"#
    );
    assert_eq!(payload.as_str(), expected);
}

#[test]
fn a_voice_message_is_its_transcript_behind_the_prefix() {
    let voice = r#"{"text": "ignored", "media": {"voice_transcribed_text": "я еду"}}"#;
    assert_eq!(text(&input_contour(), &[voice, r#"{"text": "жду"}"#]), "[Голосовое]: я еду\n\nжду");
    let english = patched(r#"{"voice_template": "[Voice]: {text}", "separator": " | "}"#);
    assert_eq!(text(&english, &[voice, r#"{"text": "жду"}"#]), "[Voice]: я еду | жду");
    let silent = r#"{"text": "written", "media": {"voice_transcribed_text": ""}}"#;
    assert_eq!(text(&input_contour(), &[silent]), "written");
}

#[test]
fn texts_that_say_nothing_are_left_out_and_the_others_are_not_trimmed() {
    assert_eq!(
        text(&input_contour(), &[r#"{"text": "  "}"#, r#"{"text": " a\n"}"#, r#"{}"#, r#"{"text": null}"#, r#"{"text": "b"}"#]),
        " a\n\n\nb"
    );
}

#[test]
fn a_timestamp_that_cannot_be_read_comes_first_and_equals_stay_in_order() {
    let messages = [
        r#"{"text": "late", "timestamp": "2024-12-11T10:00:05+03:00"}"#,
        r#"{"text": "odd", "timestamp": "soon"}"#,
        r#"{"text": "none"}"#,
        r#"{"text": "early", "timestamp": "2024-12-11T06:00:00.000Z"}"#,
        r#"{"text": "same", "timestamp": "2024-12-11T10:00:05+03:00"}"#,
    ];
    assert_eq!(text(&input_contour(), &messages), "odd\n\nnone\n\nearly\n\nlate\n\nsame");
    assert_eq!(text(&patched(r#"{"order": "arrival"}"#), &messages), "late\n\nodd\n\nnone\n\nearly\n\nsame");
}

#[test]
fn dates_of_mails_are_sorted_among_the_others() {
    let messages = [
        r#"{"text": "third", "timestamp": "Wed, 11 Dec 2024 10:00:05 GMT"}"#,
        r#"{"text": "second", "timestamp": "2024-12-11T10:00:03Z"}"#,
        r#"{"text": "first", "timestamp": "Wed, 11 Dec 2024 13:00:01 +0300"}"#,
    ];
    assert_eq!(text(&input_contour(), &messages), "first\n\nsecond\n\nthird");
}

#[test]
fn one_message_is_not_batched_and_says_so() {
    let payload = merged(&input_contour(), &[r#"{"text": "a", "media": {"images": [1]}}"#]);
    assert_eq!((&payload["meta"]["batched"], &payload["meta"]["batch_size"]), (&json!(false), &json!(1)));
    assert_eq!(payload["media"], json!({"images": [1]}));
    assert_eq!(payload.get("channel"), None, "what the message does not have is left out");
}

#[test]
fn the_identity_may_be_the_last_messages_and_the_reason_exact() {
    let settings = patched(r#"{"identity_from": "last", "reason_style": "exact"}"#);
    let payload = merged(&settings, &[r#"{"trace_id": "a"}"#, r#"{"trace_id": "b"}"#]);
    assert_eq!((&payload["trace_id"], &payload["meta"]["batch_reason"]), (&json!("b"), &json!("silence_reached")));
}

#[test]
fn joined_media_has_all_pictures_and_any_flag() {
    let messages = [
        r#"{"text": "a", "media": {"images": ["1"], "is_forwarded": false, "caption": "first"}}"#,
        r#"{"text": "b"}"#,
        r#"{"text": "c", "media": {"images": ["2", "3"], "is_forwarded": true, "voice_urls": ["v"], "caption": "other"}}"#,
    ];
    let payload = merged(&patched(r#"{"media_merge": "concat"}"#), &messages);
    assert_eq!(payload["media"], json!({"images": ["1", "2", "3"], "is_forwarded": true, "caption": "first", "voice_urls": ["v"]}));
}

#[test]
fn a_list_has_every_message_as_it_came_to_the_last_digit() {
    let odd = r#"{"n":1e400,"id":123456789012345678901234567890, "text":5}"#;
    let payload = merge(&patched(r#"{"merge": "list"}"#), &batch(&[odd])).unwrap();
    let start = format!(r#"{{"batch_key":"a1b2c3d4:telegram:123456789","messages":[{odd}],"meta":{{"#);
    assert!(payload.as_str().starts_with(&start), "{}", payload.as_str());
}

#[test]
fn first_and_last_are_that_message_with_the_batchs_meta_beside_its_own() {
    let messages = [r#"{"message_id": "a", "v": 1}"#, r#"{"message_id": "b", "v": 2, "meta": {"own": true, "attempt": "theirs"}}"#];
    assert_eq!(merged(&patched(r#"{"merge": "first"}"#), &messages)["v"], json!(1));
    let last = merged(&patched(r#"{"merge": "last"}"#), &messages);
    assert_eq!((&last["v"], &last["message_ids"]), (&json!(2), &json!(["a", "b"])));
    assert_eq!((&last["meta"]["own"], &last["meta"]["attempt"]), (&json!(true), &json!(1)));
}

#[test]
fn a_template_looks_up_and_nothing_else() {
    let settings = patched(
        r#"{"merge": "template", "template": {"chat": "{{/first/chat}}", "n": [1, "{{/meta/batch_size}}"], "missing": "{{/last/nope}}",
            "line": "from {{/first/chat}} ({{/meta/attempt}}): {{/texts/1}}", "all": "{{/texts}}"}}"#,
    );
    let payload = merged(&settings, &[r#"{"chat": 7, "text": "a"}"#, r#"{"text": "{{/first/chat}} \" б"}"#]);
    let expected =
        json!({"chat": 7, "n": [1, 2], "missing": null, "line": "from 7 (1): {{/first/chat}} \" б", "all": ["a", "{{/first/chat}} \" б"]});
    assert_eq!(payload, expected);
}

#[test]
fn a_template_that_grows_too_large_is_an_error_and_not_half_a_body() {
    let settings = patched(r#"{"merge": "template", "template": ["{{/messages}}", "{{/messages}}"]}"#);
    let long = format!(r#"{{"text": "{}"}}"#, "я".repeat(20_000));
    assert!(matches!(merge(&settings, &batch(&[&long])), Err(MergeError::TooLarge { .. })));
}

#[test]
fn what_cannot_be_read_is_named_and_does_not_spoil_the_rest() {
    let messages = ["not json", r#"{"text": "a"}"#, "[1]"];
    let payload = merged(&input_contour(), &messages);
    assert_eq!((&payload["text"], &payload["meta"]["batch_size"]), (&json!("a"), &json!(1)));
    assert_eq!(unreadable(&batch(&messages).messages), [0, 2]);
    assert_eq!(merge(&input_contour(), &batch(&["x"])), Err(MergeError::NothingReadable));
}

#[test]
fn a_replayed_batch_is_sent_as_it_was() {
    let payload = crate::payload::Payload::from_json(r#"{"as":"it was"}"#);
    let replayed = ClaimedBatch { payload: Some(payload.clone()), ..batch(&[]) };
    assert_eq!(merge(&input_contour(), &replayed), Ok(payload));
}

#[test]
fn a_text_of_a_hundred_kilobytes_survives() {
    let long = "🚢 Разбил экран\u{0} \"\\ ".repeat(4_000);
    assert!(long.len() > 100_000);
    let message = json!({ "text": long }).to_string();
    assert_eq!(text(&input_contour(), &[&message]), long);
}

proptest! {
    #[test]
    fn no_text_is_lost_or_changed_whatever_it_says(texts in proptest::collection::vec(any::<String>(), 1..8)) {
        let messages: Vec<String> = texts.iter().map(|text| json!({ "text": text }).to_string()).collect();
        let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
        let said: Vec<&str> = texts.iter().map(String::as_str).filter(|text| !text.trim().is_empty()).collect();
        prop_assert_eq!(text(&input_contour(), &messages), said.join("\n\n"));
    }

    #[test]
    fn attempts_differ_in_nothing_but_their_number(texts in proptest::collection::vec("[a-я🚢]{0,5}", 1..5), attempt in 2_u32..50) {
        let messages: Vec<String> = texts.iter().map(|text| json!({ "text": text }).to_string()).collect();
        let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
        let first = merge(&input_contour(), &batch(&messages)).unwrap();
        let later = merge(&input_contour(), &ClaimedBatch { attempt, ..batch(&messages) }).unwrap();
        prop_assert_eq!(first.as_str().replace(r#""attempt":1,"#, &format!(r#""attempt":{attempt},"#)), later.as_str());
    }
}
