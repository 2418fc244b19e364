//! What people get to see.

use crate::call::{Call, CallRequest, Outcome};
use crate::payload::Payload;
use crate::time::Timestamp;
use crate::worker::FunctionDefinition;

/// Everything that is known of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallView {
    /// Its life.
    pub call: Call,
    /// What it was asked to do.
    pub request: CallRequest,
    /// The handler's latest progress report, with its number.
    pub progress: Option<(u32, Payload)>,
}

impl CallView {
    /// The same without what may be long: of the request only the function, of a result that it is there, of failures code and message.
    pub fn brief(mut self) -> Self {
        self.request = CallRequest::of(self.request.function);
        self.progress = None;
        if let Some(failure) = &mut self.call.last_failure {
            failure.details = None;
        }
        match &mut self.call.outcome {
            Some(Outcome::Ok(data)) => *data = Payload::null(),
            Some(Outcome::Failed(failure) | Outcome::Dead { failure, .. }) => failure.details = None,
            Some(Outcome::TimedOut | Outcome::Expired | Outcome::Cancelled) | None => {}
        }
        self
    }

    /// How many bytes its payloads have.
    pub fn payload_bytes(&self) -> usize {
        let result = if let Some(Outcome::Ok(data)) = &self.call.outcome { data.len() } else { 0 };
        let item = self.request.input_item.as_ref().map_or(0, Payload::len);
        let progress = self.progress.as_ref().map_or(0, |(_, value)| value.len());
        self.request.params.len() + item + result + progress
    }
}

/// Everything that is known of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionView {
    /// What it is.
    pub definition: FunctionDefinition,
    /// Its calls, counted.
    pub counts: FunctionCounts,
    /// Workers that offer it.
    pub workers: u64,
    /// Those of them that said they are alive in the last 30 seconds.
    pub healthy_workers: u64,
    /// When the longest-waiting queued call was submitted.
    pub oldest_queued_at: Option<Timestamp>,
    /// The stream that legacy peers use, where there is one.
    pub stream: Option<StreamView>,
    /// What keeps the function from its calls, each with what to do. Of a function in such trouble the counts may be 0.
    pub problems: Vec<String>,
}

/// The stream of a function that legacy callers write to and legacy workers read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamView {
    /// Entries in it, finished ones that were not removed yet included.
    pub length: u64,
    /// When the oldest entry was written that no worker has finished.
    pub oldest_at: Option<Timestamp>,
    /// Entries that workers have read and not acknowledged.
    pub pending: u64,
    /// When the oldest of those was written.
    pub oldest_pending_at: Option<Timestamp>,
    /// Its consumer groups.
    pub groups: Vec<StreamGroup>,
}

/// A consumer group of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamGroup {
    /// What it is called.
    pub name: String,
    /// Consumers that it knows.
    pub consumers: u64,
    /// Entries that they have read and not acknowledged.
    pub pending: u64,
    /// Entries that none of them has read; `None` when the server does not know.
    pub lag: Option<u64>,
}

/// A function's calls by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionCounts {
    /// Waiting for a worker.
    pub queued: u64,
    /// Waiting for the next attempt.
    pub delayed: u64,
    /// Held by workers.
    pub running: u64,
    /// Of those, waiting for a nested call.
    pub parked: u64,
    /// Dead letters that nobody has dealt with.
    pub dead: u64,
}

impl FunctionCounts {
    /// The calls of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            queued: self.queued + other.queued,
            delayed: self.delayed + other.delayed,
            running: self.running + other.running,
            parked: self.parked + other.parked,
            dead: self.dead + other.dead,
        }
    }

    /// Calls that wait.
    pub const fn backlog(&self) -> u64 {
        self.queued + self.delayed
    }
}

/// What a store says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStatus {
    /// What kind of store, and where: `sqlite:/var/lib/towpath/towpath.db`.
    pub location: String,
    /// What an acknowledgement of this store is worth.
    pub durability: crate::store::Durability,
    /// The store's clock.
    pub now: Timestamp,
    /// Commits since it was opened.
    pub commits: u64,
    /// Moves of calls in them (submits, deliveries, answers). Moves per commit says how well moves share the cost of a commit.
    pub moves: u64,
    /// Why it accepts nothing new, although it finishes what it has.
    pub refuses: Option<crate::store::StoreTrouble>,
    /// What a person should know about it, each with what to do.
    pub problems: Vec<String>,
}
