//! What could not be delivered.

use serde_json::{Value, json};

use super::*;
use crate::payload::Payload;

fn input() -> BatcherName {
    BatcherName::new("input_contour").unwrap()
}

fn letter(messages: &[&str]) -> DeadLetter {
    let batch = ClaimedBatch { attempt: 5, ..batch(messages) };
    let payload = merge(&input_contour(), &batch).ok();
    DeadLetter::of_batch(NewDeadLetter {
        batcher: &input(),
        batch: &batch,
        payload: payload.as_ref(),
        reason: "max_retries_exceeded",
        error: "Connection timeout",
        at: at(20_000),
    })
}

fn parsed(payload: &Payload) -> Value {
    serde_json::from_slice(payload.as_bytes()).unwrap()
}

#[test]
fn an_entry_has_the_old_workers_fields_first_and_every_message_as_it_came() {
    let letter = letter(&[r#"{"text":"я", "n":1e400}"#, "not json"]);
    let text = letter.entry.as_str();
    assert!(text.starts_with(r#"{"payload":{"text":"я","#), "{text}");
    assert!(text.contains(r#""error":"Connection timeout","timestamp":"2027-01-15T08:00:20.000Z","id":"b-1","batch_id":"b-1""#), "{text}");
    assert!(text.ends_with(r#""messages":[{"text":"я", "n":1e400},"not json"]}"#), "{text}");
    assert!(text.contains(r#""reason":"max_retries_exceeded","attempts":5,"#), "{text}");
    assert_eq!((letter.id.as_str(), letter.reason.as_deref(), letter.at), ("b-1", Some("max_retries_exceeded"), Some(at(20_000))));
    assert_eq!(DeadLetter::parse(letter.entry.as_str().to_owned()), letter, "what is read back is what was written");
}

#[test]
fn a_replay_goes_out_as_it_was_under_the_same_id() {
    let letter = letter(&[r#"{"text":"a"}"#, "not json"]);
    let flight = letter.flight(at(99_000)).unwrap();
    assert_eq!((flight.batch_id.as_str(), flight.attempt, flight.at, &flight.token), ("b-1", 0, at(99_000), &None));
    assert_eq!((flight.first, flight.last, flight.reason), (at(1_000), at(5_000), CloseReason::SilenceReached));
    let again = ClaimedBatch::new(flight, BatchToken::new("t-2").unwrap(), Vec::new(), at(99_000));
    assert_eq!(parsed(again.payload.as_ref().unwrap()), parsed(&letter.entry)["payload"]);
    assert_eq!(again.messages, batch(&[r#"{"text":"a"}"#, "not json"]).messages, "should it fail again, nothing is lost");
}

#[test]
fn an_old_workers_entry_has_a_lasting_name_and_can_be_replayed() {
    let entry =
        r#"{"payload": {"channel": "telegram", "external_chat_id": "5", "text": "a"}, "error": "x", "timestamp": "2024-12-11T10:00:00Z"}"#;
    let letter = DeadLetter::parse(entry);
    assert!(letter.id.as_str().starts_with("legacy-") && letter.id.as_str().len() == 19, "{:?}", letter.id);
    assert_eq!(letter.id, DeadLetter::parse(entry).id);
    let flight = letter.flight(at(0)).unwrap();
    assert_eq!((flight.key.as_str(), flight.batch_id), ("unknown:telegram:5", letter.id));
    let bare = DeadLetter::parse(r#"{"payload": 5}"#);
    assert_eq!(bare.flight(at(0)).unwrap().key.as_str(), bare.id.as_str());
}

#[test]
fn what_could_not_be_read_keeps_its_bytes_and_cannot_be_replayed() {
    let source = SourceId { list: "queue:incoming".into(), number: 4 };
    let letter = DeadLetter::unreadable(&input(), "{oops я".as_bytes(), Some(&source), "parse_error", "no JSON", at(0));
    assert_eq!(parsed(&letter.entry)["raw"], json!("{oops я"));
    assert_eq!((&parsed(&letter.entry)["payload"], letter.reason.as_deref()), (&json!(null), Some("parse_error")));
    assert_eq!(letter.flight(at(0)), None);
    let binary = DeadLetter::unreadable(&input(), &[0xff, 0x00], None, "parse_error", "no JSON", at(0));
    assert_eq!(parsed(&binary.entry)["raw_hex"], json!("ff00"));
    let next = SourceId { number: 5, ..source };
    assert_ne!(DeadLetter::unreadable(&input(), "{oops я".as_bytes(), Some(&next), "parse_error", "no JSON", at(0)).id, letter.id);
    let nothing_readable = letter_of_nothing();
    assert_eq!(nothing_readable.flight(at(0)), None);
}

fn letter_of_nothing() -> DeadLetter {
    letter(&["not json"])
}

#[test]
fn secrets_are_hidden_wherever_they_stand() {
    let letter = letter(&[r#"{"text":"a","bot_token":"1:A","meta":{"Authorization":"x","deep":[{"password":{"p":1}}]},"token_count":1}"#]);
    let seen = letter.redacted();
    assert!(!seen.as_str().contains("1:A") && seen.as_str().contains(r#""bot_token":"[redacted]""#), "{}", seen.as_str());
    let message = &parsed(&seen)["messages"][0];
    assert_eq!(message["meta"], json!({"Authorization": "[redacted]", "deep": [{"password": "[redacted]"}]}));
    assert_eq!(message["token_count"], json!(1));
    let raw = DeadLetter::unreadable(&input(), b"{\"bot_token\": \"1:A\"", None, "parse_error", "no JSON", at(0));
    assert!(!raw.redacted().as_str().contains("1:A"));
}

#[test]
fn a_filter_means_what_it_names() {
    let letter = letter(&[r#"{"text":"a"}"#]);
    let query = |reason: Option<&str>, key: Option<&str>| crate::inspect::DeadLetterQuery {
        reason: reason.map(str::to_owned),
        key: key.map(|key| BatchKey::new(key).unwrap()),
        ..Default::default()
    };
    assert!(query(None, None).means(&letter));
    assert!(query(Some("max_retries_exceeded"), Some("a1b2c3d4:telegram:123456789")).means(&letter));
    assert!(!query(Some("crash_loop"), None).means(&letter) && !query(None, Some("x")).means(&letter));
}
