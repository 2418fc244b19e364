//! All that a store will show, in one comparable piece.

use towpath_core::batch::{BatcherId, DeadLetter};
use towpath_core::inspect::{BatchCounts, BatchView, CallFilter, CallView, DeadLetterQuery, FlightView, FunctionView, PageRequest};
use towpath_core::store::{BatchStore, ConfigView, DueBatches, Store};
use towpath_core::worker::WorkerView;

use crate::bench::sure;

/// How many of a batcher's things are asked for at a time.
const DUMP_PAGE: u32 = 2;

/// Everything a store keeps, as it shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// All calls, newest first.
    pub calls: Vec<CallView>,
    /// All functions, with their counts.
    pub functions: Vec<FunctionView>,
    /// All workers.
    pub workers: Vec<WorkerView>,
    /// The shared configuration.
    pub config: ConfigView,
}

impl Dump {
    /// Everything that this store keeps.
    pub async fn of(store: &dyn Store) -> Self {
        let mut calls = Vec::new();
        let mut page = PageRequest::first(PageRequest::LIMIT_MAX);
        loop {
            let shown = sure(store.calls(&CallFilter::default(), page).await);
            calls.extend(shown.items);
            let Some(next) = shown.next else { break };
            page = PageRequest { after: Some(next), limit: PageRequest::LIMIT_MAX };
        }
        let functions = sure(store.functions().await).into_iter().map(comparable).collect();
        let workers = sure(store.workers().await);
        Self { calls, functions, workers, config: sure(store.config().await) }
    }
}

/// A function as every store shows it: only a Redis has streams of legacy peers.
pub(crate) fn comparable(view: FunctionView) -> FunctionView {
    FunctionView { stream: None, ..view }
}

/// Everything of one batcher that a store will show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchDump {
    /// How much there is.
    pub counts: BatchCounts,
    /// Open batches with their messages, by first message.
    pub open: Vec<BatchView>,
    /// Batches in flight, by what is due first.
    pub in_flight: Vec<FlightView>,
    /// Dead letters, oldest first.
    pub dead: Vec<DeadLetter>,
    /// What is due.
    pub due: DueBatches,
}

impl BatchDump {
    /// Everything that this store keeps of a batcher. Pages are small, so that there is more than one.
    pub async fn of(store: &dyn BatchStore, batcher: &BatcherId) -> Self {
        let mut open = Vec::new();
        let mut after = None;
        loop {
            let page = sure(store.open_batches(batcher, after, DUMP_PAGE).await);
            for view in page.items {
                let whole = sure(store.open_batch(batcher, &view.key, 0).await).expect("what is listed can be looked at");
                assert_eq!(whole.open, view.open, "one batch, seen twice");
                open.push(whole);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut in_flight = Vec::new();
        loop {
            let page = sure(store.batches_in_flight(batcher, after, DUMP_PAGE).await);
            in_flight.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut dead = Vec::new();
        let mut query = DeadLetterQuery { limit: DUMP_PAGE, ..DeadLetterQuery::default() };
        loop {
            let page = sure(store.dead_letters(batcher, &query).await);
            dead.extend(page.items);
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        let (counts, due) = (sure(store.batch_counts(batcher).await), sure(store.batch_due(batcher, 3).await));
        Self { counts, open, in_flight, dead, due }
    }

    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        let nothing_due = self.due.keys.is_empty() && self.due.flights.is_empty() && self.due.next.is_none();
        self.counts == BatchCounts::default() && self.open.is_empty() && self.in_flight.is_empty() && self.dead.is_empty() && nothing_due
    }
}
