//! A process group: a program and everything it started. Asked to end first, then made to.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::Child;

use crate::cli::time;

/// How long a group may take to clean up after SIGTERM.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// Nothing wakes us when somebody else's child ends, so it is looked at this often, and only while a group is being ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

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

    /// Ends the leader and all that is left of its group.
    pub(crate) async fn end(self, child: &mut Child) {
        let until = time::now() + GRACE;
        self.signal(Signal::SIGTERM);
        let in_time = tokio::time::timeout(GRACE, child.wait()).await.is_ok();
        if in_time && self.gone_by(until).await {
            return;
        }
        self.signal(Signal::SIGKILL);
        let _reaped = child.wait().await;
    }

    /// Ends what a leader that has ended left behind.
    pub(crate) async fn end_leftovers(self) {
        if !self.exists() {
            return;
        }
        self.signal(Signal::SIGTERM);
        if !self.gone_by(time::now() + GRACE).await {
            self.signal(Signal::SIGKILL);
        }
    }

    async fn gone_by(self, until: Instant) -> bool {
        while self.exists() {
            if time::now() >= until {
                return false;
            }
            time::sleep(LOOK_EVERY).await;
        }
        true
    }

    fn exists(self) -> bool {
        self.leader.is_some_and(|leader| killpg(leader, None).is_ok())
    }

    fn signal(self, signal: Signal) {
        if let Some(leader) = self.leader {
            let _already_gone = killpg(leader, signal);
        }
    }
}
