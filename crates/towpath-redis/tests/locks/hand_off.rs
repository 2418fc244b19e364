//! From one holder to the next: by a message alone, in order, and without polling.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use towpath::locks::{Acquired, LockWait};
use towpath_core::clock::VirtualClock;
use towpath_core::store::{LockNews, LockStore};
use towpath_redis::{RedisOptions, RedisStore};

use crate::rig::{Rig, SOON, granted, is_busy, node, release, until, waiting, want};

#[tokio::test]
async fn whoever_waits_is_woken_by_a_message_alone_while_time_stands_still() {
    let rig = Rig::start();
    let clock = Arc::new(VirtualClock::new());
    let open = async || {
        let options = RedisOptions::parse(&rig.server.url()).expect("a URL");
        RedisStore::open_by_clock(options, Arc::<VirtualClock>::clone(&clock)).await.expect("the server is there")
    };
    let (here, there) = (open().await, open().await);
    let waits = node("there");
    let mut ear = there.lock_wakes(&waits);
    assert_eq!(tokio::time::timeout(SOON, ear.next()).await, Ok(LockNews::Doubtful), "it listens from now on");
    for number in 0..1_000 {
        let holder = granted(&here, want("s", &format!("h{number}"))).await;
        let question = waiting(&waits, want("s", &format!("w{number}")));
        assert!(is_busy(&there, question.clone()).await);
        release(&here, "s", holder.fence).await;
        let heard = tokio::time::timeout(SOON, ear.next()).await;
        assert_eq!(heard, Ok(LockNews::Turn(question.waiter.clone().expect("it waits"))), "hand-off {number}");
        let next = granted(&there, question).await;
        release(&there, "s", next.fence).await;
    }
}

/// Counts what clients send: commands, and commands about locks. What scripts send is left out.
struct Monitor {
    lines: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Monitor {
    fn start(port: u16) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server is up");
        stream.write_all(b"MONITOR\r\n").expect("it listens");
        let mut answers = BufReader::new(stream);
        let mut first = String::new();
        answers.read_line(&mut first).expect("it answers");
        assert_eq!(first.trim(), "+OK");
        let lines = Arc::new(Mutex::new(BTreeMap::new()));
        let counted = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in answers.lines().map_while(Result::ok).filter(|line| !line.contains(" lua] ")) {
                let mut words = line.split('"').skip(1).step_by(2);
                let (command, key) = (words.next().unwrap_or_default().to_uppercase(), words.next().unwrap_or_default());
                let about_locks = key.contains("n8n-lock-").then(|| format!("{command} of a lock"));
                let mut counts = counted.lock().expect("nobody panics with it");
                for counted in about_locks.into_iter().chain([command]) {
                    *counts.entry(counted).or_default() += 1;
                }
            }
        });
        Self { lines }
    }

    fn count(&self, command: &str) -> u32 {
        self.lines.lock().expect("nobody panics with it").get(command).copied().unwrap_or(0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_who_wait_are_served_in_order_without_polling() {
    const WAITERS: u32 = 1_000;
    let rig = Rig::start();
    let processes = [rig.towpath().await, rig.towpath().await, rig.towpath().await];
    let old = rig.old_workflow().await;
    let Acquired::Granted(first) = processes[0].lock("s").wait(LockWait::No).acquire().await.expect("the server is there") else {
        panic!("it is free")
    };
    let monitor = Monitor::start(rig.server.port());
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = tokio::task::JoinSet::new();
    for number in 0..WAITERS {
        let (towpath, served) = (processes[number as usize % processes.len()].clone(), Arc::clone(&served));
        waiters.spawn(async move {
            let acquired = towpath.lock("s").lease(SOON * 5).wait(LockWait::UpTo(SOON * 5)).acquire().await;
            let Ok(Acquired::Granted(guard)) = acquired else { panic!("{number} waited in vain: {acquired:?}") };
            served.lock().expect("nobody panics with it").push(number);
            guard.release().await.expect("the server is there");
        });
        until("it is in the queue", async || old.command::<u32>(&["ZCARD", "towpath:{n8n-lock-s}:w"]).await == number + 1).await;
    }
    first.release().await.expect("the server is there");
    waiters.join_all().await;
    assert_eq!(*served.lock().expect("nobody panics with it"), (0..WAITERS).collect::<Vec<_>>(), "first come, first served");
    assert_eq!(monitor.count("GET of a lock"), 0, "nobody polls");
    assert!(monitor.count("ZCARD of a lock") >= WAITERS, "the monitor does not see what is about locks");
    let scripts = monitor.count("EVALSHA");
    println!("{WAITERS} who waited were served in order with {scripts} script calls and {} GET polls", monitor.count("GET of a lock"));
    assert!(scripts >= 2 * WAITERS, "the monitor sees nothing: {scripts}");
    assert!(scripts <= 5 * WAITERS, "{scripts} scripts for {WAITERS} who waited");
}
