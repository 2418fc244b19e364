//! The bare lock: `SET NX PX`, and a script that deletes what it compares. It has no fence, no queue, no identity and no renewal.

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd};

use super::{FloorError, bare};

const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A connection that many tasks share, as they share a store's.
#[derive(Clone)]
pub struct LockFloor {
    connection: MultiplexedConnection,
    release: String,
}

impl LockFloor {
    /// Connects to the server of a `redis://` URL.
    pub async fn open(url: &str) -> Result<Self, FloorError> {
        let mut connection = Client::open(bare(url))?.get_multiplexed_async_connection().await?;
        let mut load = Cmd::new();
        load.arg("SCRIPT").arg("LOAD").arg(COMPARE_AND_DELETE);
        let release = load.query_async(&mut connection).await?;
        Ok(Self { connection, release })
    }

    /// Takes a lock and gives it back. `false`: somebody else had it.
    pub async fn pair(&mut self, key: &str, owner: &str) -> Result<bool, FloorError> {
        let (mut take, mut give_back) = (Cmd::new(), Cmd::new());
        take.arg("SET").arg(key).arg(owner).arg("NX").arg("PX").arg(30_000);
        give_back.arg("EVALSHA").arg(&self.release).arg(1).arg(key).arg(owner);
        let taken: Option<String> = take.query_async(&mut self.connection).await?;
        let given_back: i64 = give_back.query_async(&mut self.connection).await?;
        Ok(taken.is_some() && given_back == 1)
    }
}

#[cfg(test)]
mod tests {
    use towpath_redis_testing::RedisServer;

    use super::*;

    #[tokio::test]
    async fn a_bare_lock_is_taken_by_one_and_given_back() {
        let server = RedisServer::start();
        let mut floor = LockFloor::open(&server.url()).await.unwrap();
        assert!(floor.pair("k", "a").await.unwrap());
        server.cli(&["SET", "k", "somebody"]);
        assert!(!floor.pair("k", "a").await.unwrap());
        assert_eq!(server.cli(&["GET", "k"]).trim(), "somebody");
    }
}
