//! What random operations on locks have reached. Agreement on what never happened proves nothing.

use std::collections::BTreeSet;

use towpath_core::lock::{AcquireReply, BusyWith, CancelReply, EndReply, LostLock, Previous, ReapReply, ReleaseReply, RenewReply};
use towpath_core::permit::PermitReply;

use super::OldCallers;
use super::op::Op;
use super::side::Reply;

/// All that has been seen, as `operation: what came of it`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockCoverage {
    seen: BTreeSet<String>,
}

/// Every kind of operation, and every way in which each can end.
const MUST_BE_SEEN: &[(&str, &[&str])] = &[
    ("Acquire", &["granted, None", "granted, Released", "granted, Expired", "replayed", "reentered", "self", "spent", "queue full"]),
    ("Acquire", &["busy towpath", "busy queue", "busy towpath, queued", "busy queue, queued"]),
    ("Renew", &["renewed", "lost Expired", "lost MaxHold", "lost Replaced", "lost Absent"]),
    ("Release", &["released", "still held", "already", "expired", "lost Replaced"]),
    ("End", &["ended", "still held", "already", "absent", "not holder", "changed"]),
    ("Cancel", &["cancelled", "not queued", "was granted"]),
    ("Reap", &["freed", "free", "live"]),
    ("Take", &["granted", "replayed", "busy", "busy, queued", "never", "queue full"]),
    ("RenewPermit", &["renewed", "lost Expired", "lost MaxHold", "lost Replaced", "lost Absent"]),
    ("GiveBack", &["none", "some"]),
    ("HeldBy", &["nothing", "something"]),
    ("Lock", &["nothing", "something"]),
    ("Locks", &["last page", "more pages"]),
    ("Permits", &["nothing", "something"]),
    ("PermitList", &["last page", "more pages"]),
    ("Listen", &["nothing", "something"]),
    ("Fire", &["nothing", "locks reaped"]),
    ("Advance", &["done"]),
    ("Reopen", &["done"]),
];

/// What happens only among old callers.
const AMONG_OLD_CALLERS: &[(&str, &[&str])] = &[
    ("Acquire", &["granted, Orphan", "busy legacy", "busy legacy, queued"]),
    ("Renew", &["renewed, healed", "renewed, attempts"]),
    ("Release", &["lost Absent"]),
    ("End", &["absent, counter without meta"]),
    ("Reap", &["legacy"]),
    ("OldIncr", &["entered", "kept out"]),
    ("OldSet", &["done"]),
    ("OldDelCounter", &["done"]),
    ("OldDelMeta", &["done"]),
    ("OldGet", &["nothing", "something"]),
];

impl LockCoverage {
    pub(super) fn note(&mut self, op: &Op, reply: &Reply) {
        self.seen.insert(format!("{}: {}", op.kind(), end(reply)));
    }

    /// Adds what another run has seen.
    pub fn add(&mut self, other: Self) {
        self.seen.extend(other.seen);
    }

    /// What should have been seen and was not. Empty means that the run proved something.
    pub fn missing(&self, old: OldCallers) -> Vec<String> {
        let old: &[_] = if old == OldCallers::Some { AMONG_OLD_CALLERS } else { &[] };
        let all = MUST_BE_SEEN.iter().chain(old);
        let ends = all.flat_map(|(kind, ends)| ends.iter().map(move |end| format!("{kind}: {end}")));
        ends.filter(|must| !self.seen.contains(must)).collect()
    }
}

fn end(reply: &Reply) -> String {
    let word = |yes: bool, if_yes: &str, if_no: &str| if yes { if_yes } else { if_no }.to_owned();
    match reply {
        Reply::Done => "done".to_owned(),
        Reply::Acquired(reply) => acquired_end(reply),
        Reply::Renewed(reply) => renewed_end(reply),
        Reply::Released(reply) => released_end(reply),
        Reply::Ended(reply) => ended_end(reply).to_owned(),
        Reply::Cancelled(reply) => cancelled_end(*reply).to_owned(),
        Reply::Reaped(reply) => reaped_end(*reply).to_owned(),
        Reply::Taken(reply) => taken_end(reply).to_owned(),
        Reply::Count(count) => word(*count > 0, "some", "none"),
        Reply::Held(held) => word(held.is_empty(), "nothing", "something"),
        Reply::Lock(view) => word(view.is_none(), "nothing", "something"),
        Reply::Locks(page) => word(page.next.is_some(), "more pages", "last page"),
        Reply::Permits(view) => word(view.is_none(), "nothing", "something"),
        Reply::PermitList(page) => word(page.next.is_some(), "more pages", "last page"),
        Reply::Heard(turns) => word(turns.is_empty(), "nothing", "something"),
        Reply::Fired(fired) => word(fired.locks_reaped > 0, "locks reaped", "nothing"),
        Reply::Number(number) => word(*number == 1, "entered", "kept out"),
        Reply::Keys(counter, meta) => word(counter.is_none() && meta.is_none(), "nothing", "something"),
        Reply::Trouble(trouble) => format!("trouble: {trouble}"),
    }
}

fn acquired_end(reply: &AcquireReply) -> String {
    match reply {
        AcquireReply::Granted(grant) => {
            let (Previous::None | Previous::Released | Previous::Expired | Previous::Orphan) = grant.previous;
            format!("granted, {:?}", grant.previous)
        }
        AcquireReply::Replayed(_) => "replayed".to_owned(),
        AcquireReply::Reentered(_) => "reentered".to_owned(),
        AcquireReply::SelfHeld { .. } => "self".to_owned(),
        AcquireReply::Spent => "spent".to_owned(),
        AcquireReply::QueueFull { .. } => "queue full".to_owned(),
        AcquireReply::Busy(busy) => {
            let with = match busy.with {
                BusyWith::Towpath(_) => "towpath",
                BusyWith::Legacy(_) => "legacy",
                BusyWith::Queue => "queue",
            };
            format!("busy {with}{}", if busy.rank.is_some() { ", queued" } else { "" })
        }
    }
}

fn renewed_end(reply: &RenewReply) -> String {
    match reply {
        RenewReply::Renewed { healed: true, .. } => "renewed, healed".to_owned(),
        RenewReply::Renewed { legacy_attempts: 1.., .. } => "renewed, attempts".to_owned(),
        RenewReply::Renewed { .. } => "renewed".to_owned(),
        RenewReply::Lost(why) => lost_end(*why),
    }
}

fn lost_end(why: LostLock) -> String {
    format!("lost {why:?}")
}

fn released_end(reply: &ReleaseReply) -> String {
    match reply {
        ReleaseReply::Released => "released".to_owned(),
        ReleaseReply::StillHeld { .. } => "still held".to_owned(),
        ReleaseReply::Already => "already".to_owned(),
        ReleaseReply::Expired => "expired".to_owned(),
        ReleaseReply::Lost { why, .. } => lost_end(*why),
    }
}

fn ended_end(reply: &EndReply) -> &'static str {
    match reply {
        EndReply::Ended { .. } => "ended",
        EndReply::StillHeld { .. } => "still held",
        EndReply::Already => "already",
        EndReply::Absent { counter_without_meta: true } => "absent, counter without meta",
        EndReply::Absent { .. } => "absent",
        EndReply::NotHolder(_) => "not holder",
        EndReply::Changed { .. } => "changed",
    }
}

fn cancelled_end(reply: CancelReply) -> &'static str {
    match reply {
        CancelReply::Cancelled => "cancelled",
        CancelReply::NotQueued => "not queued",
        CancelReply::WasGranted { .. } => "was granted",
    }
}

fn reaped_end(reply: ReapReply) -> &'static str {
    match reply {
        ReapReply::Freed => "freed",
        ReapReply::Free => "free",
        ReapReply::Live { .. } => "live",
        ReapReply::Legacy => "legacy",
    }
}

fn taken_end(reply: &PermitReply) -> &'static str {
    match reply {
        PermitReply::Granted(_) => "granted",
        PermitReply::Replayed(_) => "replayed",
        PermitReply::Busy(busy) if busy.rank.is_some() => "busy, queued",
        PermitReply::Busy(_) => "busy",
        PermitReply::Never => "never",
        PermitReply::QueueFull { .. } => "queue full",
    }
}
