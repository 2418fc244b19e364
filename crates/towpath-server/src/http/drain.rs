//! Stopping in good order: first nothing long begins, then what is open is answered, then what is still open is given up.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The steps of a stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain {
    begun: CancellationToken,
    given_up: CancellationToken,
    waits: TaskTracker,
}

impl Drain {
    /// From now on the server is not ready, claims get nothing more, and open polls are answered with what there is.
    pub(crate) fn begin(&self) {
        self.begun.cancel();
    }

    /// From now on no new request may wait for a call.
    pub(crate) fn close(&self) {
        self.begun.cancel();
        self.waits.close();
    }

    /// From now on a request that waits for a call is answered with its id.
    pub(crate) fn give_up(&self) {
        self.close();
        self.given_up.cancel();
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Ends when the stop begins.
    pub(crate) async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// Ends when waiting is over.
    pub(crate) async fn given_up(&self) {
        self.given_up.cancelled().await;
    }

    /// Counts a request that waits for a call, for as long as the token lives. `None`: no new request may wait.
    pub(crate) fn wait(&self) -> Option<TaskTrackerToken> {
        (!self.waits.is_closed()).then(|| self.waits.token())
    }

    /// Ends when no request waits for a call any more. Ask it only after new ones are refused.
    pub(crate) async fn all_answered(&self) {
        self.waits.wait().await;
    }
}
