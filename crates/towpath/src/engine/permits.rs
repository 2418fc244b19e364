//! Permits: how many handlers run at once, in all and per function. A handler that waits for a nested call gives its permit back.

use std::sync::Arc;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The permits of one worker.
pub(crate) struct Permits {
    worker: Arc<Semaphore>,
    /// Told whenever a permit came back, so that the claimer can ask for more calls.
    freed: Arc<Notify>,
}

/// The permits of one function of a worker. `None`: as many as the worker has.
pub(crate) type FunctionPermits = Option<Arc<Semaphore>>;

/// The right to run one handler. Dropping it gives it back.
pub(crate) struct Permit {
    // Both are given back before anyone is told.
    held: Option<(OwnedSemaphorePermit, Option<OwnedSemaphorePermit>)>,
    freed: Arc<Notify>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.held = None;
        self.freed.notify_one();
    }
}

impl Permits {
    pub(crate) fn new(concurrency: u32) -> Self {
        Self { worker: Arc::new(Semaphore::new(concurrency as usize)), freed: Arc::new(Notify::new()) }
    }

    pub(crate) fn for_function(concurrency: Option<u32>) -> FunctionPermits {
        concurrency.map(|count| Arc::new(Semaphore::new(count as usize)))
    }

    /// How many more handlers may run.
    pub(crate) fn free(&self) -> u32 {
        count(&self.worker)
    }

    /// How many more handlers of this function may run, by its own count.
    pub(crate) fn free_of(function: &FunctionPermits) -> u32 {
        function.as_ref().map_or(u32::MAX, |permits| count(permits))
    }

    /// Ends when a permit came back since this was last asked.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// The claimer shall look again, for another reason than a permit.
    pub(crate) fn look_again(&self) {
        self.freed.notify_one();
    }

    /// Waits for a permit, first come first served. The function's own is taken first, always: two orders could block each other.
    pub(crate) async fn acquire(&self, function: &FunctionPermits) -> Permit {
        let of_function = match function {
            Some(permits) => Some(acquire(permits).await),
            None => None,
        };
        let of_worker = acquire(&self.worker).await;
        Permit { held: Some((of_worker, of_function)), freed: Arc::clone(&self.freed) }
    }

    /// A permit, if one is free right now.
    pub(crate) fn try_acquire(&self, function: &FunctionPermits) -> Option<Permit> {
        let of_function = match function {
            Some(permits) => Some(Arc::clone(permits).try_acquire_owned().ok()?),
            None => None,
        };
        let of_worker = Arc::clone(&self.worker).try_acquire_owned().ok()?;
        Some(Permit { held: Some((of_worker, of_function)), freed: Arc::clone(&self.freed) })
    }
}

async fn acquire(permits: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(permits).acquire_owned().await.expect("the semaphore is never closed")
}

fn count(permits: &Semaphore) -> u32 {
    u32::try_from(permits.available_permits()).unwrap_or(u32::MAX)
}
