//! Dead letters in a list that others change between two pages.

use std::time::Duration;

use towpath_conformance::words::{batch_id, unreadable};
use towpath_core::batch::BatcherId;
use towpath_core::clock::Clock;
use towpath_core::inspect::{Cursor, DeadLetterQuery};
use towpath_core::names::BatchId;
use towpath_core::store::BatchStore;
use towpath_redis::RedisStore;

use crate::rig::{Rig, input_contour};

const LETTERS: u64 = 250;

async fn fill(rig: &Rig, store: &RedisStore, of: &BatcherId) -> Vec<BatchId> {
    let mut ids = Vec::new();
    for number in 0..LETTERS {
        let letter = unreadable(of, "{oops", Some(number), rig.clock.now());
        ids.push(letter.id.clone());
        store.dead_letter_add(of, letter, None).await.expect("the server is there");
    }
    ids
}

async fn page(store: &RedisStore, newest_first: bool, after: Option<Cursor>) -> (Vec<BatchId>, Option<Cursor>) {
    let query = DeadLetterQuery { newest_first, after, limit: 30, ..DeadLetterQuery::default() };
    let page = store.dead_letters(&input_contour(), &query).await.expect("the server is there");
    (page.items.into_iter().map(|letter| letter.id).collect(), page.next)
}

#[tokio::test]
async fn whoever_drops_each_page_before_the_next_drops_all() {
    let rig = Rig::start();
    let (store, of) = (rig.store().await, input_contour());
    for newest_first in [false, true] {
        fill(&rig, &store, &of).await;
        let (mut dropped, mut after) = (0, None);
        loop {
            let (ids, next) = page(&store, newest_first, after).await;
            dropped += store.dead_letter_drop(&of, ids, "ops").await.unwrap().into_iter().filter(|dropped| *dropped).count();
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((dropped as u64, store.batch_counts(&of).await.unwrap().dead_letters), (LETTERS, 0));
    }
    assert_eq!(rig.cli(&["LLEN", "towpath:batch:audit"]), (2 * LETTERS).to_string());
}

#[tokio::test]
async fn nothing_is_left_out_when_letters_come_and_go_between_two_pages() {
    let rig = Rig::start();
    let (store, of) = (rig.store().await, input_contour());
    let ids = fill(&rig, &store, &of).await;
    for newest_first in [false, true] {
        let (first, next) = page(&store, newest_first, None).await;
        // One that was shown, the next to be shown, and one far behind; and one comes.
        let behind = if newest_first { ids[ids.len() - 31].clone() } else { ids[30].clone() };
        let gone = [first[3].clone(), behind, ids[100].clone()];
        store.dead_letter_drop(&of, gone.to_vec(), "ops").await.unwrap();
        store.dead_letter_add(&of, unreadable(&of, "{oops", Some(LETTERS + 1), rig.clock.now()), None).await.unwrap();
        let (mut seen, mut after) = (first, next);
        while after.is_some() {
            let (more, next) = page(&store, newest_first, after).await;
            seen.extend(more);
            after = next;
        }
        let left = rig.cli(&["LRANGE", "dlq:input_contour", "0", "-1"]);
        let mut expected = ids.iter().filter(|id| left.contains(id.as_str()));
        assert!(expected.all(|id| seen.contains(id)), "newest first: {newest_first}");
    }
    assert_eq!(store.dead_letter(&of, &batch_id("never")).await.unwrap(), None);
}

#[tokio::test]
async fn old_letters_are_removed_behind_entries_that_do_not_say_when_they_came() {
    let rig = Rig::start();
    let (store, of) = (rig.store().await, input_contour());
    let junk: Vec<String> = (0..LETTERS).map(|number| format!("junk {number}")).collect();
    rig.cli(&["RPUSH", "dlq:input_contour"].into_iter().chain(junk.iter().map(String::as_str)).collect::<Vec<_>>());
    // More than is in memory at once.
    for number in 0..12 {
        let letter = unreadable(&of, &"x".repeat(1024 * 1024), Some(number), rig.clock.now());
        store.dead_letter_add(&of, letter, None).await.expect("the server is there");
    }
    rig.clock.advance(Duration::from_secs(100));
    store.dead_letter_add(&of, unreadable(&of, "{oops", Some(99), rig.clock.now()), None).await.expect("the server is there");
    let keep = Some(Duration::from_secs(50));
    assert_eq!(store.batch_sweep(&of, keep).await.expect("the server is there").dead_removed, 12);
    assert_eq!(rig.cli(&["LLEN", "dlq:input_contour"]), (LETTERS + 1).to_string(), "what is younger or unreadable stays");
    assert_eq!(store.batch_sweep(&of, keep).await.expect("the server is there").dead_removed, 0);
}
