//! Old producers push to their list and know nothing else; what they push is taken in once, in order, whoever dies meanwhile.

use std::time::Duration;

use towpath_core::batch::{DeadLetter, Message, SourceId};
use towpath_core::inspect::DeadLetterQuery;
use towpath_core::store::{BatchSource, BatchStore, DrainReply, Drained};

use crate::drainer::{Drainer, LIST, drain_once};
use crate::rig::{Rig, check_corrupt, input_contour, open, settings, until};

const MESSAGES: usize = 10_000;
const CHATS: usize = 10;
const KILLS: usize = 20;

/// No id of its own; two chats never share a number.
fn element(number: usize) -> String {
    format!(r#"{{"tenant_id":"t","channel":"telegram","external_chat_id":"{}","text":"{number}","debounce_seconds":300}}"#, number % CHATS)
}

fn push(rig: &Rig, elements: &[String]) {
    let words: Vec<&str> = ["RPUSH", LIST].into_iter().chain(elements.iter().map(String::as_str)).collect();
    rig.cli(&words);
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or(0)
}

#[tokio::test]
async fn ten_thousand_elements_are_taken_in_once_and_in_order_though_the_drainer_is_killed_twenty_times() {
    let rig = Rig::start();
    let url = rig.server.url();
    let ingested = || number(&rig.cli(&["GET", "towpath:{batch:deadlines}:n"]));
    let put_away = || number(&rig.cli(&["GET", "towpath:{queue:incoming}:drained"]));
    let (mut repeated, mut pushed) = (0, 0);
    for kill in 0..KILLS {
        let drainer = Drainer::start(&url);
        // It is there and waits, or is busy; then there is work for it while it dies.
        let more: Vec<String> = (pushed..pushed + MESSAGES / KILLS).map(element).collect();
        pushed += more.len();
        push(&rig, &more);
        let enough = kill * MESSAGES / KILLS + 23 * (kill % 13);
        until("the drainer has begun", || ingested() > enough).await;
        drop(drainer);
        repeated += ingested() - put_away();
    }
    let store = open(&url).await;
    while put_away() < MESSAGES {
        drain_once(&store, Duration::from_millis(100)).await;
    }
    assert!(repeated > 0, "no drainer died between taking in and putting away: this proves nothing");
    assert_eq!(
        (ingested(), rig.cli(&["LLEN", LIST]), rig.cli(&["EXISTS", "towpath:{queue:incoming}:drain"])),
        (MESSAGES, "0".into(), "0".into())
    );
    for chat in 0..CHATS {
        let list = rig.cli(&["LRANGE", &format!("queue:batch:t:telegram:{chat}"), "0", "-1"]);
        let expected: Vec<String> = (chat..MESSAGES).step_by(CHATS).map(element).collect();
        assert_eq!(list.lines().map(str::trim).collect::<Vec<_>>(), expected, "chat {chat}");
    }
}

#[tokio::test]
async fn an_element_that_cannot_be_read_is_one_dead_letter_with_its_bytes_whoever_dies_after_writing_it() {
    let rig = Rig::start();
    let store = rig.store().await;
    push(&rig, &[element(1), "{oops \u{1F6A2}".to_owned(), r#"{"text":"no chat"}"#.to_owned(), element(2)]);
    for _dies in 0..3 {
        let drained = store.drain(LIST, 10, Duration::ZERO).await.unwrap();
        assert_eq!((drained.from, drained.elements.len()), (0, 4));
        let source = SourceId { list: LIST.into(), number: 1 };
        let bad = settings().message(Message::new(drained.elements[1].clone()), Some(source.clone())).unwrap_err();
        let name = input_contour().name;
        let letter =
            DeadLetter::unreadable(&name, &drained.elements[1], Some(&source), bad.dead_reason(), &bad.to_string(), store.clock().now());
        store.dead_letter_add(&input_contour(), letter, Some(source)).await.unwrap();
    }
    assert_eq!(drain_once(&store, Duration::ZERO).await, 4);
    assert_eq!(drain_once(&store, Duration::ZERO).await, 0);
    let query = DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() };
    let letters = store.dead_letters(&input_contour(), &query).await.unwrap().items;
    let reasons: Vec<Option<&str>> = letters.iter().map(|letter| letter.reason.as_deref()).collect();
    assert_eq!(reasons, [Some("parse_error"), Some("missing_field")]);
    let entry: serde_json::Value = serde_json::from_str(letters[0].entry.as_str()).unwrap();
    assert_eq!((&entry["payload"], entry["raw"].as_str()), (&serde_json::Value::Null, Some("{oops \u{1F6A2}")));
    assert_eq!(store.batch_counts(&input_contour()).await.unwrap().open_messages, 2);
}

#[tokio::test]
async fn a_drainer_that_waits_has_an_element_as_soon_as_it_is_pushed_and_leaves_none_behind_when_it_stops_waiting() {
    let rig = Rig::start();
    let store = rig.store().await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.drain(LIST, 10, Duration::from_secs(60)).await }
    });
    let blocked = || rig.cli(&["INFO", "clients"]).lines().any(|line| line.trim() == "blocked_clients:1");
    until("it waits", blocked).await;
    push(&rig, &["a".to_owned(), "b".to_owned()]);
    let drained = tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it does not wait on").unwrap().unwrap();
    assert_eq!(drained, Drained { from: 0, elements: vec!["a".into(), "b".into()] });
    assert_eq!(store.drained(LIST, 0, 2).await.unwrap(), DrainReply::Removed { next: 2 });
    assert_eq!(store.drain(LIST, 10, Duration::from_millis(20)).await.unwrap(), Drained { from: 2, elements: vec![] });

    let gives_up = tokio::spawn({
        let store = store.clone();
        async move { store.drain(LIST, 10, Duration::from_secs(60)).await }
    });
    until("it waits", blocked).await;
    gives_up.abort();
    push(&rig, &["c".to_owned()]);
    assert_eq!(store.drain(LIST, 10, Duration::ZERO).await.unwrap(), Drained { from: 2, elements: vec!["c".into()] });
}

#[tokio::test]
async fn a_drainer_that_slept_puts_away_nothing_that_is_not_its_own() {
    let rig = Rig::start();
    let store = rig.store().await;
    push(&rig, &["a".to_owned(), "b".to_owned(), "c".to_owned()]);
    assert_eq!(store.drain(LIST, 2, Duration::ZERO).await.unwrap().elements.len(), 2);
    assert_eq!(store.drained(LIST, 0, 2).await.unwrap(), DrainReply::Removed { next: 2 });
    assert_eq!(store.drain(LIST, 2, Duration::ZERO).await.unwrap(), Drained { from: 2, elements: vec!["c".into()] });
    assert_eq!(store.drained(LIST, 0, 2).await.unwrap(), DrainReply::Moved { at: 2 });
    assert_eq!(store.drain(LIST, 2, Duration::ZERO).await.unwrap().elements.len(), 1);
}

#[tokio::test]
async fn a_list_that_is_none_is_named() {
    let rig = Rig::start();
    let store = rig.store().await;
    rig.cli(&["SET", LIST, "text"]);
    check_corrupt(store.drain(LIST, 10, Duration::ZERO).await, LIST);
}
