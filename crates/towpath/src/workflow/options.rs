//! How a worker executes runs: the options of seed 003, under its names.

use std::time::Duration;

use serde::Deserialize;
use towpath_core::time::from_millis;

use crate::error::WorkerError;

/// How a worker executes runs.
///
/// ```
/// use std::time::Duration;
/// use towpath::workflow::WorkflowOptions;
///
/// let options = WorkflowOptions::default();
/// assert_eq!(options.claim_min_idle_time, Duration::from_secs(15));
/// assert_eq!(WorkflowOptions::compat().heartbeat_interval, Duration::from_secs(30));
///
/// let read: WorkflowOptions = serde_json::from_str(r#"{"profile": "compat", "blockTimeMs": 500}"#).unwrap();
/// assert_eq!((read.block_time, read.claim_min_idle_time), (Duration::from_millis(500), Duration::from_secs(180)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct WorkflowOptions {
    /// How long this worker may be silent before another one takes its runs, and how long it waits for others. Default: 15 s.
    pub claim_min_idle_time: Duration,
    /// How long one request for runs waits for the first. Default: 1 s.
    pub block_time: Duration,
    /// How often this worker renews its claims. Default: 5 s.
    pub heartbeat_interval: Duration,
    /// The most runs that it executes at once. Default: 100.
    pub max_concurrent_runs: u32,
    /// How long a run may wait in this worker's memory before it is parked. Default: 20 ms.
    pub linger: Duration,
    /// How many owners in a row may fall silent without a result before a run is blocked. Default: 10.
    pub max_deliveries: u32,
}

impl Default for WorkflowOptions {
    fn default() -> Self {
        Self {
            claim_min_idle_time: Duration::from_secs(15),
            block_time: Duration::from_secs(1),
            heartbeat_interval: Duration::from_secs(5),
            max_concurrent_runs: 100,
            linger: Duration::from_millis(20),
            max_deliveries: 10,
        }
    }
}

impl WorkflowOptions {
    /// The defaults of seed 003: `profile = "compat"`.
    pub fn compat() -> Self {
        Self { claim_min_idle_time: Duration::from_secs(180), heartbeat_interval: Duration::from_secs(30), ..Self::default() }
    }

    pub(crate) fn check(&self) -> Result<(), WorkerError> {
        let bounds: [(&'static str, Duration, u64, u64); 4] = [
            ("claim_min_idle_time", self.claim_min_idle_time, 500, 3_600_000),
            ("block_time", self.block_time, 10, 60_000),
            ("heartbeat_interval", self.heartbeat_interval, 100, 600_000),
            ("linger", self.linger, 0, 5_000),
        ];
        for (field, length, min, max) in bounds {
            if !(Duration::from_millis(min)..=Duration::from_millis(max)).contains(&length) {
                let message = format!("must be between {min} ms and {max} ms, not {length:?}");
                return Err(WorkerError::OutOfRange { field, message });
            }
        }
        for (field, number, max) in
            [("max_concurrent_runs", self.max_concurrent_runs, 10_000), ("max_deliveries", self.max_deliveries, 1_000)]
        {
            if !(1..=max).contains(&number) {
                return Err(WorkerError::OutOfRange { field, message: format!("must be between 1 and {max}, not {number}") });
            }
        }
        if self.claim_min_idle_time < 2 * self.heartbeat_interval {
            let message = format!(
                "must be at least twice the heartbeat_interval ({:?}), not {:?}",
                self.heartbeat_interval, self.claim_min_idle_time
            );
            return Err(WorkerError::OutOfRange { field: "claim_min_idle_time", message });
        }
        Ok(())
    }
}

/// Options as a file has them: lengths in milliseconds, names in either spelling.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    profile: Option<String>,
    #[serde(default, alias = "claimMinIdleTimeMs", alias = "claim_min_idle_time")]
    claim_min_idle_time_ms: Option<i64>,
    #[serde(default, alias = "blockTimeMs", alias = "block_time")]
    block_time_ms: Option<i64>,
    #[serde(default, alias = "heartbeatIntervalMs", alias = "heartbeat_interval")]
    heartbeat_interval_ms: Option<i64>,
    #[serde(default, alias = "maxConcurrentRuns")]
    max_concurrent_runs: Option<u32>,
    #[serde(default, alias = "lingerMs", alias = "linger")]
    linger_ms: Option<i64>,
    #[serde(default, alias = "maxDeliveries")]
    max_deliveries: Option<u32>,
    #[serde(default, rename = "workflowRun")]
    workflow_run: Option<WrittenRun>,
}

/// The seed has the heartbeat one level deeper.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRun {
    #[serde(rename = "heartbeatIntervalMs")]
    heartbeat_interval_ms: i64,
}

impl TryFrom<Written> for WorkflowOptions {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let base = match written.profile.as_deref() {
            None | Some("default") => Self::default(),
            Some("compat") => Self::compat(),
            Some(other) => return Err(format!("there is no profile '{other}': write 'compat' or 'default'")),
        };
        let heartbeat = written.heartbeat_interval_ms.or(written.workflow_run.map(|run| run.heartbeat_interval_ms));
        let or = |ms: Option<i64>, default: Duration| ms.map_or(default, from_millis);
        Ok(Self {
            claim_min_idle_time: or(written.claim_min_idle_time_ms, base.claim_min_idle_time),
            block_time: or(written.block_time_ms, base.block_time),
            heartbeat_interval: or(heartbeat, base.heartbeat_interval),
            max_concurrent_runs: written.max_concurrent_runs.unwrap_or(base.max_concurrent_runs),
            linger: or(written.linger_ms, base.linger),
            max_deliveries: written.max_deliveries.unwrap_or(base.max_deliveries),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_s_names_are_read_and_misspelt_ones_are_refused() {
        let read = |text: &str| serde_json::from_str::<WorkflowOptions>(text);
        let options = read(r#"{"claimMinIdleTimeMs": 20000, "workflowRun": {"heartbeatIntervalMs": 7000}}"#).unwrap();
        assert_eq!((options.claim_min_idle_time.as_secs(), options.heartbeat_interval.as_secs()), (20, 7));
        assert!(read(r#"{"claimMinIdleTime": 1}"#).is_err());
        assert!(read(r#"{"profile": "fast"}"#).is_err());
    }

    #[test]
    fn an_idle_time_close_to_the_heartbeat_is_refused() {
        assert!(WorkflowOptions::default().check().is_ok() && WorkflowOptions::compat().check().is_ok());
        let close = WorkflowOptions { heartbeat_interval: Duration::from_secs(8), ..WorkflowOptions::default() };
        let refused = close.check().unwrap_err().to_string();
        assert!(refused.contains("twice the heartbeat_interval"), "{refused}");
        assert!(WorkflowOptions { linger: Duration::from_secs(6), ..WorkflowOptions::default() }.check().is_err());
    }
}
