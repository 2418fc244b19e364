//! Where a measurement happens: a folder of its own, or keys of its own on a Redis that the user names. Gone when it is over.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use towpath::FloorGauge;

use super::folder::Folder;
use super::{blocking, failed};
use crate::cli::failure::Failure;

static MADE: AtomicU32 = AtomicU32::new(0);

/// What is measured.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// The embedded store, on the disk of this folder.
    Folder(PathBuf),
    /// The Redis of this URL.
    Redis { url: String, keys: Keys },
}

/// Whose keys measured calls are among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// Those of one measurement only, under a prefix of its own.
    Own,
    /// Those that the store has already. Calls that have ended stay there until their retention ends.
    Shared,
}

impl Target {
    /// What `--store` and `--data` say.
    pub(super) fn choose(store: Option<&str>, data: &Path, keys: Keys) -> Result<Self, Failure> {
        let Some(url) = store else { return Ok(Self::Folder(data.to_owned())) };
        match url.split_once(':') {
            Some(("redis" | "rediss" | "valkey" | "valkeys", _)) => Ok(Self::Redis { url: url.to_owned(), keys }),
            _ => Err(Failure::usage("unknown_store", "the bench measures a Redis with --store, or the embedded store with --data")
                .hint("towpath bench --store redis://127.0.0.1:6379, or towpath bench --data FOLDER")
                .field("store")),
        }
    }

    pub(super) const fn is_redis(&self) -> bool {
        matches!(self, Self::Redis { .. })
    }

    /// A place for one measurement.
    pub(super) fn place(&self) -> Result<Place, Failure> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let tag = format!("{}{number}-", process_tag());
        let (url, folder) = match self {
            Self::Folder(inside) => {
                let folder = Folder::make(&inside.join(format!(".towpath-{tag}")))?;
                (folder.store_url(), Some(Arc::new(folder)))
            }
            Self::Redis { url, keys: Keys::Own } => (with_prefix(url, &format!("towpath-{tag}keys")), None),
            Self::Redis { url, keys: Keys::Shared } => (url.clone(), None),
        };
        Ok(Place { url, tag, folder, before: Before::default() })
    }

    /// Removes whatever is left on a Redis, also after an interrupted measurement.
    pub(super) async fn clear(&self) -> Result<(), Failure> {
        match self {
            Self::Folder(_) => Ok(()),
            Self::Redis { url, .. } => remove_keys(url, &process_tag()).await,
        }
    }
}

/// One measurement's own place. Clones are the same.
#[derive(Clone)]
pub(super) struct Place {
    /// The store.
    pub(super) url: String,
    /// Stands in every name and key that the measurement makes, and nowhere else.
    pub(super) tag: String,
    /// `None`: it is on a server.
    pub(super) folder: Option<Arc<Folder>>,
    /// What the Redis had when [`Place::count_from_here`] was called.
    pub(super) before: Before,
}

/// What a Redis had before a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    pub(super) keys: u64,
    pub(super) records: u64,
}

impl Place {
    /// Whether several processes can use the store at once.
    pub(super) const fn is_shared(&self) -> bool {
        self.folder.is_none()
    }

    /// The name of a function to measure with.
    pub(super) fn function(&self, number: u32) -> String {
        format!("{}{number}", self.tag)
    }

    /// Removes all that was made.
    pub(super) async fn clear(self) -> Result<(), Failure> {
        if self.is_shared() { remove_keys(&self.url, &self.tag).await } else { Ok(()) }
    }
}

fn process_tag() -> String {
    format!("bench-{}-", std::process::id())
}

async fn remove_keys(url: &str, tag: &str) -> Result<(), Failure> {
    let (url, pattern) = (url.to_owned(), format!("*{tag}*"));
    blocking(move || FloorGauge::open(&url)?.remove_keys(&pattern)).await.map_err(|cause| failed(&cause))
}

/// The same store with a prefix for its own keys, so that a measurement's calls are among no others.
fn with_prefix(url: &str, prefix: &str) -> String {
    let host = url.rfind('@').map_or(0, |at| at + 1);
    let joint = if url[host..].contains('?') { '&' } else { '?' };
    format!("{url}{joint}prefix={prefix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_added_behind_whatever_the_url_says() {
        for (url, with) in [
            ("redis://h:1/2", "redis://h:1/2?prefix=p"),
            ("redis://h?durability=always", "redis://h?durability=always&prefix=p"),
            ("redis://u:a?b@h", "redis://u:a?b@h?prefix=p"),
        ] {
            assert_eq!(with_prefix(url, "p"), with, "{url}");
        }
    }

    #[test]
    fn only_a_redis_is_measured_by_its_url() {
        assert!(Target::choose(Some("redis://h"), Path::new("."), Keys::Own).unwrap().is_redis());
        assert!(!Target::choose(None, Path::new("."), Keys::Own).unwrap().is_redis());
        Target::choose(Some("sqlite:./data"), Path::new("."), Keys::Own).unwrap_err();
    }
}
