//! Locks as a user of the library sees them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath::locks::{
    Acquired, AcquiredAll, Cleanup, Fence, HeldScope, LockError, LockGuard, LockScope, LockWait, LostLock, PermitKind, Released,
};
use towpath::testing::TestTowpath;
use towpath::{StoreTrouble, Towpath, VirtualClock};
use towpath_conformance::model::ModelStore;
use towpath_core::lock::{EndBy, EndLock, EndReply};

use crate::on_every_store;
use crate::support::faulty::{FaultyStore, When, Which};
use crate::support::{seconds, start};

on_every_store! {
    a_guard_keeps_its_lock_for_as_long_as_it_lives
    whoever_does_not_wait_is_told_who_has_it
    whoever_waits_is_granted_by_its_wake_up_alone
    waiters_are_served_first_come_first_served_and_hardly_ask
    a_wait_ends_when_its_time_is_over_and_leaves_no_place_behind
    a_waiter_that_goes_away_leaves_the_queue
    a_dead_holder_is_followed_when_its_lease_ends
    a_dropped_guard_releases
    a_guard_is_lost_at_its_cap_before_the_store_gives_the_lock_away
    a_lock_that_is_not_renewed_lasts_for_its_ttl
    a_guard_learns_that_an_operator_ended_it
    a_lock_id_may_enter_as_often_as_it_may
    several_locks_are_taken_together_or_not_at_all
    two_who_want_the_same_locks_do_not_wait_for_each_other
    units_of_a_semaphore_are_waited_for_in_order
    readers_join_and_a_writer_waits_for_them
    a_failed_execution_is_cleaned_up
    bad_input_is_refused_and_leaves_nothing_behind
}

async fn hold(test: &Towpath, scope: &str) -> LockGuard {
    test.lock(scope).acquire().await.unwrap().granted().expect("the lock is free")
}

async fn is_free(test: &Towpath, scope: &str) -> bool {
    matches!(test.lock(scope).wait(LockWait::No).acquire().await.unwrap(), Acquired::Granted(_))
}

async fn waiters(test: &TestTowpath, scope: &str) -> usize {
    let view = test.store().lock(&LockScope::new(scope).unwrap()).await.unwrap();
    view.map_or(0, |view| view.waiters.len())
}

async fn a_guard_keeps_its_lock_for_as_long_as_it_lives(test: TestTowpath) {
    let guard = hold(&test, "s").await;
    test.advance(seconds(600)).await;
    assert!(!is_free(&test, "s").await);
    assert_eq!(guard.reason(), None);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(is_free(&test, "s").await);
}

async fn whoever_does_not_wait_is_told_who_has_it(test: TestTowpath) {
    let guard = test.lock("s").workflow("wf-1", "Nightly import").lock_id("a").acquire().await.unwrap().granted().unwrap();
    let Acquired::Held(blocked) = test.lock("s").wait(LockWait::No).acquire().await.unwrap() else { panic!("granted twice") };
    let holder = blocked.holder.clone().expect("a holder");
    assert_eq!((holder.lock_id.as_str(), holder.workflow_name.as_str(), holder.fence), ("a", "Nightly import", Some(guard.fence())));
    assert_eq!(blocked.free_in, Some(seconds(30)));
    assert!(
        blocked.to_string().starts_with("held by Nightly import (lock id 'a') since 2027-01-15T08:00:00.000Z, free in 30 s"),
        "{blocked}"
    );
}

async fn whoever_waits_is_granted_by_its_wake_up_alone(test: TestTowpath) {
    let mut guard = hold(&test, "s").await;
    for _ in 0..50 {
        let next = start(test.lock("s").acquire());
        test.settle().await;
        assert!(!next.is_finished());
        let (before, fence) = (test.now(), guard.fence());
        guard.release().await.unwrap();
        // The clock stands still: nothing but the wake-up can have told it.
        guard = next.await.unwrap().unwrap().granted().expect("granted");
        assert_eq!(test.now(), before);
        assert!(guard.fence() > fence);
    }
}

async fn waiters_are_served_first_come_first_served_and_hardly_ask(test: TestTowpath) {
    const WAITERS: usize = 40;
    let served: Arc<Mutex<Vec<usize>>> = Arc::default();
    let guard = hold(&test, "s").await;
    let mut all = Vec::new();
    for number in 0..WAITERS {
        let (towpath, served) = (test.towpath().clone(), Arc::clone(&served));
        all.push(tokio::spawn(async move {
            let guard = towpath.lock("s").acquire().await.unwrap().granted().expect("granted");
            served.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        test.settle().await;
    }
    guard.release().await.unwrap();
    for waiter in all {
        waiter.await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>());
}

async fn a_wait_ends_when_its_time_is_over_and_leaves_no_place_behind(test: TestTowpath) {
    let _guard = hold(&test, "s").await;
    let before = test.now();
    let waiting = test.lock("s").wait(LockWait::UpTo(seconds(45))).acquire();
    let Acquired::TimedOut(blocked) = test.finish(waiting).await.unwrap() else { panic!("granted") };
    assert_eq!((test.now().since(before), blocked.ahead), (seconds(45), Some(0)));
    assert_eq!(waiters(&test, "s").await, 0);
}

async fn a_waiter_that_goes_away_leaves_the_queue(test: TestTowpath) {
    let guard = hold(&test, "s").await;
    let gone = start(test.lock("s").acquire());
    test.settle().await;
    let next = start(test.lock("s").acquire());
    test.settle().await;
    assert_eq!(waiters(&test, "s").await, 2);
    gone.abort();
    assert!(gone.await.is_err());
    test.settle().await;
    assert_eq!(waiters(&test, "s").await, 1);
    guard.release().await.unwrap();
    assert!(matches!(next.await.unwrap().unwrap(), Acquired::Granted(_)));
}

async fn a_dead_holder_is_followed_when_its_lease_ends(test: TestTowpath) {
    // Another process takes it and is heard of no more.
    let dead = towpath_core::lock::AcquireLock::new("s".parse().unwrap(), "dead".parse().unwrap(), "dead".parse().unwrap());
    let _granted = test.store().lock_acquire(dead).await.unwrap();
    let before = test.now();
    let guard = test.finish(test.lock("s").acquire()).await.unwrap().granted().expect("granted");
    let after = test.now().since(before);
    assert!(after >= seconds(30) && after < seconds(31), "after {after:?}");
    drop(guard);
}

async fn a_dropped_guard_releases(test: TestTowpath) {
    let guard = hold(&test, "s").await;
    drop(guard);
    test.settle().await;
    assert!(is_free(&test, "s").await);
}

async fn a_guard_is_lost_at_its_cap_before_the_store_gives_the_lock_away(test: TestTowpath) {
    let guard = test.lock("s").ttl(seconds(100)).acquire().await.unwrap().granted().unwrap();
    let before = test.now();
    let why = test.finish(guard.lost()).await;
    let after = test.now().since(before);
    assert_eq!(why, LostLock::MaxHold);
    assert!(after > seconds(99) && after < seconds(100), "after {after:?}");
    assert!(!is_free(&test, "s").await, "the guard knew before anybody else could enter");
    test.advance(seconds(1)).await;
    assert!(is_free(&test, "s").await);
    test.settle().await;
    assert_eq!(guard.release().await.unwrap(), Released::Already, "another was granted and released meanwhile");
}

async fn a_lock_that_is_not_renewed_lasts_for_its_ttl(test: TestTowpath) {
    let guard = test.lock("s").ttl(seconds(300)).without_renewal().acquire().await.unwrap().granted().unwrap();
    test.advance(seconds(296)).await;
    assert!(!is_free(&test, "s").await);
    assert_eq!(guard.reason(), None);
    test.advance(seconds(2)).await;
    assert_eq!(guard.reason(), Some(LostLock::MaxHold));
}

async fn a_guard_learns_that_an_operator_ended_it(test: TestTowpath) {
    let guard = hold(&test, "s").await;
    let scope = LockScope::new("s").unwrap();
    let counter = test.store().lock(&scope).await.unwrap().unwrap().counter;
    let by = EndBy::Force { counter, who: "ops".to_owned(), reason: "stuck".to_owned() };
    assert!(matches!(test.store().lock_end(EndLock { scope, by }).await.unwrap(), EndReply::Ended { .. }));
    let before = test.now();
    assert_eq!(test.finish(guard.lost()).await, LostLock::Absent);
    assert_eq!(test.now().since(before), seconds(10), "at its next renewal");
}

async fn a_lock_id_may_enter_as_often_as_it_may(test: TestTowpath) {
    let enter = |times| test.lock("s").lock_id("me").max_holds(times).acquire();
    let one = enter(2).await.unwrap().granted().unwrap();
    assert!(matches!(enter(1).await.unwrap(), Acquired::SelfHeld { fence, .. } if fence == one.fence()));
    let two = enter(2).await.unwrap().granted().unwrap();
    assert_eq!(one.release().await.unwrap(), Released::StillHeld { holds: 1 });
    assert!(!is_free(&test, "s").await);
    assert_eq!(two.release().await.unwrap(), Released::Released);
}

async fn several_locks_are_taken_together_or_not_at_all(test: TestTowpath) {
    let middle = hold(&test, "b").await;
    let AcquiredAll::Blocked { scope, by } = test.lock_all(["c", "a", "b"]).wait(LockWait::No).acquire().await.unwrap() else {
        panic!("granted")
    };
    assert_eq!(scope, "b");
    assert!(matches!(*by, Acquired::Held(_)));
    assert!(is_free(&test, "a").await && is_free(&test, "c").await);
    test.settle().await;
    let all = start(test.lock_all(["c", "a", "b", "a"]).acquire());
    test.settle().await;
    assert!(!is_free(&test, "a").await, "it holds the first while it waits for the second");
    middle.release().await.unwrap();
    let AcquiredAll::Granted(guards) = all.await.unwrap().unwrap() else { panic!("not granted") };
    assert_eq!(guards.iter().map(|guard| guard.scope().to_string()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(guards.release().await.unwrap(), [Released::Released, Released::Released, Released::Released]);
}

async fn two_who_want_the_same_locks_do_not_wait_for_each_other(test: TestTowpath) {
    let both = |scopes: [&'static str; 2]| {
        let towpath = test.towpath().clone();
        tokio::spawn(async move {
            for _ in 0..20 {
                let AcquiredAll::Granted(guards) = towpath.lock_all(scopes).acquire().await.unwrap() else { panic!("not granted") };
                tokio::task::yield_now().await;
                guards.release().await.unwrap();
            }
        })
    };
    let (one, other) = (both(["a", "b"]), both(["b", "a"]));
    one.await.unwrap();
    other.await.unwrap();
}

async fn units_of_a_semaphore_are_waited_for_in_order(test: TestTowpath) {
    let take = |weight| test.semaphore("gpu").limit(4).weight(weight).acquire();
    let first = take(3).await.unwrap().granted().unwrap();
    let heavy = start(take(2));
    test.settle().await;
    let light = start(take(1));
    test.settle().await;
    assert!(!heavy.is_finished() && !light.is_finished(), "one unit is free, but the heavy one came first");
    assert!(matches!(take(5).await.unwrap(), Acquired::Never));
    first.release().await.unwrap();
    let (heavy, light) = (heavy.await.unwrap().unwrap().granted().unwrap(), light.await.unwrap().unwrap().granted().unwrap());
    test.advance(seconds(300)).await;
    assert_eq!((heavy.reason(), light.reason()), (None, None), "permits are renewed");
    assert_eq!(heavy.release().await.unwrap(), Released::Released);
    drop(light);
    test.settle().await;
    assert!(take(4).await.unwrap().granted().is_some());
}

async fn readers_join_and_a_writer_waits_for_them(test: TestTowpath) {
    let (one, two) = (test.rw("s").read().await.unwrap().granted().unwrap(), test.rw("s").read().await.unwrap().granted().unwrap());
    let writer = start(test.rw("s").write());
    test.settle().await;
    let late = start(test.rw("s").read());
    test.settle().await;
    one.release().await.unwrap();
    two.release().await.unwrap();
    let writer = writer.await.unwrap().unwrap().granted().unwrap();
    test.settle().await;
    assert!(!late.is_finished(), "nobody reads while it writes");
    writer.release().await.unwrap();
    assert!(late.await.unwrap().unwrap().granted().is_some());
}

async fn a_failed_execution_is_cleaned_up(test: TestTowpath) {
    let mut guards = Vec::new();
    for scope in ["d1", "d2", "d3"] {
        guards.push(test.lock(scope).execution_id("4711").acquire().await.unwrap().granted().unwrap());
    }
    guards.push(test.semaphore("gpu").execution_id("4711").acquire().await.unwrap().granted().unwrap());
    let foreign = test.lock("foreign").execution_id("4712").acquire().await.unwrap().granted().unwrap();
    let cleanup = Cleanup { lock_scopes: vec!["d1".to_owned(), "foreign".to_owned(), "never".to_owned()], scan: true };
    let lock = |what| HeldScope::Lock(LockScope::new(what).unwrap());
    let expected = vec![lock("d1"), lock("d2"), lock("d3"), HeldScope::Permit(PermitKind::Semaphore, LockScope::new("gpu").unwrap())];
    assert_eq!(test.cleanup_execution("4711", cleanup.clone()).await.unwrap().scopes, expected);
    assert_eq!(test.cleanup_execution("4711", cleanup).await.unwrap().scopes, []);
    assert_eq!(foreign.release().await.unwrap(), Released::Released);
    for guard in guards {
        assert_eq!(guard.release().await.unwrap(), Released::Already);
    }
}

async fn bad_input_is_refused_and_leaves_nothing_behind(test: TestTowpath) {
    let long = "x".repeat(300);
    for scope in ["", " ", "a:meta", "a\nb", long.as_str()] {
        let refused = test.lock(scope).acquire().await.unwrap_err();
        assert_eq!(refused.code(), "invalid_name", "{scope:?}: {refused}");
        assert_eq!(test.semaphore(scope).acquire().await.unwrap_err().code(), "invalid_name");
        assert_eq!(test.rw(scope).read().await.unwrap_err().code(), "invalid_name");
    }
    for ttl in [Duration::ZERO, Duration::from_millis(99), seconds(7 * 86_400 + 1), Duration::MAX] {
        let refused = test.lock("s").ttl(ttl).acquire().await.unwrap_err();
        assert_eq!((refused.code(), refused.to_string().contains("604800 s")), ("out_of_range", true), "{refused}");
    }
    let lock = || test.lock("s");
    for asked in [
        lock().ttl(seconds(10)).lease(seconds(11)),
        lock().lease(Duration::from_millis(999)),
        lock().wait(LockWait::UpTo(Duration::MAX)),
        lock().max_holds(0),
    ] {
        assert_eq!(asked.acquire().await.unwrap_err().code(), "out_of_range");
    }
    for asked in [lock().lock_id(""), lock().lock_id(&long), lock().execution_id(&long), lock().workflow("wf", &long)] {
        assert_eq!(asked.acquire().await.unwrap_err().code(), "invalid_name");
    }
    for asked in [test.semaphore("s").limit(0), test.semaphore("s").weight(0), test.semaphore("s").limit(u32::MAX).weight(1_000_001)] {
        assert_eq!(asked.acquire().await.unwrap_err().code(), "out_of_range");
    }
    let many: Vec<String> = (0..65).map(|number| number.to_string()).collect();
    assert!(matches!(test.lock_all(many).acquire().await, Err(LockError::TooMany { given: 65, max: 64 })));
    assert_eq!(test.store().lock(&LockScope::new("s").unwrap()).await.unwrap(), None);
    for scope in ["замок", "🔒", "{a}", "x:metal", "x".repeat(256).as_str()] {
        assert!(is_free(&test, scope).await, "{scope}");
    }
}

/// A store that fails on command, in front of the model.
fn faulty(which: Which, when: When) -> (TestTowpath, Arc<FaultyStore>) {
    let clock = VirtualClock::new();
    let model: Arc<dyn towpath::Store> = Arc::new(ModelStore::new(Arc::new(clock.clone())));
    let store = FaultyStore::new(model, which, when);
    (TestTowpath::with_store(Arc::clone(&store) as Arc<dyn towpath::Store>, clock), store)
}

#[tokio::test]
async fn every_lost_answer_leaves_no_lock_behind_and_nobody_holds_it_twice() {
    for when in [When::Before, When::After] {
        let (test, store) = faulty(Which::Every(3), when);
        let mut last = Fence::default();
        for _ in 0..200 {
            let guard = test.finish(test.lock("s").acquire()).await.unwrap().granted().expect("nobody else wants it");
            assert!(guard.fence() > last);
            last = guard.fence();
            let released = test.finish(guard.release()).await;
            let over = matches!(released, Ok(Released::Released | Released::Already) | Err(LockError::Store(_)));
            assert!(over, "{released:?}");
        }
        assert!(store.faults() > 100, "{}", store.faults());
    }
}

#[tokio::test]
async fn a_guard_outlives_trouble_that_is_shorter_than_its_lease() {
    let (test, store) = faulty(Which::None, When::Before);
    let guard = hold(&test, "s").await;
    store.set_trouble(Some(StoreTrouble::Other("away".to_owned())));
    test.advance(seconds(25)).await;
    assert_eq!(guard.reason(), None);
    store.set_trouble(None);
    test.advance(seconds(60)).await;
    assert_eq!(guard.reason(), None);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_guard_is_lost_when_the_trouble_outlasts_its_lease() {
    let (test, store) = faulty(Which::None, When::Before);
    let guard = hold(&test, "s").await;
    let before = test.now();
    store.set_trouble(Some(StoreTrouble::Other("away".to_owned())));
    assert_eq!(test.finish(guard.lost()).await, LostLock::Expired);
    let after = test.now().since(before);
    assert!(after > seconds(29) && after < seconds(30), "before the store could give it away: {after:?}");
    store.set_trouble(None);
}

#[tokio::test]
async fn no_renewal_is_sent_after_a_release() {
    let (test, store) = faulty(Which::None, When::Before);
    let guard = hold(&test, "s").await;
    test.advance(seconds(35)).await;
    assert_eq!(store.count("lock_renew"), 3);
    guard.release().await.unwrap();
    test.advance(seconds(120)).await;
    assert_eq!(store.count("lock_renew"), 3);
}

#[tokio::test]
async fn a_waiter_asks_a_handful_of_times_and_no_more() {
    const WAITERS: usize = 100;
    let (test, store) = faulty(Which::None, When::Before);
    let guard = hold(&test, "s").await;
    let before = store.count("lock_acquire");
    let all: Vec<_> = (0..WAITERS)
        .map(|_| {
            let towpath = test.towpath().clone();
            start(async move { towpath.lock("s").acquire().await.unwrap().granted().expect("granted").release().await.unwrap() })
        })
        .collect();
    test.settle().await;
    guard.release().await.unwrap();
    for waiter in all {
        waiter.await.unwrap();
    }
    let asked = store.count("lock_acquire") - before;
    assert!(asked <= 4 * WAITERS, "{asked} questions for {WAITERS} waiters");
}

#[tokio::test]
async fn a_waiter_keeps_its_place_with_six_questions_a_minute() {
    let (test, store) = faulty(Which::None, When::Before);
    let _guard = hold(&test, "s").await;
    let waiting = start(test.lock("s").acquire());
    test.settle().await;
    let before = store.count("lock_acquire");
    test.advance(seconds(600)).await;
    assert_eq!(store.count("lock_acquire") - before, 60);
    waiting.abort();
}
