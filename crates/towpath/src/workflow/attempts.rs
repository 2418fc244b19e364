//! Attempts of tasks that run beside the code of a run.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use towpath_core::clock::Clock;
use towpath_core::payload::Payload;
use towpath_core::run::StepId;

use super::admission::Needs;
use super::code::panic_text;
use super::execution::Launch;
use super::task::TaskContext;
use crate::error::HandlerError;
use crate::locks::LockGuard;

/// How long an attempt may take to stop after it was asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum End {
    Returned(Result<Payload, HandlerError>),
    /// With this message.
    Panicked(String),
    /// It took longer than it may.
    TimedOut,
    /// It has lost the lock that it held.
    LostLock,
    /// Another worker began it, and has not said how it ended.
    Unknown,
}

/// An attempt that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) step: StepId,
    pub(crate) end: End,
}

/// An attempt to start.
pub(crate) struct Work {
    pub(crate) launch: Launch,
    pub(crate) needs: Needs,
    pub(crate) task: TaskContext,
    pub(crate) timeout: Duration,
}

/// The attempts of one run.
#[derive(Debug)]
pub(crate) struct Attempts {
    running: HashMap<StepId, (CancellationToken, AbortHandle)>,
    ended: mpsc::UnboundedReceiver<Ended>,
    ends: mpsc::UnboundedSender<Ended>,
}

impl Attempts {
    pub(crate) fn new() -> Self {
        let (ends, ended) = mpsc::unbounded_channel();
        Self { running: HashMap::new(), ended, ends }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(crate) fn is_running(&self, step: &StepId) -> bool {
        self.running.contains_key(step)
    }

    /// Starts an attempt.
    pub(crate) fn start(&mut self, clock: Arc<dyn Clock>, work: Work) {
        let (step, token, ends) = (work.task.step_id().clone(), work.task.inner.token.clone(), self.ends.clone());
        let running = tokio::spawn({
            let (step, token) = (step.clone(), token.clone());
            async move {
                if let Some(end) = run(clock.as_ref(), work, &token).await {
                    // The run may have left this worker meanwhile.
                    let _left = ends.send(Ended { step, end });
                }
            }
        });
        self.running.insert(step, (token, running.abort_handle()));
    }

    /// The next attempt that ends.
    pub(crate) async fn next(&mut self) -> Ended {
        match self.ended.recv().await {
            Some(ended) => self.note(ended),
            // Not while this value has a sender.
            None => std::future::pending().await,
        }
    }

    /// One that has ended already.
    pub(crate) fn next_now(&mut self) -> Option<Ended> {
        let ended = self.ended.try_recv().ok()?;
        Some(self.note(ended))
    }

    fn note(&mut self, ended: Ended) -> Ended {
        self.running.remove(&ended.step);
        ended
    }

    /// The code has dropped a step: its attempt is asked to stop, and what it returns counts for nothing.
    pub(crate) fn stop(&mut self, step: &StepId) {
        if let Some((token, _)) = self.running.remove(step) {
            token.cancel();
        }
    }

    /// Stops all at once.
    pub(crate) fn abort_all(&mut self) {
        for (token, running) in self.running.drain().map(|(_, running)| running) {
            token.cancel();
            running.abort();
        }
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        self.abort_all();
    }
}

/// Runs one attempt, once it has what it needs. `None`: it was asked to stop, and did.
async fn run(clock: &dyn Clock, work: Work, token: &CancellationToken) -> Option<End> {
    let Work { launch, needs, mut task, timeout } = work;
    let admitted = tokio::select! {
        biased;
        admitted = needs.wait(&task) => admitted,
        () = token.cancelled() => return None,
    };
    let guard = match admitted {
        Ok(guard) => guard,
        Err(error) => return Some(End::Returned(Err(error))),
    };
    task.fence = guard.as_ref().map(LockGuard::fence);
    let end = attempt(clock, &launch, task, token, timeout, guard.as_ref()).await;
    if let Some(guard) = guard {
        // A lock whose release fails is free when its lease is over.
        let _released = guard.release().await;
    }
    end
}

async fn attempt(
    clock: &dyn Clock,
    launch: &Launch,
    task: TaskContext,
    token: &CancellationToken,
    timeout: Duration,
    guard: Option<&LockGuard>,
) -> Option<End> {
    let ends_at = clock.now() + timeout;
    let mut work = pin!(AssertUnwindSafe(async { launch(task).await }).catch_unwind());
    let is_late = || clock.now() >= ends_at;
    let stopped = async {
        tokio::select! {
            () = token.cancelled() => {}
            () = clock.sleep_until(ends_at) => token.cancel(),
        }
        clock.sleep_until(clock.now() + GRACE).await;
    };
    let lock_lost = async {
        match guard {
            Some(guard) => drop(guard.lost().await),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        returned = &mut work => match returned {
            Ok(Err(HandlerError::Cancelled)) if is_late() => Some(End::TimedOut),
            Ok(Err(HandlerError::Cancelled)) if token.is_cancelled() => None,
            Ok(result) => Some(End::Returned(result)),
            Err(panic) => Some(End::Panicked(panic_text(panic.as_ref()).to_owned())),
        },
        () = lock_lost => Some(End::LostLock),
        () = stopped => is_late().then_some(End::TimedOut),
    }
}
