//! The bare commit of a task: one script that appends an entry to a journal and writes the run's header, and nothing else.

use std::sync::Arc;

use redis::Script;
use redis::aio::MultiplexedConnection;

use super::{FloorError, bare};

const COMMIT: &str = "redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('HSET', KEYS[2], 'header', ARGV[2])";

/// A connection that any number of tasks share, as those that are measured share theirs. Clones share it.
#[derive(Clone)]
pub struct RunFloor {
    connection: MultiplexedConnection,
    script: Arc<Script>,
}

impl RunFloor {
    /// Connects to the server of a `redis://` URL.
    pub async fn open(url: &str) -> Result<Self, FloorError> {
        let connection = redis::Client::open(bare(url))?.get_multiplexed_async_connection().await?;
        Ok(Self { connection, script: Arc::new(Script::new(COMMIT)) })
    }

    /// Commits one entry to the journal of this run.
    pub async fn commit(&self, run: &str, entry: &str, header: &str) -> Result<(), FloorError> {
        let mut connection = self.connection.clone();
        let mut commit = self.script.prepare_invoke();
        commit.key(format!("{{{run}}}:journal")).key(format!("{{{run}}}:run")).arg(entry).arg(header);
        let _fields: u64 = commit.invoke_async(&mut connection).await?;
        Ok(())
    }

    /// Removes the keys of this run.
    pub async fn forget(&self, run: &str) -> Result<(), FloorError> {
        self.remove(&[format!("{{{run}}}:journal"), format!("{{{run}}}:run")]).await
    }

    /// Removes keys, such as the streams of workflows that were measured.
    pub async fn remove(&self, keys: &[String]) -> Result<(), FloorError> {
        let mut connection = self.connection.clone();
        for key in keys {
            let _removed: u64 = redis::cmd("DEL").arg(key).query_async(&mut connection).await?;
        }
        Ok(())
    }
}
