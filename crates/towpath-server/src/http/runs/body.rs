//! A run, its journal and its facts as they stand on the wire.

use towpath_core::payload::Payload;
use towpath_core::run::{Fact, FactKind, Run, RunState};
use towpath_core::store::{JournalEntry, RunView};
use towpath_core::time::Timestamp;

use super::bodies::Closed;
use super::why::{Workers, why};
use crate::http::convert;
use crate::http::wire::calls::FailureBody;
use crate::http::wire::run_workers::FactBody;
use crate::http::wire::runs::{JournalEntryBody, RunBody, RunOutcomeBody, WaitsForBody};

/// An answer lists this many timers.
const TIMERS_LISTED: usize = 100;

pub(super) fn run(view: &RunView, workers: Workers, now: Timestamp) -> RunBody {
    let run = &view.run;
    let at = |instant: Option<Timestamp>| instant.map(Timestamp::as_millis);
    RunBody {
        run_id: run.run_id.to_string(),
        workflow: run.place.workflow.to_string(),
        version: run.place.version.to_string(),
        shard: run.place.shard.as_ref().map(ToString::to_string),
        reference: view.reference.as_ref().map(ToString::to_string),
        state: run.state.to_string(),
        cause: run.cause.map(|cause| cause.to_string()),
        why: why(run, workers, now),
        paused: run.paused,
        cancel_requested: run.cancel_requested,
        generation: run.generation,
        entries: run.entries,
        journal_bytes: run.journal_bytes,
        unconsumed_events: run.events,
        deliveries: run.deliveries,
        worker_id: run.owner.as_ref().map(ToString::to_string),
        lease_until: at(run.expires_at),
        waits_for: (run.state == RunState::Waiting).then(|| waits_for(run)),
        parent: run.parent.as_ref().map(|parent| parent.run_id.to_string()),
        unfit_builds: run.unfit_builds.iter().map(ToString::to_string).collect(),
        created_at: run.created_at.as_millis(),
        changed_at: run.changed_at.as_millis(),
        start_at: at(run.start_at),
        deadline: at(run.deadline),
        back_off_until: at(run.back_off_until),
        closed_at: at(run.closed_at),
        kept_until: at(run.kept_until()),
        outcome: view.outcome.as_ref().map(|body| outcome(run.state, body)),
    }
}

fn waits_for(run: &Run) -> WaitsForBody {
    let mut timers: Vec<i64> = run.wait.timers.values().map(|due| due.as_millis()).collect();
    timers.sort_unstable();
    timers.truncate(TIMERS_LISTED);
    WaitsForBody {
        events: run.wait.events.iter().map(ToString::to_string).collect(),
        timers,
        children: run.wait.groups.values().map(|group| u64::from(group.open)).sum(),
    }
}

/// How a run ended, by the body of its last entry.
fn outcome(state: RunState, body: &Payload) -> RunOutcomeBody {
    let closed = serde_json::from_slice(body.as_bytes()).unwrap_or(Closed { v: None, err: None, reason: None });
    let data = closed.v.or_else(|| (state == RunState::Completed).then(|| convert::json(&Payload::null())));
    let error = closed.err.map(|error| FailureBody { code: error.code, message: error.message, details: error.details });
    RunOutcomeBody { kind: state.to_string(), data, error, reason: closed.reason }
}

pub(super) fn journal_entry(entry: &JournalEntry) -> JournalEntryBody {
    JournalEntryBody {
        number: entry.number,
        at: entry.at.as_millis(),
        kind: entry.entry.kind.as_str().to_owned(),
        step_id: entry.entry.step.as_ref().map(ToString::to_string),
        body: convert::json(&entry.entry.body),
    }
}

pub(super) fn fact(fact: &Fact) -> FactBody {
    let plain = |kind: &str| FactBody {
        number: fact.number,
        at: fact.at.as_millis(),
        kind: kind.to_owned(),
        event: None,
        step_id: None,
        data: None,
        reason: None,
    };
    match &fact.kind {
        FactKind::Event { name, data } => FactBody { event: Some(name.to_string()), data: Some(convert::json(data)), ..plain("event") },
        FactKind::TimerDue(step) => FactBody { step_id: Some(step.to_string()), ..plain("timer_due") },
        FactKind::ChildClosed { step, outcome, .. } => {
            FactBody { step_id: Some(step.to_string()), data: Some(convert::json(outcome)), ..plain("child_closed") }
        }
        FactKind::Cancel { reason } => FactBody { reason: Some(reason.to_string()), ..plain("cancel") },
    }
}
