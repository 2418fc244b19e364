//! A server of the test's own, Towpath on it, and old peers beside it.

mod ours;
mod peer;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use towpath::{SystemClock, Towpath};
use towpath_redis::{RedisOptions, RedisStore, Timing};
use towpath_redis_testing::{RedisServer, until};

pub(crate) use ours::{Add, Ours, Sum};
pub(crate) use peer::Peer;

/// The function of these tests, as everybody calls it.
pub(crate) const ADD: &str = "gadd";
pub(crate) const STREAM: &str = "function:stream:__global__:gadd";
pub(crate) const GROUP: &str = "group:gadd";

/// Nothing in these tests takes that long, unless it never comes.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Everything is looked at ten times as often as outside of tests. Old workers say ten times as often that they live.
pub(crate) const TIMING: Timing = Timing {
    all_workers_in_process: false,
    abandoned_after: Duration::from_secs(3),
    sweep_every: Duration::from_millis(1_500),
    look_for_old_every: Duration::from_secs(1),
};

pub(crate) struct Rig {
    server: RedisServer,
}

impl Rig {
    pub(crate) fn start() -> Self {
        Self { server: RedisServer::start() }
    }

    /// Towpath as another process would open it.
    pub(crate) async fn towpath(&self) -> Towpath {
        self.towpath_with(TIMING).await
    }

    pub(crate) async fn towpath_with(&self, timing: Timing) -> Towpath {
        let options = RedisOptions { timing, ..RedisOptions::parse(&self.server.url()).expect("a URL") };
        let store = RedisStore::open(options, Arc::new(SystemClock::new())).await.expect("the server is there");
        Towpath::builder().clock(store.clock()).with_store(Arc::new(store))
    }

    /// An old worker that serves the function of these tests, ready for calls.
    pub(crate) async fn old_worker(&self, options: &[&str]) -> Peer {
        let mut worker = self.peer("old_worker.py", &[&["--function", ADD, "--heartbeat-s", "1"], options].concat());
        worker.hear("ready").await;
        worker
    }

    /// An old caller that has just begun.
    pub(crate) fn old_caller(&self, options: &[&str]) -> Peer {
        self.peer("old_caller.py", &[&["--function", ADD], options].concat())
    }

    /// What an old caller is told.
    pub(crate) async fn old_call(&self, options: &[&str]) -> Value {
        self.old_caller(options).hear("answer").await["reply"].take()
    }

    /// One round of an old peer's periodic job; returns how many entries it concerned.
    pub(crate) async fn old_upkeep(&self, options: &[&str]) -> u64 {
        self.peer("old_upkeep.py", options).hear("done").await["count"].as_u64().expect("a number")
    }

    fn peer(&self, program: &str, options: &[&str]) -> Peer {
        Peer::start(program, &[&["--port", &self.server.port().to_string()], options].concat())
    }

    /// What redis-cli says, without the line break at the end.
    pub(crate) fn cli(&self, words: &[&str]) -> String {
        self.server.cli(words).trim_end_matches('\n').to_owned()
    }

    /// An entry, as an old caller would write it that does not wait here for the answer.
    pub(crate) fn old_entry(&self, call_id: &str, more: &[&str]) -> String {
        let channel = reply_list(call_id);
        let fields = ["callId", call_id, "params", "{\"a\":2,\"b\":40}", "responseChannel", &channel];
        self.cli(&[&["XADD", STREAM, "*"], &fields[..], more].concat())
    }

    /// Waits for the answer in an old caller's list, and leaves it there.
    pub(crate) fn old_answer(&self, call_id: &str) -> Value {
        self.old_answer_within(call_id, SOON)
    }

    pub(crate) fn old_answer_within(&self, call_id: &str, limit: Duration) -> Value {
        let list = reply_list(call_id);
        until(&format!("{call_id} has an answer"), limit, || self.cli(&["LLEN", &list]) != "0");
        assert_eq!(self.cli(&["LLEN", &list]), "1", "a call is answered once");
        serde_json::from_str(&self.cli(&["LINDEX", &list, "0"])).expect("a reply is JSON")
    }

    /// Waits until nothing is pending in the group.
    pub(crate) fn until_nothing_pends(&self) {
        until("nothing is pending", SOON, || self.pending() == 0);
    }

    pub(crate) fn pending(&self) -> usize {
        let summary = self.cli(&["XPENDING", STREAM, GROUP]);
        summary.lines().next().and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count: {summary}"))
    }

    pub(crate) fn until_the_group_is_there(&self) {
        until("the group is made again", SOON, || self.cli(&["XINFO", "GROUPS", STREAM]).contains(GROUP));
    }

    /// The stream's entries, one after the other, as redis-cli lists them.
    pub(crate) fn entries(&self) -> String {
        self.cli(&["XRANGE", STREAM, "-", "+"])
    }
}

pub(crate) fn reply_list(call_id: &str) -> String {
    format!("function:response:{call_id}")
}
