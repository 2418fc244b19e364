//! A hundred thousand keys with an open batch: a server keeps none of them in its memory, and has nothing to do until one is due.

use std::ops::Range;
use std::time::{Duration, Instant};

use reqwest::blocking::Client;
use serde_json::{Value, json};
use towpath_redis_testing::RedisServer;

use crate::support::Server;

const FEW: usize = 1_000;
const MANY: usize = 100_000;
/// The first keys get so much text that the embedded store's cache of pages, 16 MB whatever is in it, is full before anybody looks.
const LARGE: usize = 20_000;
const SMALL: usize = 5;
const REPEATED: usize = 30;
/// What the keys between few and many may add to a server's memory.
const GROWTH_MAX_KB: u64 = 20_000;
const LOOKED_AT: Duration = Duration::from_secs(5);
const PER_SECOND_MAX: u64 = 5;

/// A server, and whoever fills it.
struct Filled {
    server: Server,
    http: Client,
}

impl Filled {
    /// Nothing is due while anybody looks.
    fn start(arguments: &[&str]) -> Self {
        towpath_server::push::install_tls();
        let http = Client::builder().no_proxy().tls_certs_only([]).timeout(Duration::from_secs(60)).build().unwrap();
        let server = Server::start_with(tempfile::tempdir().unwrap(), arguments);
        let filled = Self { server, http };
        let settings = json!({ "debounce_seconds": 3_600, "max_wait_seconds": 7_200, "target": { "function": "nobody" } });
        let put = filled.http.put(filled.path("/settings")).json(&settings).send().unwrap();
        assert_eq!(put.status(), 201);
        filled
    }

    fn path(&self, rest: &str) -> String {
        format!("{}/v1/batches/chats{rest}", self.server.url)
    }

    /// Opens the keys with these numbers, so many with one request.
    fn open(&self, keys: Range<usize>, per_request: usize, text: usize) {
        let text = "x".repeat(text);
        for begin in keys.clone().step_by(per_request) {
            let message = |key: usize| json!({ "tenant_id": "t", "channel": "telegram", "external_chat_id": key.to_string(), "message_id": "1", "text": text });
            let messages: Vec<Value> = (begin..keys.end.min(begin + per_request)).map(message).collect();
            let answer = self.http.post(self.path("/messages")).json(&json!({ "messages": messages })).send().unwrap();
            assert_eq!(answer.status(), 202);
        }
        let counts: Value = self.http.get(self.path("")).send().unwrap().json().unwrap();
        assert_eq!(counts["open_keys"], keys.end, "all of them are open");
    }

    /// What the system tells of the server's process.
    fn told(&self, file: &str, name: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.server.process.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the system tells it");
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Fills the server; many keys take hardly more of its memory than few.
    fn check_memory(&self) {
        let resident_kb = || self.told("status", "VmRSS:");
        self.open(0..FEW, 100, LARGE);
        // Repetitions, which open nothing: what requests themselves take is taken now.
        for _ in 0..REPEATED {
            self.open(0..FEW, 1_000, SMALL);
        }
        let few = resident_kb();
        self.open(FEW..MANY, 1_000, SMALL);
        let many = resident_kb();
        println!("{few} kB with {FEW} open keys, {many} kB with {MANY}");
        let growth = many.saturating_sub(few);
        assert!(growth < GROWTH_MAX_KB, "{MANY} open keys take {growth} kB of the server's memory");
    }
}

#[expect(clippy::disallowed_methods, reason = "a real process is watched, by the real clock")]
fn now() -> Instant {
    Instant::now()
}

/// How often something is counted while nobody does anything.
fn counted_meanwhile(count: impl Fn() -> u64) -> u64 {
    let (begun, before) = (now(), count());
    while begun.elapsed() < LOOKED_AT {
        std::thread::park_timeout(LOOKED_AT.saturating_sub(begun.elapsed()));
    }
    count() - before
}

fn commands(redis: &RedisServer) -> u64 {
    let stats = redis.cli(&["INFO", "stats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).expect("a server that counts");
    line.trim().parse().unwrap()
}

fn check_idle(what: &str, count: impl Fn() -> u64) {
    let most = PER_SECOND_MAX * LOOKED_AT.as_secs();
    let counted = counted_meanwhile(count);
    println!("{counted} {what} in {LOOKED_AT:?}");
    assert!(counted <= most, "{counted} {what} in {LOOKED_AT:?} with nothing to do, {most} are allowed");
}

#[test]
fn a_hundred_thousand_open_keys_on_redis_take_no_memory_of_the_server_and_no_commands() {
    let redis = RedisServer::start();
    let filled = Filled::start(&["serve", "--store", &redis.url(), "--durability", "memory", "--listen", "127.0.0.1:0"]);
    filled.check_memory();
    check_idle("commands", || commands(&redis));
}

#[test]
fn a_hundred_thousand_open_keys_in_the_file_take_no_memory_of_the_server_and_no_reads_and_writes() {
    let filled = Filled::start(&["serve", "--listen", "127.0.0.1:0"]);
    filled.check_memory();
    check_idle("reads and writes", || filled.told("io", "syscr:") + filled.told("io", "syscw:"));
}
