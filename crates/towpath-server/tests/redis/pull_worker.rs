//! The worker of `pull_worker.py`: a process that can be killed, paused, and asked afterwards what it ran.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Beside, Server};

/// How it works.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// So many calls at once.
    pub(crate) batch: u32,
    pub(crate) lease_ms: u32,
    /// So long a batch takes.
    pub(crate) work_ms: u32,
}

impl Pace {
    pub(crate) const QUICK: Self = Self { batch: 64, lease_ms: 2_000, work_ms: 5 };
}

/// Starts one, and waits until it serves. It notes its runs in a file of the server's folder that all workers there share.
pub(crate) fn start(server: &Server, function: &str, pace: Pace) -> Beside {
    start_noting(server, function, &server.path("runs"), pace)
}

/// The same, with a file of its own choice.
pub(crate) fn start_noting(server: &Server, function: &str, notes: &Path, pace: Pace) -> Beside {
    let mut command = Command::new("python3");
    command.args(["-c", include_str!("pull_worker.py"), &server.url, function]).arg(notes);
    command.args([pace.batch, pace.lease_ms, pace.work_ms].map(|number| number.to_string()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let worker = Beside::start(command);
    worker.event("serving", |event| event["event"] == "serving");
    worker
}

/// Waits until it has begun to work on so many batches.
pub(crate) fn has_begun(worker: &Beside, batches: u64) {
    worker.event("claimed", |event| event["event"] == "claimed" && event["batch"].as_u64() >= Some(batches));
}

/// How often each call was run, by the notes in a file.
pub(crate) fn runs(notes: &Path) -> BTreeMap<String, u32> {
    let text = std::fs::read_to_string(notes).unwrap_or_default();
    let mut runs = BTreeMap::new();
    // A line is the delivery: its number, then the call.
    for call_id in text.lines().filter_map(|line| Some(line.split_once('-')?.1)) {
        *runs.entry(call_id.to_owned()).or_default() += 1;
    }
    runs
}
