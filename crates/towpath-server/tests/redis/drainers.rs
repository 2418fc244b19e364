//! Three servers and an old producer's list: one of them drains it, and whoever stops, dies or sleeps is followed by another.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use towpath_redis_testing::RedisServer;

use crate::batch_histories::Producer;
use crate::rig::{durable_redis, serve, serve_at};
use crate::support::{Server, wait_for};

const LIST: &str = "queue:incoming";
const SERVERS: usize = 3;
const CHATS: usize = 10;
const LOOKED_AT_S: u64 = 12;

/// No id of its own; two chats never share a number.
fn element(number: usize) -> String {
    format!(r#"{{"tenant_id":"t","channel":"telegram","external_chat_id":"{}","text":"{number}","debounce_seconds":300}}"#, number % CHATS)
}

struct Fleet {
    redis: RedisServer,
    servers: Vec<Server>,
    producer: Producer,
    pushed: usize,
}

impl Fleet {
    /// Servers that gather what is pushed, and keep it: there is no target.
    fn start() -> Self {
        let redis = durable_redis();
        let servers = (0..SERVERS).map(|_| serve(&redis.url())).collect();
        Self { redis, servers, producer: Producer::new(), pushed: 0 }
    }

    fn drains(self) -> Self {
        self.producer.keep(&self.servers[0].url, "input_contour", &json!({ "sources": [{ "list": LIST }], "max_wait_seconds": 3_600 }));
        self
    }

    fn push(&mut self, count: usize) {
        let elements: Vec<String> = (self.pushed..self.pushed + count).map(element).collect();
        let words: Vec<&str> = ["RPUSH", LIST].into_iter().chain(elements.iter().map(String::as_str)).collect();
        self.redis.cli(&words);
        self.pushed += count;
    }

    fn number(&self, words: &[&str]) -> usize {
        self.redis.cli(words).trim().parse().unwrap_or(0)
    }

    fn drained(&self) -> usize {
        self.number(&["GET", "towpath:{queue:incoming}:drained"])
    }

    fn left(&self) -> usize {
        self.number(&["LLEN", LIST]) + self.number(&["LLEN", "towpath:{queue:incoming}:drain"])
    }

    /// The process that drains the list.
    fn leader(&self) -> Option<i32> {
        let kept = self.redis.cli(&["GET", "towpath:{queue:incoming}:drainer"]);
        kept.trim().rsplit('-').nth(1)?.parse().ok()
    }

    fn position_of(&self, pid: i32) -> usize {
        self.servers.iter().position(|server| server.process.pid().as_raw() == pid).expect("one of the servers leads")
    }

    fn another_leads(&self, than: i32) -> i32 {
        wait_for("another drainer", || self.leader().filter(|leader| *leader != than))
    }

    fn health(&self, server: usize) -> Value {
        self.producer.get(&self.servers[server].url, "/health").expect("it answers")
    }

    /// Stops all servers in good order. What one of them had in its hands is dealt with then.
    fn stop(&mut self) {
        for server in &self.servers {
            server.process.signal(Signal::SIGTERM);
        }
        self.servers.drain(..).for_each(|mut server| assert!(server.process.ends().success()));
    }
}

fn commands(redis: &RedisServer) -> u64 {
    let stats = redis.cli(&["INFO", "stats"]);
    stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:")?.trim().parse().ok()).unwrap()
}

#[test]
fn ten_thousand_elements_are_taken_in_once_and_in_order_though_drainers_are_killed_and_sleep_past_their_lease() {
    const MESSAGES: usize = 10_000;
    const ROUNDS: usize = 5;
    let mut fleet = Fleet::start().drains();
    let mut interrupted = [0; 2];
    for round in 0..ROUNDS {
        let before = fleet.pushed;
        fleet.push(MESSAGES / ROUNDS);
        wait_for("the list to be drained", || (fleet.drained() > before + 37 * round).then_some(()));
        let leader = fleet.leader().unwrap();
        let victim = fleet.position_of(leader);
        let (signal, kind) = [(Signal::SIGKILL, 0), (Signal::SIGSTOP, 1)][round % 2];
        fleet.servers[victim].process.signal(signal);
        interrupted[kind] += usize::from(fleet.left() > 0);
        fleet.another_leads(leader);
        if signal == Signal::SIGSTOP {
            // It wakes up in the middle of whatever it was doing, beside its successor at work.
            fleet.servers[victim].process.signal(Signal::SIGCONT);
        } else {
            let (folder, address) = fleet.servers.remove(victim).crash();
            fleet.servers.push(serve_at(&fleet.redis.url(), folder, &address));
        }
    }
    wait_for("everything to be drained", || (fleet.drained() >= MESSAGES).then_some(()));
    fleet.stop();
    assert!(
        interrupted.iter().all(|times| *times > 0),
        "kills and sleeps with something left to do: {interrupted:?}; this run proved nothing"
    );
    let open = fleet.number(&["GET", "towpath:{batch:deadlines}:n"]);
    assert_eq!((open, fleet.left(), fleet.drained()), (MESSAGES, 0, MESSAGES));
    for chat in 0..CHATS {
        let kept = fleet.redis.cli(&["LRANGE", &format!("queue:batch:t:telegram:{chat}"), "0", "-1"]);
        let expected: Vec<String> = (chat..MESSAGES).step_by(CHATS).map(element).collect();
        assert_eq!(kept.lines().map(str::trim).collect::<Vec<_>>(), expected, "chat {chat}");
    }
}

/// What it costs to have nothing to do.
struct Quiet {
    commands: u64,
    /// How many waited for the same element at most.
    most_readers: usize,
}

/// Looks for a while at servers with nothing to do. `None`: another of them drains now.
fn quiet(fleet: &Fleet) -> Option<(i32, Quiet)> {
    let readers = || fleet.redis.cli(&["CLIENT", "LIST"]).lines().filter(|line| line.contains("cmd=blmove")).count();
    let leader = wait_for("a drainer", || fleet.leader());
    wait_for("the list to be read by one", || (readers() == 1).then_some(()));
    let (before, mut most_readers) = (commands(&fleet.redis), 0);
    for _look in 0..LOOKED_AT_S {
        std::thread::park_timeout(Duration::from_secs(1)); // what nothing costs is seen by doing nothing
        most_readers = most_readers.max(readers());
    }
    // The looks themselves are not theirs.
    let commands = commands(&fleet.redis) - before - LOOKED_AT_S - 1;
    (fleet.leader() == Some(leader)).then_some((leader, Quiet { commands, most_readers }))
}

#[test]
fn one_server_drains_and_hands_over_when_it_stops_and_those_who_stand_by_cost_next_to_nothing() {
    let mut fleet = Fleet::start().drains();
    // A machine that stands still for longer than a lease changes its drainer; that shows nothing.
    let (leader, quiet) = (0..3).find_map(|_try| quiet(&fleet)).expect("nobody takes the place of one who lives");
    assert_eq!(quiet.most_readers, 1, "several read the same list");
    let allowed = 5 * LOOKED_AT_S * SERVERS as u64;
    println!("{SERVERS} servers that drain an empty list: {} commands in {LOOKED_AT_S} s", quiet.commands);
    assert!(quiet.commands <= allowed, "{} commands in {LOOKED_AT_S} s, at most {allowed} are allowed", quiet.commands);

    let position = fleet.position_of(leader);
    let mut stopped = fleet.servers.remove(position);
    stopped.process.signal(Signal::SIGTERM);
    assert!(stopped.process.ends().success());
    assert_ne!(fleet.leader(), Some(leader), "whoever stops leaves its place to others");
    fleet.push(5);
    wait_for("another to drain", || (fleet.drained() == 5).then_some(()));
}

#[test]
fn health_says_how_many_messages_wait_while_nobody_takes_them_in() {
    let mut fleet = Fleet::start();
    fleet.push(7);
    let waiting = |incoming: usize, pending: usize| json!({ "incoming": incoming, "pending_batches": pending, "dlq": 0 });
    let health = fleet.health(0);
    assert_eq!((&health["status"], &health["queues"]), (&json!("ok"), &waiting(7, 0)), "nobody was told to drain the list");
    let mut fleet = fleet.drains();
    wait_for("the list to be drained", || (fleet.health(1)["queues"] == waiting(0, 7)).then_some(()));

    // A batcher that is full: its drainer keeps aside what it cannot hand over.
    let full = json!({ "sources": [{ "list": LIST }], "max_wait_seconds": 3_600, "max_open": 7 });
    fleet.producer.keep(&fleet.servers[0].url, "input_contour", &full);
    wait_for("the settings to be followed", || {
        let seen = (0..SERVERS).map(|server| fleet.producer.get(&fleet.servers[server].url, "/v1/batches/input_contour/settings"));
        seen.into_iter().all(|seen| seen.is_some_and(|seen| seen.to_string().contains("\"max_open\":7"))).then_some(())
    });
    fleet.push(150);
    wait_for("some to be taken aside", || (fleet.number(&["LLEN", "towpath:{queue:incoming}:drain"]) == 100).then_some(()));
    assert_eq!(fleet.health(2)["queues"], waiting(150, 7), "those that were taken aside wait like the others");
}
