//! The bare ingest of a message: `RPUSH` and `ZADD` in one pipeline, as a producer without Towpath would send them.

use redis::aio::MultiplexedConnection;

use super::{FloorError, bare};

/// A connection that any number of tasks share, as those that are measured share theirs. Clones share it.
#[derive(Clone)]
pub struct BatchFloor {
    connection: MultiplexedConnection,
    /// What stands before a key in the name of its list.
    lists: String,
    deadlines: String,
}

impl BatchFloor {
    /// Connects to the server of a `redis://` URL. All keys contain this name; no store has keys that begin like these.
    pub async fn open(url: &str, name: &str) -> Result<Self, FloorError> {
        let connection = redis::Client::open(bare(url))?.get_multiplexed_async_connection().await?;
        let room = format!("towpath:bench:{{{name}}}");
        Ok(Self { connection, lists: format!("{room}:batch:"), deadlines: format!("{room}:deadlines") })
    }

    /// Appends a message to the list of its key and sets the deadline of that. Returns how many messages the list has.
    pub async fn push(&self, key: &str, message: &[u8], deadline_seconds: f64) -> Result<u64, FloorError> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("RPUSH").arg(format!("{}{key}", self.lists)).arg(message);
        pipeline.cmd("ZADD").arg(&self.deadlines).arg(deadline_seconds).arg(key).ignore();
        let counts: Vec<u64> = pipeline.query_async(&mut self.connection.clone()).await?;
        Ok(counts.first().copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use towpath_redis_testing::RedisServer;

    use super::*;

    #[tokio::test]
    async fn a_bare_message_is_in_its_list_and_has_a_deadline() {
        let server = RedisServer::start();
        let floor = BatchFloor::open(&server.url(), "t").await.unwrap();
        assert_eq!(floor.push("k", b"1", 10.5).await.unwrap(), 1);
        assert_eq!(floor.push("k", b"2", 11.5).await.unwrap(), 2);
        assert_eq!(server.cli(&["LRANGE", "towpath:bench:{t}:batch:k", "0", "-1"]).split_whitespace().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(server.cli(&["ZSCORE", "towpath:bench:{t}:deadlines", "k"]).trim(), "11.5");
    }
}
