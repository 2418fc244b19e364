//! The longest script that a Redis ran during a measurement, by its own log of slow commands. The log has wall-clock times: on a machine
//! with fewer free cores than busy processes they include the time that the server waited for a core.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use towpath::FloorGauge;

use super::findings::{Aim, Finding};
use super::place::Target;

/// Commands that take longer than this are logged meanwhile.
const SLOWER_THAN_US: i64 = 2_000;
/// The log keeps 128 entries by default, so it is read often.
const EVERY: Duration = Duration::from_secs(1);
const AIM_MS: f64 = 5.0;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// What the log said.
pub(super) enum Longest {
    /// In microseconds; 0 if no script was logged.
    Micros(u64),
    /// The server does not let this user change or read its log.
    Unknown(String),
}

impl Longest {
    /// `None`: it is not known.
    pub(super) fn micros(&self) -> Option<u64> {
        match self {
            Self::Micros(micros) => Some(*micros),
            Self::Unknown(_) => None,
        }
    }

    pub(super) fn finding(&self) -> Option<Finding> {
        let least = SLOWER_THAN_US as f64 / 1e3;
        let found = (self.micros()? as f64 / 1e3).max(least);
        Some(Finding::new(format!("longest script, {least} ms if none took longer"), found, "ms", Aim::AtMost(AIM_MS)))
    }
}

/// Reads the log on a thread of its own. Dropped, it restores the server's setting.
pub(super) struct SlowScripts {
    stop: Option<Sender<()>>,
    reader: Option<JoinHandle<Result<u64, Cause>>>,
}

impl SlowScripts {
    /// `None`: the store is not a Redis.
    pub(super) fn watch(target: &Target) -> Option<Self> {
        let Target::Redis { url, .. } = target else { return None };
        let (url, (stop, stopped)) = (url.clone(), channel());
        let reader = std::thread::spawn(move || {
            let mut gauge = FloorGauge::open(&url)?;
            let before = gauge.log_slower_than(SLOWER_THAN_US)?;
            let longest = read_until(&mut gauge, || stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout));
            gauge.log_slower_than(before)?;
            longest
        });
        Some(Self { stop: Some(stop), reader: Some(reader) })
    }

    /// Restores the server's setting and returns what was found.
    pub(super) fn finish(mut self) -> Longest {
        match self.stop() {
            Some(Ok(longest)) => Longest::Micros(longest),
            Some(Err(cause)) => Longest::Unknown(cause.to_string()),
            None => Longest::Unknown("the reader of the log broke off".to_owned()),
        }
    }

    fn stop(&mut self) -> Option<Result<u64, Cause>> {
        drop(self.stop.take());
        self.reader.take()?.join().ok()
    }
}

impl Drop for SlowScripts {
    fn drop(&mut self) {
        let _the_result_is_unused = self.stop();
    }
}

fn read_until(gauge: &mut FloorGauge, stop: impl Fn() -> bool) -> Result<u64, Cause> {
    let (_, mut latest) = gauge.longest_script(None)?;
    let mut longest = 0;
    loop {
        let over = stop();
        let (found, newest) = gauge.longest_script(latest)?;
        (longest, latest) = (longest.max(found), newest);
        if over {
            return Ok(longest);
        }
    }
}
