//! A server of the test's own, Towpath on it, and legacy peers beside it.

mod ours;
mod peer;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use towpath::core::worker::FunctionDefinition;
use towpath::{FunctionKey, SystemClock, Towpath};
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

/// Everything is looked at more often than outside of tests, and legacy workers have a heartbeat every second.
pub(crate) const TIMING: Timing = Timing {
    abandoned_after: Duration::from_secs(3),
    legacy_tick: Duration::from_millis(100),
    look_for_legacy_every: Duration::from_millis(500),
    repair_every: Duration::from_millis(1_500),
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

    /// The function of these tests is known, and no worker serves it.
    pub(crate) async fn define(&self, towpath: &Towpath) {
        let function = FunctionDefinition::new(FunctionKey::global(ADD.parse().expect("a name")));
        towpath.store().define(function).await.expect("the server is there");
    }

    pub(crate) async fn towpath_with(&self, timing: Timing) -> Towpath {
        let options = RedisOptions { timing, ..RedisOptions::parse(&self.server.url()).expect("a URL") };
        let store = RedisStore::open(options, Arc::new(SystemClock::new())).await.expect("the server is there");
        Towpath::builder().clock(store.clock()).with_store(Arc::new(store))
    }

    /// A legacy worker that serves the function of these tests, ready for calls.
    pub(crate) async fn legacy_worker(&self, options: &[&str]) -> Peer {
        let mut worker = self.peer("legacy_worker.py", &[&["--function", ADD, "--heartbeat-s", "1"], options].concat());
        worker.hear("ready").await;
        worker
    }

    /// A legacy caller that has just begun.
    pub(crate) fn legacy_caller(&self, options: &[&str]) -> Peer {
        self.peer("legacy_caller.py", &[&["--function", ADD], options].concat())
    }

    /// What a legacy caller is told.
    pub(crate) async fn legacy_call(&self, options: &[&str]) -> Value {
        self.legacy_caller(options).hear("answer").await["reply"].take()
    }

    /// One round of a legacy peer's periodic job; returns how many entries it concerned.
    pub(crate) async fn legacy_upkeep(&self, options: &[&str]) -> u64 {
        self.peer("legacy_upkeep.py", options).hear("done").await["count"].as_u64().expect("a number")
    }

    fn peer(&self, program: &str, options: &[&str]) -> Peer {
        Peer::start(program, &[&["--port", &self.server.port().to_string()], options].concat())
    }

    /// What redis-cli says, without the line break at the end.
    pub(crate) fn cli(&self, words: &[&str]) -> String {
        self.server.cli(words).trim_end_matches('\n').to_owned()
    }

    /// An entry, as a legacy caller would write it that does not wait here for the answer.
    pub(crate) fn legacy_entry(&self, call_id: &str, more: &[&str]) -> String {
        let channel = reply_list(call_id);
        let fields = ["callId", call_id, "params", "{\"a\":2,\"b\":40}", "responseChannel", &channel];
        self.cli(&[&["XADD", STREAM, "*"], &fields[..], more].concat())
    }

    /// The server's clock, in ms.
    pub(crate) fn now_ms(&self) -> u64 {
        let time = self.cli(&["TIME"]);
        let mut parts = time.lines().filter_map(|part| part.parse::<u64>().ok());
        parts.next().expect("seconds") * 1_000 + parts.next().expect("microseconds") / 1_000
    }

    /// How often the server has run a command, by its name in `INFO commandstats`.
    pub(crate) fn times_run(&self, command: &str) -> u64 {
        let (stats, start) = (self.cli(&["INFO", "commandstats"]), format!("cmdstat_{command}:calls="));
        let line = stats.lines().find_map(|line| line.strip_prefix(&start));
        line.and_then(|rest| rest.split(',').next()).and_then(|count| count.parse().ok()).unwrap_or_default()
    }

    /// The last entry that the group was given.
    pub(crate) fn last_delivered(&self) -> String {
        let groups = self.cli(&["XINFO", "GROUPS", STREAM]);
        groups.lines().skip_while(|line| *line != "last-delivered-id").nth(1).expect("there is a group").to_owned()
    }

    /// Waits for the answer in a legacy caller's list, and leaves it there.
    pub(crate) fn legacy_answer(&self, call_id: &str) -> Value {
        self.legacy_answer_within(call_id, SOON)
    }

    pub(crate) fn legacy_answer_within(&self, call_id: &str, limit: Duration) -> Value {
        let list = reply_list(call_id);
        until(&format!("{call_id} has an answer"), limit, || self.cli(&["LLEN", &list]) != "0");
        assert_eq!(self.cli(&["LLEN", &list]), "1", "a call is answered once");
        serde_json::from_str(&self.cli(&["LINDEX", &list, "0"])).expect("a reply is JSON")
    }

    /// Number of calls that wait in the queue or in the stream, by Towpath's own keys.
    pub(crate) fn waiting(&self) -> usize {
        let count = |set: &str| self.cli(&["ZCARD", &own(set)]).parse::<usize>().expect("a number");
        count("queue") + count("exported")
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

/// Lets real time pass in which something must not happen.
#[expect(clippy::disallowed_methods, reason = "legacy peers and their server live in real time")]
pub(crate) async fn let_pass(time: Duration) {
    tokio::time::sleep(time).await;
}

pub(crate) fn reply_list(call_id: &str) -> String {
    format!("function:response:{call_id}")
}

/// A key of Towpath beside the stream of these tests.
pub(crate) fn own(name: &str) -> String {
    format!("towpath:{name}:{{{STREAM}}}")
}
