//! When batches close: after silence, after the longest wait, at once.

use serde_json::json;
use towpath::batches::{Batcher, Pushed};
use towpath::testing::TestTowpath;

use super::{Inbox, message, push};
use crate::support::{millis, seconds};

crate::on_every_store! {
    three_messages_and_silence_make_one_text_after_exactly_ten_seconds
    a_steady_stream_is_cut_off_at_the_longest_wait
    a_message_that_is_not_to_wait_goes_at_once
    settings_that_are_kept_count_for_the_next_message
    a_message_id_counts_once_per_chat_for_an_hour
}

async fn three_messages_and_silence_make_one_text_after_exactly_ten_seconds(test: TestTowpath) {
    let inbox = Inbox::default();
    let worker = inbox.receive(&test, "input_contour", |_, _| Ok(())).await;
    let start = test.now();
    for (at, text) in [(1, "Привет"), (3, "Разбил экран"), (5, "iPhone 14")] {
        test.advance((start + seconds(at)).since(test.now())).await;
        push(&test, &message("123456789", text)).await;
    }
    test.advance((start + millis(14_999)).since(test.now())).await;
    assert!(inbox.got().is_empty(), "the silence is not over");
    test.advance(millis(1)).await;
    let got = inbox.got();
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].at, got[0].key.as_str()), (start + seconds(15), "a1b2c3d4:telegram:123456789"));
    assert_eq!(got[0].payload["text"], "Привет\n\nРазбил экран\n\niPhone 14");
    let meta = &got[0].payload["meta"];
    assert_eq!(
        (&meta["batched"], &meta["batch_size"], &meta["batch_reason"], &meta["external_chat_id"]),
        (&json!(true), &json!(3), &json!("debounce"), &json!("123456789"))
    );
    assert_eq!(meta["close_reason"], "silence_reached");
    drop(worker);
}

async fn a_steady_stream_is_cut_off_at_the_longest_wait(test: TestTowpath) {
    let inbox = Inbox::default();
    let worker = inbox.receive(&test, "input_contour", |_, _| Ok(())).await;
    let start = test.now();
    for n in 0..80 {
        push(&test, &message("1", &n.to_string())).await;
        test.advance(seconds(4)).await;
        assert_eq!(inbox.got().is_empty(), test.now() < start + seconds(300), "at {:?}", test.now().since(start));
    }
    let got = inbox.got();
    assert_eq!(got[0].at, start + seconds(300));
    assert_eq!((&got[0].payload["meta"]["close_reason"], &got[0].payload["meta"]["batch_size"]), (&json!("max_wait_reached"), &json!(75)));
    drop(worker);
}

async fn a_message_that_is_not_to_wait_goes_at_once(test: TestTowpath) {
    let inbox = Inbox::default();
    let worker = inbox.receive(&test, "input_contour", |_, _| Ok(())).await;
    let start = test.now();
    push(&test, &message("1", "first")).await;
    let pushed = test.batch("input_contour").push(&message("1", "now")).debounce(seconds(0)).send().await.unwrap();
    assert!(matches!(pushed, Pushed::Accepted { size: 2, deadline, .. } if deadline == start));
    test.advance(millis(10)).await;
    assert_eq!(inbox.got()[0].payload["text"], "first\n\nnow");
    let refused = test.batch("input_contour").push(&message("1", "x")).debounce(seconds(301)).send().await.unwrap_err();
    assert_eq!(refused.code(), "out_of_range");
    drop(worker);
}

async fn settings_that_are_kept_count_for_the_next_message(test: TestTowpath) {
    let inbox = Inbox::default();
    let worker = inbox.receive(&test, "input_contour", |_, _| Ok(())).await;
    let put = test.batchers().put(&Batcher::builder("input_contour").debounce(seconds(2)).build().unwrap()).await.unwrap();
    assert!(!put.created, "input_contour is always known");
    let start = test.now();
    push(&test, &message("1", "hi")).await;
    test.advance(seconds(2)).await;
    assert_eq!(inbox.got()[0].at, start + seconds(2));
    let unknown = test.batch("orders").push(&json!({})).send().await.unwrap_err();
    assert_eq!(unknown.code(), "batcher_not_found");
    assert!(test.batchers().put(&Batcher::builder("orders").key(["id"]).build().unwrap()).await.unwrap().created);
    test.batch("orders").push(&json!({"id": 1})).send().await.unwrap();
    drop(worker);
}

async fn a_message_id_counts_once_per_chat_for_an_hour(test: TestTowpath) {
    let with_id = |chat: &str| {
        let mut message = message(chat, "hi");
        message["message_id"] = json!("m-1");
        message
    };
    let push = async |chat: &str| test.batch("input_contour").push(&with_id(chat)).send().await.unwrap();
    assert!(matches!(push("1").await, Pushed::Accepted { .. }));
    assert!(matches!(push("1").await, Pushed::Duplicate { .. }));
    assert!(matches!(push("2").await, Pushed::Accepted { .. }), "another chat has ids of its own");
    test.advance(seconds(3_601)).await;
    assert!(matches!(push("1").await, Pushed::Accepted { .. }), "an hour is over");
}
