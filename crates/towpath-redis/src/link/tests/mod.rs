//! Links to real servers: what they do when all is well, and when it is not.

mod breaks;
mod cluster;
mod rights;
mod sentinel;
mod standalone;

use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use towpath_core::store::StoreError;

use super::{Link, Way};
use crate::options::RedisOptions;

async fn try_open(url: &str) -> Result<Link, StoreError> {
    let options = RedisOptions::parse(url).unwrap_or_else(|refusal| panic!("{refusal}"));
    Link::open(&RedisOptions { owner: "a test".to_owned(), ..options }).await
}

pub(super) async fn open(url: &str) -> Link {
    try_open(url).await.unwrap_or_else(|failure| panic!("{failure}"))
}

/// A command, by its words.
pub(super) fn command(line: &str) -> Cmd {
    let mut command = Cmd::new();
    command.arg(line.split(' ').collect::<Vec<_>>());
    command
}

async fn ask(link: &Link, line: &str) -> Result<Value, StoreError> {
    link.ask(&command(line)).await
}

/// What is said, as text.
pub(super) async fn text(link: &Link, line: &str) -> String {
    let reply = ask(link, line).await.unwrap_or_else(|failure| panic!("{line}: {failure}"));
    String::from_redis_value(reply).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Returns as soon as it is so, and panics if that takes too long.
#[expect(clippy::disallowed_methods, reason = "a real server is watched, and it lives by the real clock")]
async fn eventually(what: &str, mut it_is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !it_is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap_or_else(|_| panic!("after 30 s still not: {what}"));
}

/// Waits until the link has seen that its connection is gone.
async fn break_is_seen(link: &Link) {
    let Way::Single(line) = &*link.way else { panic!("a Cluster has many connections") };
    eventually("the break is seen", async || line.alive().is_none()).await;
}

/// Why nothing was written.
fn unavailable(reply: Result<impl std::fmt::Debug, StoreError>) -> String {
    match reply {
        Err(failure @ StoreError::Unavailable(_)) => failure.to_string(),
        other => panic!("instead of being unavailable: {other:?}"),
    }
}

/// Why nobody knows.
fn unknown(reply: Result<impl std::fmt::Debug, StoreError>) -> String {
    match reply {
        Err(StoreError::Unknown(cause)) => cause,
        other => panic!("instead of being unknown: {other:?}"),
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a link")
    }
}
