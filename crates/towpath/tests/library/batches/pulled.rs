//! Batches that are fetched: claimed, prolonged, settled and given up with a token.

use serde_json::{Value, json};
use towpath::batches::{BatchHandle, Batcher, DeadLetterQuery, PullToken, Settle, Settled, Target};
use towpath::testing::TestTowpath;

use crate::support::{millis, seconds, start};

crate::on_every_store! {
    a_fetched_batch_is_settled_once_and_only_by_its_token
    a_batch_that_a_consumer_gives_up_keeps_its_messages
    a_consumer_that_fails_too_often_makes_a_dead_letter
    a_long_poll_ends_when_a_batch_closes
}

fn orders(test: &TestTowpath) -> BatchHandle {
    test.batch(Batcher::builder("orders").key(["/customer"]).debounce(seconds(1)).target(Target::Pull).build().unwrap())
}

async fn pushed(test: &TestTowpath) -> BatchHandle {
    let orders = orders(test);
    orders.push(&json!({"customer": "anna", "n": 1})).send().await.unwrap();
    test.advance(seconds(1)).await;
    orders
}

async fn a_fetched_batch_is_settled_once_and_only_by_its_token(test: TestTowpath) {
    let orders = pushed(&test).await;
    let pulled = orders.claim(5, millis(0)).await.unwrap().remove(0);
    let id = &pulled.batch.batch_id;
    let stranger = PullToken::parse("1.somebody").unwrap();
    assert_eq!(orders.settle(id, &stranger, Settle::Ack).await.unwrap(), Settled::Lost);
    assert_eq!(orders.extend(id, &stranger).await.unwrap(), None);
    let token = PullToken::parse(&pulled.token.to_string()).unwrap();
    test.advance(seconds(40)).await;
    assert_eq!(orders.extend(id, &token).await.unwrap(), Some(test.now() + seconds(60)));
    assert_eq!(orders.settle(id, &token, Settle::Ack).await.unwrap(), Settled::Done);
    assert_eq!(orders.settle(id, &token, Settle::Ack).await.unwrap(), Settled::Lost);
}

async fn a_batch_that_a_consumer_gives_up_keeps_its_messages(test: TestTowpath) {
    let orders = pushed(&test).await;
    let pulled = orders.claim(5, millis(0)).await.unwrap().remove(0);
    let dead = Settle::Dead { error: "no such customer".to_owned() };
    assert_eq!(orders.settle(&pulled.batch.batch_id, &pulled.token, dead).await.unwrap(), Settled::Done);
    test.batchers().define_here(&Batcher::builder("orders").build().unwrap());
    let page = test.dead_letters().list(&DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() }).await.unwrap();
    let entry: Value = serde_json::from_slice(page.items[0].1.entry.as_bytes()).unwrap();
    assert_eq!((&entry["reason"], &entry["error"], &entry["attempts"]), (&json!("rejected"), &json!("no such customer"), &json!(1)));
    assert_eq!(entry["messages"], json!([{"customer": "anna", "n": 1}]));
    assert_eq!(entry["payload"]["messages"], entry["messages"]);
}

async fn a_consumer_that_fails_too_often_makes_a_dead_letter(test: TestTowpath) {
    let orders = pushed(&test).await;
    for attempt in 1..=5 {
        let pulled = orders.claim(1, millis(0)).await.unwrap().remove(0);
        assert_eq!(pulled.batch.attempt, attempt);
        let retry = Settle::Retry { error: "busy".to_owned(), delay: Some(seconds(7)) };
        assert_eq!(orders.settle(&pulled.batch.batch_id, &pulled.token, retry).await.unwrap(), Settled::Done);
        test.advance(millis(6_999)).await;
        assert!(orders.claim(1, millis(0)).await.unwrap().is_empty());
        test.advance(millis(1)).await;
    }
    let counts = orders.counts().await.unwrap();
    assert_eq!((counts.in_flight, counts.dead_letters), (0, 1));
}

async fn a_long_poll_ends_when_a_batch_closes(test: TestTowpath) {
    let orders = orders(&test);
    let poll = {
        let orders = orders.clone();
        start(async move { orders.claim(1, seconds(100)).await })
    };
    test.advance(seconds(50)).await;
    orders.push(&json!({"customer": "anna"})).send().await.unwrap();
    test.advance(seconds(1)).await;
    assert!(poll.is_finished());
    assert_eq!(poll.await.unwrap().unwrap().len(), 1);
}
