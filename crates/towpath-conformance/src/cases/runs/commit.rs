//! The promises about what an owner commits.

use std::sync::Arc;

use towpath_core::run::{Commit, EntryKind, RunState, Standing, Then};
use towpath_core::store::RunCommitted;

use crate::bench::Bench;
use crate::words::{build, completes, does_not_fit, done, entry, event, json, run_place, start, waits_for, waits_for_timers};

pub async fn entries_are_kept_in_order_and_byte_for_byte(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    for (number, body) in [(1_u8, "1e400"), (2, r#"{"ä":"\u0000"}"#), (3, "-0")] {
        let commit = execution.commit(vec![entry(EntryKind::Open, "{}"), done(number, body)], Then::Stay);
        assert_eq!(t.committed(&mut execution, commit).await.first_entry, u64::from(number) * 2 - 1);
    }
    assert_eq!(t.journal(&id).await, [r#"{"input":1}"#, "{}", "1e400", "{}", r#"{"ä":"\u0000"}"#, "{}", "-0"]);
    let page = t.runs().journal(&id, 3, 1).await.expect("the store answers");
    assert_eq!(page.iter().map(|entry| entry.number).collect::<Vec<_>>(), [3], "a page has one entry at least");
}

pub async fn a_commit_that_is_repeated_gets_the_first_answer_and_writes_nothing(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    for then in [Then::Stay, completes()] {
        let commit = execution.commit(vec![done(1, "1")], then);
        let first = t.put_commit(&execution, commit.clone()).await;
        t.advance_s(1);
        assert_eq!(t.put_commit(&execution, commit.clone()).await, first);
        t.committed(&mut execution, commit).await;
    }
    assert_eq!(t.journal(&id).await.len(), 3);
    assert_eq!(t.run(&id).await.outcome, Some(json("1")));
}

pub async fn an_owner_that_is_ahead_of_the_store_is_told_so(t: &mut Bench) {
    t.started(start("order", 1)).await;
    let execution = t.execute("w1").await;
    let ahead = Commit { revision: 5, ..execution.commit(vec![done(1, "1")], Then::Stay) };
    assert_eq!(t.put_commit(&execution, ahead).await, RunCommitted::Stale { revision: 0 });
}

pub async fn a_released_run_is_the_next_workers_at_once(t: &mut Bench) {
    t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let release = execution.commit(Vec::new(), Then::Release);
    t.committed(&mut execution, release).await;
    assert_eq!(t.execute("w2").await.run.deliveries, 0, "it does not count as a lost worker");
}

pub async fn a_run_is_not_parked_without_anything_that_could_wake_it(t: &mut Bench) {
    t.started(start("order", 1)).await;
    let execution = t.execute("w1").await;
    let park = execution.commit(vec![done(1, "1")], waits_for_timers());
    assert_eq!(t.put_commit(&execution, park).await, RunCommitted::NothingToWaitFor);
}

pub async fn published_values_are_the_latest_of_each_key(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    for value in ["1", "2"] {
        let published = vec![(Arc::from("step"), json(value))];
        let commit = Commit { published, ..execution.commit(vec![done(1, value)], Then::Stay) };
        t.committed(&mut execution, commit).await;
    }
    assert_eq!(t.runs().published(&id).await, Ok(vec![(Arc::from("step"), json("2"))]));
}

pub async fn a_run_that_continues_begins_a_new_journal_and_keeps_its_events(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    t.send(&id, event("paid", "1")).await;
    let next = execution.commit(vec![done(1, "1")], Then::Continue(entry(EntryKind::Begin, r#"{"input":9}"#)));
    t.committed(&mut execution, next).await;
    let again = t.execute("w2").await;
    assert_eq!((again.run.generation, again.facts.len()), (1, 1));
    assert_eq!(t.journal(&id).await, [r#"{"input":9}"#]);
}

pub async fn a_run_that_does_not_fit_a_build_waits_for_another_one(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let block = execution.commit(Vec::new(), does_not_fit("a"));
    t.committed(&mut execution, block).await;
    let places = [run_place("order")];
    assert_eq!(t.runs().register_build(&build("a"), &places).await, Ok(0));
    assert_eq!(t.runs().register_build(&build("b"), &[run_place("shipping")]).await, Ok(0), "it serves other workflows");
    assert_eq!(t.run_state(&id).await, RunState::Blocked);
    assert_eq!(t.runs().register_build(&build("b"), &places).await, Ok(1));
    t.execute("w1").await;
}

pub async fn a_run_has_one_standing_after_a_restart(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let park = execution.commit(vec![entry(EntryKind::Open, "{}")], waits_for(&["paid"]));
    t.committed(&mut execution, park).await;
    t.reopen().await;
    assert_eq!(t.run(&id).await.run.standing(), Standing::Parked);
    t.send(&id, event("paid", "1")).await;
    t.reopen().await;
    assert_eq!(t.execute("w2").await.facts.len(), 1);
}
