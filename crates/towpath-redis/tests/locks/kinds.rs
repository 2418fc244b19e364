//! Keys of locks that hold something else: the answer names them, and nothing is overwritten. And a list that may not look at names.

use towpath_core::inspect::LockQuery;
use towpath_core::lock::{AcquireReply, BusyWith};
use towpath_core::names::LockId;
use towpath_core::permit::{AcquirePermit, PermitKind, PermitReply};
use towpath_core::store::{InspectStore, LockStore, StoreError, StoreTrouble};
use towpath_redis::{acl_options, acl_rule};

use crate::old_workflow::Inputs;
use crate::rig::{Rig, granted, is_busy, node, open, release, scope, waiting, want};

/// The text of a refusal that no repetition helps.
fn corrupt<T: std::fmt::Debug>(reply: Result<T, StoreError>) -> String {
    match reply {
        Err(StoreError::Corrupt(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_named_and_left_as_it_is() {
    let rig = Rig::start();
    let store = rig.store().await;
    for key in ["n8n-lock-s", "towpath:{n8n-lock-s}:s"] {
        rig.cli(&["HSET", key, "field", "1"]);
        for asks in 0..2 {
            let text = corrupt(store.lock_acquire(waiting(&node("n"), want("s", &format!("a{asks}")))).await);
            assert!(text.contains(key) && text.contains("rename or delete it"), "{text}");
        }
        assert!(corrupt(store.lock(&scope("s")).await).contains(key));
        assert_eq!(rig.cli(&["HGET", key, "field"]), "1", "it is as it was");
        rig.cli(&["DEL", key]);
    }
    let permit = || AcquirePermit::new(PermitKind::Semaphore, scope("s"), LockId::new("a").expect("a lock id"), 1);
    rig.cli(&["SET", "towpath:{sem:s}:p", "text"]);
    assert!(corrupt(store.permit_acquire(permit()).await).contains("towpath:{sem:s}:p"));
    assert_eq!(rig.cli(&["GET", "towpath:{sem:s}:p"]), "text");
    granted(&store, want("s", "b")).await;
}

#[tokio::test]
async fn a_permit_whose_row_cannot_be_read_keeps_no_other_from_its_own() {
    let rig = Rig::start();
    let store = rig.store().await;
    let permit = |who: &str| AcquirePermit::new(PermitKind::Semaphore, scope("s"), LockId::new(who).expect("a lock id"), 2);
    let is_granted = |reply| matches!(reply, Ok(PermitReply::Granted(_)));
    for row in ["junk", "1 2 3 execution", ""] {
        // One that is over, and one that is held.
        rig.cli(&["ZADD", "towpath:{sem:s}:p", "1", "over", "99999999999999", "held"]);
        rig.cli(&["HSET", "towpath:{sem:s}:q", "over", row, "held", row]);
        assert!(is_granted(store.permit_acquire(permit("a")).await), "{row:?}");
        assert_eq!(rig.cli(&["HEXISTS", "towpath:{sem:s}:q", "over"]), "0", "{row:?}");
        assert!(is_granted(store.permit_acquire(permit("held")).await), "it is granted anew: {row:?}");
        rig.cli(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn a_record_that_is_none_is_named_and_left_as_it_is() {
    let rig = Rig::start();
    let store = rig.store().await;
    let key = "towpath:{n8n-lock-s}:s";
    for text in ["", "garbage", "1 0 0 0 - - - -\n", "3 0 0 0 - - - -\n", "2 0 0"] {
        rig.cli(&["SET", key, text]);
        assert!(corrupt(store.lock_acquire(want("s", "a")).await).contains(key), "{text:?}");
        assert!(corrupt(store.lock(&scope("s")).await).contains(key), "{text:?}");
        assert_eq!(rig.cli(&["GET", key]), text.trim());
    }
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_a_lock_of_an_old_workflow() {
    let rig = Rig::start();
    let store = rig.store().await;
    for text in ["text", "", "1.5", "-3", "99999999999999999999"] {
        rig.cli(&["SET", "n8n-lock-s", text]);
        let reply = store.lock_acquire(want("s", "a")).await;
        let Ok(AcquireReply::Busy(busy)) = &reply else { panic!("{text:?}: {reply:?}") };
        assert!(matches!(busy.with, BusyWith::Legacy(_)), "{text:?}: {busy:?}");
        assert_eq!(rig.cli(&["GET", "n8n-lock-s"]), text);
    }
}

#[tokio::test]
async fn a_list_that_may_not_look_at_names_says_so_and_has_all_that_is_known() {
    let rig = Rig::start();
    rig.cli(&acl_rule("app", "secret", "towpath").split(' ').collect::<Vec<_>>());
    let store = open(&format!("redis://app:secret@127.0.0.1:{}", rig.server.port())).await;
    let old = rig.old_workflow().await;
    for unmet in ["met", "named", "unknown"] {
        old.acquire(&Inputs::new(unmet, "old")).await.expect("it is free");
    }
    let ours = granted(&store, want("ours", "a")).await;
    assert!(is_busy(&store, want("met", "a")).await);
    let list = async |query: LockQuery| {
        let page = store.locks(&LockQuery { limit: 10, ..query }).await?;
        Ok(page.items.iter().map(|view| view.scope.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(
        list(LockQuery { also: vec![scope("named")], ..LockQuery::default() }).await,
        Ok(vec!["met".into(), "named".into(), "ours".into()])
    );
    let refused = list(LockQuery { scan: true, ..LockQuery::default() }).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(StoreTrouble::NotAllowed(why))) if why.contains("+scan")), "{refused:?}");
    for (rule, _) in acl_options("app") {
        rig.cli(&rule.split(' ').collect::<Vec<_>>());
    }
    let all = list(LockQuery { scan: true, ..LockQuery::default() }).await;
    assert_eq!(all, Ok(vec!["met".into(), "named".into(), "ours".into(), "unknown".into()]));
    release(&store, "ours", ours.fence).await;
}
