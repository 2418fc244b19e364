//! A legacy peer: a program beside this file that speaks with a Redis client of its own, and with the test in lines of JSON.

use std::path::Path;
use std::process::Stdio;
use std::sync::LazyLock;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::SOON;

pub(crate) struct Peer {
    /// Killed when this is dropped. Should the test be killed, the end of its orders ends it.
    child: Child,
    orders: ChildStdin,
    events: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    pub(crate) fn start(program: &str, options: &[&str]) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire").join(program);
        let mut command = Command::new(python_with_redis());
        command.arg("-B").arg(file).args(options).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("python3 starts; if it is missing, run ./test once");
        let orders = child.stdin.take().expect("its input is a pipe");
        let events = BufReader::new(child.stdout.take().expect("its output is a pipe")).lines();
        Self { child, orders, events }
    }

    /// The next event of this kind; others before it are passed over.
    pub(crate) async fn hear(&mut self, kind: &str) -> Value {
        loop {
            match self.next().await {
                Some(event) if event["event"] == kind => return event,
                Some(_other) => {}
                None => panic!("it ended and never said '{kind}': {}", self.complaints().await),
            }
        }
    }

    /// The next event, or `None` when it has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let line = timeout(SOON, self.events.next_line()).await.expect("it says nothing for too long");
        line.expect("its output can be read").map(|line| serde_json::from_str(&line).expect("an event is JSON"))
    }

    /// The ids of all calls that it took and that were not heard of yet. It must have been told to leave.
    pub(crate) async fn took(&mut self) -> Vec<String> {
        let mut ids = Vec::new();
        while let Some(event) = self.next().await {
            if event["event"] == "took" {
                ids.extend(event["fields"]["callId"].as_str().map(str::to_owned));
            }
        }
        ids
    }

    /// Gives it an order.
    pub(crate) async fn order(&mut self, word: &str) {
        self.orders.write_all(format!("{word}\n").as_bytes()).await.expect("it listens");
    }

    /// Waits until it has left: by itself, because its group was destroyed, or because it is told to.
    pub(crate) async fn has_left(&mut self) {
        match self.orders.write_all(b"leave\n").await {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => panic!("it cannot be told to leave: {error}"),
            _told_or_gone => {}
        }
        self.hear("left").await;
    }

    /// Ends it as `kill -9` does.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it is our child");
    }

    async fn complaints(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors.read_to_string(&mut text).await.expect("its errors can be read");
        }
        text
    }
}

/// A Python that has an ordinary Redis client: the first in the path, or the system's own, for which `./test` installs one.
fn python_with_redis() -> &'static str {
    static FOUND: LazyLock<&'static str> = LazyLock::new(|| {
        let can = |python: &&str| {
            std::process::Command::new(python).args(["-c", "import redis"]).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
        };
        ["python3", "/usr/bin/python3"].into_iter().find(can).expect("a Python with the module redis; run ./test once, it installs one")
    });
    *FOUND
}
