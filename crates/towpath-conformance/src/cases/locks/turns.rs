//! The promises about being woken: whoever may be next hears of it, without asking.

use towpath_core::lock::{EndReply, ReleaseReply};
use towpath_core::permit::PermitKind;

use crate::bench::Bench;
use crate::words::{LockWords, PermitWords, node, read, semaphore, want, write};

pub async fn a_release_wakes_the_first_two_who_wait(t: &mut Bench) {
    let mut ear = t.listen().await;
    let holder = t.granted(want("s", "h")).await;
    for who in ["a", "b", "c"] {
        t.busy(LockWords::waiting(want("s", who))).await;
    }
    t.check_turns(&mut ear, &[]).await;
    t.released("s", holder.fence).await;
    t.check_turns(&mut ear, &["a", "b"]).await;
    assert_eq!(t.release_lock("s", holder.fence).await, ReleaseReply::Already);
    t.check_turns(&mut ear, &[]).await;
}

pub async fn every_way_in_which_a_tenure_ends_wakes_the_queue(t: &mut Bench) {
    let mut ear = t.listen().await;
    for (number, way) in ["by id", "by execution", "by force", "undone", "reaped"].into_iter().enumerate() {
        let what = format!("s{number}");
        let name = format!("w{number}");
        t.granted(LockWords::for_execution(want(&what, "h"), "e")).await;
        t.busy(LockWords::waiting(want(&what, &name))).await;
        match way {
            "by id" => assert!(matches!(t.release_by_id(&what, "h").await, EndReply::Ended { .. })),
            "by execution" => assert!(matches!(t.end_by_execution(&what, "e").await, EndReply::Ended { .. })),
            "by force" => {
                let seen = t.known_lock(&what).await;
                let _ended = t.force(&seen).await;
            }
            "undone" => {
                let _undone = t.take_back(&what, "h").await;
            }
            _ => {
                t.advance_s(10);
                assert_eq!(t.fire().await.locks_reaped, 1);
            }
        }
        t.check_turns(&mut ear, &[&name]).await;
    }
}

pub async fn a_head_that_gives_up_wakes_the_next(t: &mut Bench) {
    let mut ear = t.listen().await;
    t.granted(want("s", "h")).await;
    for who in ["a", "b", "c"] {
        t.busy(LockWords::waiting(want("s", who))).await;
    }
    let _left = t.take_back("s", "b").await;
    t.check_turns(&mut ear, &[]).await;
    let _left = t.take_back("s", "a").await;
    t.check_turns(&mut ear, &["c"]).await;
}

pub async fn a_node_hears_nothing_of_other_nodes(t: &mut Bench) {
    let mut other = t.store().lock_wakes(&node("other"));
    let mut ear = t.listen().await;
    let holder = t.granted(want("s", "h")).await;
    t.busy(LockWords::waiting(want("s", "a"))).await;
    t.released("s", holder.fence).await;
    t.check_turns(&mut ear, &["a"]).await;
    t.check_turns(&mut other, &[]).await;
}

pub async fn units_given_back_wake_the_first_two_who_wait(t: &mut Bench) {
    let mut ear = t.listen().await;
    t.taken(semaphore("s", "h", 5)).await;
    for who in ["a", "b", "c"] {
        t.scarce(PermitWords::waiting(semaphore("s", who, 1))).await;
    }
    t.give_back_of(PermitKind::Semaphore, "s", "h").await;
    t.check_turns(&mut ear, &["a", "b"]).await;
    t.taken(PermitWords::waiting(semaphore("s", "a", 1))).await;
    t.check_turns(&mut ear, &["b"]).await;
}

pub async fn readers_wake_one_another_when_a_writer_leaves(t: &mut Bench) {
    let mut ear = t.listen().await;
    t.taken(write("s", "w")).await;
    for who in ["a", "b", "c"] {
        t.scarce(PermitWords::waiting(read("s", who))).await;
    }
    t.give_back_of(PermitKind::ReadWrite, "s", "w").await;
    t.check_turns(&mut ear, &["a", "b"]).await;
    for (who, next) in [("a", ["b"].as_slice()), ("b", &["c"]), ("c", &[])] {
        t.taken(PermitWords::waiting(read("s", who))).await;
        t.check_turns(&mut ear, next).await;
    }
}
