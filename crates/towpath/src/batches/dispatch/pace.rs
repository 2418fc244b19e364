//! The pace of a batcher with a rate. A turn is drawn before a batch is claimed: what waits for one is in the queue, without a lease, and uses no
//! attempt up. A turn that nothing was sent under is given back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use towpath_core::batch::Settings;
use towpath_core::clock::Clock;
use towpath_core::names::BatcherName;
use towpath_core::time::Timestamp;

use crate::Towpath;
use crate::limits::{Room, Turn, Turns, Verdict};

/// When a policy can never let one through, it may be another one after this.
const NEVER_FOR: Duration = Duration::from_secs(1);

/// Draws the turns of a batcher; of one without a rate it is always the turn.
pub(in crate::batches) struct Pace {
    clock: Arc<dyn Clock>,
    turns: Option<Turns>,
}

impl Pace {
    pub(in crate::batches) fn of(towpath: &Towpath, name: &BatcherName, settings: &Settings) -> Self {
        let turns = settings.rate.as_ref().and_then(|rate| towpath.turns_of_batches(name, rate));
        Self { clock: Arc::clone(towpath.clock()), turns }
    }

    /// For how many it may be the turn now; else not before then. It promises nothing.
    pub(super) async fn room(&self) -> Result<usize, Timestamp> {
        match &self.turns {
            None => Ok(usize::MAX),
            Some(turns) => match turns.room().await {
                Room::Now(room) => Ok(room as usize),
                Room::NotBefore(at) => Err(at),
            },
        }
    }

    /// Up to `most` turns, at least one; else not before then. There seemed to be `room` for so many, and those are asked for together.
    pub(super) async fn draw(&self, most: usize, room: usize) -> Result<Vec<Drawn>, Timestamp> {
        let mut drawn = Vec::with_capacity(most);
        let mut refused = None;
        for turn in join_all((0..room.clamp(1, most.max(1))).map(|_| self.draw_one())).await {
            match turn {
                Ok(turn) => drawn.push(turn),
                Err(at) => refused = Some(at),
            }
        }
        match refused {
            Some(at) if drawn.is_empty() => Err(at),
            _ => Ok(drawn),
        }
    }

    /// A turn that has come; else not before then. None is reserved that is still to come: if another is faster with the batch, its place in the
    /// row could not be given back, and those behind it would come too close to each other.
    pub(in crate::batches) async fn draw_one(&self) -> Result<Drawn, Timestamp> {
        let Some(turns) = &self.turns else { return Ok(Drawn(None)) };
        match turns.take(1, Duration::ZERO).await {
            Turn::Yours(verdict) => Ok(Drawn(Some((turns.clone(), verdict)))),
            Turn::NotBefore(at) => Err(at),
            Turn::Never => Err(self.clock.now() + NEVER_FOR),
        }
    }
}

/// A turn that has come. Dropped without having been used, it is given back.
#[must_use = "a turn that nobody uses is given back"]
pub(in crate::batches) struct Drawn(Option<(Turns, Verdict)>);

impl Drawn {
    /// A batch goes out under it.
    pub(in crate::batches) fn use_up(mut self) {
        self.0 = None;
    }

    /// Nothing went out under it. Ends when others can have it.
    pub(in crate::batches) async fn give_back(mut self) {
        if let Some((turns, verdict)) = self.0.take() {
            turns.give_back(verdict).await;
        }
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        let Some((turns, verdict)) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { turns.give_back(verdict).await });
        }
    }
}
