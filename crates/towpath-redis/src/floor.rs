//! The bare programs that the store is measured against: one caller and one worker that send Redis what a call cannot do without, and nothing else.
//!
//! A call costs an `XADD` of four fields, its share of an `XREADGROUP`, of an `LPUSH` of up to 64 replies, of an `XACK` of up to 64 ids, of
//! reading and trimming the reply list, and of trimming the acknowledged head of the stream. There is no record of a call, no lease, no
//! deadline, no retry and no outcome to ask for later.
//!
//! Each side is a plain blocking loop without a runtime, and a turn of a loop is one write and one read: what has to be sent goes out
//! together with the blocking command that waits for what comes next. Only when a worker reads many calls at once does it answer them over
//! a second connection, so that the server looks for the next calls meanwhile; that is a fifth faster. The two sides are meant to run in
//! two processes, because the caller and the worker that they are the yardstick for do; in two threads of one process they are not faster.

mod batches;
mod caller;
mod gauge;
mod limiter;
mod locks;
mod runs;
mod wire;
mod worker;

pub use batches::BatchFloor;
pub use caller::FloorCaller;
pub use gauge::{Gauge, Reading};
pub use limiter::LimitFloor;
pub use locks::LockFloor;
pub use runs::RunFloor;
pub use worker::FloorWorker;

use redis::{Client, Connection};
use thiserror::Error;

use self::wire::Wire;

const GROUP: &str = "floor";

/// Why a bare program stopped.
#[derive(Debug, Error)]
#[error("the bare program on Redis failed: {0}")]
pub struct FloorError(String);

impl From<redis::RedisError> for FloorError {
    fn from(error: redis::RedisError) -> Self {
        Self(error.to_string())
    }
}

/// The keys of one measurement. No store has keys that begin like these.
#[derive(Clone)]
pub struct Floor {
    client: Client,
    stream: String,
    inbox: String,
}

impl Floor {
    /// A measurement of this name on the server of a `redis://` URL. Two sides that meet use the same name.
    pub fn open(url: &str, name: &str) -> Result<Self, FloorError> {
        let client = Client::open(bare(url))?;
        Ok(Self { client, stream: format!("towpath:bench:{{{name}}}:stream"), inbox: format!("towpath:bench:{{{name}}}:inbox") })
    }

    /// Makes the stream and its group.
    pub fn create(&self) -> Result<(), FloorError> {
        self.remove()?;
        let mut wire = Wire::new(self.connection()?);
        wire.add(&[b"XGROUP", b"CREATE", self.stream.as_bytes(), GROUP.as_bytes(), b"0", b"MKSTREAM"]);
        wire.exchange().map(drop)
    }

    /// The side that calls. Each call carries `params`.
    pub fn caller(&self, params: &str) -> Result<FloorCaller, FloorError> {
        Ok(FloorCaller::new(Wire::new(self.connection()?), self, params))
    }

    /// The side that answers. Each answer is `data`.
    pub fn worker(&self, data: &str) -> Result<FloorWorker, FloorError> {
        Ok(FloorWorker::new(Wire::new(self.connection()?), Wire::new(self.connection()?), self, data))
    }

    /// Removes all keys of this measurement.
    pub fn remove(&self) -> Result<(), FloorError> {
        let mut wire = Wire::new(self.connection()?);
        wire.add(&[b"UNLINK", self.stream.as_bytes(), self.inbox.as_bytes()]);
        wire.exchange().map(drop)
    }

    fn connection(&self) -> Result<Connection, FloorError> {
        Ok(self.client.get_connection()?)
    }
}

/// The URL without what only Towpath understands. A question mark before the last `@` belongs to a password.
fn bare(url: &str) -> &str {
    let host = url.rfind('@').map_or(0, |at| at + 1);
    url[host..].find('?').map_or(url, |options| &url[..host + options])
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use towpath_redis_testing::RedisServer;

    use super::*;

    #[test]
    fn every_call_of_the_bare_caller_is_answered_and_nothing_is_left() {
        let server = RedisServer::start();
        let floor = Floor::open(&server.url(), "t").unwrap();
        floor.create().unwrap();
        let over = AtomicBool::new(false);
        let answered = std::thread::scope(|scope| {
            let worker = scope.spawn(|| floor.worker("true").unwrap().run(|| over.load(Ordering::Relaxed)));
            let mut caller = floor.caller("{}").unwrap();
            let mut answered = 0;
            // Few calls and many take different ways through the worker; so many that the stream is trimmed.
            for in_flight in [1, 500] {
                while answered < in_flight * 20 {
                    answered += caller.turn(in_flight).unwrap();
                }
            }
            caller.finish().unwrap();
            over.store(true, Ordering::Relaxed);
            worker.join().unwrap().unwrap();
            answered
        });
        let mut connection = Client::open(server.url()).unwrap().get_connection().unwrap();
        let length: usize = redis::cmd("XLEN").arg(&floor.stream).query(&mut connection).unwrap();
        assert!(length < answered, "{length} of {answered} calls are still in the stream");
        let pending = server.cli(&["XPENDING", &floor.stream, GROUP]);
        assert_eq!(pending.lines().next().map(str::trim), Some("0"), "calls that nobody acknowledged: {pending}");
        floor.remove().unwrap();
        assert_eq!(redis::cmd("DBSIZE").query::<usize>(&mut connection).unwrap(), 0);
    }

    #[test]
    fn keys_are_removed_by_their_pattern_and_no_others() {
        let server = RedisServer::start();
        let mut connection = Client::open(server.url()).unwrap().get_connection().unwrap();
        for key in ["bench-1-a", "x:bench-1-b", "bench-2-a"] {
            redis::cmd("SET").arg(key).arg(1).query::<()>(&mut connection).unwrap();
        }
        Gauge::open(&server.url()).unwrap().remove_keys("*bench-1-*").unwrap();
        let left: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
        assert_eq!(left, ["bench-2-a"]);
    }

    #[test]
    fn only_the_options_of_a_url_are_left_out() {
        assert_eq!(bare("redis://h:1/2?prefix=x"), "redis://h:1/2");
        assert_eq!(bare("redis://u:a?b@h?prefix=x"), "redis://u:a?b@h");
        assert_eq!(bare("redis://h"), "redis://h");
    }
}
