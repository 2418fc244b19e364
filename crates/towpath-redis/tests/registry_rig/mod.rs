//! A server, a clock that a test moves, and old workers as they were recorded in the field.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::time::Timestamp;
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::RedisServer;

/// What the recorded worker says about its parameters.
pub(crate) const PARAMETERS: &str = "[{\"name\":\"a\",\"type\":\"number\",\"required\":true,\"defaultValue\":\"\",\"description\":\"first\"},\
                              {\"name\":\"b\",\"type\":\"number\",\"required\":true,\"defaultValue\":\"\",\"description\":\"second\"}]";

pub(crate) struct Rig {
    server: RedisServer,
    clock: VirtualClock,
}

impl Rig {
    pub(crate) fn start() -> Self {
        Self { server: RedisServer::start(), clock: VirtualClock::new() }
    }

    /// A store as another process would open it.
    pub(crate) async fn open(&self) -> RedisStore {
        self.open_database(0).await
    }

    pub(crate) async fn open_database(&self, database: i64) -> RedisStore {
        let options = RedisOptions { database, ..RedisOptions::standalone("127.0.0.1", self.server.port()) };
        RedisStore::open_by_clock(options, Arc::new(self.clock.clone())).await.expect("the server is there")
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn now_ms(&self) -> String {
        self.now().as_millis().to_string()
    }

    pub(crate) fn advance_s(&self, count: u64) {
        self.clock.advance(Duration::from_secs(count));
    }

    /// What redis-cli says, without the line break at the end.
    pub(crate) fn cli(&self, words: &[&str]) -> String {
        self.server.cli(words).trim_end_matches('\n').to_owned()
    }

    pub(crate) fn restart_server(&mut self) {
        self.server.restart();
    }

    /// Generation A starts to serve a function for all.
    pub(crate) fn old_worker_a(&self, worker: &str, name: &str) {
        self.old_worker(worker, "__global__", name);
    }

    /// Generation B starts to serve a function of one workflow; its hash is as in A.
    pub(crate) fn old_worker_b(&self, worker: &str, workflow: &str, name: &str) {
        self.old_worker(worker, workflow, name);
    }

    fn old_worker(&self, worker: &str, scope: &str, name: &str) {
        let (stream, group, meta) = (format!("function:stream:{scope}:{name}"), format!("group:{name}"), meta(worker, name));
        // It ignores that the group exists already.
        drop(self.server.try_cli(&["XGROUP", "CREATE", &stream, &group, "$", "MKSTREAM"]));
        let (node, now) = ("ab000000-1111-4111-8111-111111111111", self.now_ms());
        let said = ["functionName", name, "executionId", scope, "nodeId", node, "parameters", PARAMETERS, "workerId", worker];
        self.cli(&[&["HSET", &meta], &said[..], &["lastHeartbeat", &now]].concat());
        self.cli(&["EXPIRE", &meta, "3600"]);
        self.cli(&["SADD", &format!("function:{name}"), worker]);
    }

    pub(crate) fn old_heartbeat(&self, worker: &str, name: &str) {
        self.cli(&["HSET", &meta(worker, name), "lastHeartbeat", &self.now_ms()]);
    }

    /// Generation A leaves and takes the group with it.
    pub(crate) fn old_worker_leaves(&self, worker: &str, name: &str) {
        self.cli(&["DEL", &meta(worker, name)]);
        self.cli(&["SREM", &format!("function:{name}"), worker]);
        self.cli(&["XGROUP", "DESTROY", &format!("function:stream:__global__:{name}"), &format!("group:{name}")]);
    }
}

fn meta(worker: &str, name: &str) -> String {
    format!("function:meta:{worker}:{name}")
}

/// Waits for something that comes soon, or not at all.
pub(crate) async fn soon<T>(it: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), it).await.expect("it does not come")
}

/// Nothing is there to be had now. What is there at once would be ready at the first look.
pub(crate) async fn waits<T>(it: impl Future<Output = T>) {
    tokio::select! {
        biased;
        _ = it => panic!("it should wait"),
        () = tokio::task::yield_now() => {}
    }
}
