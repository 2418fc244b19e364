//! An idle server: a real one with a worker, started for this and looked at from outside. What does it take when there is nothing to do?

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Child;
use towpath::FloorGauge;

use super::place::Place;
use super::process::{first_line, spawn};
use super::{blocking, failed};
use crate::cli::failure::Failure;
use crate::cli::time;

/// A server that has nothing to do.
pub(super) struct IdleServer {
    server: Child,
    /// Serves a function that is never called. Held only to be there.
    worker: Child,
}

impl IdleServer {
    /// Starts it, and waits until what happens at the start is done.
    pub(super) async fn start(place: &Place, settled: Duration) -> Result<Self, Failure> {
        let not_started = |error: std::io::Error| failed(&format!("the idle server could not be started: {error}"));
        let mut server =
            spawn(place, &["--json", "serve", "--listen", "127.0.0.1:0", "--durability", "memory"], Stdio::null()).map_err(not_started)?;
        let listening: Value = serde_json::from_str(&first_line(&mut server).await?).unwrap_or_default();
        let url = listening["url"].as_str().ok_or_else(|| failed("the idle server did not say where it listens"))?;
        let name = format!("{}idle", place.tag);
        let worker = spawn(place, &["--server", url, "worker", &name, "--exec", "cat"], Stdio::null()).map_err(not_started)?;
        time::sleep(settled).await;
        Ok(Self { server, worker })
    }

    pub(super) fn rss_bytes(&self) -> Result<u64, Failure> {
        self.server.id().ok_or("it has gone".to_owned()).and_then(rss_of).map_err(|cause| failed(&format!("the idle server: {cause}")))
    }

    /// Commands per second that the store of this place gets. No other client may use it meanwhile.
    pub(super) async fn commands_per_second(&self, place: &Place, length: Duration) -> Result<f64, Failure> {
        let url = place.url.clone();
        // One connection for both readings: making one costs commands too.
        let begun = blocking(move || {
            let mut gauge = FloorGauge::open(&url)?;
            gauge.read().map(|reading| (gauge, reading))
        });
        let (mut gauge, before) = begun.await.map_err(|cause| failed(&cause))?;
        let begin = time::now();
        time::sleep_until(begin + length).await;
        let after = blocking(move || gauge.read()).await.map_err(|cause| failed(&cause))?;
        let took = time::now() - begin;
        let commands = (after.commands - before.commands).saturating_sub(FloorGauge::OWN_COMMANDS);
        Ok(commands as f64 / took.as_secs_f64())
    }

    pub(super) async fn stop(mut self) {
        for child in [&mut self.worker, &mut self.server] {
            let _it_has_gone_by_itself = child.kill().await;
        }
    }
}

/// The memory of a process.
pub(super) fn rss_of(process: u32) -> Result<u64, String> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("the system does not tell its memory")?;
    let kib = line.trim().trim_end_matches("kB").trim().parse::<u64>().map_err(|error| error.to_string())?;
    Ok(kib * 1024)
}
