//! `docs/redis-keys.md` names every key of batches that is written.

use std::time::Duration;

use towpath_conformance::words::{MessageWords, claim_batch, given_up, json, message, unreadable};
use towpath_core::batch::{FinishBatch, Rules, Verb};
use towpath_core::clock::Clock;
use towpath_core::store::{BatchSource, BatchStore};

use crate::rig::{Rig, accepted, both_layouts, claimed, ingest, input_contour};

const PAGE: &str = include_str!("../../../../docs/redis-keys.md");

/// A key as the page writes it: names are placeholders there.
fn as_on_the_page(key: &str) -> String {
    let key = key.replace("towpath:{batch:orders:0}", "T").replace("towpath:{batch:deadlines}", "S");
    let key = key.replace("i:k:m", "i:<bk>:<message_id>").replace("s:queue:incoming:7", "s:<list>:<number>");
    let ends = [(":m:k", ":m:<bk>"), (":o:k", ":o:<bk>"), (":fl:k", ":fl:<bk>"), ("batch:k", "batch:<bk>"), (":b-2", ":<id>")];
    let named = ends.iter().find_map(|(end, name)| key.strip_suffix(end).map(|start| format!("{start}{name}")));
    format!("`{}`", named.unwrap_or(key))
}

#[tokio::test]
async fn the_page_about_keys_names_every_key_of_batches_that_is_written() {
    let rig = Rig::start();
    let store = rig.store().await;
    for of in both_layouts() {
        for (id, is_given_up) in [("b-1", true), ("b-2", false)] {
            accepted(ingest(&store, &of, message("k", id).immediate().id("m").drained(7)).await);
            let batch = claimed(store.batch_claim(claim_batch(&of, "k", id, &Rules::default())).await);
            if is_given_up {
                let verb = Verb::Dead(given_up(&of, &batch, "rejected_404", rig.clock.now()));
                let settle = FinishBatch { batcher: of.clone(), batch_id: batch.batch_id, key: None, token: batch.token, verb };
                store.batch_finish(settle).await.unwrap();
            }
            // What is remembered counts no more.
            rig.clock.advance(Duration::from_secs(8 * 86_400));
        }
        accepted(ingest(&store, &of, message("k", "next").id("m").drained(7)).await);
    }
    store.dead_letter_clear(&input_contour(), "me").await.unwrap();
    let letter = unreadable(&input_contour(), "{", Some(7), rig.clock.now());
    store.dead_letter_add(&input_contour(), letter, None).await.unwrap();
    store.put_batcher(&input_contour().name, json("{}")).await.unwrap();
    rig.cli(&["RPUSH", "queue:incoming", "1", "2", "3"]);
    store.drain("queue:incoming", 2, Duration::ZERO).await.unwrap();
    store.drained("queue:incoming", 0, 1).await.unwrap();
    assert!(store.lead("queue:incoming", "me", Duration::from_secs(5), rig.clock.now()).await.unwrap());

    let keys = rig.cli(&["KEYS", "*batch*"]) + "\n" + &rig.cli(&["KEYS", "*queue:incoming*"]) + "\n" + &rig.cli(&["KEYS", "dlq*"]);
    let written: Vec<&str> = keys.lines().map(str::trim).collect();
    assert!(written.len() > 25, "too little was written to prove anything: {written:?}");
    let missing: Vec<String> = written.iter().map(|key| as_on_the_page(key)).filter(|key| !PAGE.contains(key)).collect();
    assert_eq!(missing, Vec::<String>::new(), "write them down in docs/redis-keys.md");
}
