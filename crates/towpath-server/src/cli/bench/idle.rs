//! An idle server's memory: a real one, started for this, asked to be ready, then looked at from outside.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::folder::Folder;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::time;

/// Long enough for anything slow to start to have gone wrong.
const READY_WITHIN: Duration = Duration::from_secs(20);

pub(super) async fn rss_bytes(folder: &Folder) -> Result<u64, Failure> {
    let failed = |cause: String| Failure::new(Exit::Failed, "bench_failed", format!("the idle server could not be measured: {cause}"));
    let mut server = start(folder).map_err(|error| failed(error.to_string()))?;
    let ready = tokio::time::timeout(READY_WITHIN, until_ready(&mut server)).await;
    ready.map_err(|_| failed("it did not become ready".to_owned()))?.map_err(failed)?;
    // Once more after its first second, when whatever it does at the start is done.
    time::sleep(Duration::from_secs(1)).await;
    let bytes = server.id().ok_or("it has gone".to_owned()).and_then(rss_of);
    let _it_has_gone_by_itself = server.kill().await;
    bytes.map_err(failed)
}

fn start(folder: &Folder) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["--json", "serve", "--listen", "127.0.0.1:0", "--store", &folder.store_url()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
}

/// With `--json` the server writes a line as soon as it listens.
async fn until_ready(server: &mut Child) -> Result<(), String> {
    let stdout = server.stdout.take().ok_or("it has no standard output")?;
    let first = BufReader::new(stdout).lines().next_line().await.map_err(|error| error.to_string())?;
    first.map(drop).ok_or("it stopped before it listened".to_owned())
}

fn rss_of(process: u32) -> Result<u64, String> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("the system does not tell its memory")?;
    let kib = line.trim().trim_end_matches("kB").trim().parse::<u64>().map_err(|error| error.to_string())?;
    Ok(kib * 1024)
}
