//! What the operations have reached: a list that agrees on nothing but refusals proves nothing.

use std::collections::BTreeSet;

use towpath_core::batch::{ClaimReply, CloseReason, DeadReply, ExtendReply, FinishReply, IngestReply, ReplayReply, SealReply, Skip};

use super::op::Op;
use super::side::Reply;

/// Every end that every operation can have, and should have had.
const EXPECTED: [(&str, &[&str]); 21] = [
    (
        "Ingest",
        &[
            "accepted silence_reached",
            "accepted max_wait_reached",
            "accepted max_messages",
            "accepted max_bytes",
            "accepted keyword",
            "accepted immediate",
            "accepted flush",
            "duplicate, open",
            "duplicate, nothing open",
        ],
    ),
    ("Claim", &["claimed", "claimed max_messages", "claimed max_bytes", "skip Gone", "skip NotDue", "skip InFlight"]),
    ("Reclaim", &["claimed", "claimed payload", "skip Gone", "skip NotDue"]),
    ("Extend", &["extended", "lost"]),
    ("Finish", &["done", "lost"]),
    ("Seal", &["flushed", "touched", "sealed", "rearmed", "in flight", "empty"]),
    ("Due", &["something", "nothing"]),
    ("Listen", &["something", "nothing"]),
    ("Sweep", &["removed", "nothing"]),
    ("AddDead", &["added", "duplicate"]),
    ("Replay", &["replayed", "in flight", "gone", "not replayable"]),
    ("Drop", &["something", "nothing"]),
    ("Clear", &["something", "nothing"]),
    ("DeadLetters", &["something", "nothing"]),
    ("Dead", &["something", "nothing"]),
    ("Open", &["something", "nothing"]),
    ("PutBatcher", &["created", "changed"]),
    ("Batchers", &["something"]),
    ("Dump", &["something", "nothing"]),
    ("Advance", &["done"]),
    ("Reopen", &["done"]),
];

/// The ends that were reached.
#[derive(Debug, Default)]
pub struct BatchCoverage {
    reached: BTreeSet<(String, String)>,
}

impl BatchCoverage {
    pub(super) fn note(&mut self, op: &Op, reply: &Reply) {
        for end in ends(reply) {
            self.reached.insert((op.kind(), end));
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.reached.extend(other.reached);
    }

    /// What should have happened and did not.
    pub fn missing(&self) -> Vec<(&'static str, &'static str)> {
        let expected = EXPECTED.iter().flat_map(|(kind, ends)| ends.iter().map(move |end| (*kind, *end)));
        expected.filter(|(kind, end)| !self.reached.contains(&((*kind).to_owned(), (*end).to_owned()))).collect()
    }
}

fn ends(reply: &Reply) -> Vec<String> {
    let one = |end: &str| vec![end.to_owned()];
    let some = |empty: bool| one(if empty { "nothing" } else { "something" });
    match reply {
        Reply::Done => one("done"),
        Reply::Ingested(replies) => replies.iter().map(ingested).collect(),
        Reply::Claimed(reply) => one(&claimed(reply)),
        Reply::Extended(ExtendReply::Extended { .. }) => one("extended"),
        Reply::Extended(ExtendReply::Lost) | Reply::Finished(FinishReply::Lost) => one("lost"),
        Reply::Finished(FinishReply::Done) => one("done"),
        Reply::Sealed(reply) => one(sealed(*reply)),
        Reply::Due(due) => some(due.keys.is_empty() && due.flights.is_empty()),
        Reply::Heard(dues) => some(dues.is_empty()),
        Reply::Swept(swept) => one(if swept.dead_removed > 0 { "removed" } else { "nothing" }),
        Reply::Added(DeadReply::Added) => one("added"),
        Reply::Added(DeadReply::Duplicate) => one("duplicate"),
        Reply::Replayed(replies) => replies.iter().map(|reply| replayed(*reply).to_owned()).collect(),
        Reply::Dropped(dropped) => some(!dropped.contains(&true)),
        Reply::Count(count) => some(*count == 0),
        Reply::Letters(letters) => some(letters.is_empty()),
        Reply::Open(view) => some(view.is_none()),
        Reply::Put(put) => one(if put.created { "created" } else { "changed" }),
        Reply::Batchers(batchers, _) => some(batchers.is_empty()),
        Reply::Dump(dump) => some(dump.is_empty()),
        Reply::Trouble(trouble) => one(&format!("trouble: {trouble}")),
    }
}

fn ingested(reply: &IngestReply) -> String {
    match reply {
        IngestReply::Accepted { reason, .. } => format!("accepted {reason}"),
        IngestReply::Duplicate { deadline: Some(_), .. } => "duplicate, open".to_owned(),
        IngestReply::Duplicate { .. } => "duplicate, nothing open".to_owned(),
        IngestReply::Full { .. } => "full".to_owned(),
    }
}

fn claimed(reply: &ClaimReply) -> String {
    match reply {
        ClaimReply::Claimed(batch) if batch.payload.is_some() => "claimed payload".to_owned(),
        ClaimReply::Claimed(batch) => match batch.reason {
            CloseReason::MaxMessages | CloseReason::MaxBytes if batch.attempt == 1 => format!("claimed {}", batch.reason),
            _ => "claimed".to_owned(),
        },
        ClaimReply::Skip(why) => {
            let (Skip::Gone | Skip::NotDue | Skip::InFlight | Skip::Empty) = why;
            format!("skip {why:?}")
        }
    }
}

fn sealed(reply: SealReply) -> &'static str {
    match reply {
        SealReply::Flushed { .. } => "flushed",
        SealReply::Touched { .. } => "touched",
        SealReply::Sealed { .. } => "sealed",
        SealReply::Rearmed { .. } => "rearmed",
        SealReply::InFlight => "in flight",
        SealReply::Empty => "empty",
    }
}

fn replayed(reply: ReplayReply) -> &'static str {
    match reply {
        ReplayReply::Replayed => "replayed",
        ReplayReply::InFlight => "in flight",
        ReplayReply::Gone => "gone",
        ReplayReply::NotReplayable => "not replayable",
    }
}
