//! The loop of one batcher: sleeps until something is due, claims it when there is room, and hands it to a courier.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use towpath_core::batch::{BatcherId, ClaimedBatch, Settings};
use towpath_core::names::BatcherName;
use towpath_core::store::{BatchNews, BatchWakes, DueBatches};
use towpath_core::time::Timestamp;

use super::claim::{self, Candidate};
use super::delivery::Courier;
use super::pace::{Drawn, Pace};
use super::receiver::{Admission, Receiver};
use crate::Towpath;
use crate::batches::BatchError;
use crate::engine::backoff::Backoff;

/// Hearing nothing proves nothing: it looks anyway after so long.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// After a look whose finds were all gone, the next waits this long: somebody else is at work.
const PASSED_OVER: Duration = Duration::from_millis(5);

/// A dispatcher that runs. Dropped, it stops at once: what is under way comes back by its lease.
pub(crate) struct Dispatching {
    stop: CancellationToken,
    abandon: DropGuard,
    deliveries: TaskTracker,
    running: AbortOnDropHandle<()>,
    towpath: Towpath,
}

impl Dispatching {
    pub(crate) fn start(
        towpath: &Towpath,
        name: BatcherName,
        settings: watch::Receiver<Arc<Settings>>,
        receiver: Arc<dyn Receiver>,
    ) -> Self {
        let (stop, abandon, deliveries) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
        let courier = Courier { towpath: towpath.clone(), name: name.clone(), receiver: Arc::clone(&receiver), abandon: abandon.clone() };
        let id = settings.borrow().batcher_id(&name);
        let slots = Slots::new(settings.borrow().concurrency);
        let dispatcher = Dispatcher {
            towpath: towpath.clone(),
            name,
            id,
            settings,
            receiver,
            courier: Arc::new(courier),
            deliveries: deliveries.clone(),
            slots,
        };
        let running = AbortOnDropHandle::new(tokio::spawn(dispatcher.run(stop.clone())));
        Self { stop, abandon: abandon.drop_guard(), deliveries, running, towpath: towpath.clone() }
    }

    /// Claims nothing more, lets what is under way end for so long, and leaves the rest to its lease.
    pub(crate) async fn stop(self, patience: Duration) {
        let Self { stop, abandon, deliveries, running, towpath } = self;
        stop.cancel();
        if let Err(error) = running.await {
            tracing::error!(%error, "a dispatcher did not stop in good order");
        }
        deliveries.close();
        let clock = towpath.clock();
        tokio::select! {
            biased;
            () = deliveries.wait() => {}
            () = clock.sleep_until(clock.now() + patience) => {}
        }
        drop(abandon);
        deliveries.wait().await;
    }
}

/// So many deliveries at once. The number may change while they are under way.
struct Slots {
    semaphore: Arc<Semaphore>,
    count: u32,
}

impl Slots {
    fn new(count: u32) -> Self {
        Self { semaphore: Arc::new(Semaphore::new(count as usize)), count }
    }

    /// A new number begins anew: what is under way under the old one does not count.
    fn follow(&mut self, count: u32) {
        if self.count != count {
            *self = Self::new(count);
        }
    }
}

struct Dispatcher {
    towpath: Towpath,
    name: BatcherName,
    id: BatcherId,
    settings: watch::Receiver<Arc<Settings>>,
    receiver: Arc<dyn Receiver>,
    courier: Arc<Courier>,
    deliveries: TaskTracker,
    slots: Slots,
}

/// A place for one delivery, and its turn.
struct Place {
    _slot: OwnedSemaphorePermit,
    _admission: Admission,
    turn: Drawn,
}

impl Dispatcher {
    async fn run(mut self, stop: CancellationToken) {
        let Ok(store) = self.towpath.batch_store().cloned() else { return };
        let mut wakes = store.batch_wakes(&self.id);
        let mut backoff = Backoff::new(self.towpath.clock(), "look for due batches");
        let mut followed = Arc::clone(&self.settings.borrow());
        let mut pace = Pace::of(&self.towpath, &self.name, &followed);
        loop {
            let settings = Arc::clone(&self.settings.borrow_and_update());
            if !Arc::ptr_eq(&settings, &followed) {
                (pace, followed) = (Pace::of(&self.towpath, &self.name, &settings), Arc::clone(&settings));
            }
            self.slots.follow(settings.concurrency);
            if stop.is_cancelled() {
                return;
            }
            if !self.receiver.takes(&settings) {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = changed(&mut self.settings) => {}
                }
                continue;
            }
            match self.turn(&settings, &pace, wakes.as_mut(), &stop).await {
                Ok(()) => backoff.succeeded(),
                Err(BatchError::Store(error)) => {
                    if backoff.failed(error).await.is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// One look, and what follows from it. A stop ends what waits and nothing else: a claim whose reply nobody heard would cost a lease.
    async fn turn(
        &mut self,
        settings: &Arc<Settings>,
        pace: &Pace,
        wakes: &mut dyn BatchWakes,
        stop: &CancellationToken,
    ) -> Result<(), BatchError> {
        let store = Arc::clone(self.towpath.batch_store()?);
        let due = store.batch_due(&self.id, settings.concurrency as usize).await?;
        let candidates: Vec<Candidate<'_>> = claim::candidates(&due).collect();
        if candidates.is_empty() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.rest(&due, wakes) => {}
            }
            return Ok(());
        }
        let mut changes = self.settings.clone();
        let places = async {
            let places = self.places(settings, pace, candidates.len()).await;
            if let Err(at) = places {
                self.towpath.clock().sleep_until(at).await;
            }
            places.ok()
        };
        let places = tokio::select! {
            places = places => places,
            // Others may do better under the new settings.
            () = changed(&mut changes) => None,
            () = stop.cancelled() => None,
        };
        match places {
            Some(places) => self.claim_for(settings, &candidates, places).await,
            // Others may have taken by now what was due.
            None => Ok(()),
        }
    }

    /// Claims one of the candidates for each place, and sends it off.
    async fn claim_for(&self, settings: &Arc<Settings>, candidates: &[Candidate<'_>], places: Vec<Place>) -> Result<(), BatchError> {
        let claims = candidates.iter().zip(places).map(|(what, place)| self.claim(settings, *what, place));
        let mut trouble = None;
        let mut claimed = 0;
        for reply in join_all(claims).await {
            match reply {
                Ok(Some((batch, place))) => {
                    claimed += 1;
                    self.send_off(Arc::clone(settings), batch, place);
                }
                Ok(None) => {}
                Err(error) => trouble = Some(error),
            }
        }
        if claimed == 0 && trouble.is_none() {
            let clock = self.towpath.clock();
            clock.sleep_until(clock.now() + PASSED_OVER).await;
        }
        trouble.map_or(Ok(()), Err)
    }

    /// Claims one of the candidates; whoever was too late gives its turn back at once.
    async fn claim(&self, settings: &Settings, what: Candidate<'_>, place: Place) -> Result<Option<(ClaimedBatch, Place)>, BatchError> {
        match claim::claim(&self.towpath, &self.name, settings, what).await? {
            Some(batch) => Ok(Some((batch, place))),
            None => {
                place.turn.give_back().await;
                Ok(None)
            }
        }
    }

    fn send_off(&self, settings: Arc<Settings>, batch: ClaimedBatch, place: Place) {
        let courier = Arc::clone(&self.courier);
        let Place { _slot: slot, _admission: admission, turn } = place;
        self.deliveries.spawn(async move {
            courier.carry(settings, batch, turn).await;
            drop((slot, admission));
        });
    }

    /// Waits for one place, and takes as many more as there are, up to `most`; or says before when it is nobody's turn. Whoever waits for a turn
    /// keeps no place at a host from others, and no turn grows old while a host is waited for.
    async fn places(&self, settings: &Settings, pace: &Pace, most: usize) -> Result<Vec<Place>, Timestamp> {
        let slots = &self.slots.semaphore;
        let Ok(slot) = Arc::clone(slots).acquire_owned().await else { return std::future::pending().await };
        let room = pace.room().await?;
        let mut places = vec![(slot, self.receiver.admit(settings).await)];
        while places.len() < most
            && let Ok(slot) = Arc::clone(slots).try_acquire_owned()
            && let Some(admission) = self.receiver.try_admit(settings)
        {
            places.push((slot, admission));
        }
        let turns = pace.draw(places.len(), room).await?;
        Ok(places.into_iter().zip(turns).map(|((slot, admission), turn)| Place { _slot: slot, _admission: admission, turn }).collect())
    }

    /// Sleeps until something is due, or until there is news.
    async fn rest(&mut self, due: &DueBatches, wakes: &mut dyn BatchWakes) {
        let clock = self.towpath.clock();
        let look_again = clock.now() + LOOK_EVERY;
        let mut until = due.next.map_or(look_again, |next| next.min(look_again));
        loop {
            tokio::select! {
                biased;
                () = changed(&mut self.settings) => return,
                news = wakes.next() => match news {
                    BatchNews::Due(at) => until = until.min(at),
                    BatchNews::Doubtful => return,
                },
                () = clock.sleep_until(until) => return,
            }
        }
    }
}

/// Ends when the settings change.
async fn changed(settings: &mut watch::Receiver<Arc<Settings>>) {
    if settings.changed().await.is_err() {
        // Nobody will ever change them again.
        std::future::pending::<()>().await;
    }
}
