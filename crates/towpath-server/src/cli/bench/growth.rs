//! Growth by backlog: what a call costs while many calls wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use towpath::{CallContext, HandlerError, NewCall, Payload, RawHandler, Towpath};

use super::fill::{all, fill};
use super::place::Place;
use super::steady::Steady;
use super::{ANSWER, WARM_UP, worker};
use crate::cli::failure::Failure;
use crate::cli::time;

const IN_FLIGHT: u32 = 1_024;

/// The cost of a call at both ends of something that grew.
pub(super) struct Growth {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) cost_us_from: f64,
    pub(super) cost_us_to: f64,
}

impl Growth {
    pub(super) fn ratio(&self) -> f64 {
        self.cost_us_to / self.cost_us_from
    }
}

/// Calls that wait.
pub(super) struct Backlog {
    towpath: Towpath,
    call: NewCall,
}

impl Backlog {
    /// Lets so many calls wait for a function that no worker serves.
    pub(super) async fn fill(place: &Place, waiting: u64) -> Result<Self, Failure> {
        let towpath = super::open(&place.url).await?;
        let mut call = Steady::FULL.call(place, 0)?;
        // They wait for as long as it takes.
        (call.detached, call.timeout) = (true, None);
        fill(&towpath, &call, waiting, None).await?;
        Ok(Self { towpath, call })
    }

    /// What a call costs while they wait: one is submitted for each that is answered. Both sides are in this process, because what is
    /// compared is the same work with few and with many calls waiting.
    pub(super) async fn cost_us(self, place: &Place, length: Duration) -> Result<f64, Failure> {
        let counting = Arc::new(Counting { answered: AtomicU64::new(0), room: Semaphore::new(IN_FLIGHT as usize) });
        let handler = Arc::<Counting>::clone(&counting);
        let serving = worker::serve(&self.towpath, std::iter::once(place.function(0)), IN_FLIGHT, handler).await?;
        let mut callers = JoinSet::new();
        for _ in 0..IN_FLIGHT {
            callers.spawn(submit_for_each_answer(self.towpath.clone(), self.call.clone(), Arc::clone(&counting)));
        }
        time::sleep(WARM_UP).await;
        let (begin, before) = (time::now(), counting.answered.load(Ordering::Relaxed));
        time::sleep_until(begin + length).await;
        let (took, after) = (time::now() - begin, counting.answered.load(Ordering::Relaxed));
        counting.room.close();
        all(callers).await?;
        serving.drain().await;
        self.towpath.close().await;
        Ok(took.as_secs_f64() * 1e6 / (after - before).max(1) as f64)
    }
}

async fn submit_for_each_answer(towpath: Towpath, call: NewCall, counting: Arc<Counting>) -> Result<(), String> {
    // Closed: the measurement is over.
    while let Ok(room) = counting.room.acquire().await {
        room.forget();
        towpath.submit(call.clone()).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A handler that makes room for one more call with each that it answers.
struct Counting {
    answered: AtomicU64,
    room: Semaphore,
}

#[async_trait]
impl RawHandler for Counting {
    async fn run(&self, _ctx: CallContext) -> Result<Payload, HandlerError> {
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.room.add_permits(1);
        Ok(Payload::from_json(ANSWER))
    }
}
