//! The other process of a measurement: this same program, told to be one side of it.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::failed;
use super::place::Place;
use crate::cli::failure::Failure;

/// Names the store to other processes.
const STORE: &str = "TOWPATH_STORE";
/// Long enough for anything slow to start to have gone wrong.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// A worker has nothing left to do when it is told to stop.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// A process that is one side of a measurement. It ends when its standard input does, so it never outlives this one.
pub(super) struct Part {
    child: Child,
}

impl Part {
    /// `towpath bench WORDS` on the same store, as soon as it is ready.
    pub(super) async fn start(place: &Place, words: &[&str]) -> Result<Self, Failure> {
        let mut all = vec!["bench"];
        all.extend(words);
        all.extend(["--tag", &place.tag]);
        let mut child =
            spawn(place, &all, Stdio::inherit()).map_err(|error| failed(&format!("the other side could not be started: {error}")))?;
        first_line(&mut child).await?;
        Ok(Self { child })
    }

    /// Tells it to stop, and waits.
    pub(super) async fn stop(mut self) {
        drop(self.child.stdin.take());
        let gone = tokio::time::timeout(GONE_WITHIN, self.child.wait()).await;
        if gone.is_err() {
            let _it_has_gone_by_itself = self.child.kill().await;
        }
    }
}

/// This program with other words. The store's URL goes through the environment: a command line is for everyone to read.
pub(super) fn spawn(place: &Place, words: &[&str], errors: Stdio) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(words)
        .env(STORE, &place.url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors)
        .kill_on_drop(true)
        .spawn()
}

/// The line by which a process says that it is ready.
pub(super) async fn first_line(child: &mut Child) -> Result<String, Failure> {
    let stdout = child.stdout.take().ok_or_else(|| failed("the other side has no standard output"))?;
    let mut lines = BufReader::new(stdout).lines();
    let line = tokio::time::timeout(READY_WITHIN, lines.next_line()).await;
    let line = line.map_err(|_| failed("the other side did not become ready"))?;
    line.map_err(|error| failed(&error.to_string()))?.ok_or_else(|| failed("the other side stopped before it was ready"))
}
