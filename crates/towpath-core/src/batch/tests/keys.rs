//! For whom a message is gathered, and what is refused at the door.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn key(settings: &Settings, message: &serde_json::Value) -> String {
    key_of(settings, &Message::new(message.to_string())).unwrap().as_str().to_owned()
}

fn read(settings: &Settings, message: &str) -> Result<NewMessage, &'static str> {
    settings.message(Message::new(message.to_owned()), None).map(|read| read.message).map_err(|bad| bad.code())
}

fn from_list(message: &str) -> (NewMessage, bool) {
    let source = SourceId { list: "queue:incoming".into(), number: 7 };
    let read = input_contour().message(Message::new(message.to_owned()), Some(source)).unwrap();
    (read.message, read.clamped)
}

#[test]
fn ordinary_keys_look_as_the_old_workers() {
    let message = json!({"tenant_id": "a1b2c3d4", "channel": "telegram", "external_chat_id": "123456789"});
    assert_eq!(key(&input_contour(), &message), "a1b2c3d4:telegram:123456789");
    let message = json!({"tenant_id": 7, "channel": "wa", "external_chat_id": -100});
    assert_eq!(key(&input_contour(), &message), "7:wa:-100");
    let message = json!({"channel": "wa", "external_chat_id": "a:b:c"});
    assert_eq!(key(&input_contour(), &message), "unknown:wa:a:b:c");
}

#[test]
fn parts_that_contain_the_separator_do_not_collide() {
    let of = |tenant, channel, chat| key(&input_contour(), &json!({"tenant_id": tenant, "channel": channel, "external_chat_id": chat}));
    assert_ne!(of("a:b", "c", "d"), of("a", "b:c", "d"));
    assert_ne!(of("a%3Ab", "c", "d"), of("a:b", "c", "d"));
    assert_ne!(of("a", "b", "c:d"), of("a", "b:c", "d"));
}

#[test]
fn two_bots_without_a_tenant_are_kept_apart_unless_they_shall_not_be() {
    let of = |settings: &Settings, token: &str| key(settings, &json!({"channel": "t", "external_chat_id": "1", "bot_token": token}));
    let (first, second) = (of(&input_contour(), "1:A"), of(&input_contour(), "2:B"));
    assert_ne!(first, second);
    let part = first.split(':').next().unwrap();
    assert!(part.starts_with("unknown-") && part.len() == "unknown-".len() + 12 && !first.contains("1:A"), "{first}");
    assert_eq!(of(&patched(r#"{"split_unknown": false}"#), "1:A"), "unknown:t:1");
}

#[test]
fn a_key_may_be_made_of_anything_in_the_message() {
    let settings = patched(r#"{"key": ["/order/customer", "shop"]}"#);
    assert_eq!(key(&settings, &json!({"order": {"customer": "x:y"}, "shop": "z:z"})), "x%3Ay:z:z");
}

#[test]
fn a_message_without_its_key_is_refused_by_name() {
    let full = json!({"channel": "c", "external_chat_id": "1"});
    assert!(read(&input_contour(), &full.to_string()).is_ok());
    for (field, value, code) in [
        ("channel", json!(null), "missing_field"),
        ("channel", json!(""), "missing_field"),
        ("external_chat_id", json!("  "), "missing_field"),
        ("external_chat_id", json!({}), "bad_field"),
        ("external_chat_id", json!("x".repeat(257)), "bad_name"),
        ("channel", json!("a\nb"), "bad_name"),
        ("text", json!(5), "bad_field"),
        ("media", json!([]), "bad_field"),
        ("debounce_seconds", json!(-1), "out_of_range"),
        ("debounce_seconds", json!(300.1), "out_of_range"),
        ("debounce_seconds", json!("5"), "out_of_range"),
    ] {
        let mut message = full.clone();
        message[field] = value;
        assert_eq!(read(&input_contour(), &message.to_string()), Err(code), "{message}");
    }
}

#[test]
fn what_is_no_message_is_refused_with_the_place_of_the_trouble() {
    let refused = input_contour().message(Message::new("{\"a\": 1,\n  oops}"), None).unwrap_err();
    assert_eq!(refused, BadMessage::BadJson { offset: 11, cause: "key must be a string".to_owned() });
    for (text, code) in [("", "bad_json"), ("[]", "bad_json"), ("5", "bad_json"), ("{\"a\":\"\u{0}\"}", "bad_json")] {
        assert_eq!(read(&input_contour(), text), Err(code), "{text}");
    }
    let deep = format!(r#"{{"a": {}{}}}"#, "[".repeat(64), "]".repeat(64));
    assert_eq!(read(&input_contour(), &deep), Err("too_deep"));
    let large = format!(r#"{{"a": "{}"}}"#, "x".repeat(MESSAGE_BYTES_MAX));
    assert_eq!(read(&input_contour(), &large), Err("message_too_large"));
}

#[test]
fn nothing_is_refused_from_a_list_that_can_be_put_right() {
    let with = |debounce: &str| from_list(&format!(r#"{{"channel": "c", "external_chat_id": 1, "debounce_seconds": {debounce}}}"#));
    for (given, seconds, clamped) in [("-5", 0, true), ("1e9", 300, true), ("\"x\"", 10, true), ("null", 10, false), ("7", 7, false)] {
        let (message, was_clamped) = with(given);
        assert_eq!((message.debounce, was_clamped), (Duration::from_secs(seconds), clamped), "{given}");
    }
    assert_eq!(with("1").0.source.unwrap().to_string(), "queue:incoming:7");
}

#[test]
fn a_word_or_no_debounce_at_all_closes_the_batch() {
    let settings = patched(r#"{"flush_keywords": ["ГОТОВО", " send "]}"#);
    let seal = |text: &str, debounce| {
        let message = json!({"channel": "c", "external_chat_id": "1", "text": text, "debounce_seconds": debounce});
        read(&settings, &message.to_string()).unwrap().seal
    };
    assert_eq!(seal(" готово\n", json!(0)), Some(Seal::Keyword));
    assert_eq!(seal("Send", json!(null)), Some(Seal::Keyword));
    assert_eq!(seal("send it", json!(null)), None);
    assert_eq!(seal("send it", json!(0)), Some(Seal::Immediate));
}

#[test]
fn ids_are_taken_from_text_and_numbers() {
    let id = |json: &str| {
        let message = format!(r#"{{"channel": "c", "external_chat_id": 1, "message_id": {json}}}"#);
        read(&input_contour(), &message).unwrap().message_id.map(|id| id.as_str().to_owned())
    };
    assert_eq!(id(r#""m1""#).as_deref(), Some("m1"));
    assert_eq!(id("17").as_deref(), Some("17"));
    assert_eq!((id("null"), id("\"\"")), (None, None));
}

proptest! {
    #[test]
    fn two_messages_share_a_key_only_if_they_share_all_its_parts(
        a in ("[a:%3A5]{1,4}", "[a:%3A5]{1,4}", "[a:%3A5]{1,4}"),
        b in ("[a:%3A5]{1,4}", "[a:%3A5]{1,4}", "[a:%3A5]{1,4}"),
    ) {
        let of = |(tenant, channel, chat): &(String, String, String)| {
            key(&input_contour(), &json!({"tenant_id": tenant, "channel": channel, "external_chat_id": chat}))
        };
        prop_assert_eq!(of(&a) == of(&b), a == b);
    }

    #[test]
    fn whatever_is_sent_is_read_or_refused(text in any::<Vec<u8>>(), json in "[{}\\[\\]\",:a0 \\\\]{0,40}") {
        let _either = input_contour().message(Message::new(text), None);
        let _either = input_contour().message(Message::new(json), None);
    }
}
