//! Opening: who may, what is refused, and what the refusal says.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use towpath_core::clock::VirtualClock;
use towpath_core::store::{Durability, InspectStore, StoreError, StoreTrouble};
use towpath_sqlite::{Location, OpenError, OpenOptions, SqliteStore};

fn open(path: &Path) -> Result<SqliteStore, OpenError> {
    let options = OpenOptions { location: Location::Path(path.to_owned()), owner: "the first one".to_owned(), renew_leases: false };
    SqliteStore::open(&options, Arc::new(VirtualClock::new()))
}

#[tokio::test]
async fn a_second_process_is_told_who_has_the_file_until_that_one_closes() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path()).unwrap();
    let refused = open(folder.path()).unwrap_err();
    assert!(matches!(&refused, OpenError::InUse { owner, .. } if owner.starts_with("the first one (process ")), "{refused}");
    first.close().await;
    open(folder.path()).unwrap();
}

#[tokio::test]
async fn a_folder_and_a_file_are_both_fine_and_what_they_are_worth_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = open(&folder.path().join("new/data")).unwrap();
    assert!(in_folder.probe().await.unwrap().location.ends_with("new/data/towpath.db"));
    let file = open(&folder.path().join("orders.db")).unwrap();
    let status = file.probe().await.unwrap();
    assert!(status.location.ends_with("orders.db"));
    assert_eq!(status.durability, Durability::Fsync);
    let memory = OpenOptions { location: Location::Memory, owner: String::new(), renew_leases: false };
    let memory = SqliteStore::open(&memory, Arc::new(VirtualClock::new())).unwrap();
    assert_eq!(memory.probe().await.unwrap().durability, Durability::Memory);
}

#[test]
fn a_folder_that_we_make_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let _store = open(&data).unwrap();
    assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn the_files_of_a_database_are_private_in_any_folder_and_one_that_is_not_is_made_so() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let modes = || -> Vec<(String, u32)> {
        let files = fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
        files.map(|file| (file.file_name().into_string().unwrap(), file.metadata().unwrap().permissions().mode() & 0o777)).collect()
    };
    let store = open(folder.path()).unwrap();
    store.probe().await.unwrap();
    assert!(modes().len() >= 3 && modes().iter().all(|(_, mode)| *mode == 0o600), "{:?}", modes());
    store.close().await;
    fs::set_permissions(folder.path().join("towpath.db"), fs::Permissions::from_mode(0o644)).unwrap();
    let store = open(folder.path()).unwrap();
    store.probe().await.unwrap();
    assert!(modes().iter().all(|(_, mode)| *mode == 0o600), "{:?}", modes());
}

#[test]
fn other_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.db");
    fs::write(&text, "these are my notes, and there are many of them\n".repeat(100)).unwrap();
    let refused = open(&text).unwrap_err();
    assert!(matches!(refused, OpenError::NotOurs { .. }), "{refused}");
    assert!(fs::read_to_string(&text).unwrap().starts_with("these are my notes"));

    let other = folder.path().join("other.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let refused = open(&other).unwrap_err();
    assert!(refused.to_string().contains("another program"), "{refused}");
}

#[test]
fn a_file_of_a_newer_version_is_refused_with_both_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("towpath.db");
    drop(open(&path).unwrap());
    wait_for_lock(&path);
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let refused = open(&path).unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found: 99, .. }), "{refused}");
}

/// A store that is dropped closes on its own thread; taking its lock is waiting for that.
fn wait_for_lock(path: &Path) {
    fs::File::open(path.with_added_extension("lock")).unwrap().lock().unwrap();
}

/// What the store says to a write.
async fn refusal(store: &SqliteStore) -> Option<String> {
    match store.probe().await {
        Ok(_) => None,
        Err(StoreError::Unavailable(StoreTrouble::Removed(why))) => Some(why),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_store_whose_folder_was_removed_takes_nothing_more_and_says_what_to_do() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("data");
    let store = open(&folder).unwrap();
    assert_eq!(refusal(&store).await, None);
    fs::remove_dir_all(&folder).unwrap();
    let why = refusal(&store).await.unwrap();
    assert!(why.contains("data/towpath.db was removed") && why.contains("/proc/") && why.contains("stop the process"), "{why}");
    open(&folder).unwrap().close().await;
    assert!(refusal(&store).await.is_some(), "another file of the name is not the store's");
}

#[tokio::test]
async fn a_store_whose_log_was_removed_takes_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    fs::remove_file(folder.path().join("towpath.db-wal")).unwrap();
    assert!(refusal(&store).await.unwrap().contains("towpath.db-wal was removed"));
}

#[tokio::test]
async fn a_folder_that_was_moved_away_and_back_is_the_store_again() {
    let scratch = tempfile::tempdir().unwrap();
    let (folder, elsewhere) = (scratch.path().join("data"), scratch.path().join("elsewhere"));
    let store = open(&folder).unwrap();
    fs::rename(&folder, &elsewhere).unwrap();
    assert!(refusal(&store).await.is_some());
    fs::rename(&elsewhere, &folder).unwrap();
    assert_eq!(refusal(&store).await, None);
}
