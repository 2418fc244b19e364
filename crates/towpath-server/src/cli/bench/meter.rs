//! What a load has done so far, shared with those that watch it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hdrhistogram::Histogram;
use tokio::sync::watch;
use towpath::Towpath;

use super::failed;
use crate::cli::failure::Failure;

/// Where a load stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) enum Phase {
    WarmUp,
    Measuring,
    Over,
}

/// Counts the calls of one load. The load keeps the store open until the last [`Watcher`] is dropped.
pub(super) struct Meter {
    counted: Mutex<Counted>,
    phase: watch::Sender<Phase>,
    towpath: OnceLock<Towpath>,
}

/// Calls since the measurement began.
#[derive(Clone)]
pub(super) struct Counted {
    /// In microseconds, of the calls that were answered.
    pub(super) latencies: Histogram<u64>,
    /// Calls that ended in another way, most often by their deadline.
    pub(super) unanswered: u64,
}

impl Counted {
    fn nothing() -> Result<Self, Failure> {
        Ok(Self { latencies: histogram()?, unanswered: 0 })
    }
}

/// A histogram of microseconds.
pub(super) fn histogram() -> Result<Histogram<u64>, Failure> {
    Histogram::new(3).map_err(|error| failed(&error.to_string()))
}

/// Adds a value. A histogram that grows by itself takes any.
pub(super) fn note(histogram: &mut Histogram<u64>, micros: u64) {
    let _always_fits = histogram.record(micros);
}

impl Meter {
    pub(super) fn new() -> Result<Arc<Self>, Failure> {
        let counted = Mutex::new(Counted::nothing()?);
        Ok(Arc::new(Self { counted, phase: watch::Sender::new(Phase::WarmUp), towpath: OnceLock::new() }))
    }

    /// Make it before the load starts.
    pub(super) fn watcher(self: &Arc<Self>) -> Watcher {
        Watcher { meter: Arc::clone(self), phase: self.phase.subscribe() }
    }

    pub(super) fn answered(&self, micros: u64) {
        note(&mut self.counted().latencies, micros);
    }

    pub(super) fn unanswered(&self) {
        self.counted().unanswered += 1;
    }

    /// Lets watchers use the store of the load, which only one may have open.
    pub(super) fn opened(&self, towpath: &Towpath) {
        let _only_once = self.towpath.set(towpath.clone());
    }

    /// Counts from zero: the warm-up is over.
    pub(super) fn begin(&self) -> Result<(), Failure> {
        *self.counted() = Counted::nothing()?;
        self.phase.send_replace(Phase::Measuring);
        Ok(())
    }

    /// Ends the measurement and returns what was counted.
    pub(super) fn end(&self) -> Counted {
        let counted = self.counted().clone();
        self.phase.send_replace(Phase::Over);
        counted
    }

    /// The load has ended, perhaps before it was measured. Returns when no watcher is left.
    pub(super) async fn over(&self) {
        self.phase.send_replace(Phase::Over);
        self.phase.closed().await;
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at a load while it runs.
#[derive(Clone)]
pub(super) struct Watcher {
    meter: Arc<Meter>,
    phase: watch::Receiver<Phase>,
}

impl Watcher {
    /// Returns when the measurement has begun; `false` if the load ended without one.
    pub(super) async fn measuring(&mut self) -> bool {
        let phase = self.phase.wait_for(|phase| *phase >= Phase::Measuring).await;
        phase.is_ok_and(|phase| *phase == Phase::Measuring)
    }

    /// Returns when the measurement is over.
    pub(super) async fn over(&mut self) {
        let _also_when_the_load_is_gone = self.phase.wait_for(|phase| *phase == Phase::Over).await;
    }

    pub(super) fn is_over(&self) -> bool {
        *self.phase.borrow() == Phase::Over
    }

    /// Calls answered since the measurement began.
    pub(super) fn calls(&self) -> u64 {
        self.meter.counted().latencies.len()
    }

    /// The store that the load has open.
    pub(super) fn towpath(&self) -> Option<&Towpath> {
        self.meter.towpath.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_of_the_warm_up_do_not_count() {
        let meter = Meter::new().expect("a meter");
        let mut watcher = meter.watcher();
        meter.answered(7);
        meter.begin().expect("it begins");
        assert!(watcher.measuring().await);
        meter.answered(9);
        meter.unanswered();
        assert_eq!(watcher.calls(), 1);
        let counted = meter.end();
        assert_eq!((counted.latencies.max(), counted.latencies.len(), counted.unanswered), (9, 1, 1));
    }

    #[tokio::test]
    async fn a_load_waits_for_its_watchers_and_they_for_no_measurement_that_never_comes() {
        let meter = Meter::new().expect("a meter");
        let mut watcher = meter.watcher();
        let watch = async move {
            let measured = watcher.measuring().await;
            assert!(!measured && watcher.is_over());
        };
        tokio::join!(meter.over(), watch);
    }
}
