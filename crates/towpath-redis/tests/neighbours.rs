//! What a hostile neighbour on the same Redis can put under Towpath's names: each bad thing is planted alone, and each list and each move of
//! everything else must go on as if it were not there.

mod bad_things;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bad_things::{PLANTED, REFUSED, WORDS};
use towpath_conformance::words::{
    MessageWords, SubmitWords, batch_id, batch_key, batcher, call_id, claim_batch, definition, execution, failed_not_before, function,
    given_up, json, message, new_call, ok, read, scope, seconds, semaphore, want, worker_id,
};
use towpath_core::batch::{ClaimReply, FinishBatch, Rules as BatchRules, Verb};
use towpath_core::call::CallState;
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::ids::DeliveryId;
use towpath_core::inspect::{CallFilter, DeadLetterQuery, LimitQuery, LockQuery, PageRequest};
use towpath_core::limit::{Check, Rules};
use towpath_core::lock::AcquireReply;
use towpath_core::names::LimitScope;
use towpath_core::permit::{PermitKind, PermitReply};
use towpath_core::store::{
    BatchStore, CallStore, ClaimCalls, ClaimFunction, CompleteCalls, Completed, Heartbeat, InspectStore, LimitStore, LockStore,
    RegistryStore, SetConfig, StoreError, Submitted, TimerStore,
};
use towpath_core::worker::{Offer, RegisterWorker};
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::RedisServer;

const HOUR: Duration = Duration::from_secs(3_600);

/// A Redis with one of everything that is good, and one of everything that will have trouble.
struct Rig {
    server: RedisServer,
    clock: VirtualClock,
    store: RedisStore,
    calls: AtomicU64,
}

impl Rig {
    async fn start() -> Self {
        let (server, clock) = (RedisServer::start(), VirtualClock::new());
        let store = open(&server, &clock).await.expect("the server is up");
        let rig = Self { server, clock, store, calls: AtomicU64::new(0) };
        rig.fill().await.expect("the server is up");
        rig
    }

    fn worker(&self) -> RegisterWorker {
        let offers = vec![
            Offer { definition: definition("good"), concurrency: None },
            Offer { definition: definition("bad"), concurrency: Some(5) },
        ];
        RegisterWorker { worker_id: worker_id("w-1"), kind: "rust".to_owned(), offers }
    }

    async fn fill(&self) -> Result<(), StoreError> {
        let store = &self.store;
        store.register(self.worker()).await?;
        for name in ["good", "bad"] {
            for state in ["running", "delayed"] {
                store.submit(new_call(&format!("{name}-{state}"), name).timeout(HOUR)).await?;
                let delivery = self.claim(name).await?.remove(0);
                if state == "delayed" {
                    let later = failed_not_before("busy", seconds(1_800));
                    store.complete(CompleteCalls::one(worker_id("w-1"), delivery, later)).await?;
                }
            }
            store.submit(new_call(&format!("{name}-queued"), name).timeout(HOUR)).await?;
            let lock = towpath_core::lock::AcquireLock { lease: HOUR, ..want(name, name) };
            assert!(matches!(store.lock_acquire(lock).await?, AcquireReply::Granted(_)));
            for units in [semaphore(name, name, 1), read(name, name)] {
                let units = towpath_core::permit::AcquirePermit { lease: HOUR, max_hold: HOUR, ..units };
                assert!(matches!(store.permit_acquire(units).await?, PermitReply::Granted(_)));
            }
            self.take_limit(name).await?;
        }
        for name in ["orders", "bad"] {
            let of = batcher(name);
            store.put_batcher(&of.name, json("{}")).await?;
            for key in ["dead", "flying", "open"] {
                let message = if key == "open" { message(key, "1").debounce(HOUR) } else { message(key, "1").immediate() };
                store.batch_ingest(&of, &BatchRules::default(), vec![message]).await?;
            }
            for key in ["dead", "flying"] {
                let claim = claim_batch(&of, key, &format!("{name}-{key}"), &BatchRules::default());
                let ClaimReply::Claimed(batch) = store.batch_claim(claim).await? else { panic!("{key} is open") };
                if key == "dead" {
                    let verb = Verb::Dead(given_up(&of, &batch, "rejected_404", self.clock.now()));
                    let settle = FinishBatch { batcher: of.clone(), batch_id: batch.batch_id, key: None, token: batch.token, verb };
                    store.batch_finish(settle).await?;
                }
            }
        }
        Ok(())
    }

    /// Puts a bad thing there.
    fn plant(&self, lua: &str) {
        let lua = lua.replace(":F", ":{function:stream:__global__:bad}").replace("'B", "'towpath:{batch:bad:0}:");
        let words = WORDS.replace("function swap", "local function swap");
        let planted = self.server.cli(&["EVAL", &format!("{words}\n{lua}\nreturn 'planted'"), "0"]);
        assert_eq!(planted.trim(), "planted", "{lua}");
        // What was seen a moment ago counts for five seconds.
        self.clock.advance(seconds(6));
    }

    async fn claim(&self, name: &str) -> Result<Vec<DeliveryId>, StoreError> {
        let functions = [ClaimFunction { function: function(name), max: 1 }].into();
        let (worker, wait) = (worker_id("w-1"), Duration::ZERO);
        let want = ClaimCalls { worker, functions, max: 1, lease: HOUR, wait, takes_any: false };
        Ok(self.store.claim(want).await?.into_iter().map(|delivery| delivery.id).collect())
    }

    async fn take_limit(&self, name: &str) -> Result<bool, StoreError> {
        let scope = LimitScope::new(name).expect("a scope");
        let rules = Rules::new(vec!["hourly=gcra:100/3600s,burst=20".parse().expect("a rule")]).expect("rules");
        let check = Check::take(scope, rules, 1, Duration::ZERO).expect("a check");
        Ok(self.store.take(&check).await?.allowed)
    }

    /// Everything that must go on. Returns what does not.
    async fn what_is_broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (name, asked) in [
            ("lists of calls", self.lists_of_calls().await),
            ("lists of functions and workers", self.lists_of_the_registry().await),
            ("lists of locks", self.lists_of_locks().await),
            ("lists of batches", self.lists_of_batches().await),
            ("heartbeats", self.heartbeats().await),
            ("the configuration", self.store.config().await.map(|_| Vec::new())),
            ("moves", self.moves().await),
            ("another process", self.another_process().await),
            ("a worker that leaves", self.leave().await),
        ] {
            match asked {
                Ok(missing) => broken.extend(missing.into_iter().map(|missing| format!("{name}: {missing} is missing"))),
                Err(error) => broken.push(format!("{name}: {error}")),
            }
        }
        broken
    }

    async fn lists_of_calls(&self) -> Result<Vec<&'static str>, StoreError> {
        let mut missing = Vec::new();
        for brief in [true, false] {
            let filter = CallFilter { brief, ..CallFilter::default() };
            let listed = self.store.calls(&filter, PageRequest::first(100)).await?.items;
            for id in ["good-running", "good-delayed", "good-queued"] {
                if !listed.iter().any(|view| view.call.call_id.as_str() == id) {
                    missing.push(id);
                }
            }
        }
        let one = self.store.call(&call_id("good-queued")).await?;
        Ok(missing.into_iter().chain(one.is_none().then_some("a call by its id")).collect())
    }

    async fn lists_of_the_registry(&self) -> Result<Vec<&'static str>, StoreError> {
        let (functions, workers) = (self.store.functions().await?, self.store.workers().await?);
        let good = functions.iter().find(|view| view.definition.key == function("good"));
        let found = self.store.find(&function("good"), self.clock.now()).await?;
        let has_worker = workers.iter().any(|worker| worker.worker_id == worker_id("w-1"));
        let checks = [("the function", good.is_some()), ("the function, asked for", found.is_some()), ("the worker", has_worker)];
        self.store.probe().await?;
        Ok(checks.into_iter().filter(|(_, is_there)| !is_there).map(|(name, _)| name).collect())
    }

    async fn lists_of_locks(&self) -> Result<Vec<&'static str>, StoreError> {
        let query =
            |scan: bool| LockQuery { prefix: String::new(), after: None, limit: 100, also: vec![scope("bad"), scope("good")], scan };
        let mut missing = Vec::new();
        for scan in [false, true] {
            if !self.store.locks(&query(scan)).await?.items.iter().any(|view| view.scope == scope("good")) {
                missing.push("the lock");
            }
        }
        for (kind, name) in [(PermitKind::Semaphore, "the semaphore"), (PermitKind::ReadWrite, "the read/write lock")] {
            if !self.store.permit_list(kind, &query(false)).await?.items.iter().any(|view| view.scope == scope("good")) {
                missing.push(name);
            }
        }
        let limits = self.store.limits(&LimitQuery { prefix: String::new(), after: None, limit: 100 }).await?;
        if !limits.items.iter().any(|view| view.limit.scope().as_str() == "good") {
            missing.push("the limit");
        }
        self.store.held_by_execution(&execution("e-1")).await?;
        Ok(missing)
    }

    async fn lists_of_batches(&self) -> Result<Vec<&'static str>, StoreError> {
        let (store, orders) = (&self.store, batcher("orders"));
        let mut missing = Vec::new();
        if !store.batchers().await?.iter().any(|stored| stored.name == orders.name) {
            missing.push("the batcher");
        }
        // Counts of all batchers are one answer of the server.
        store.batch_counts(&batcher("bad")).await?;
        let counts = store.batch_counts(&orders).await?;
        if (counts.open_keys, counts.in_flight, counts.dead_letters) != (1, 1, 1) {
            missing.push("a count");
        }
        if !store.open_batches(&orders, None, 10).await?.items.iter().any(|view| view.key == batch_key("open")) {
            missing.push("the open batch");
        }
        if !store.batches_in_flight(&orders, None, 10).await?.items.iter().any(|view| view.batch_id == batch_id("orders-flying")) {
            missing.push("the flight");
        }
        let query = DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() };
        if store.dead_letters(&orders, &query).await?.items.is_empty() {
            missing.push("the dead letter");
        }
        // A person looks at the dead letters of all batchers at once.
        let towpath = towpath::Towpath::builder().clock(Arc::new(self.clock.clone())).batch_store(Arc::new(store.clone()));
        let towpath = towpath.with_store(Arc::new(store.clone()));
        let letters = towpath.dead_letters().list(&query).await.map_err(|error| StoreError::Corrupt(error.to_string()))?;
        if !letters.items.iter().any(|(name, _)| *name == orders.name) {
            missing.push("the dead letter among those of all batchers");
        }
        store.batch_due(&orders, 10).await?;
        store.batch_sweep(&orders, None).await?;
        Ok(missing)
    }

    async fn heartbeats(&self) -> Result<Vec<&'static str>, StoreError> {
        let mut heard = self.store.heartbeat(&worker_id("w-1")).await?;
        if heard == Heartbeat::Unknown {
            // A worker that is not known registers again, which heals a definition that cannot be read.
            self.store.register(self.worker()).await?;
            heard = self.store.heartbeat(&worker_id("w-1")).await?;
        }
        Ok((heard != Heartbeat::Known).then_some("the worker's heartbeat").into_iter().collect())
    }

    /// A call runs, its deadline comes, a lock and a limit are taken.
    async fn moves(&self) -> Result<Vec<&'static str>, StoreError> {
        let (store, number) = (&self.store, self.calls.fetch_add(1, Ordering::Relaxed));
        let mut missing = Vec::new();
        let delivery = self.claim("good").await?.pop();
        let Some(delivery) = delivery else { return Ok(vec!["a delivery"]) };
        let answer = CompleteCalls::one(worker_id("w-1"), delivery, ok("1"));
        if !matches!(store.complete(answer).await?[..], [Completed::Recorded { .. }]) {
            missing.push("an answer");
        }
        let again = new_call(&format!("moved-{number}"), "good").timeout(seconds(1));
        if !matches!(store.submit(again).await?, Submitted::Accepted { .. }) {
            missing.push("a call");
        }
        self.clock.advance(seconds(2));
        let mut fired = store.fire_due(100).await?;
        if fired.ended.is_empty() {
            missing.push("a deadline");
        }
        // A server that has nothing to do rests: what cannot be read makes it look no more than once in two seconds.
        fired = store.fire_due(100).await?;
        if fired.next_due.is_some_and(|next| next <= self.clock.now()) {
            missing.push("a rest between two looks for timers");
        }
        if !matches!(store.lock_acquire(want("fresh", "me")).await?, AcquireReply::Granted(_)) {
            missing.push("a lock");
        }
        if !self.take_limit("good").await? {
            missing.push("a limit");
        }
        Ok(missing)
    }

    /// Its calls of the function without trouble go back.
    async fn leave(&self) -> Result<Vec<&'static str>, StoreError> {
        self.store.unregister(&worker_id("w-1")).await?;
        let running = self.store.call(&call_id("good-running")).await?.map(|view| view.call.state);
        Ok((running != Some(CallState::Queued)).then_some("the call that it held").into_iter().collect())
    }

    async fn another_process(&self) -> Result<Vec<&'static str>, StoreError> {
        let other = match open(&self.server, &self.clock).await {
            Ok(other) => other,
            Err(why) => return Err(StoreError::Corrupt(why)),
        };
        other.submit(new_call("of-another", "good").timeout(HOUR)).await?;
        Ok(other.find(&function("good"), self.clock.now()).await?.is_none().then_some("the function").into_iter().collect())
    }
}

async fn open(server: &RedisServer, clock: &VirtualClock) -> Result<RedisStore, String> {
    let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    RedisStore::open_by_clock(options, Arc::new(clock.clone())).await.map_err(|why| why.to_string())
}

/// What cannot go on while a key that lists everything of its kind holds something else, and is told with the name of the key.
fn is_told(thing: &str, broken: &str) -> bool {
    match thing {
        // The list is the key.
        "workers: wrong type" => {
            broken.contains("the worker is missing") || !broken.starts_with("moves") && broken.contains("the key towpath:workers")
        }
        "heartbeats: wrong type" => {
            broken.contains("the worker is missing") || !broken.starts_with("moves") && broken.contains("the key towpath:heartbeats")
        }
        "batchers: wrong type" => broken.contains("the batcher is missing") || broken.contains("all batchers is missing"),
        "limits index: wrong type" => broken.contains("the limit is missing"),
        "configuration: wrong type" | "configuration: junk" => {
            broken.starts_with("the configuration: ") && broken.contains("the key towpath:config")
        }
        "locks used: wrong type" => broken.contains("the semaphore is missing") || broken.contains("the read/write lock is missing"),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_thing_breaks_no_list_and_no_move_of_everything_else() {
    let mut broken = Vec::new();
    for (thing, lua) in PLANTED {
        let rig = Rig::start().await;
        rig.plant(lua);
        let found = rig.what_is_broken().await;
        broken.extend(found.into_iter().filter(|found| !is_told(thing, found)).map(|found| format!("{thing}: {found}")));
    }
    assert!(broken.is_empty(), "{} things are broken:\n{}", broken.len(), broken.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_bad_thing_nothing_is_broken() {
    let rig = Rig::start().await;
    rig.plant("");
    assert_eq!(rig.what_is_broken().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_out_is_among_the_problems_of_the_store_with_its_key() {
    let rig = Rig::start().await;
    rig.plant("swap('towpath:lock:index'); call('HSET', 'towpath:function:F', 'definition', 'junk')");
    assert_eq!(rig.what_is_broken().await, Vec::<String>::new());
    let problems = rig.store.probe().await.expect("the server is up").problems.join("\n");
    for key in ["towpath:lock:index", "towpath:function:{function:stream:__global__:bad}"] {
        assert!(problems.contains(&format!("the key {key} cannot be read and is left out")), "{problems}");
    }
    rig.clock.advance(seconds(60));
    assert_eq!(rig.store.probe().await.expect("the server is up").problems, Vec::<String>::new(), "nothing has met them since");
}

impl Rig {
    /// Makes a move that meets the trouble, and returns what it says.
    async fn said(&self, name: &str) -> String {
        let (store, bad, w1) = (&self.store, function("bad"), worker_id("w-1"));
        let offers = || vec![Offer { definition: definition("bad"), concurrency: Some(5) }];
        let register = || RegisterWorker { worker_id: worker_id("w-2"), kind: "rust".to_owned(), offers: offers() };
        let said = match name {
            "submit" => store.submit(new_call("c-new", "bad").timeout(HOUR)).await.map(drop),
            // A function is shown as far as it can be read, with what is wrong.
            "find" => match store.find(&bad, self.clock.now()).await {
                Ok(Some(view)) if !view.problems.is_empty() => return view.problems.join("; "),
                found => found.map(drop),
            },
            "define" => store.define(definition("bad")).await,
            "forget" => store.forget(&bad).await.map(drop),
            "register" => store.register(register()).await,
            "heartbeat" => store.heartbeat(&w1).await.map(drop),
            "claim" => self.claim("bad").await.map(drop),
            "complete" => {
                let delivery = DeliveryId { call_id: call_id("bad-running"), number: 1 };
                store.complete(CompleteCalls::one(w1, delivery, ok("1"))).await.map(drop)
            }
            "call" => store.call(&call_id("bad-queued")).await.map(drop),
            "cancel" => store.cancel(&call_id("bad-queued")).await.map(drop),
            "calls" => {
                let filter = CallFilter { function: Some(bad.name), ..CallFilter::default() };
                store.calls(&filter, PageRequest::first(10)).await.map(drop)
            }
            "config" => store.config().await.map(drop),
            "set_config" => store.set_config(SetConfig { value: json("{}"), if_version: None }).await.map(drop),
            "lock" => store.lock_acquire(want("bad", "another")).await.map(drop),
            "permit" => store.permit_acquire(semaphore("bad", "another", 1)).await.map(drop),
            "limit" => self.take_limit("bad").await.map(drop),
            "ingest" => store.batch_ingest(&batcher("bad"), &BatchRules::default(), vec![message("k", "1")]).await.map(drop),
            "dead letters" => {
                store.dead_letters(&batcher("bad"), &DeadLetterQuery { limit: 1, ..DeadLetterQuery::default() }).await.map(drop)
            }
            "put batcher" => store.put_batcher(&batcher("bad").name, json("{}")).await.map(drop),
            other => panic!("no such move: {other}"),
        };
        said.map_or_else(|error| error.to_string(), |()| "nothing was wrong".to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_about_a_wrong_type_names_the_key_and_what_to_do() {
    let mut wrong = Vec::new();
    for (lua, key, name) in REFUSED {
        let rig = Rig::start().await;
        rig.plant(&lua.replace("towpath:{n8n-ratelimit-bad}:hourly", rig.server.cli(&["KEYS", "towpath:{n8n-ratelimit-bad}:*"]).trim()));
        let (said, key) = (rig.said(name).await, key.replace(":F", ":{function:stream:__global__:bad}"));
        if !said.contains(&key) || !said.to_lowercase().contains("del") {
            wrong.push(format!("{name} with {key}: {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
