//! The promises about waiting: first come first served, nobody barges in, and who is gone holds up nobody.

use std::time::Duration;

use towpath_core::lock::{AcquireReply, BusyWith, CancelReply, ReleaseReply};

use crate::bench::Bench;
use crate::words::{LockWords, seconds, waiter, want};

pub async fn waiters_are_served_first_come_first_served(t: &mut Bench) {
    let mut holder = t.granted(want("s", "h")).await;
    for (rank, who) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(t.held_by(want("s", who).waiting(), "h").await.rank, Some(rank as u32));
    }
    for (next, others) in [("a", ["b", "c"].as_slice()), ("b", &["c"]), ("c", &[])] {
        assert_eq!(t.release_lock("s", holder.fence).await, ReleaseReply::Released);
        for other in others {
            assert_eq!(t.busy(want("s", other).waiting()).await.with, BusyWith::Queue, "{other} before {next}");
        }
        holder = t.granted(want("s", next).waiting()).await;
    }
    assert_eq!(t.known_lock("s").await.waiters, []);
}

pub async fn asking_again_keeps_the_place(t: &mut Bench) {
    t.granted(want("s", "h").lease_s(60)).await;
    for who in ["a", "b"] {
        t.busy(want("s", who).waiting()).await;
    }
    t.advance_s(20);
    assert_eq!(t.busy(want("s", "a").waiting()).await.rank, Some(0));
    assert_eq!(t.known_lock("s").await.waiters[0].alive_until, t.now() + seconds(30));
}

pub async fn a_caller_that_does_not_wait_never_passes_one_that_does(t: &mut Bench) {
    let holder = t.granted(want("s", "h")).await;
    t.busy(want("s", "a").waiting()).await;
    t.released("s", holder.fence).await;
    let busy = t.busy(want("s", "hasty")).await;
    assert_eq!((busy.with, busy.free_in, busy.rank), (BusyWith::Queue, Some(seconds(1)), None));
    t.granted(want("s", "a").waiting()).await;
}

pub async fn a_silent_head_is_passed_a_second_after_the_release_and_not_before(t: &mut Bench) {
    let holder = t.granted(want("s", "h")).await;
    for who in ["silent", "b", "c"] {
        t.busy(want("s", who).waiting()).await;
    }
    t.released("s", holder.fence).await;
    t.advance_ms(999);
    assert_eq!(t.busy(want("s", "b").waiting()).await.free_in, Some(Duration::from_millis(1)));
    assert_eq!(t.busy(want("s", "c").waiting()).await.free_in, Some(Duration::from_millis(1_001)), "a second for each ahead");
    t.advance_ms(1);
    t.granted(want("s", "b").waiting()).await;
    let waiters = t.known_lock("s").await.waiters;
    assert_eq!(waiters.iter().map(|place| place.waiter.clone()).collect::<Vec<_>>(), [waiter("c")], "who was passed has lost its place");
    assert_eq!(t.busy(want("s", "silent").waiting()).await.rank, Some(1));
}

pub async fn a_caller_that_does_not_wait_counts_as_the_last_place(t: &mut Bench) {
    let holder = t.granted(want("s", "h")).await;
    for who in ["a", "b"] {
        t.busy(want("s", who).waiting()).await;
    }
    t.released("s", holder.fence).await;
    t.advance_ms(1_999);
    t.busy(want("s", "hasty")).await;
    t.advance_ms(1);
    t.granted(want("s", "hasty")).await;
}

pub async fn a_waiter_that_is_gone_holds_up_nobody(t: &mut Bench) {
    let holder = t.granted(want("s", "h").lease_s(60)).await;
    t.busy(want("s", "gone").waiting()).await;
    t.advance_s(29);
    t.busy(want("s", "b").waiting()).await;
    t.advance_s(1);
    t.released("s", holder.fence).await;
    t.granted(want("s", "b").waiting()).await;
}

pub async fn a_waiter_that_is_gone_is_not_shown(t: &mut Bench) {
    t.granted(want("s", "h").lease_s(60)).await;
    t.busy(want("s", "gone").waiting()).await;
    t.advance_s(30);
    assert_eq!(t.known_lock("s").await.waiters, []);
}

pub async fn a_full_queue_takes_nobody_but_keeps_those_in_it(t: &mut Bench) {
    t.granted(want("s", "h")).await;
    let one = |who| {
        let mut question = want("s", who).waiting();
        question.waiters_max = 1;
        question
    };
    assert_eq!(t.busy(one("a")).await.rank, Some(0));
    assert_eq!(t.acquire(one("b")).await, AcquireReply::QueueFull { waiters: 1 });
    assert_eq!(t.busy(one("a")).await.rank, Some(0));
}

pub async fn whoever_gives_up_leaves_the_queue(t: &mut Bench) {
    let holder = t.granted(want("s", "h")).await;
    for who in ["a", "b"] {
        t.busy(want("s", who).waiting()).await;
    }
    assert_eq!(t.take_back("s", "a").await, CancelReply::Cancelled);
    assert_eq!(t.take_back("s", "a").await, CancelReply::NotQueued);
    t.released("s", holder.fence).await;
    t.granted(want("s", "b").waiting()).await;
}

pub async fn a_grant_that_nobody_learnt_of_is_undone_by_giving_up(t: &mut Bench) {
    let grant = t.granted(want("s", "a").waiting()).await;
    assert_eq!(t.take_back("s", "a").await, CancelReply::WasGranted { fence: grant.fence });
    assert_eq!(t.take_back("s", "a").await, CancelReply::NotQueued);
    assert_eq!(t.acquire(want("s", "a").waiting()).await, AcquireReply::Spent, "a copy that comes late takes nothing");
    t.granted(want("s", "b")).await;
}

pub async fn giving_up_does_not_undo_what_is_held_more_than_once_or_by_another_question(t: &mut Bench) {
    t.granted(want("s", "a").entering(2)).await;
    assert_eq!(t.take_back("s", "other").await, CancelReply::NotQueued);
    let _entered = t.acquire(want("s", "a").asked_as("again").entering(2)).await;
    assert_eq!(t.take_back("s", "again").await, CancelReply::NotQueued);
    t.held_by(want("s", "b"), "a").await;
}

pub async fn a_holder_is_followed_by_its_waiter_when_it_dies(t: &mut Bench) {
    t.granted(want("s", "h")).await;
    t.busy(want("s", "a").waiting()).await;
    t.advance_s(10);
    t.busy(want("s", "hasty")).await;
    t.granted(want("s", "a").waiting()).await;
}

pub async fn many_who_wait_are_served_in_order(t: &mut Bench) {
    let mut holder = t.granted(want("s", "h").lease_s(60)).await;
    let names: Vec<String> = (0..200).map(|number| format!("w{number}")).collect();
    for who in &names {
        t.busy(want("s", who).waiting()).await;
    }
    for who in &names {
        t.released("s", holder.fence).await;
        holder = t.granted(want("s", who).waiting()).await;
    }
}
