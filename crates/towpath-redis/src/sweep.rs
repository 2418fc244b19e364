//! Keeping streams short, and finding what fell between the stream and a worker: entries that somebody read and never dealt with, and
//! calls whose entry was taken away by others. Nothing here is in the way of a call that goes well.
//!
//! | room | what it does |
//! |---|---|
//! | `abandoned` | entries that somebody read and never dealt with |
//! | `vanished` | calls whose entry is gone |
//! | `beside_old` | functions that old workers serve: streams kept shorter, and work put where they find it |

mod abandoned;
mod beside_old;
mod vanished;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use towpath_core::names::WorkerId;
use towpath_core::store::StoreError;

use crate::pause::pause;
use crate::room::Room;
use crate::script::{Args, TRIM};
use crate::store::{RedisStore, Shared};
use crate::value;
use vanished::Walk;

pub(crate) use beside_old::tend_for_ever;

/// A stream is trimmed at the latest so long after something in it was acknowledged, or when so much was.
const TRIM_AFTER: Duration = Duration::from_secs(1);
const TRIM_ACKS: u64 = 4_096;
/// Ours write down what they have read at once. What is not written down so much later fell from a process that died in between, or whose
/// reply was lost. Should it only have been slow, it finds that the call is not its own: nothing runs twice for it.
const FALLEN_AFTER_MS: u64 = 2_000;
const PAGE: usize = 200;
/// Beside old workers every so many sweeps look at calls one by one: numbers alone cannot tell a call of ours from one of theirs.
const WALK_EVERY: u64 = 4;

/// How a stream is, after it was trimmed.
struct Trimmed {
    /// How many entries were removed.
    removed: i64,
    /// How many entries may be calls that wait.
    may_wait: i64,
    /// How many calls should wait in it.
    should_wait: i64,
}

impl RedisStore {
    /// So many entries of a function were acknowledged.
    pub(crate) fn note_acks(&self, room: &Arc<Room>, count: u64) {
        if count == 0 {
            return;
        }
        let before = room.acks.fetch_add(count, Ordering::AcqRel);
        let now = before == 0;
        let many = before < TRIM_ACKS && before + count >= TRIM_ACKS;
        if now || many {
            let (shared, room) = (Arc::downgrade(&self.shared), Arc::clone(room));
            tokio::spawn(async move {
                if !many {
                    pause(TRIM_AFTER).await;
                }
                let Some(shared) = shared.upgrade() else { return };
                if room.acks.swap(0, Ordering::AcqRel) > 0
                    && let Err(error) = (Self { shared }).trim(&room, 0).await
                {
                    tracing::debug!(function = %room.function, %error, "the stream was not trimmed; the next time will do");
                }
            });
        }
    }

    /// Removes from a stream what is dealt with. Behind the first entry that is not, so many are looked at one by one.
    async fn trim(&self, room: &Room, look_at: usize) -> Result<Trimmed, StoreError> {
        let keys = [room.keys.stream.as_str(), &room.keys.counts, &room.keys.ready, &room.keys.aside];
        let mut args = Args::with_capacity(1);
        args.number(look_at);
        let reply = value::array("a trim", self.shared.link.run_args(&TRIM, &keys, &args).await?)?;
        let number = |place: usize| reply.get(place).and_then(value::number).unwrap_or_default();
        Ok(Trimmed { removed: number(0), may_wait: number(1), should_wait: number(2) })
    }

    /// Looks for what fell between the stream and a worker, and puts it where the next claim finds it.
    pub(crate) async fn sweep(&self, room: &Arc<Room>) -> Result<(), StoreError> {
        self.reclaim_abandoned(room).await?;
        let Trimmed { may_wait, should_wait, .. } = self.trim(room, 0).await?;
        let in_turn = room.sweeps.fetch_add(1, Ordering::Relaxed).is_multiple_of(WALK_EVERY);
        if should_wait > may_wait {
            self.rescue_vanished(room, Walk::Whole).await?;
        } else if in_turn && should_wait > 0 && self.was_served_by_old(&room.function) {
            self.rescue_vanished(room, Walk::Stretch).await?;
        }
        Ok(())
    }

    /// The same after a while, once.
    fn sweep_in(&self, room: &Arc<Room>, after: Duration) {
        if room.sweep_planned.swap(true, Ordering::AcqRel) {
            return;
        }
        let (shared, room) = (Arc::downgrade(&self.shared), Arc::clone(room));
        tokio::spawn(async move {
            pause(after + Duration::from_millis(50)).await;
            let Some(shared) = shared.upgrade() else { return };
            room.sweep_planned.store(false, Ordering::Release);
            if let Err(error) = (Self { shared }).sweep(&room).await {
                tracing::debug!(function = %room.function, %error, "the stream was not swept; the next time will do");
            }
        });
    }

    /// A worker of this process may have been given something that did not arrive.
    pub(crate) fn sweep_for(&self, room: &Arc<Room>, worker: &WorkerId) {
        room.bereave(worker);
        self.sweep_soon(room);
    }

    /// The same in a moment: something may just have fallen.
    pub(crate) fn sweep_soon(&self, room: &Arc<Room>) {
        if room.swept_soon.swap(true, Ordering::AcqRel) {
            return;
        }
        let (shared, room) = (Arc::downgrade(&self.shared), Arc::clone(room));
        tokio::spawn(async move {
            loop {
                pause(Duration::from_millis(FALLEN_AFTER_MS + 100)).await;
                let Some(shared) = shared.upgrade() else { return };
                room.swept_soon.store(false, Ordering::Release);
                let failed = (Self { shared }).sweep(&room).await.is_err();
                if !failed || room.swept_soon.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        });
    }
}

/// Sweeps the functions that this process has to do with, now and then, as long as the store is open.
pub(crate) async fn sweep_for_ever(shared: Weak<Shared>) {
    let Some(mut every) = shared.upgrade().map(|shared| shared.options.timing.sweep_every) else { return };
    loop {
        pause(every).await;
        let Some(shared) = shared.upgrade() else { return };
        // Processes that started together need not look together.
        every = shared.options.timing.sweep_every;
        every += every * u32::from(shared.caller.as_bytes()[0]) / 1_500;
        let store = RedisStore { shared };
        for room in store.rooms_in_use() {
            if let Err(error) = store.sweep(&room).await {
                tracing::debug!(function = %room.function, %error, "the stream was not swept; the next time will do");
            }
        }
    }
}
