//! Claims of pull workers, which outlast the requests they come with: a worker that waits for work asks every few seconds, and to the store
//! it is one long wait.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towpath::Store;
use towpath_core::names::WorkerId;
use towpath_core::store::{ClaimCalls, ClaimFunction, Delivery, StoreError};

use super::app::App;

/// How long a claim waits without anybody who asks. What it is given meanwhile goes to the next request, or back.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// One that found nothing for so long is made anew.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// What a worker claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) worker: WorkerId,
    pub(crate) functions: Arc<[ClaimFunction]>,
    pub(crate) max: u32,
    pub(crate) lease: Duration,
}

impl Terms {
    /// The same, as the store is asked.
    pub(crate) fn wish(&self, wait: Duration) -> ClaimCalls {
        ClaimCalls {
            worker: self.worker.clone(),
            functions: self.functions.clone(),
            max: self.max,
            lease: self.lease,
            wait,
            takes_any: false,
        }
    }
}

/// A claim in the store. Dropping it gives back whatever was claimed for it.
pub(crate) struct Claim {
    pub(crate) terms: Terms,
    pub(crate) claimed: Pin<Box<dyn Future<Output = Result<Vec<Delivery>, StoreError>> + Send>>,
}

impl Claim {
    fn begin(store: &Arc<dyn Store>, terms: Terms) -> Self {
        let (store, wish) = (Arc::clone(store), terms.wish(WAIT_MAX));
        Self { terms, claimed: Box::pin(async move { store.claim(wish).await }) }
    }
}

/// The claims without a request at this moment, one for each worker.
#[derive(Default)]
pub(crate) struct Standing {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    last_number: u64,
    claims: HashMap<WorkerId, (u64, Claim)>,
}

impl Standing {
    /// The claim of these terms that was kept, or a new one.
    pub(crate) fn claim(&self, store: &Arc<dyn Store>, terms: Terms) -> Claim {
        let kept = self.lock().claims.remove(&terms.worker);
        match kept {
            Some((_, claim)) if claim.terms == terms => claim,
            _ => Claim::begin(store, terms),
        }
    }

    /// Keeps a claim for the worker's next request, for a moment.
    pub(crate) fn keep(app: &App, claim: Claim) {
        let worker = claim.terms.worker.clone();
        let (number, replaced) = {
            let mut kept = app.standing().lock();
            kept.last_number += 1;
            let number = kept.last_number;
            (number, kept.claims.insert(worker.clone(), (number, claim)))
        };
        drop(replaced);
        let app = app.clone();
        tokio::spawn(async move {
            app.clock().sleep_until(app.clock().now() + KEPT_FOR).await;
            app.standing().give_up(&worker, Some(number));
        });
    }

    /// Gives up what is kept for a worker: in any case, or if it is the one of that number.
    pub(crate) fn give_up(&self, worker: &WorkerId, number: Option<u64>) {
        let mut kept = self.lock();
        let is_meant = kept.claims.get(worker).is_some_and(|(known, _)| number.is_none_or(|number| number == *known));
        let given_up = if is_meant { kept.claims.remove(worker) } else { None };
        drop(kept);
        // What it was given goes back now, outside the lock.
        drop(given_up);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing in here can panic half way.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
