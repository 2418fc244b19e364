//! Servers killed while messages come in, batches are claimed, delivered and settled, before a receiver that is slow, fails and forgets.

mod called;
mod producer;
mod receiver;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use self::called::every_message_is_in_one_call;
pub(crate) use self::producer::Producer;
use self::receiver::{Got, Receiver};
use crate::support::{Server, wait_for};

const KEYS: u64 = 4;
const MESSAGES: u64 = 300;
const KILLS: u64 = 8;

/// A sequence that looks random and is the same for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// How many histories; more of them with TOWPATH_HISTORIES.
fn histories() -> u64 {
    std::env::var("TOWPATH_HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(2)
}

/// Random histories of servers on one store: `start` makes so many of them, `again` one in the place of another that was killed.
pub(crate) fn all(start: impl Fn() -> Vec<Server>, again: impl Fn(TempDir, &str) -> Server) {
    let (mut repeated, mut taken_over) = (0, 0);
    for seed in 0..histories() {
        let judged = history(seed, start(), &again);
        repeated += judged.repeated;
        taken_over += judged.taken_over;
    }
    assert!(taken_over > 0, "no batch was ever taken over: these runs proved nothing");
    assert!(repeated > 0, "no batch was ever delivered twice: these runs proved nothing");
}

struct Judged {
    /// Deliveries of a batch that the receiver had answered well before.
    repeated: usize,
    /// Batches that a later attempt delivered.
    taken_over: usize,
}

fn history(seed: u64, mut servers: Vec<Server>, again: &impl Fn(TempDir, &str) -> Server) -> Judged {
    let (receiver, producer) = (Receiver::start(seed), Producer::new());
    let settings = json!({
        "key": ["key"], "debounce_seconds": 0.03, "max_wait_seconds": 1, "max_messages": 3, "max_attempts": 50, "timeout_seconds": 0.3,
        "lease_seconds": 1, "backoff_base_ms": 5, "backoff_cap_ms": 20, "target": { "url": receiver.url() }, "allow_targets": ["127.0.0.1"],
    });
    let urls: Vec<String> = servers.iter().map(|server| server.url.clone()).collect();
    producer.keep(&urls[0], "orders", &settings);
    let servers = std::thread::scope(|scope| {
        // One thread per key: what is repeated must not overtake.
        for key in 0..KEYS {
            let (producer, urls) = (&producer, &urls);
            scope.spawn(move || {
                for number in 0..MESSAGES / KEYS {
                    producer.push(urls, &json!({ "key": key, "n": number, "message_id": format!("{key}-{number}") }));
                }
            });
        }
        let mut chance = Chance(seed);
        for _ in 0..KILLS {
            std::thread::park_timeout(Duration::from_millis(50 + chance.below(400))); // at any moment
            let victim = usize::try_from(chance.below(servers.len() as u64)).unwrap();
            let (folder, address) = servers.remove(victim).crash();
            servers.push(again(folder, &address));
        }
        servers
    });
    receiver.behave();
    let url = &servers[0].url;
    wait_for("all batches to be settled", || {
        let body = producer.get(url, "/v1/batches/orders")?;
        (body["open_keys"] == 0 && body["in_flight"] == 0).then_some(())
    });
    let letters = producer.get(url, "/v1/batch-dead-letters?limit=200").unwrap();
    judge(&receiver.got(), &letters)
}

fn judge(got: &[Got], letters: &Value) -> Judged {
    let dead = letters["dead_letters"].as_array().unwrap().iter().map(|letter| letter["entry"]["messages"].as_array().unwrap());
    let dead: BTreeSet<String> = dead.flatten().map(|message| message["message_id"].as_str().unwrap().to_owned()).collect();
    let mut batch_of: HashMap<&str, &str> = HashMap::new();
    let mut acknowledged: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let (mut seen, mut repeated, mut taken_over) = (BTreeSet::new(), 0, 0);
    for delivery in got {
        for message in &delivery.messages {
            let known = batch_of.entry(&message.id).or_insert(&delivery.batch_id);
            assert_eq!(*known, delivery.batch_id, "message {} is in two batches", message.id);
        }
        if delivery.was_well {
            if seen.insert(&delivery.batch_id) {
                taken_over += usize::from(delivery.attempt > 1);
                acknowledged.entry(delivery.messages[0].key).or_default().extend(delivery.messages.iter().map(|message| message.number));
            } else {
                repeated += 1;
            }
        }
    }
    for key in 0..KEYS {
        let order = acknowledged.get(&key).cloned().unwrap_or_default();
        assert!(order.is_sorted(), "key {key} came out of order: {order:?}");
        let lost: Vec<u64> =
            (0..MESSAGES / KEYS).filter(|number| !order.contains(number) && !dead.contains(&format!("{key}-{number}"))).collect();
        assert!(lost.is_empty(), "of key {key} these were accepted and never came: {lost:?}");
    }
    Judged { repeated, taken_over }
}
