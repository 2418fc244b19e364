//! A worker that runs: its actors, and how it leaves.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::{Mutex, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use towpath_core::names::WorkerId;

use crate::batches::InProcess;
use crate::engine::desk::{Desk, Finished};
use crate::engine::supervised::supervise;
use crate::engine::{answerer, claimer, heartbeat, renewer};
use crate::workflow::{RunError, RunId, RunningWorkflows};

/// A worker that serves its functions. [`drain`](RunningWorker::drain) it to leave in good order; dropped, it falls silent at once, and
/// other workers get its calls when their leases are over.
#[must_use = "dropping a worker stops it at once: keep it, and drain it"]
pub struct RunningWorker {
    desk: Arc<Desk>,
    stop_claiming: CancellationToken,
    /// Apart from the others, because it stops first.
    claimer: JoinHandle<()>,
    actors: JoinSet<()>,
    receivers: Vec<InProcess>,
    workflows: Option<RunningWorkflows>,
    /// It is in the registry of workers.
    serves_calls: bool,
}

/// What became of the calls that a worker held when it began to drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainReport {
    /// Ended, and their answers are kept.
    pub finished: u64,
    /// Given to other workers, because they did not end in time.
    pub handed_back: u64,
}

impl RunningWorker {
    pub(crate) fn start(
        desk: Arc<Desk>,
        finished: mpsc::UnboundedReceiver<Finished>,
        receivers: Vec<InProcess>,
        workflows: Option<RunningWorkflows>,
        serves_calls: bool,
    ) -> Self {
        let stop_claiming = CancellationToken::new();
        if !serves_calls {
            let (claimer, actors) = (tokio::spawn(async {}), JoinSet::new());
            return Self { desk, stop_claiming, claimer, actors, receivers, workflows, serves_calls };
        }
        let supervised = |name, start: fn(Arc<Desk>) -> BoxFuture<'static, ()>| {
            let desk = Arc::clone(&desk);
            supervise(name, Arc::clone(desk.clock()), Arc::clone(&desk.health), move || start(Arc::clone(&desk)))
        };
        let mut actors = JoinSet::new();
        actors.spawn(supervised("renewer", |desk| renewer::run(desk).boxed()));
        actors.spawn(supervised("heartbeat", |desk| heartbeat::run(desk).boxed()));
        let finished = Arc::new(Mutex::new(finished));
        actors.spawn(supervise("answerer", Arc::clone(desk.clock()), Arc::clone(&desk.health), {
            let desk = Arc::clone(&desk);
            move || answerer::run(Arc::clone(&desk), Arc::clone(&finished))
        }));
        let claimer = tokio::spawn(supervise("claimer", Arc::clone(desk.clock()), Arc::clone(&desk.health), {
            let (desk, stop) = (Arc::clone(&desk), stop_claiming.clone());
            move || claimer::run(Arc::clone(&desk), stop.clone())
        }));
        Self { desk, stop_claiming, claimer, actors, receivers, workflows, serves_calls }
    }

    /// Who it is.
    pub fn id(&self) -> &WorkerId {
        self.desk.worker_id()
    }

    /// How many calls it holds now: those that run, wait for nested calls, or are being answered.
    pub fn held(&self) -> usize {
        self.desk.held_count()
    }

    /// How many runs of workflows it executes now. Parked runs are not among them.
    pub fn executing(&self) -> usize {
        self.workflows.as_ref().map_or(0, RunningWorkflows::count)
    }

    /// Replays the journal of a run against the code that this worker serves. Nothing is written and no task runs. The error says what differs.
    pub async fn replay(&self, run_id: &RunId) -> Result<(), RunError> {
        match &self.workflows {
            Some(workflows) => workflows.replay(run_id).await,
            None => Err(RunError::Diverged { run_id: run_id.clone(), message: "this worker serves no workflow".to_owned() }),
        }
    }

    /// Leaves in good order: claims nothing more, waits for its handlers up to the drain timeout while their leases are renewed, hands
    /// back the rest so that other workers get them at once, and leaves the registry.
    pub async fn drain(mut self) -> DrainReport {
        self.stop_claiming.cancel();
        let _ = (&mut self.claimer).await; // an error only says that it was aborted
        let held = self.desk.held_count() as u64;
        let patience = self.desk.timing.drain_timeout;
        let give_up_at = self.desk.clock().now() + patience;
        let receivers = join_all(std::mem::take(&mut self.receivers).into_iter().map(|receiver| receiver.stop(patience)));
        let workflows = self.workflows.take();
        let handlers = async {
            tokio::select! {
                biased;
                () = self.all_left() => {}
                () = self.desk.clock().sleep_until(give_up_at) => {}
            }
        };
        let runs = async {
            if let Some(workflows) = workflows {
                workflows.drain().await;
            }
        };
        tokio::join!(handlers, receivers, runs);
        let rest = self.desk.close();
        // Before leaving: a heartbeat after it would introduce the worker again.
        self.actors.shutdown().await;
        let unfinished = rest.len() as u64;
        let handed_back = self.hand_back(rest).await;
        DrainReport { finished: held.saturating_sub(unfinished), handed_back }
    }

    /// Ends when nothing lies on the desk.
    async fn all_left(&self) {
        loop {
            let left = self.desk.left.notified();
            let mut left = std::pin::pin!(left);
            left.as_mut().enable();
            if self.desk.held_count() == 0 {
                return;
            }
            left.await;
        }
    }

    async fn hand_back(&self, rest: Vec<towpath_core::ids::DeliveryId>) -> u64 {
        let (store, worker) = (self.desk.store(), self.desk.worker_id());
        let towpath = self.desk.towpath();
        if !self.serves_calls {
            return 0;
        }
        let released = if rest.is_empty() { Ok(0) } else { store.release(worker, rest).await };
        // Leaving hands back whatever is still held, so it also makes up for a release that failed.
        let left = towpath.retry_lost_replies(|| store.unregister(worker)).await;
        if let Err(error) = &left {
            tracing::warn!(%error, worker = %worker, "the worker could not leave the registry; it will be taken off in a moment");
        }
        released.unwrap_or(0) + left.unwrap_or(0)
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.claimer.abort();
        self.desk.close();
    }
}

impl fmt::Debug for RunningWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningWorker").field("id", self.id()).field("held", &self.held()).finish_non_exhaustive()
    }
}
