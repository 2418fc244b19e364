//! The promises about what an execution holds, and about lists.

use towpath_core::inspect::LockQuery;
use towpath_core::lock::EndReply;
use towpath_core::permit::{PermitKind, ReleaseBy};
use towpath_core::store::HeldScope;

use crate::bench::{Bench, sure};
use crate::words::{LockWords, PermitWords, execution, read, scope, semaphore, want};

pub async fn what_an_execution_holds_is_found_whatever_it_is(t: &mut Bench) {
    for what in ["b", "a"] {
        t.granted(LockWords::for_execution(want(what, "x"), "4711")).await;
    }
    t.granted(LockWords::for_execution(want("foreign", "y"), "4712")).await;
    t.taken(PermitWords::for_execution(semaphore("gpu", "x", 2), "4711")).await;
    t.taken(PermitWords::for_execution(read("gpu", "x"), "4711")).await;
    let (lock, permit) = (|what| HeldScope::Lock(scope(what)), |kind, what| HeldScope::Permit(kind, scope(what)));
    let expected = [lock("a"), lock("b"), permit(PermitKind::Semaphore, "gpu"), permit(PermitKind::ReadWrite, "gpu")];
    assert_eq!(t.held_by_execution("4711").await, expected);
    assert_eq!(t.held_by_execution("4713").await, []);
}

pub async fn what_an_execution_no_longer_holds_is_not_found(t: &mut Bench) {
    let released = t.granted(LockWords::for_execution(want("released", "x"), "4711")).await;
    t.granted(LockWords::for_execution(want("expired", "x"), "4711")).await;
    t.taken(PermitWords::for_execution(semaphore("gpu", "x", 2), "4711")).await;
    t.released("released", released.fence).await;
    t.advance_s(10);
    t.granted(LockWords::for_execution(want("held", "x"), "4711")).await;
    assert_eq!(t.held_by_execution("4711").await, [HeldScope::Lock(scope("held"))]);
}

pub async fn an_execution_that_failed_is_cleaned_up_and_no_other(t: &mut Bench) {
    for (number, what) in ["d1", "d2", "d3"].into_iter().enumerate() {
        t.granted(LockWords::for_execution(want(what, &format!("x{number}")), "4711")).await;
    }
    t.granted(LockWords::for_execution(want("foreign", "y"), "4712")).await;
    for held in t.held_by_execution("4711").await {
        let HeldScope::Lock(what) = held else { panic!("{held:?}") };
        assert!(matches!(t.end_by_execution(what.as_str(), "4711").await, EndReply::Ended { .. }));
        assert!(matches!(t.end_by_execution(what.as_str(), "4711").await, EndReply::Absent { .. }));
    }
    assert_eq!(t.held_by_execution("4711").await, []);
    assert!(matches!(t.end_by_execution("foreign", "4711").await, EndReply::NotHolder(_)));
    t.held_by(want("foreign", "z"), "y").await;
}

pub async fn an_execution_that_failed_gives_its_permits_back(t: &mut Bench) {
    for who in ["a", "b"] {
        t.taken(PermitWords::for_execution(semaphore("gpu", who, 1), "4711")).await;
    }
    t.taken(PermitWords::for_execution(semaphore("gpu", "c", 1), "4712")).await;
    let give_back = ReleaseBy::Execution(execution("4711"));
    assert_eq!(t.give_back(PermitKind::Semaphore, "gpu", give_back.clone()).await, 2);
    assert_eq!(t.give_back(PermitKind::Semaphore, "gpu", give_back).await, 0);
    let left = t.permits(PermitKind::Semaphore, "gpu").await.expect("known").permits;
    assert_eq!(left.iter().map(|permit| permit.lock_id.as_str()).collect::<Vec<_>>(), ["c"]);
}

pub async fn cleaning_up_ends_what_was_entered_twice(t: &mut Bench) {
    t.granted(LockWords::for_execution(want("s", "a"), "e").entering(2)).await;
    let _entered = t.acquire(LockWords::for_execution(want("s", "a"), "e").asked_as("again").entering(2)).await;
    assert!(matches!(t.end_by_execution("s", "e").await, EndReply::Ended { .. }));
    t.granted(want("s", "b")).await;
}

pub async fn what_an_execution_holds_survives_a_restart(t: &mut Bench) {
    t.granted(LockWords::for_execution(want("s", "a"), "e")).await;
    t.taken(PermitWords::for_execution(semaphore("gpu", "a", 1), "e")).await;
    let before = t.held_by_execution("e").await;
    t.reopen().await;
    assert_eq!((before.len(), t.held_by_execution("e").await), (2, before));
}

pub async fn locks_in_use_are_listed_by_scope_and_others_are_not(t: &mut Bench) {
    for what in ["b:2", "b:1", "a", "c"] {
        t.granted(want(what, "x")).await;
    }
    let freed = t.granted(want("b:free", "x")).await;
    t.released("b:free", freed.fence).await;
    assert!(t.lock("b:free").await.is_some(), "known, but not in use");
    let list = |prefix: &str, after: Option<&str>, limit| LockQuery {
        prefix: prefix.to_owned(),
        after: after.map(scope),
        limit,
        ..LockQuery::default()
    };
    let listed = |page: &towpath_core::inspect::LockPage| page.items.iter().map(|view| view.scope.to_string()).collect::<Vec<_>>();
    let all = sure(t.store().locks(&list("", None, 100)).await);
    assert_eq!((listed(&all), all.next), (vec!["a".to_owned(), "b:1".to_owned(), "b:2".to_owned(), "c".to_owned()], None));
    let first = sure(t.store().locks(&list("b", None, 1)).await);
    assert_eq!((listed(&first), first.next), (vec!["b:1".to_owned()], Some(scope("b:1"))));
    let second = sure(t.store().locks(&list("b", Some("b:1"), 1)).await);
    assert_eq!((listed(&second), second.next), (vec!["b:2".to_owned()], None));
}

pub async fn a_lock_that_is_free_but_waited_for_is_listed(t: &mut Bench) {
    let holder = t.granted(want("s", "h")).await;
    t.busy(want("s", "a").waiting()).await;
    t.released("s", holder.fence).await;
    let page = sure(t.store().locks(&LockQuery { limit: 10, ..LockQuery::default() }).await);
    assert_eq!(page.items.len(), 1);
    assert_eq!((page.items[0].holder.as_ref(), page.items[0].waiters.len()), (None, 1));
}
