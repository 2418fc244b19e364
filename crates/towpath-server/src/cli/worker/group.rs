//! A process group: a guard, its program and everything that the program started.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::Child;

/// The processes that one start of a program became.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessGroup {
    /// `None` when the leader was gone before we could ask for its number.
    leader: Option<Pid>,
}

impl ProcessGroup {
    /// The group of a child that was started as the leader of its own.
    pub(crate) fn led_by(child: &Child) -> Self {
        let number = child.id().and_then(|id| i32::try_from(id).ok());
        // 0 and 1 would mean "our own group" and "everyone".
        Self { leader: number.filter(|number| *number > 1).map(Pid::from_raw) }
    }

    /// Sends a signal to all of it.
    pub(crate) fn signal(self, signal: Signal) {
        if let Some(leader) = self.leader {
            let _already_gone = killpg(leader, signal);
        }
    }
}
