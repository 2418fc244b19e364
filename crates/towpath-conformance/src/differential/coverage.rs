//! What random operations have reached. Agreement on what never happened proves nothing.

use std::collections::BTreeSet;

use towpath_core::call::{CallState, LostLease};
use towpath_core::store::{Cancelled, Completed, Fired, Heartbeat, Renewal, Replayed, Submitted};
use towpath_core::time::Timestamp;

use super::op::Op;
use super::side::{Heard, Reply};

/// All that has been seen, as `operation: what came of it`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    seen: BTreeSet<String>,
}

/// Every kind of operation, and every way in which each can end.
const MUST_BE_SEEN: &[(&str, &[&str])] = &[
    ("Submit", &["accepted", "accepted under an id that was gone", "existing", "conflict", "unknown function", "no workers", "overloaded"]),
    ("Claim", &["nothing", "something"]),
    ("Renew", &["held", "cancel requested", "lost expired", "lost replaced", "lost ended", "lost absent"]),
    ("Complete", &["to be tried again", "completed", "failed", "cancelled", "dead", "already"]),
    ("Complete", &["lost expired", "lost replaced", "lost ended", "lost absent"]),
    ("Release", &["none", "some"]),
    ("Park", &["held", "cancel requested", "lost expired", "lost replaced", "lost ended", "lost absent"]),
    ("Progress", &["held", "cancel requested", "lost expired", "lost replaced", "lost ended", "lost absent"]),
    ("Cancel", &["done", "requested", "already ended", "not found"]),
    ("Replay", &["submitted", "not dead"]),
    ("Drop", &["yes", "no"]),
    ("Watch", &["done"]),
    ("Listen", &["nothing", "changed", "ended"]),
    ("Attention", &["yes", "no"]),
    ("Register", &["done"]),
    ("Heartbeat", &["known", "unknown"]),
    ("Unregister", &["none", "some"]),
    ("Define", &["done"]),
    ("Forget", &["yes", "no"]),
    ("Find", &["nothing", "something"]),
    ("FunctionsChanged", &["yes", "no"]),
    ("Config", &["something"]),
    ("SetConfig", &["nothing", "something"]),
    ("ConfigChanged", &["something"]),
    (
        "Fire",
        &["nothing", "expired", "timed_out", "cancelled", "reclaimed", "promoted", "workers removed", "cut short", "several kinds at once"],
    ),
    ("DueBefore", &["nothing", "something"]),
    ("Call", &["nothing", "something"]),
    ("Calls", &["last page", "more pages"]),
    ("Functions", &["something"]),
    ("Workers", &["nothing", "something"]),
    ("Probe", &["done"]),
    ("Advance", &["done"]),
    ("Reopen", &["done"]),
];

impl Coverage {
    pub(super) fn note(&mut self, op: &Op, reply: &Reply, now: Timestamp) {
        let kind = op.kind();
        self.seen.extend(ends(reply, now).into_iter().map(|end| format!("{kind}: {end}")));
    }

    /// A submit was accepted under an id that a call had before: that call is gone.
    pub(super) fn note_freed_id(&mut self) {
        self.seen.insert("Submit: accepted under an id that was gone".to_owned());
    }

    pub(super) fn note_state(&mut self, state: CallState) {
        self.seen.insert(format!("state: {state}"));
    }

    /// Adds what another run has seen.
    pub fn add(&mut self, other: Self) {
        self.seen.extend(other.seen);
    }

    /// What should have been seen and was not. Empty means that the run proved something.
    pub fn missing(&self) -> Vec<String> {
        let ends = MUST_BE_SEEN.iter().flat_map(|(kind, ends)| ends.iter().map(move |end| format!("{kind}: {end}")));
        let states = CallState::ALL.into_iter().map(|state| format!("state: {state}"));
        ends.chain(states).filter(|must| !self.seen.contains(must)).collect()
    }
}

fn ends(reply: &Reply, now: Timestamp) -> Vec<String> {
    let word = |yes: bool, if_yes: &str, if_no: &str| vec![if yes { if_yes } else { if_no }.to_owned()];
    match reply {
        Reply::Done | Reply::Now(_) => vec!["done".to_owned()],
        Reply::Flag(flag) => word(*flag, "yes", "no"),
        Reply::Count(count) => word(*count > 0, "some", "none"),
        Reply::Submitted(submitted) => vec![submitted_end(submitted).to_owned()],
        Reply::Claimed(deliveries) => word(deliveries.is_empty(), "nothing", "something"),
        Reply::Renewed(renewals) => renewals.iter().map(renewal_end).collect(),
        Reply::Completed(replies) => replies.iter().map(completed_end).collect(),
        Reply::Cancelled(cancelled) => vec![cancelled_end(*cancelled).to_owned()],
        Reply::Replayed(replayed) => word(*replayed == Replayed::Submitted, "submitted", "not dead"),
        Reply::Heartbeat(heartbeat) => word(*heartbeat == Heartbeat::Known, "known", "unknown"),
        Reply::Found(found) => word(found.is_some(), "something", "nothing"),
        Reply::Config(config) => word(config.is_some(), "something", "nothing"),
        Reply::Fired(fired) => fired_ends(fired, now),
        Reply::Due(due) => word(due.is_some(), "something", "nothing"),
        Reply::Heard(all) => all.iter().map(|(_, heard)| heard_end(heard).to_owned()).collect(),
        Reply::Call(call) => word(call.is_some(), "something", "nothing"),
        Reply::Calls(page) => word(page.next.is_some(), "more pages", "last page"),
        Reply::Functions(functions) => word(functions.is_empty(), "nothing", "something"),
        Reply::Workers(workers) => word(workers.is_empty(), "nothing", "something"),
        Reply::Trouble(trouble) => vec![format!("trouble: {trouble}")],
    }
}

fn submitted_end(submitted: &Submitted) -> &'static str {
    match submitted {
        Submitted::Accepted { .. } => "accepted",
        Submitted::Existing { .. } => "existing",
        Submitted::Conflict { .. } => "conflict",
        Submitted::UnknownFunction => "unknown function",
        Submitted::NoWorkers => "no workers",
        Submitted::Overloaded { .. } => "overloaded",
    }
}

fn renewal_end(renewal: &Renewal) -> String {
    match renewal {
        Renewal::Held { cancel_requested: true, .. } => "cancel requested".to_owned(),
        Renewal::Held { .. } => "held".to_owned(),
        Renewal::Lost(lost) => lost_end(*lost),
    }
}

fn completed_end(completed: &Completed) -> String {
    match completed {
        Completed::Recorded { ended: None } => "to be tried again".to_owned(),
        Completed::Recorded { ended: Some(ended) } => ended.state.to_string(),
        Completed::AlreadyRecorded => "already".to_owned(),
        Completed::Lost(lost) => lost_end(*lost),
    }
}

fn lost_end(lost: LostLease) -> String {
    format!("lost {}", lost.as_str())
}

fn cancelled_end(cancelled: Cancelled) -> &'static str {
    match cancelled {
        Cancelled::Done => "done",
        Cancelled::Requested => "requested",
        Cancelled::AlreadyEnded(_) => "already ended",
        Cancelled::NotFound => "not found",
    }
}

fn heard_end(heard: &Heard) -> &'static str {
    match heard {
        Heard::Nothing => "nothing",
        Heard::Changed => "changed",
        Heard::Ended(_) => "ended",
    }
}

fn fired_ends(fired: &Fired, now: Timestamp) -> Vec<String> {
    let kinds =
        [fired.promoted, fired.reclaimed, fired.ended.len() as u64, fired.workers_removed].iter().filter(|count| **count > 0).count();
    let mut ends: Vec<String> = fired.ended.iter().map(|ended| ended.state.to_string()).collect();
    let counted = [
        ("nothing", u64::from(fired.total() == 0)),
        ("reclaimed", fired.reclaimed),
        ("promoted", fired.promoted),
        ("workers removed", fired.workers_removed),
        ("several kinds at once", u64::from(kinds > 1)),
        ("cut short", u64::from(fired.next_due.is_some_and(|due| due <= now))),
    ];
    ends.extend(counted.into_iter().filter(|(_, count)| *count > 0).map(|(end, _)| end.to_owned()));
    ends
}
