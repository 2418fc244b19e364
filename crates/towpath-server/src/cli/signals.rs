//! Signals that ask a process to leave.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Exit;
use super::failure::Failure;

/// SIGTERM, SIGINT and SIGHUP, in the order in which they come.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` under `nohup`, which makes a process ignore it.
    hang_up: Option<Signal>,
}

impl Signals {
    /// From now on these signals no longer end the process by themselves.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::new(Exit::Failed, "no_signals", format!("signals cannot be caught: {error}")));
        let hang_up = if is_ignored(SignalKind::hangup()) { None } else { Some(listen(SignalKind::hangup())?) };
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())?, hang_up })
    }

    /// Ends with the next one.
    pub(crate) async fn next(&mut self) {
        self.next_named().await;
    }

    /// Ends with the next one, and names it.
    pub(crate) async fn next_named(&mut self) -> &'static str {
        let hang_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = hang_up => "SIGHUP",
        }
    }
}

/// Whether this process ignores a signal, as its parent may have arranged. Linux shows it; on other systems the answer is no.
pub(crate) fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let place = u32::try_from(kind.as_raw_value() - 1).unwrap_or(u32::MAX); // the lowest bit stands for signal 1
    mask.and_then(|mask| mask.checked_shr(place)).is_some_and(|mask| mask & 1 != 0)
}
