//! Renews one lock for as long as its guard lives, and says when it is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use towpath_core::clock::Clock;
use towpath_core::lock::{Fence, LostLock, RenewReply};
use towpath_core::store::Store;
use towpath_core::time::Timestamp;

use super::guard::trusted;
use super::question::{Question, Terms};
use crate::Towpath;

/// A renewal that failed is tried again so soon.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The one that renews. It never outlives the guard.
pub(super) struct Renewal {
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl Renewal {
    pub(super) fn start(
        towpath: &Towpath,
        question: &Arc<Question>,
        terms: Terms,
        sent_at: Timestamp,
        renews: bool,
        lose: watch::Sender<Option<LostLock>>,
    ) -> Self {
        let lease = Lease {
            store: Arc::clone(towpath.store()),
            clock: Arc::clone(towpath.clock()),
            question: Arc::clone(question),
            fence: terms.fence,
            max_hold_end: terms.max_hold_end,
            trusted_until: sent_at + trusted(terms.lease_end.since(terms.now)),
            capped: terms.lease_end >= terms.max_hold_end,
            renewed_at: sent_at,
            renews,
        };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let why = tokio::select! {
                biased;
                _ = stopped => return,
                why = lease.keep() => why,
            };
            lose.send_replace(Some(why));
        });
        Self { task, stop: Some(stop) }
    }

    /// Ends it, and waits until it has ended: no renewal is sent after this.
    pub(super) async fn stop(mut self) {
        drop(self.stop.take());
        let _ended_either_way = (&mut self.task).await;
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Lease {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    question: Arc<Question>,
    fence: Fence,
    max_hold_end: Timestamp,
    /// Beyond this instant of the local clock nobody may act on the lock.
    trusted_until: Timestamp,
    /// The lease ends with the hold: renewing gains nothing.
    capped: bool,
    renewed_at: Timestamp,
    renews: bool,
}

impl Lease {
    /// Renews until the lock is lost, and says why.
    async fn keep(mut self) -> LostLock {
        let mut next = self.renewed_at + self.question.lease() / 3;
        loop {
            if self.capped || !self.renews || next >= self.trusted_until {
                self.clock.sleep_until(self.trusted_until).await;
                return if self.capped { LostLock::MaxHold } else { LostLock::Expired };
            }
            self.clock.sleep_until(next).await;
            let sent_at = self.clock.now();
            let answer = tokio::select! {
                biased;
                answer = self.question.renew(self.store.as_ref(), self.fence) => answer,
                () = self.clock.sleep_until(self.trusted_until) => return LostLock::Expired,
            };
            match answer {
                Ok(RenewReply::Renewed { now, lease_end, .. }) => {
                    self.trusted_until = sent_at + trusted(lease_end.since(now));
                    self.capped = lease_end >= self.max_hold_end;
                    next = sent_at + self.question.lease() / 3;
                }
                Ok(RenewReply::Lost(why)) => return why,
                Err(error) => {
                    tracing::warn!(%error, scope = %self.question.scope(), "a lock could not be renewed; trying again until its lease ends");
                    next = sent_at + AGAIN_AFTER;
                }
            }
        }
    }
}
