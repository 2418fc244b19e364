//! Lists while calls come, end and are removed: no page fails, nothing is listed twice, and no call that stays is left out.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use towpath_conformance::words::{SubmitWords, definition, new_call, seconds};
use towpath_core::call::CallState;
use towpath_core::clock::VirtualClock;
use towpath_core::inspect::{CallFilter, PageRequest};
use towpath_core::names::FunctionName;
use towpath_core::store::{CallStore, InspectStore, RegistryStore};
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

const STAYING: usize = 60;
const ROUNDS: usize = 40;

/// All pages of a list, seven calls each.
async fn pages(store: &SqliteStore, filter: &CallFilter) -> Vec<String> {
    let (mut listed, mut page) = (Vec::new(), PageRequest::first(7));
    loop {
        let found = store.calls(filter, page.clone()).await.unwrap();
        assert!(found.items.len() <= 7);
        listed.extend(found.items.iter().map(|view| view.call.call_id.to_string()));
        let Some(next) = found.next else { return listed };
        page.after = Some(next);
    }
}

/// Lists again and again until the writer is done. Returns how often.
async fn look(store: Arc<SqliteStore>, filter: CallFilter, staying: BTreeSet<String>, is_over: Arc<AtomicBool>) -> usize {
    let mut looks = 0;
    while !is_over.load(Ordering::Acquire) || looks == 0 {
        let listed = pages(&store, &filter).await;
        let once: BTreeSet<String> = listed.iter().cloned().collect();
        assert_eq!(once.len(), listed.len(), "a call is listed twice: {listed:?}");
        let missing: Vec<_> = staying.difference(&once).collect();
        assert!(missing.is_empty(), "calls that stay are left out: {missing:?}");
        looks += 1;
    }
    looks
}

#[tokio::test(flavor = "multi_thread")]
async fn two_readers_see_each_call_that_stays_once_while_others_come_end_and_are_removed() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let options = OpenOptions { location: Location::Path(folder.path().to_owned()), owner: "the test".to_owned(), renew_leases: false };
    let store = Arc::new(SqliteStore::open(&options, Arc::new(clock.clone())).unwrap());
    for function in ["add", "other"] {
        store.define(definition(function)).await.unwrap();
    }
    // Calls that stay, with others between them that go.
    let mut staying = BTreeSet::new();
    for number in 0..STAYING {
        store.submit(new_call(&format!("stays-{number}"), "add").timeout(seconds(100_000))).await.unwrap();
        staying.insert(format!("stays-{number}"));
        store.submit(new_call(&format!("goes-{number}"), if number % 2 == 0 { "add" } else { "other" }).retain(seconds(1))).await.unwrap();
    }
    let (is_over, brief) = (Arc::new(AtomicBool::new(false)), CallFilter { brief: true, ..CallFilter::default() });
    let of_function = CallFilter { function: Some(FunctionName::new("add").unwrap()), ..brief.clone() };
    let queued = CallFilter { states: vec![CallState::Queued], ..brief };
    let readers: Vec<_> = [of_function, queued]
        .into_iter()
        .map(|filter| tokio::spawn(look(Arc::clone(&store), filter, staying.clone(), Arc::clone(&is_over))))
        .collect();
    for round in 0..ROUNDS {
        for number in 0..10 {
            let call = new_call(&format!("new-{round}-{number}"), "add").retain(seconds(1));
            let id = call.call_id.clone();
            store.submit(call).await.unwrap();
            store.cancel(&id).await.unwrap();
        }
        if let Some(number) = (round < STAYING).then_some(round) {
            store.cancel(&towpath_core::names::CallId::new(format!("goes-{number}")).unwrap()).await.unwrap();
        }
        clock.advance(seconds(2)); // what has ended is gone, and the next submits remove it
    }
    is_over.store(true, Ordering::Release);
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
    let left = rusqlite::Connection::open(folder.path().join("towpath.db")).unwrap();
    let check: String = left.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}
