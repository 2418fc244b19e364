//! Random histories: legacy callers, legacy workers of both generations, Towpath callers and Towpath workers come, leave and die on one stream,
//! and destroy its group. Every call ends, no outcome changes after it was told, and no call runs again without need.

#![expect(clippy::disallowed_methods, reason = "a history plays peers that live in real time")]

mod legacy;
mod log;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use tokio::task::JoinHandle;
use towpath::{CallContext, CallError, CallId, RunningWorker, SystemClock, Towpath};
use towpath_redis::{RedisOptions, RedisStore, Timing};
use towpath_redis_testing::RedisServer;

use crate::rig::{ADD, Add, GROUP, STREAM};
use legacy::{Generation, LegacyCaller, LegacyWorker};
use log::Log;

/// Number of histories. `TOWPATH_HISTORIES=1000` plays more.
const HISTORIES: u64 = 100;
/// Histories that run at the same time, each on a server of its own.
const LANES: u64 = 10;
/// Number of databases that a server has.
const DATABASES: i64 = 16;
const STEPS: usize = 24;
const ENDS_WITHIN: Duration = Duration::from_secs(12);

const TIMING: Timing = Timing {
    abandoned_after: Duration::from_secs(1),
    legacy_tick: Duration::from_millis(50),
    look_for_legacy_every: Duration::from_millis(200),
    repair_every: Duration::from_secs(1),
};

#[tokio::test(flavor = "multi_thread")]
async fn in_every_history_each_call_ends_once_and_none_runs_again_without_need() {
    let only: Option<u64> = std::env::var("TOWPATH_HISTORY").ok().and_then(|seed| seed.parse().ok());
    let histories = std::env::var("TOWPATH_HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(HISTORIES);
    let lanes = (0..LANES).map(|lane| {
        tokio::spawn(async move {
            let mut server = RedisServer::start();
            let mut failures = Vec::new();
            let seeds = (0..histories).filter(|seed| seed % LANES == lane).filter(|seed| only.is_none_or(|only| only == *seed));
            for (number, seed) in (0..).zip(seeds) {
                let database = number % DATABASES;
                if number > 0 && database == 0 {
                    server = RedisServer::start();
                }
                let played = tokio::spawn(History::play(server.port(), database, seed)).await;
                match played {
                    Ok(Ok(())) => {}
                    Ok(Err(failure)) => failures.push(format!("history {seed}: {failure}")),
                    Err(panicked) => failures.push(format!("history {seed}: {panicked}")),
                }
            }
            failures
        })
    });
    let mut failures = Vec::new();
    for lane in lanes.collect::<Vec<_>>() {
        failures.extend(lane.await.expect("a lane does not panic"));
    }
    assert!(failures.is_empty(), "repeat one with TOWPATH_HISTORY=<number>\n{}", failures.join("\n"));
}

/// A call of a Towpath caller, and what it was told.
type Calling = JoinHandle<Result<Value, CallError>>;

struct History {
    random: StdRng,
    port: u16,
    database: i64,
    log: Arc<Log>,
    caller: Towpath,
    towpath_workers: Vec<RunningWorker>,
    legacy_workers: Vec<LegacyWorker>,
    towpath_calls: Vec<(String, Calling)>,
    legacy_calls: Vec<LegacyCaller>,
    /// Keeps the processes of workers open.
    processes: Vec<Towpath>,
}

async fn open(port: u16, database: i64) -> Towpath {
    let options = RedisOptions { timing: TIMING, database, ..RedisOptions::standalone("127.0.0.1", port) };
    let store = RedisStore::open(options, Arc::new(SystemClock::new())).await.expect("the server is there");
    Towpath::builder().clock(store.clock()).with_store(Arc::new(store))
}

impl History {
    async fn play(port: u16, database: i64, seed: u64) -> Result<(), String> {
        let mut history = Self {
            random: StdRng::seed_from_u64(seed),
            port,
            database,
            log: Arc::default(),
            caller: open(port, database).await,
            towpath_workers: Vec::new(),
            legacy_workers: Vec::new(),
            towpath_calls: Vec::new(),
            legacy_calls: Vec::new(),
            processes: Vec::new(),
        };
        // From here on the function is known.
        history.towpath_joins().await;
        history.legacy_joins(Generation::A).await;
        if history.random.random_bool(0.6) {
            history.towpath_leaves().await;
        }
        for _ in 0..STEPS {
            history.step().await;
            let pause = history.random.random_range(0..80);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        if history.towpath_workers.is_empty() {
            history.towpath_joins().await;
        }
        // A legacy worker that lives under a name of its own could be any consumer: while one is there, a dead worker's call waits for it.
        while let Some(worker) = history.legacy_workers.pop() {
            worker.leave().await;
        }
        history.check().await
    }

    async fn step(&mut self) {
        match self.random.random_range(0..20) {
            0..=4 => self.towpath_calls().await,
            5..=9 => self.legacy_calls().await,
            10 | 11 => self.legacy_joins(Generation::A).await,
            12 => self.legacy_joins(Generation::B).await,
            13 => self.one_leaves().await,
            14 | 15 => self.one_is_killed(),
            16 => self.towpath_joins().await,
            17 => self.towpath_leaves().await,
            18 => {
                self.log.group_is_destroyed();
                legacy::command(self.port, self.database, &["XGROUP", "DESTROY", STREAM, GROUP]).await;
            }
            _ => tokio::time::sleep(Duration::from_millis(300)).await,
        }
    }

    async fn towpath_leaves(&mut self) {
        if let Some(worker) = self.towpath_workers.pop() {
            worker.drain().await;
        }
    }

    async fn towpath_joins(&mut self) {
        let (process, log) = (open(self.port, self.database).await, Arc::clone(&self.log));
        let handler = move |_: Add, ctx: CallContext| {
            let log = Arc::clone(&log);
            async move {
                let run = log.begins(ctx.call_id().as_str());
                tokio::time::sleep(Duration::from_millis(30)).await;
                log.answers(run);
                Ok(Value::from(run))
            }
        };
        let worker = process.worker().concurrency(2).function(ADD, handler).start().await.expect("the server is there");
        self.towpath_workers.push(worker);
        self.processes.push(process);
    }

    async fn towpath_calls(&mut self) {
        for _ in 0..self.random.random_range(1..4) {
            let call_id = format!("new-{}", self.towpath_calls.len());
            let call = self.caller.call::<Value, _>(ADD, &Add { a: 1, b: 2 }).call_id(&call_id).timeout(ENDS_WITHIN);
            self.towpath_calls.push((call_id, tokio::spawn(call.into_future())));
        }
        tokio::task::yield_now().await;
    }

    async fn legacy_calls(&mut self) {
        for _ in 0..self.random.random_range(1..4) {
            let call_id = format!("call-{}", self.legacy_calls.len());
            self.legacy_calls.extend(LegacyCaller::call(self.port, self.database, &call_id).await);
        }
    }

    async fn legacy_joins(&mut self, generation: Generation) {
        let number = self.random.random_range(0..1_000_000);
        let slow = Duration::from_millis(self.random.random_range(0..300));
        let worker = LegacyWorker::join(self.port, self.database, generation, number, slow, Arc::clone(&self.log)).await;
        self.legacy_workers.push(worker);
    }

    async fn one_leaves(&mut self) {
        if let Some(worker) = self.legacy_workers.pop() {
            worker.leave().await;
        }
    }

    fn one_is_killed(&mut self) {
        if let Some(worker) = self.legacy_workers.pop() {
            worker.kill();
        }
    }

    async fn check(mut self) -> Result<(), String> {
        let mut told: HashMap<String, Value> = HashMap::new();
        for (call_id, calling) in self.towpath_calls {
            match calling.await.expect("it does not panic") {
                Ok(value) => drop(told.insert(call_id, value)),
                Err(error) => {
                    let seen = legacy::dump(self.port, self.database, &call_id).await;
                    return Err(format!("{call_id} ended with {error:?}\n{}{seen}", self.log));
                }
            }
        }
        for caller in &mut self.legacy_calls {
            match caller.reply(ENDS_WITHIN).await {
                Some(reply) if reply["success"] == true => drop(told.insert(caller.call_id.clone(), reply["data"].clone())),
                Some(reply) => return Err(format!("{} was answered {reply}\n{}", caller.call_id, self.log)),
                // Generation B has lost it by itself: it acknowledges what others hold, and dies between its mark and its reply.
                None if self.log.was_dropped(&caller.call_id) || caller.is_marked_as_answered().await => {}
                None => {
                    let seen = legacy::dump(self.port, self.database, &caller.call_id).await;
                    return Err(format!("{} was never answered\n{}{seen}", caller.call_id, self.log));
                }
            }
        }
        // Late answers and second runs would come now.
        tokio::time::sleep(Duration::from_millis(300)).await;
        for (call_id, value) in &told {
            let id = CallId::new(call_id.as_str()).expect("an id");
            let Some(view) = self.caller.store().call(&id).await.expect("the server is there") else { continue };
            let kept = match &view.call.outcome {
                Some(towpath::Outcome::Ok(data)) => Some(serde_json::from_slice::<Value>(data.as_bytes()).expect("JSON")),
                _ => None,
            };
            // A legacy worker whose group was destroyed while it ran answers its legacy caller, and leaves no trace of that.
            let is_excused = call_id.starts_with("call-") && self.log.ran_in_need(call_id);
            if kept.as_ref() != Some(value) && !is_excused {
                return Err(format!("{call_id} was told {value} and is {:?} with {kept:?}\n{}", view.call.state, self.log));
            }
        }
        if std::env::var_os("TOWPATH_HISTORY_STATS").is_some() {
            println!("{}", self.log.stats());
        }
        self.log.check().map_err(|why| format!("{why}\n{}", self.log))
    }
}
