//! The loops behind the door. One file, one actor.
//!
//! | actor | what it does |
//! |---|---|
//! | [`timekeeper`] | per store handle: does what is due |
//! | [`clock_watch`] | per store handle: notices that the machine's clock was set |
//! | [`keeper`] | per store handle that was given bounds: removes what is too old or too much |
//! | [`registrar`] | per store handle: hears that functions changed |
//! | [`claimer`] | per worker: claims calls for free permits |
//! | [`turns`] | per worker: draws turns for calls of functions with a rate |
//! | [`executor`] | per delivery: runs the handler, to its end or to the call's |
//! | [`answerer`] | per worker: sends answers, whatever piled up in one go |
//! | [`renewer`] | per worker: prolongs the leases of long calls, hears of cancellations |
//! | [`heartbeat`] | per worker: says that it is alive |
//!
//! [`supervised`] starts an actor again that has panicked.
//! [`desk`] is what the actors of one worker share, [`permits`] and [`aside`] say how many handlers run at once.
//!
//! A worker starts its actors after it is registered. It stops claiming first, then waits for its handlers while leases are renewed and
//! answers sent, then hands back the rest, and leaves the registry last.

pub(crate) mod answerer;
pub(crate) mod aside;
pub(crate) mod backoff;
pub(crate) mod claimer;
pub(crate) mod clock_watch;
pub(crate) mod desk;
pub(crate) mod executor;
pub(crate) mod heartbeat;
pub(crate) mod keeper;
pub(crate) mod permits;
pub(crate) mod registrar;
pub(crate) mod renewer;
pub(crate) mod supervised;
pub(crate) mod timekeeper;
pub(crate) mod turns;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;
use towpath_core::clock::Clock;
use towpath_core::store::{Retention, RunStore, Store};
use towpath_core::time::Timestamp;

use self::supervised::{Health, supervise};
use crate::functions::FunctionCache;

/// The loops of one store handle. Dropping it stops them.
pub(crate) struct Engine {
    loops: Mutex<JoinSet<()>>,
    health: Arc<Health>,
}

impl Engine {
    pub(crate) fn start(
        store: &Arc<dyn Store>,
        runs: Option<&Arc<dyn RunStore>>,
        clock: &Arc<dyn Clock>,
        functions: &Arc<FunctionCache>,
        keep: Retention,
    ) -> Self {
        let mut loops = JoinSet::new();
        let health = Arc::new(Health::default());
        loops.spawn(supervise("timekeeper", Arc::clone(clock), Arc::clone(&health), {
            let (store, runs, clock) = (Arc::clone(store), runs.cloned(), Arc::clone(clock));
            move || timekeeper::run(Arc::clone(&store), runs.clone(), Arc::clone(&clock))
        }));
        loops.spawn(supervise("registrar", Arc::clone(clock), Arc::clone(&health), {
            let (store, clock, functions) = (Arc::clone(store), Arc::clone(clock), Arc::clone(functions));
            move || registrar::run(Arc::clone(&store), Arc::clone(&clock), Arc::clone(&functions))
        }));
        if clock.jumps().is_some() {
            loops.spawn(supervise("clock watch", Arc::clone(clock), Arc::clone(&health), {
                let clock = Arc::clone(clock);
                move || clock_watch::run(Arc::clone(&clock))
            }));
        }
        if keep != Retention::FOREVER {
            loops.spawn(supervise("keeper", Arc::clone(clock), Arc::clone(&health), {
                let (store, clock) = (Arc::clone(store), Arc::clone(clock));
                move || keeper::run(Arc::clone(&store), Arc::clone(&clock), keep)
            }));
        }
        Self { loops: Mutex::new(loops), health }
    }

    /// Whether timers are fired and changes of functions are heard.
    pub(crate) fn is_fit(&self, now: Timestamp) -> bool {
        self.health.is_fit(now)
    }

    /// Stops the loops and waits until they have stopped.
    pub(crate) async fn stop(&self) {
        let mut loops = std::mem::take(&mut *self.loops.lock().unwrap_or_else(PoisonError::into_inner));
        loops.shutdown().await;
    }
}
