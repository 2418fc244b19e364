//! The loops behind the door. One file, one actor.
//!
//! | actor | what it does |
//! |---|---|
//! | [`timekeeper`] | per store handle: does what is due |
//! | [`registrar`] | per store handle: hears that functions changed |
//! | [`claimer`] | per worker: claims calls for free permits |
//! | [`turns`] | per worker: draws turns for calls of functions with a rate |
//! | [`executor`] | per delivery: runs the handler, to its end or to the call's |
//! | [`answerer`] | per worker: sends answers, whatever piled up in one go |
//! | [`renewer`] | per worker: prolongs the leases of long calls, hears of cancellations |
//! | [`heartbeat`] | per worker: says that it is alive |
//!
//! [`desk`] is what the actors of one worker share, [`permits`] and [`aside`] say how many handlers run at once.
//!
//! A worker starts its actors after it is registered. It stops claiming first, then waits for its handlers while leases are renewed and
//! answers sent, then hands back the rest, and leaves the registry last.

pub(crate) mod answerer;
pub(crate) mod aside;
pub(crate) mod backoff;
pub(crate) mod claimer;
pub(crate) mod desk;
pub(crate) mod executor;
pub(crate) mod heartbeat;
pub(crate) mod permits;
pub(crate) mod registrar;
pub(crate) mod renewer;
pub(crate) mod timekeeper;
pub(crate) mod turns;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;
use towpath_core::clock::Clock;
use towpath_core::store::Store;

use crate::functions::FunctionCache;

/// The loops of one store handle. Dropping it stops them.
pub(crate) struct Engine {
    loops: Mutex<JoinSet<()>>,
}

impl Engine {
    pub(crate) fn start(store: &Arc<dyn Store>, clock: &Arc<dyn Clock>, functions: &Arc<FunctionCache>) -> Self {
        let mut loops = JoinSet::new();
        loops.spawn(timekeeper::run(Arc::clone(store), Arc::clone(clock)));
        loops.spawn(registrar::run(Arc::clone(store), Arc::clone(clock), Arc::clone(functions)));
        Self { loops: Mutex::new(loops) }
    }

    /// Stops the loops and waits until they have stopped.
    pub(crate) async fn stop(&self) {
        let mut loops = std::mem::take(&mut *self.loops.lock().unwrap_or_else(PoisonError::into_inner));
        loops.shutdown().await;
    }
}
