//! The pace of a batcher with a rate. A turn is drawn before a batch is claimed: what waits for one is in the queue, without a lease, and uses no
//! attempt up. A turn that nothing was sent under is given back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use towpath_core::batch::Settings;
use towpath_core::clock::Clock;
use towpath_core::names::BatcherName;
use towpath_core::time::{Micros, Timestamp};

use crate::Towpath;
use crate::limits::{Room, Turn, Turns, Verdict, not_before};

/// When a policy can never let one through, it may be another one after this.
const NEVER_FOR: Duration = Duration::from_secs(1);

/// Draws the turns of a batcher; of one without a rate it is always the turn.
pub(in crate::batches) struct Pace {
    clock: Arc<dyn Clock>,
    turns: Option<Turns>,
    /// How long a claimed batch may wait for its turn: a small part of its lease.
    patience: Duration,
}

impl Pace {
    pub(in crate::batches) fn of(towpath: &Towpath, name: &BatcherName, settings: &Settings) -> Self {
        let turns = settings.rate.as_ref().and_then(|rate| towpath.turns_of_batches(name, rate));
        Self { clock: Arc::clone(towpath.clock()), turns, patience: settings.lease / 4 }
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

    /// Up to `most` turns that have come or are about to, at least one; else not before then. There seemed to be `room` for so many, and those
    /// are asked for together.
    pub(super) async fn draw(&self, most: usize, room: usize) -> Result<Vec<Drawn>, Timestamp> {
        let mut drawn = Vec::with_capacity(most);
        let mut refused = None;
        for turn in join_all((0..room.clamp(1, most.max(1))).map(|_| self.draw_one(self.patience))).await {
            match turn {
                Ok(turn) => drawn.push(turn),
                Err(at) => refused = Some(at),
            }
        }
        // More may be about to come than there was room for at once.
        while drawn.len() < most && refused.is_none() {
            match self.draw_one(self.patience).await {
                Ok(turn) => drawn.push(turn),
                Err(at) => refused = Some(at),
            }
        }
        match refused {
            Some(at) if drawn.is_empty() => Err(at),
            _ => Ok(drawn),
        }
    }

    /// A turn that comes within `patience`; else not before then.
    pub(in crate::batches) async fn draw_one(&self, patience: Duration) -> Result<Drawn, Timestamp> {
        let Some(turns) = &self.turns else { return Ok(Drawn { clock: Arc::clone(&self.clock), turn: None }) };
        match turns.take(1, patience.min(self.patience)).await {
            Turn::Yours(verdict) => {
                let begins_at = self.clock.now_us() + verdict.wait;
                Ok(Drawn { clock: Arc::clone(&self.clock), turn: Some(Drawing { turns: turns.clone(), verdict, begins_at }) })
            }
            Turn::NotBefore(at) => Err(at),
            Turn::Never => Err(self.clock.now() + NEVER_FOR),
        }
    }
}

/// A turn. Dropped without having been used, it is given back.
#[must_use = "a turn that nobody uses is given back"]
pub(in crate::batches) struct Drawn {
    clock: Arc<dyn Clock>,
    turn: Option<Drawing>,
}

struct Drawing {
    turns: Turns,
    verdict: Verdict,
    begins_at: Micros,
}

impl Drawn {
    /// Ends when it has come.
    pub(in crate::batches) async fn comes(&self) {
        if let Some(turn) = self.turn.as_ref().filter(|turn| !turn.verdict.wait.is_zero()) {
            self.clock.sleep_until(not_before(turn.begins_at)).await;
        }
    }

    /// A batch goes out under it.
    pub(in crate::batches) fn use_up(mut self) {
        self.turn = None;
    }

    /// Nothing went out under it. Ends when others can have it.
    pub(in crate::batches) async fn give_back(mut self) {
        if let Some(Drawing { turns, verdict, .. }) = self.turn.take() {
            turns.give_back(verdict).await;
        }
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        let Some(Drawing { turns, verdict, .. }) = self.turn.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { turns.give_back(verdict).await });
        }
    }
}
