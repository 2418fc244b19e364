//! The bare check of a limit: `INCR` and `EXPIRE` in one pipeline, as a caller without Towpath would send them.

use redis::aio::MultiplexedConnection;

use super::{FloorError, bare};

/// A connection that any number of tasks share, as those that are measured share theirs. Clones share it.
#[derive(Clone)]
pub struct LimitFloor {
    connection: MultiplexedConnection,
}

impl LimitFloor {
    /// Connects to the server of a `redis://` URL.
    pub async fn open(url: &str) -> Result<Self, FloorError> {
        let connection = redis::Client::open(bare(url))?.get_multiplexed_async_connection().await?;
        Ok(Self { connection })
    }

    /// Counts one call under each of these keys, and returns the count of the last.
    pub async fn check(&self, keys: &[String]) -> Result<u64, FloorError> {
        let mut pipeline = redis::pipe();
        for key in keys {
            pipeline.cmd("INCR").arg(key).cmd("EXPIRE").arg(key).arg(60).ignore();
        }
        let counts: Vec<u64> = pipeline.query_async(&mut self.connection.clone()).await?;
        Ok(counts.last().copied().unwrap_or(0))
    }
}
