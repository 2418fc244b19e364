//! `docs/redis-keys.md` names every key of locks that is written.

use towpath_core::lock::{EndBy, EndLock};
use towpath_core::names::{ExecutionId, LockId};
use towpath_core::permit::{AcquirePermit, PermitKind, RW_LIMIT};
use towpath_core::store::{InspectStore, LockStore};

use crate::rig::{Rig, granted, is_busy, node, scope, waiting, want};

const PAGE: &str = include_str!("../../../../docs/redis-keys.md");

/// A key as the page writes it: scopes and ids are placeholders there, and what is said of semaphores holds for read/write locks.
fn as_on_the_page(key: &str) -> String {
    let key = key.replace("n8n-lock-s", "n8n-lock-<scope>").replace("{sem:s}", "{sem:<scope>}").replace("{rw:s}", "{sem:<scope>}");
    format!("`{}`", key.replace("exec:4711", "exec:<execution_id>"))
}

#[tokio::test]
async fn the_page_about_keys_names_every_key_of_locks_that_is_written() {
    let rig = Rig::start();
    let store = rig.store().await;
    let execution = ExecutionId::new("4711").expect("an id");
    let mut question = want("s", "a");
    question.identity.execution_id = Some(execution.clone());
    granted(&store, question).await;
    assert!(is_busy(&store, waiting(&node("n"), want("s", "b"))).await);
    for (kind, limit) in [(PermitKind::Semaphore, 1), (PermitKind::ReadWrite, RW_LIMIT)] {
        for who in ["a", "b"] {
            let mut units = AcquirePermit::new(kind, scope("s"), LockId::new(who).expect("an id"), limit);
            (units.weight, units.execution_id) = (limit, Some(execution.clone()));
            units.waiter = waiting(&node("n"), want("s", who)).waiter;
            let _granted_or_queued = store.permit_acquire(units).await.expect("the server is there");
        }
    }
    granted(&store, want("s2", "a")).await;
    let counter = store.lock(&scope("s2")).await.expect("the server is there").expect("it is held").counter;
    let by = EndBy::Force { counter, who: "me".to_owned(), reason: "for the page".to_owned() };
    store.lock_end(EndLock { scope: scope("s2"), by }).await.expect("the server is there");
    let keys = rig.cli(&["KEYS", "*lock*"]) + "\n" + &rig.cli(&["KEYS", "*{*:s}:*"]);
    let written: Vec<&str> = keys.lines().filter(|key| !key.contains("lock-s2")).collect();
    assert!(written.len() > 15, "too little was written to prove anything: {written:?}");
    let missing: Vec<&&str> = written.iter().filter(|key| !PAGE.contains(&as_on_the_page(key))).collect();
    assert_eq!(missing, Vec::<&&str>::new(), "write them down in docs/redis-keys.md");
}
