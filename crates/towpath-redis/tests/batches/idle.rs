//! A hundred thousand open keys cost nothing while nothing is due.

use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use towpath_conformance::words::{MessageWords, message};
use towpath_core::batch::Rules;
use towpath_core::store::BatchStore;
use towpath_redis::RedisStore;

use crate::rig::{Rig, input_contour, open, pause};

const KEYS: usize = 100_000;
const SERVERS: usize = 3;
const LOOKED_AT: Duration = Duration::from_secs(5);

/// Longer than a server takes to hear that its subscription stands, which makes it look again.
const ASLEEP_FOR: Duration = Duration::from_secs(2);

/// What a server does that sleeps until the next deadline: it looks, and looks again when something is due earlier. It says when it is
/// awake and when it is not.
async fn sleep_until_due(store: RedisStore, is_awake: UnboundedSender<bool>) {
    let mut ear = store.batch_wakes(&input_contour());
    loop {
        is_awake.send(true).expect("the test goes on");
        let due = store.batch_due(&input_contour(), 100).await.expect("the server is there");
        assert!(due.keys.is_empty(), "nothing is due");
        store.batch_sweep(&input_contour(), None).await.expect("the server is there");
        let next = due.next.expect("something is open");
        is_awake.send(false).expect("the test goes on");
        tokio::select! {
            _heard = ear.next() => {}
            () = store.clock().sleep_until(next) => {}
        }
    }
}

/// Waits until all sleep, and nobody has stirred for a while.
async fn all_sleep(said: &mut UnboundedReceiver<bool>) {
    let (mut woken, mut fell_asleep) = (0, 0);
    loop {
        let all_asleep = woken >= SERVERS && woken == fell_asleep;
        let patience = if all_asleep { ASLEEP_FOR } else { Duration::from_secs(60) };
        match tokio::time::timeout(patience, said.recv()).await {
            Ok(Some(true)) => woken += 1,
            Ok(_) => fell_asleep += 1,
            Err(_) if all_asleep => return,
            Err(_) => panic!("of {woken} that woke up only {fell_asleep} fell asleep again"),
        }
    }
}

fn commands(rig: &Rig) -> u64 {
    let stats = rig.cli(&["INFO", "stats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).expect("a server that counts");
    line.trim().parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_open_keys_cost_each_server_less_than_five_commands_a_second_while_nothing_is_due() {
    let rig = Rig::start();
    let url = rig.server.url();
    let store = open(&url).await;
    let rules = Rules { max_wait: Duration::from_secs(7_200), ..Rules::default() };
    for start in (0..KEYS).step_by(5_000) {
        let new = |key| message(&format!("t:telegram:{key}"), "{}").debounce(Duration::from_secs(3_600));
        store.batch_ingest(&input_contour(), &rules, (start..start + 5_000).map(new).collect()).await.unwrap();
    }
    assert_eq!(store.batch_counts(&input_contour()).await.unwrap().open_keys, KEYS as u64);
    let (is_awake, mut said) = unbounded_channel();
    let mut sleepers = Vec::new();
    for _ in 0..SERVERS {
        sleepers.push(tokio::spawn(sleep_until_due(open(&url).await, is_awake.clone())));
    }
    // They have looked, and have swept once: that goes through all keys.
    all_sleep(&mut said).await;
    let before = commands(&rig);
    pause(LOOKED_AT).await;
    // One of them is the second question.
    let cost = commands(&rig) - before - 1;
    let allowed = 5 * LOOKED_AT.as_secs() * (SERVERS as u64 + 1);
    assert!(cost <= allowed, "{cost} commands in {LOOKED_AT:?}, at most {allowed} are allowed");
    assert!(sleepers.iter().all(|sleeper| !sleeper.is_finished()), "nobody has stopped");
}
