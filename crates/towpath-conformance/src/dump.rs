//! All that a store will show, in one comparable piece.

use towpath_core::inspect::{CallFilter, CallView, FunctionView, PageRequest};
use towpath_core::store::{ConfigView, Store};
use towpath_core::worker::WorkerView;

use crate::bench::sure;

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
        let (functions, workers) = (sure(store.functions().await), sure(store.workers().await));
        Self { calls, functions, workers, config: sure(store.config().await) }
    }
}
