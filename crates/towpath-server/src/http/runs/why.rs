//! Why an open run is not moving, as one sentence for people, with what to do about it.

use towpath_core::run::{BlockCause, Run, RunState, Standing};
use towpath_core::time::Timestamp;

/// No sentence names more events.
const NAMED_MAX: usize = 5;

/// What is known about the workers of a run's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workers {
    /// A worker serves it, or has served it.
    Seen,
    /// No worker is known to have served it.
    NeverSeen,
    /// It was not looked up.
    NotAsked,
}

/// Why a run is not moving. `None`: it has closed.
pub(super) fn why(run: &Run, workers: Workers, now: Timestamp) -> Option<String> {
    if run.state.is_closed() {
        return None;
    }
    let reason = match run.standing() {
        Standing::Start(at) => format!("starts at {}", at.to_iso()),
        Standing::Paused => return Some(format!("paused: go on with `towpath run resume {}`", run.run_id)),
        Standing::Queued(_) => of_queued(run, workers),
        Standing::Claimed(until) => of_claimed(run, until, now),
        Standing::Parked => of_parked(run),
        Standing::BacksOff(until) => format!("{}; the next try is at {}", of_cause(run.cause), until.to_iso()),
        Standing::Blocked => format!("blocked: {}; {}", of_cause(run.cause), what_to_do(run)),
        Standing::Closed => return None,
    };
    let paused = if run.paused { "; paused: no worker goes on with it" } else { "" };
    let cancelled = if run.cancel_requested { "; a caller wants it cancelled" } else { "" };
    Some(format!("{reason}{paused}{cancelled}"))
}

fn served(run: &Run) -> String {
    let place = &run.place;
    let shard = place.shard.as_ref().map(|shard| format!(" in shard {shard}")).unwrap_or_default();
    format!("{}@{}{shard}", place.workflow, place.version)
}

fn of_queued(run: &Run, workers: Workers) -> String {
    let since = run.changed_at.to_iso();
    match workers {
        Workers::NeverSeen => format!("no worker is known to serve {}: start one; it waits since {since}", served(run)),
        Workers::Seen | Workers::NotAsked => format!("waits since {since} for a free worker that serves {}", served(run)),
    }
}

fn of_claimed(run: &Run, until: Timestamp, now: Timestamp) -> String {
    let worker = run.owner.as_ref().map_or("a worker", |owner| owner.as_str());
    if now < until {
        return format!("worker {worker} executes it");
    }
    format!("worker {worker} has been silent since {}: another worker that serves {} takes it over", until.to_iso(), served(run))
}

fn of_parked(run: &Run) -> String {
    let mut parts = Vec::new();
    let events: Vec<String> = run.wait.events.iter().take(NAMED_MAX).map(|name| format!("'{name}'")).collect();
    if !events.is_empty() {
        let more = run.wait.events.len() - events.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        parts.push(format!("event {}{more}", events.join(" or ")));
    }
    if let Some(due) = run.wait.timers.values().min() {
        parts.push(format!("a timer until {}", due.to_iso()));
    }
    let children: u64 = run.wait.groups.values().map(|group| u64::from(group.open)).sum();
    match children {
        0 => {}
        1 => parts.push("1 child".to_owned()),
        many => parts.push(format!("{many} children")),
    }
    format!("waits for {}", parts.join(", or "))
}

fn of_cause(cause: Option<BlockCause>) -> &'static str {
    match cause {
        Some(BlockCause::Nondeterminism) => "its code does not do what its journal says (nondeterminism)",
        Some(BlockCause::ForeignAwait) => "its code waits for something that is not durable (foreign_await)",
        Some(BlockCause::Panicked) => "its code panicked (panicked)",
        Some(BlockCause::Decode) => "its code cannot read its input or a result (decode)",
        Some(BlockCause::HistoryFull) => "its journal has reached its limit (history_full)",
        Some(BlockCause::Poisoned) => "worker after worker fell silent while it executed the run (poisoned)",
        Some(BlockCause::Exhausted) => "a task has used up its attempts (exhausted)",
        None => "it backs off",
    }
}

fn what_to_do(run: &Run) -> String {
    let resume = format!("`towpath run resume {}`", run.run_id);
    if run.cause.is_some_and(BlockCause::is_of_the_build) {
        return format!("it goes on with a worker of another build, or with {resume}");
    }
    format!("mend the cause, then {resume}")
}

/// Whether the sentence depends on the workers that there are.
pub(super) fn depends_on_workers(run: &Run) -> bool {
    run.state == RunState::Ready && !run.paused
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use towpath_core::names::{EventName, WorkerId};
    use towpath_core::run::{NewRun, RunId, StepId, place};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn run() -> Run {
        let place = place("order", "1", None).unwrap();
        let run_id = RunId::new(&place, 1);
        let retain = Duration::from_secs(60);
        Run::created(NewRun { run_id, place, start_at: None, deadline: None, retain, parent: None, begin_bytes: 1 }, NOW)
    }

    #[track_caller]
    fn says(run: &Run, part: &str) {
        let said = why(run, Workers::NeverSeen, NOW).unwrap();
        assert!(said.contains(part), "{said}");
    }

    #[test]
    fn every_state_says_what_it_waits_for() {
        says(&run(), "no worker is known to serve order@1: start one");
        assert!(why(&run(), Workers::Seen, NOW).unwrap().contains("for a free worker that serves order@1"));
        says(&Run { paused: true, ..run() }, "paused: go on with `towpath run resume ");
        says(&Run { state: RunState::Delayed, start_at: Some(NOW), ..run() }, "starts at 2027-01-15T08:00:00.000Z");
        let running = Run { state: RunState::Running, owner: Some(WorkerId::new("w-1").unwrap()), ..run() };
        says(&Run { expires_at: Some(NOW + Duration::from_secs(1)), paused: true, ..running.clone() }, "worker w-1 executes it; paused");
        says(&Run { expires_at: Some(NOW), ..running }, "worker w-1 has been silent since");
        for cause in BlockCause::ALL {
            says(&Run { state: RunState::Blocked, cause: Some(cause), ..run() }, &format!("({cause})"));
        }
        let backs_off =
            Run { state: RunState::Waiting, cause: Some(BlockCause::Panicked), back_off_until: Some(NOW), cancel_requested: true, ..run() };
        says(&backs_off, "(panicked); the next try is at 2027-01-15T08:00:00.000Z; a caller wants it cancelled");
        assert_eq!(why(&Run { state: RunState::Failed, ..run() }, Workers::NotAsked, NOW), None);
    }

    #[test]
    fn a_parked_run_names_its_events_its_timer_and_its_children() {
        let mut parked = Run { state: RunState::Waiting, ..run() };
        parked.wait.events.insert(EventName::new("approved").unwrap());
        parked.wait.timers.insert(StepId::parse(&"0".repeat(32)).unwrap(), NOW);
        says(&parked, "waits for event 'approved', or a timer until 2027-01-15T08:00:00.000Z");
        for number in 0..7 {
            parked.wait.events.insert(EventName::new(format!("e{number}")).unwrap());
        }
        says(&parked, "and 3 more");
    }
}
