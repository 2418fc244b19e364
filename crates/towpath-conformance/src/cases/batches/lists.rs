//! The promises about what people get to see.

use towpath_core::batch::{CloseReason, OpenBatch, Verb};
use towpath_core::inspect::BatchCounts;

use crate::bench::{Bench, sure};
use crate::words::{MessageWords, batch_id, batch_key, message, seconds};

pub async fn an_open_batch_shows_all_that_is_known_of_it(t: &mut Bench) {
    let first = t.now();
    t.say("k", "я").await;
    t.advance_s(1);
    t.say("k", "2").await;
    let view = t.open_batch("k").await.expect("it is open");
    let open = OpenBatch {
        first,
        last: t.now(),
        deadline: t.now() + seconds(10),
        reason: CloseReason::SilenceReached,
        sealed: false,
        bytes: 3,
        size: 2,
        armed: true,
    };
    assert_eq!((view.open, view.in_flight, view.key), (open, None, batch_key("k")));
    assert_eq!(t.open_batch("other").await, None);
}

pub async fn messages_of_an_open_batch_come_page_by_page(t: &mut Bench) {
    for number in 0..203 {
        t.say("many", &number.to_string()).await;
    }
    let messages = async |key: &str, from| {
        let view = sure(t.batches().open_batch(&t.orders(), &batch_key(key), from).await).expect("it is open");
        view.messages.iter().map(|message| message.as_bytes().to_vec()).collect::<Vec<_>>()
    };
    let (first, second) = (messages("many", 0).await, messages("many", 200).await);
    assert_eq!((first.len(), first[199].as_slice()), (200, b"199".as_slice()));
    assert_eq!(second, [b"200", b"201", b"202"]);
    assert!(messages("many", 203).await.is_empty() && messages("many", u64::MAX).await.is_empty());
    for _ in 0..7 {
        t.say("large", &"x".repeat(250_000)).await;
    }
    assert_eq!(messages("large", 0).await.len(), 5, "a page ends with the message that reaches 1 MiB");
    assert_eq!(messages("large", 5).await.len(), 2);
}

pub async fn open_batches_come_page_by_page_the_longest_open_first(t: &mut Bench) {
    for key in ["c", "a", "b"] {
        t.say(key, "1").await;
    }
    t.advance_s(1);
    t.say("0", "1").await;
    t.say("c", "2").await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = sure(t.batches().open_batches(&t.orders(), after, 3).await);
        assert!(page.items.len() <= 3);
        seen.extend(page.items.into_iter().map(|view| view.key.as_str().to_owned()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["a", "b", "c", "0"]);
}

pub async fn batches_in_flight_come_page_by_page_what_is_due_first_without_their_tokens(t: &mut Bench) {
    for key in ["a", "b", "c"] {
        t.accepted(message(key, "1").immediate()).await;
        let batch = t.claim_batch(key, &format!("b-{key}")).await;
        if key == "c" {
            t.settled(&batch, Verb::Retry { delay: seconds(5) }).await;
        }
        t.advance_s(1);
    }
    let page = sure(t.batches().batches_in_flight(&t.orders(), None, 2).await);
    let ids: Vec<_> = page.items.iter().map(|view| view.batch_id.clone()).collect();
    assert_eq!(ids, ["b-c", "b-a"].map(batch_id));
    assert_eq!((page.items[0].held, page.items[1].held, page.items[0].attempt), (false, true, 1));
    let page = sure(t.batches().batches_in_flight(&t.orders(), page.next, 2).await);
    assert_eq!((page.items[0].batch_id.clone(), page.items[0].key.clone(), page.next), (batch_id("b-b"), batch_key("b"), None));
}

pub async fn everything_is_counted(t: &mut Bench) {
    t.dead_batch("k", "b-1", "rejected_404").await;
    t.accepted(message("k", "1").immediate()).await;
    t.claim_batch("k", "b-2").await;
    t.say("k", "2").await;
    t.say("k", "3").await;
    t.say("l", "4").await;
    let counts = sure(t.batches().batch_counts(&t.orders()).await);
    assert_eq!(counts, BatchCounts { open_keys: 2, open_messages: 3, in_flight: 1, dead_letters: 1 });
}
