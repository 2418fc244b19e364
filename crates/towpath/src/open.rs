//! From a URL to a store. The only place that names a store crate.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;
use towpath_core::clock::Clock;
use towpath_core::store::Store;
pub use towpath_redis::floor::{Floor as RedisFloor, FloorCaller as RedisFloorCaller, Gauge as FloorGauge, Reading as FloorReading};
pub use towpath_sqlite::floor::Floor;
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

/// Why a store could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL names no kind of store that is known here.
    #[error("'{url}' names no store: {hint}")]
    UnknownStore {
        /// What was given, without a password.
        url: String,
        /// What to write instead.
        hint: &'static str,
    },
    /// The store is there, but cannot be used.
    #[error("the store '{url}' cannot be opened: {cause}")]
    Store {
        /// What was given.
        url: String,
        /// What the store said, and what to do.
        cause: String,
    },
}

/// A store that can be closed in good order.
#[async_trait]
pub(crate) trait CloseStore: Send + Sync {
    async fn close(&self);
}

pub(crate) struct OpenStore {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) closer: Option<Box<dyn CloseStore>>,
}

#[async_trait]
impl CloseStore for Arc<SqliteStore> {
    async fn close(&self) {
        SqliteStore::close(self).await;
    }
}

/// Opens the store that a URL names.
pub(crate) async fn open(url: &str, owner: String, clock: Arc<dyn Clock>) -> Result<OpenStore, OpenError> {
    let location = parse(url)?;
    let options = OpenOptions { location, owner, renew_leases: true };
    // Opening waits for the disk, and recovers a file after a crash.
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&options, clock)).await;
    let cannot = |cause: String| OpenError::Store { url: url.to_owned(), cause };
    let store = opened.map_err(|error| cannot(error.to_string()))?.map_err(|error| cannot(error.to_string()))?;
    let store = Arc::new(store);
    Ok(OpenStore { store: Arc::<SqliteStore>::clone(&store), closer: Some(Box::new(store)) })
}

fn parse(url: &str) -> Result<Location, OpenError> {
    let unknown = |hint| Err(OpenError::UnknownStore { url: without_password(url), hint });
    let Some((scheme, rest)) = url.split_once(':') else {
        return unknown("write 'sqlite:' before a path, as in 'sqlite:./.towpath', or 'memory:'");
    };
    match scheme {
        "memory" if rest.is_empty() => Ok(Location::Memory),
        "memory" => unknown("write 'memory:' and nothing after it; what is in memory has no name"),
        "sqlite" if rest == ":memory:" => Ok(Location::Memory),
        "sqlite" => match rest.strip_prefix("//").unwrap_or(rest) {
            "" => unknown("say where, as in 'sqlite:./.towpath' (a folder) or 'sqlite:orders.db' (a file)"),
            path => Ok(Location::Path(PathBuf::from(path))),
        },
        "redis" | "rediss" | "valkey" => unknown("this version keeps calls in 'sqlite:PATH' or 'memory:' only"),
        _ => unknown("write 'sqlite:PATH' (a folder or a file) or 'memory:'"),
    }
}

/// The URL as it may be shown.
fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme_end), Some(at)) if at > scheme_end => format!("{}://***{}", &url[..scheme_end], &url[at..]),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_point_where_they_say() {
        for (url, place) in [
            ("memory:", Location::Memory),
            ("sqlite::memory:", Location::Memory),
            ("sqlite:./.towpath", Location::Path("./.towpath".into())),
            ("sqlite:orders.db", Location::Path("orders.db".into())),
            ("sqlite:/var/lib/towpath", Location::Path("/var/lib/towpath".into())),
            ("sqlite:///var/lib/towpath", Location::Path("/var/lib/towpath".into())),
        ] {
            assert_eq!(parse(url).unwrap(), place, "{url}");
        }
    }

    #[test]
    fn urls_that_point_nowhere_are_refused_with_a_hint_and_without_a_password() {
        for (url, says) in [
            ("orders.db", "write 'sqlite:' before a path"),
            ("sqlite:", "say where"),
            ("memory:x", "nothing after it"),
            ("postgres://localhost", "'sqlite:PATH'"),
            ("redis://:hunter2@localhost", "'redis://***@localhost'"),
        ] {
            let refused = parse(url).unwrap_err().to_string();
            assert!(refused.contains(says), "{url}: {refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }
}
