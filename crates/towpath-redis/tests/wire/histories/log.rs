//! What happened in a history: runs, answers, acknowledgements, and groups that were destroyed.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// An entry that was acknowledged so long before its group was destroyed may have been missed by the last tick, on a busy machine.
const TICK: Duration = Duration::from_millis(700);

pub(super) struct Log {
    since: Instant,
    events: Mutex<Events>,
}

#[derive(Default)]
struct Events {
    runs: Vec<Run>,
    destroyed: Vec<Duration>,
    dropped: HashSet<String>,
}

struct Run {
    call_id: String,
    began: Duration,
    answered: Option<Duration>,
    /// The group was destroyed, or its worker acknowledged by another one, while it ran.
    was_disturbed: bool,
}

impl Default for Log {
    fn default() -> Self {
        Self { since: Instant::now(), events: Mutex::default() }
    }
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().expect("no test panics here")
    }

    /// A worker begins to run a call. The number names the run.
    pub(super) fn begins(&self, call_id: &str) -> usize {
        let began = self.since.elapsed();
        let mut events = self.lock();
        events.runs.push(Run { call_id: call_id.to_owned(), began, answered: None, was_disturbed: false });
        events.runs.len() - 1
    }

    /// It has answered, and acknowledged if it is a legacy worker.
    pub(super) fn answers(&self, run: usize) {
        self.lock().runs[run].answered = Some(self.since.elapsed());
    }

    pub(super) fn group_is_destroyed(&self) {
        let at = self.since.elapsed();
        let mut events = self.lock();
        events.destroyed.push(at);
        events.runs.iter_mut().filter(|run| run.answered.is_none()).for_each(|run| run.was_disturbed = true);
    }

    /// A worker of generation B has acknowledged a call that another worker held.
    pub(super) fn is_dropped(&self, call_id: &str) {
        let mut events = self.lock();
        events.dropped.insert(call_id.to_owned());
        events.runs.iter_mut().filter(|run| run.call_id == call_id && run.answered.is_none()).for_each(|run| run.was_disturbed = true);
    }

    pub(super) fn was_dropped(&self, call_id: &str) -> bool {
        self.lock().dropped.contains(call_id)
    }

    /// Whether a call had a reason to run more than once.
    pub(super) fn ran_in_need(&self, call_id: &str) -> bool {
        let events = self.lock();
        events.runs.iter().filter(|run| run.call_id == call_id).any(|run| events.excuses(run))
    }

    /// How much has happened, in one line.
    pub(super) fn stats(&self) -> String {
        let events = self.lock();
        let calls: HashSet<&str> = events.runs.iter().map(|run| run.call_id.as_str()).collect();
        let unanswered = events.runs.iter().filter(|run| run.answered.is_none()).count();
        let (runs, destroyed, dropped) = (events.runs.len(), events.destroyed.len(), events.dropped.len());
        format!("{runs} runs of {} calls, {unanswered} unanswered, group destroyed {destroyed} times, {dropped} dropped", calls.len())
    }

    /// Every run but the last of its call has a reason why it did not count.
    pub(super) fn check(&self) -> Result<(), String> {
        let events = self.lock();
        let mut by_call: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        for run in &events.runs {
            by_call.entry(&run.call_id).or_default().push(run);
        }
        for (call_id, runs) in by_call {
            if let Some(run) = runs[..runs.len() - 1].iter().find(|run| !events.excuses(run)) {
                return Err(format!("{call_id} ran again without need after the run that began at {:?}", run.began));
            }
        }
        Ok(())
    }
}

impl Events {
    fn excuses(&self, run: &Run) -> bool {
        let Some(answered) = run.answered else { return true };
        let too_late_for_a_tick = |destroyed: &Duration| *destroyed + TICK >= answered && *destroyed <= answered + TICK;
        run.was_disturbed || self.destroyed.iter().any(too_late_for_a_tick)
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = self.lock();
        for (number, run) in events.runs.iter().enumerate() {
            writeln!(
                f,
                "  run {number} of {}: {:?} to {:?}{}",
                run.call_id,
                run.began,
                run.answered,
                if run.was_disturbed { ", disturbed" } else { "" }
            )?;
        }
        writeln!(f, "  group destroyed at {:?}, acknowledged by others {:?}", events.destroyed, events.dropped)
    }
}
