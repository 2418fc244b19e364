//! Runs as people and owners look at them.
//!
//! - A list has the runs that were created last first, and of those created at one instant the highest id first.
//! - A place is listed while it has a run. Its oldest ready run is the head of one of its two queues.
//! - An owner is told of a run once, however much has come for it.

use std::collections::BTreeMap;

use towpath_core::names::{Reference, WorkerId, WorkflowName};
use towpath_core::run::{RunId, RunPlace, RunQueue, RunState, Standing};
use towpath_core::store::{RUNS_PAGE_MAX, RunFilter, RunPage, RunPageRequest, RunPlaceView, RunView};
use towpath_core::time::Timestamp;

use super::records::{RunRecord, RunRecords};

impl RunRecords {
    pub(super) fn take_notified(&mut self, owner: &WorkerId) -> Option<Vec<RunId>> {
        self.notified.remove(owner).map(|runs| runs.into_iter().collect())
    }

    pub(super) fn referenced(&self, workflow: &WorkflowName, reference: &Reference) -> Option<RunId> {
        self.references.get(&(workflow.clone(), reference.clone())).cloned()
    }

    pub(super) fn page(&self, filter: &RunFilter, page: &RunPageRequest) -> RunPage {
        let brief = |record: &RunRecord| RunView { run: record.run.clone(), reference: record.reference.clone(), outcome: None };
        let rank = |view: &RunView| (view.run.created_at, view.run.run_id.clone());
        let mut meant: Vec<RunView> = self.runs.values().map(brief).filter(|view| filter.takes(view)).collect();
        meant.retain(|view| page.after.as_ref().is_none_or(|after| rank(view) < *after));
        meant.sort_by_key(|view| std::cmp::Reverse(rank(view)));
        let limit = page.limit.min(RUNS_PAGE_MAX) as usize;
        let has_more = meant.len() > limit;
        meant.truncate(limit);
        RunPage { next: meant.last().map(rank).filter(|_| has_more), runs: meant }
    }

    pub(super) fn places(&self) -> Vec<RunPlaceView> {
        let mut places: BTreeMap<&RunPlace, Vec<&RunRecord>> = BTreeMap::new();
        for record in self.runs.values() {
            places.entry(&record.run.place).or_default().push(record);
        }
        let view = |(place, records): (&RunPlace, Vec<&RunRecord>)| {
            let count = |state: RunState| records.iter().filter(|record| record.run.state == state).count() as u64;
            let counts = RunState::ALL.into_iter().map(|state| (state, count(state))).filter(|(_, count)| *count > 0).collect();
            let oldest_ready = [RunQueue::First, RunQueue::New].into_iter().filter_map(|queue| head(&records, queue)).min();
            RunPlaceView { place: place.clone(), counts, oldest_ready }
        };
        places.into_iter().map(view).collect()
    }
}

/// Since when the first run of a queue waits.
fn head(records: &[&RunRecord], queue: RunQueue) -> Option<Timestamp> {
    let queued = records.iter().filter(|record| record.run.standing() == Standing::Queued(queue));
    queued.min_by_key(|record| record.turn).map(|record| record.run.changed_at)
}
