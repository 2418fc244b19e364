//! The patience of all who wait for answers, kept by one timer: most of them hear long before it ends, and a timer for each would be made
//! and thrown away for nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;
use towpath_core::clock::Clock;
use towpath_core::time::Timestamp;

/// All who wait are looked at no more often than this, so their patience may last so much longer.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Everybody's patience.
#[derive(Default)]
pub(crate) struct Patience {
    room: Mutex<Room>,
    /// Somebody's patience ends before the keeper meant to look.
    sooner: Notify,
}

/// Who waits, and until when.
#[derive(Default)]
struct Room {
    waiting: Slab<Waiting>,
    /// When the keeper looks next; `None`: there is no keeper.
    next_look: Option<Timestamp>,
}

struct Waiting {
    until: Timestamp,
    is_over: bool,
    waker: Waker,
}

impl Patience {
    /// Ends at this instant, or a moment later.
    pub(crate) fn until(self: &Arc<Self>, at: Timestamp, clock: &Arc<dyn Clock>) -> Until {
        Until { patience: Arc::clone(self), clock: Arc::clone(clock), at, place: None }
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        // Nothing in here can panic half way.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody's patience.
pub(crate) struct Until {
    patience: Arc<Patience>,
    clock: Arc<dyn Clock>,
    at: Timestamp,
    place: Option<usize>,
}

impl Future for Until {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let patience = Arc::clone(&self.patience);
        let mut room = patience.lock();
        match self.place {
            Some(place) => {
                let waiting = &mut room.waiting[place];
                if waiting.is_over {
                    return Poll::Ready(());
                }
                waiting.waker.clone_from(context.waker());
            }
            None => self.place = Some(room.waiting.insert(Waiting { until: self.at, is_over: false, waker: context.waker().clone() })),
        }
        match room.next_look {
            Some(next) if next <= self.at => {}
            Some(_later) => patience.sooner.notify_one(),
            None => {
                room.next_look = Some(self.at);
                tokio::spawn(keep(Keeper(Arc::clone(&patience)), Arc::clone(&self.clock)));
            }
        }
        Poll::Pending
    }
}

impl Drop for Until {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.patience.lock().waiting.remove(place);
        }
    }
}

/// The one who looks. When it goes, and be it with its runtime, those who still wait find another.
struct Keeper(Arc<Patience>);

impl Drop for Keeper {
    fn drop(&mut self) {
        let mut room = self.0.lock();
        room.next_look = None;
        let wakers: Vec<Waker> = room.waiting.iter().map(|(_, waiting)| waiting.waker.clone()).collect();
        drop(room);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Keeps time as long as somebody waits.
async fn keep(keeper: Keeper, clock: Arc<dyn Clock>) {
    let patience = &keeper.0;
    let mut earliest = clock.now();
    loop {
        let next = {
            let mut room = patience.lock();
            let Some(first) = room.waiting.iter().map(|(_, waiting)| waiting.until).min() else { return };
            *room.next_look.insert(first.max(earliest))
        };
        tokio::select! {
            () = clock.sleep_until(next) => {}
            () = patience.sooner.notified() => {}
        }
        let now = clock.now();
        earliest = now + BETWEEN_LOOKS;
        let mut wakers = Vec::new();
        for (_, waiting) in patience.lock().waiting.iter_mut().filter(|(_, waiting)| waiting.until <= now) {
            waiting.is_over = true;
            wakers.push(waiting.waker.clone());
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use towpath_core::clock::VirtualClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn clocks() -> (VirtualClock, Arc<dyn Clock>) {
        let time = VirtualClock::new();
        (time.clone(), Arc::new(time))
    }

    #[tokio::test]
    async fn each_ends_in_its_time_whoever_came_first() {
        let ((time, clock), patience) = (clocks(), Arc::new(Patience::default()));
        let begin = clock.now();
        let mut late = patience.until(begin + SECOND * 3, &clock);
        assert!((&mut late).now_or_never().is_none());
        tokio::task::yield_now().await;
        let mut soon = patience.until(begin + SECOND, &clock);
        assert!((&mut soon).now_or_never().is_none());
        time.advance(SECOND);
        soon.await;
        assert!((&mut late).now_or_never().is_none(), "it is not its time");
        time.advance(SECOND * 2);
        late.await;
    }

    #[tokio::test]
    async fn who_heard_leaves_nothing_behind() {
        let ((time, clock), patience) = (clocks(), Arc::new(Patience::default()));
        let begin = clock.now();
        let mut heard = patience.until(begin + SECOND, &clock);
        assert!((&mut heard).now_or_never().is_none());
        drop(heard);
        assert!(patience.lock().waiting.is_empty());
        time.advance(SECOND);
        while patience.lock().next_look.is_some() {
            tokio::task::yield_now().await; // the keeper goes when nobody waits
        }
        let again = patience.until(begin + SECOND * 2, &clock);
        time.advance(SECOND);
        again.await;
    }

    #[test]
    fn a_keeper_that_goes_with_its_runtime_is_replaced() {
        let ((time, clock), patience) = (clocks(), Arc::new(Patience::default()));
        let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut until = patience.until(clock.now() + SECOND, &clock);
        let first = runtime();
        first.block_on(async { assert!((&mut until).now_or_never().is_none()) });
        drop(first);
        runtime().block_on(async {
            assert!((&mut until).now_or_never().is_none());
            time.advance(SECOND);
            until.await;
        });
    }
}
