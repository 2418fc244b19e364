//! A server of the test's own, stores of ours on it, and words for runs.

use std::sync::Arc;
use std::time::Duration;

use towpath::SystemClock;
use towpath_conformance::words::{RUN_IDLE, run_place, worker_id};
use towpath_core::clock::VirtualClock;
use towpath_core::run::{Commit, RunId, RunState, Then};
use towpath_core::store::{ClaimRuns, ClaimedRun, RunCommitted, RunStore, StartRun, Started};
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::RedisServer;

/// Nothing in these tests takes that long, unless it never comes.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub(crate) server: RedisServer,
    pub(crate) clock: VirtualClock,
}

impl Rig {
    pub(crate) fn start() -> Self {
        Self { server: RedisServer::start(), clock: VirtualClock::new() }
    }

    /// A store that lives by the clock of the test, as another process would open it.
    pub(crate) async fn store(&self) -> RedisStore {
        let options = RedisOptions::parse(&self.server.url()).expect("a URL");
        RedisStore::open_by_clock(options, Arc::new(self.clock.clone())).await.expect("the server is there")
    }

    /// A store that lives by the server's clock, and repairs often.
    pub(crate) async fn store_by_server(&self) -> RedisStore {
        let mut options = RedisOptions::parse(&self.server.url()).expect("a URL");
        options.timing.repair_every = Duration::from_millis(200);
        RedisStore::open(options, Arc::new(SystemClock::new())).await.expect("the server is there")
    }

    pub(crate) fn cli(&self, words: &[&str]) -> String {
        self.server.cli(words).trim().to_owned()
    }

    /// Number of entries in both queues of a place.
    pub(crate) fn entries(&self, place: &str) -> u64 {
        let stream = run_place(place).stream();
        let length = |key: &str| self.cli(&["XLEN", key]).parse::<u64>().expect("a number");
        length(&stream) + length(&format!("towpath:{{{stream}}}:first"))
    }
}

/// The key of a run.
pub(crate) fn run_key(place: &str, run_id: &RunId) -> String {
    format!("towpath:{{{}}}:run:{run_id}", run_place(place).stream())
}

pub(crate) async fn started(store: &RedisStore, start: StartRun) -> RunId {
    let run_id = start.run_id.clone();
    let reply = store.start_run(start).await;
    assert!(matches!(reply, Ok(Started::Created { .. })), "{reply:?}");
    run_id
}

pub(crate) fn want(worker: &str, place: &str, max: u32, wait: Duration) -> ClaimRuns {
    ClaimRuns { worker: worker_id(worker), places: [run_place(place)].into(), max, idle: RUN_IDLE, wait }
}

pub(crate) async fn claim(store: &RedisStore, worker: &str, place: &str, max: u32) -> Vec<ClaimedRun> {
    store.claim_runs(want(worker, place, max, Duration::ZERO)).await.expect("the server is there")
}

/// A commit of a worker that has seen all facts.
pub(crate) fn commit_of(claimed: &ClaimedRun, then: Then) -> Commit {
    Commit {
        owner: claimed.run.owner.clone().expect("a worker has it"),
        epoch: claimed.run.epoch,
        revision: claimed.run.revision,
        digest: Arc::from(format!("{then:?}")),
        entries: Vec::new(),
        consumed: Vec::new(),
        seen: claimed.run.facts,
        armed: Vec::new(),
        disarmed: Vec::new(),
        children: Vec::new(),
        posts: Vec::new(),
        published: Vec::new(),
        then,
    }
}

pub(crate) async fn commit(store: &RedisStore, claimed: &ClaimedRun, then: Then) {
    let reply = store.commit_run(&claimed.run.run_id, commit_of(claimed, then)).await;
    assert!(matches!(reply, Ok(RunCommitted::Committed { .. })), "{reply:?}");
}

pub(crate) async fn state(store: &RedisStore, run_id: &RunId) -> Option<RunState> {
    store.run(run_id).await.expect("the server is there").map(|view| view.run.state)
}

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work).await.expect("it comes")
}
