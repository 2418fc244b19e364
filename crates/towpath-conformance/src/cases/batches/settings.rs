//! The promises about settings that all servers follow.

use towpath_core::names::BatcherName;

use crate::bench::{Bench, sure};
use crate::words::{batcher, json, seconds};

fn name(text: &str) -> BatcherName {
    batcher(text).name
}

pub async fn settings_are_kept_as_they_were_put_and_listed_by_name(t: &mut Bench) {
    assert_eq!(sure(t.batches().batcher(&name("b")).await), None);
    let first = sure(t.batches().put_batcher(&name("b"), json(r#"{"debounce_seconds": 1}"#)).await);
    assert!(first.created);
    assert_eq!((first.stored.settings.as_str(), first.stored.updated_at), (r#"{"debounce_seconds": 1}"#, t.now()));
    sure(t.batches().put_batcher(&name("заказы"), json("{}")).await);
    sure(t.batches().put_batcher(&name("a"), json("{}")).await);
    t.advance_s(1);
    let again = sure(t.batches().put_batcher(&name("b"), json("{}")).await);
    assert!(!again.created && again.stored.version > first.stored.version);
    assert_eq!(sure(t.batches().batcher(&name("b")).await), Some(again.stored));
    let names: Vec<String> = sure(t.batches().batchers().await).into_iter().map(|stored| stored.name.as_str().to_owned()).collect();
    assert_eq!(names, ["a", "b", "заказы"]);
}

pub async fn a_change_wakes_whoever_follows(t: &mut Bench) {
    let (batches, until) = (t.batches(), t.now() + seconds(600));
    let waiting = t.start(|_| async move { sure(batches.batchers_changed(0, until).await) }).await;
    t.check_waits(&waiting).await;
    let put = sure(t.batches().put_batcher(&name("b"), json("{}")).await);
    assert_eq!(waiting.end().await, put.stored.version);
    assert_eq!(sure(t.batches().batchers_changed(0, until).await), put.stored.version, "who comes late knows at once");
}

pub async fn whoever_follows_is_let_go_when_its_time_is_over(t: &mut Bench) {
    let put = sure(t.batches().put_batcher(&name("b"), json("{}")).await);
    let (batches, until, seen) = (t.batches(), t.now() + seconds(5), put.stored.version);
    let waiting = t.start(|_| async move { sure(batches.batchers_changed(seen, until).await) }).await;
    t.check_waits(&waiting).await;
    t.advance_s(5);
    assert_eq!(waiting.end().await, seen);
}
