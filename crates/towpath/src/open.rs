//! From a URL to a store. The only place that names a store crate.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;
use towpath_core::clock::Clock;
use towpath_core::store::{BatchSource, BatchStore, Durability, RunStore, Store};
pub(crate) use towpath_redis::doctor::Demand;
pub use towpath_redis::doctor::{Check, Examination, Verdict};
pub use towpath_redis::floor::{
    BatchFloor, Floor as RedisFloor, FloorCaller as RedisFloorCaller, Gauge as FloorGauge, LimitFloor, LockFloor as RedisLockFloor,
    Reading as FloorReading,
};
use towpath_redis::{RedisOptions, RedisStore, Unfit};
pub use towpath_redis::{acl_options, acl_rule};
pub use towpath_sqlite::floor::Floor;
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

use crate::clock::SystemClock;

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
        hint: String,
    },
    /// The store is there, but is not what it must be: too old, or it keeps less than was asked for.
    #[error("the store '{url}' is not used: {cause}")]
    Refused {
        /// Which store, without a password.
        url: String,
        /// What it lacks, and what to do.
        cause: String,
    },
    /// The store is there, but cannot be used.
    #[error("the store '{url}' cannot be opened: {cause}")]
    Store {
        /// Which store, without a password.
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
    /// The same store, where it keeps batches.
    pub(crate) batches: Option<Arc<dyn BatchStore>>,
    /// The same store, where it keeps runs of workflows.
    pub(crate) runs: Option<Arc<dyn RunStore>>,
    /// The same store, where it has lists that old producers push to.
    pub(crate) source: Option<Arc<dyn BatchSource>>,
    /// The clock by which the store judges. Whoever compares an instant of the store's asks this one.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) closer: Option<Box<dyn CloseStore>>,
}

/// How a store is to be opened.
pub(crate) struct Wish {
    pub(crate) owner: String,
    /// The store lives by this clock alone. Without one: by the system's, or by its server's.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    /// What an acknowledgement must be worth at least.
    pub(crate) durability: Option<Durability>,
    /// What else must be right.
    pub(crate) demand: Demand,
}

#[async_trait]
impl CloseStore for Arc<SqliteStore> {
    async fn close(&self) {
        SqliteStore::close(self).await;
    }
}

#[async_trait]
impl CloseStore for RedisStore {
    async fn close(&self) {
        Self::close(self).await;
    }
}

/// What a URL names.
#[derive(Debug, PartialEq)]
enum Place {
    Embedded(Location),
    Redis(Box<RedisOptions>),
}

/// Opens the store that a URL names.
pub(crate) async fn open(url: &str, wish: Wish) -> Result<OpenStore, OpenError> {
    match parse(url)? {
        Place::Embedded(location) => open_embedded(url, location, wish).await,
        Place::Redis(options) => open_redis(*options, wish).await,
    }
}

async fn open_embedded(url: &str, location: Location, wish: Wish) -> Result<OpenStore, OpenError> {
    let given = if location == Location::Memory { Durability::Memory } else { Durability::Fsync };
    if let Some(asked) = wish.durability.filter(|asked| *asked > given) {
        let cause = format!("durability '{asked}' is asked for, and it gives '{given}': keep it in a file, as in 'sqlite:./.towpath'");
        return Err(OpenError::Refused { url: url.to_owned(), cause });
    }
    let clock = wish.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
    let (options, judge) = (OpenOptions { location, owner: wish.owner, renew_leases: true }, Arc::clone(&clock));
    // Opening waits for the disk, and recovers a file after a crash.
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&options, judge)).await;
    let cannot = |cause: String| OpenError::Store { url: url.to_owned(), cause };
    let store = opened.map_err(|error| cannot(error.to_string()))?.map_err(|error| cannot(error.to_string()))?;
    let store = Arc::new(store);
    let batches: Arc<dyn BatchStore> = Arc::<SqliteStore>::clone(&store);
    let runs: Arc<dyn RunStore> = Arc::<SqliteStore>::clone(&store);
    let (kept, batches, runs) = (Arc::<SqliteStore>::clone(&store), Some(batches), Some(runs));
    Ok(OpenStore { store: kept, batches, runs, source: None, clock, closer: Some(Box::new(store)) })
}

async fn open_redis(mut options: RedisOptions, wish: Wish) -> Result<OpenStore, OpenError> {
    options.owner = wish.owner;
    options.durability = wish.durability.or(options.durability);
    options.must_keep = wish.demand == Demand::Keeps;
    let url = options.to_string();
    let unfit = |unfit: Unfit| match unfit {
        Unfit::Refused(cause) => OpenError::Refused { url: url.clone(), cause },
        error => OpenError::Store { url: url.clone(), cause: error.to_string() },
    };
    for check in towpath_redis::doctor::admit(&options, wish.demand).await.map_err(unfit)? {
        tracing::warn!(store = url, "{}: {}; {}", check.name, check.says, check.advice.unwrap_or_default());
    }
    let opened = match wish.clock {
        Some(clock) => RedisStore::open_by_clock(options, clock).await,
        None => RedisStore::open(options, Arc::new(SystemClock::steady())).await,
    };
    let store = opened.map_err(unfit)?;
    let shared = Arc::new(store.clone());
    let (batches, source): (Arc<dyn BatchStore>, Arc<dyn BatchSource>) = (shared.clone(), shared.clone());
    let runs: Arc<dyn RunStore> = shared.clone();
    Ok(OpenStore {
        clock: store.clock(),
        store: shared,
        batches: Some(batches),
        runs: Some(runs),
        source: Some(source),
        closer: Some(Box::new(store)),
    })
}

/// Looks at everything in a Redis that a URL names, and says what to do. `None`: the URL names another kind of store.
pub async fn examine(url: &str, durability: Option<Durability>) -> Result<Option<Examination>, OpenError> {
    let Place::Redis(mut options) = parse(url)? else { return Ok(None) };
    options.durability = durability.or(options.durability);
    Ok(Some(towpath_redis::doctor::examine(&options, Arc::new(SystemClock::new())).await))
}

/// What keys of ours start with in the Redis that a URL names. `None`: the URL names another kind of store.
pub fn redis_prefix(url: &str) -> Result<Option<String>, OpenError> {
    match parse(url)? {
        Place::Redis(options) => Ok(Some(options.prefix)),
        Place::Embedded(_) => Ok(None),
    }
}

fn parse(url: &str) -> Result<Place, OpenError> {
    let unknown = |hint: &str| Err(OpenError::UnknownStore { url: shown(url), hint: hint.to_owned() });
    let Some((scheme, rest)) = url.split_once(':') else {
        return unknown("write 'sqlite:' before a path, as in 'sqlite:./.towpath', or 'redis://HOST', or 'memory:'");
    };
    match scheme {
        "memory" if rest.is_empty() => Ok(Place::Embedded(Location::Memory)),
        "memory" => unknown("write 'memory:' and nothing after it; what is in memory has no name"),
        "sqlite" if rest == ":memory:" => Ok(Place::Embedded(Location::Memory)),
        "sqlite" => match rest.strip_prefix("//").unwrap_or(rest) {
            "" => unknown("say where, as in 'sqlite:./.towpath' (a folder) or 'sqlite:orders.db' (a file)"),
            path => Ok(Place::Embedded(Location::Path(PathBuf::from(path)))),
        },
        _ if names_redis(scheme) => match RedisOptions::parse(url) {
            Ok(options) => Ok(Place::Redis(Box::new(options))),
            Err(invalid) => Err(OpenError::UnknownStore { url: invalid.url, hint: invalid.hint }),
        },
        _ => unknown("write 'sqlite:PATH' (a folder or a file), 'redis://HOST' or 'memory:'"),
    }
}

/// `redis`, `rediss`, `valkey`, `redis+sentinel`, …
fn names_redis(scheme: &str) -> bool {
    let base = scheme.split('+').next().unwrap_or_default().to_ascii_lowercase();
    ["redis", "rediss", "valkey", "valkeys"].contains(&base.as_str())
}

/// The URL of a store as it may be shown: without user and password.
pub fn shown(url: &str) -> String {
    if let Some(options) = url.split_once(':').filter(|(scheme, _)| names_redis(scheme)).and_then(|_| RedisOptions::parse(url).ok()) {
        return options.to_string();
    }
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
            assert_eq!(parse(url).unwrap(), Place::Embedded(place), "{url}");
        }
    }

    #[test]
    fn urls_that_point_nowhere_are_refused_with_a_hint_and_without_a_password() {
        for (url, says) in [
            ("orders.db", "write 'sqlite:' before a path"),
            ("sqlite:", "say where"),
            ("memory:x", "nothing after it"),
            ("postgres://localhost", "'sqlite:PATH'"),
            ("redis://:hunter2@localhost:x", "@localhost:x"),
            ("redis://:hunter2@localhost?shards=3", "there is no option 'shards'"),
            ("redis+nothing://localhost", "redis+sentinel://host1,host2/mastername"),
        ] {
            let refused = parse(url).unwrap_err().to_string();
            assert!(refused.contains(says), "{url}: {refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn urls_of_a_redis_are_shown_without_user_and_password() {
        for (url, shown_as) in [
            ("redis://app:hunter2@localhost/2", "redis://localhost:6379/2"),
            ("valkey://localhost", "redis://localhost:6379"),
            ("REDISS://:hunter2@cache.example", "rediss://cache.example:6379"),
            ("redis+sentinel://a,b/m", "redis+sentinel://a:26379,b:26379/m"),
            ("redis+cluster://a,b", "redis+cluster://a:6379,b:6379"),
        ] {
            assert!(matches!(parse(url), Ok(Place::Redis(_))), "{url}");
            assert_eq!(shown(url), shown_as);
        }
        assert_eq!(shown("redis://:hunter2@localhost:x"), "redis://***@localhost:x");
        assert_eq!(shown("sqlite:./.towpath"), "sqlite:./.towpath");
    }

    #[tokio::test]
    async fn a_store_that_keeps_less_than_was_asked_for_is_not_opened() {
        let wish = |durability| Wish { owner: "a test".to_owned(), clock: None, durability: Some(durability), demand: Demand::default() };
        let refused = open("memory:", wish(Durability::Everysec)).await.err().unwrap();
        assert!(matches!(refused, OpenError::Refused { .. }) && refused.to_string().contains("sqlite:"), "{refused}");
        assert!(open("memory:", wish(Durability::Memory)).await.is_ok());
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("data").display());
        assert!(open(&url, wish(Durability::Fsync)).await.is_ok());
    }
}
