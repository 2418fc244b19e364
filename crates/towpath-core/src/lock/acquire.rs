//! Taking a lock, joining its queue, or learning who holds it.

use std::time::Duration;

use super::{Counter, Fence, Holder, Identity, LockState, OrphanWatch, Stepped, Tenure};
use crate::names::{LockId, LockScope, RequestId, WaiterId};
use crate::time::{Timestamp, millis};

/// An orphan is watched without a gap longer than this.
const WATCH_GAP: Duration = Duration::from_secs(5);

/// A question for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireLock {
    /// What is to be locked.
    pub scope: LockScope,
    /// Who asks.
    pub lock_id: LockId,
    /// Who that is, for others to read.
    pub identity: Identity,
    /// The same for every repetition of one question, so that a lost answer is given again.
    pub request_id: RequestId,
    /// How long the holder may be silent.
    pub lease: Duration,
    /// How long it may hold the lock, however often it renews.
    pub max_hold: Duration,
    /// How often this lock id may enter without leaving; 1 is once.
    pub max_holds: u32,
    /// The place in the queue; `None` does not wait.
    pub waiter: Option<WaiterId>,
    /// How long the place is kept without asking again.
    pub waiter_ttl: Duration,
    /// How many may wait.
    pub waiters_max: u32,
    /// How long each silent waiter ahead is waited for once the lock is free.
    pub claim: Duration,
    /// How long an old workflow's counter without identity is left alone; zero is for ever.
    pub orphan_grace: Duration,
}

impl AcquireLock {
    /// How long a holder may be silent unless it says otherwise.
    pub const LEASE: Duration = Duration::from_secs(30);
    /// How long a lock is held at most unless its holder says otherwise.
    pub const MAX_HOLD: Duration = Duration::from_secs(86_400);
    /// How long a place in the queue is kept without asking again.
    pub const WAITER_TTL: Duration = Duration::from_secs(30);
    /// How many may wait for one scope.
    pub const WAITERS_MAX: u32 = 10_000;
    /// How long each silent waiter ahead is waited for.
    pub const CLAIM: Duration = Duration::from_secs(1);
    /// How long an old workflow's counter without identity is left alone.
    pub const ORPHAN_GRACE: Duration = Duration::from_secs(60);

    /// A question that does not wait, with all defaults.
    pub fn new(scope: LockScope, lock_id: LockId, request_id: RequestId) -> Self {
        Self {
            scope,
            lock_id,
            identity: Identity::default(),
            request_id,
            lease: Self::LEASE,
            max_hold: Self::MAX_HOLD,
            max_holds: 1,
            waiter: None,
            waiter_ttl: Self::WAITER_TTL,
            waiters_max: Self::WAITERS_MAX,
            claim: Self::CLAIM,
            orphan_grace: Self::ORPHAN_GRACE,
        }
    }
}

/// What became of the question.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireReply {
    /// The lock is the asker's.
    Granted(Grant),
    /// It was the asker's already, by this very question: the same answer again.
    Replayed(Grant),
    /// Its holder has entered once more, under the same fence.
    Reentered(Grant),
    /// This lock id has it already and may not enter again.
    SelfHeld {
        /// Its fence.
        fence: Fence,
        /// The end of its lease.
        lease_end: Timestamp,
    },
    /// A late copy of a question whose tenure was released before.
    Spent,
    /// Somebody else has it, or goes first.
    Busy(Busy),
    /// Too many wait already; the asker was not queued.
    QueueFull {
        /// How many wait.
        waiters: u32,
    },
}

/// A lock in its holder's hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What the protected resource compares.
    pub fence: Fence,
    /// The store's clock, so that nobody compares two machines' clocks.
    pub now: Timestamp,
    /// The end of the lease.
    pub lease_end: Timestamp,
    /// The end of all renewals.
    pub max_hold_end: Timestamp,
    /// How often its holder has entered without leaving.
    pub holds: u32,
    /// How the tenure before this one ended.
    pub previous: Previous,
    /// When it was granted.
    pub locked_at: Timestamp,
}

/// How the tenure before ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Previous {
    /// There was none that is remembered.
    None,
    /// It was released.
    Released,
    /// Its holder fell silent.
    Expired,
    /// An old workflow's counter without identity was taken over.
    Orphan,
}

impl Previous {
    /// As it is counted.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Orphan => "orphan",
        }
    }
}

/// Why it must wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Who is in the way.
    pub with: BusyWith,
    /// When that may be over; `None` when nobody knows.
    pub free_in: Option<Duration>,
    /// How many are ahead in the queue; `None` when the asker did not queue.
    pub rank: Option<u32>,
    /// The counter, as an operator needs it to force a release.
    pub counter: Option<Counter>,
}

/// Who is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusyWith {
    /// A holder of ours.
    Towpath(Holder),
    /// An old workflow.
    Legacy(Holder),
    /// Nobody holds it, but somebody who queued earlier goes first.
    Queue,
}

/// Takes the lock, joins its queue, or says who holds it.
pub fn acquire(state: &mut LockState, want: &AcquireLock, now: Timestamp) -> Stepped<AcquireReply> {
    if let Some(reply) = ask_again(state, want, now) {
        return Stepped::quiet(reply);
    }
    let free = freedom(state, want, now);
    if free.is_none() {
        state.free_since = None;
    }
    let turn_in = match free {
        Some(freedom) => match turn(state, want, now) {
            Turn::Now => return Stepped::quiet(AcquireReply::Granted(grant(state, want, freedom, now))),
            Turn::In(wait) => Some(wait),
        },
        None => None,
    };
    Stepped::quiet(busy(state, want, turn_in, now))
}

/// The holder itself, or a late copy of a question that is over.
fn ask_again(state: &mut LockState, want: &AcquireLock, now: Timestamp) -> Option<AcquireReply> {
    let Some(tenure) = state.held(now).filter(|tenure| tenure.lock_id == want.lock_id) else {
        let spent = state.last.request_id.as_ref() == Some(&want.request_id);
        return spent.then_some(AcquireReply::Spent);
    };
    if tenure.request_id == want.request_id {
        return Some(AcquireReply::Replayed(tenure.grant(Previous::None, now)));
    }
    if tenure.holds >= want.max_holds {
        return Some(AcquireReply::SelfHeld { fence: tenure.fence, lease_end: tenure.lease_end });
    }
    let mut tenure = tenure.clone();
    tenure.holds += 1;
    tenure.request_id = want.request_id.clone();
    tenure.lease_end = tenure.lease_end.max((now + want.lease).min(tenure.max_hold_end));
    tenure.lease = tenure.lease.max(want.lease);
    let grant = tenure.grant(Previous::None, now);
    state.tenure = Some(tenure);
    state.publish();
    Some(AcquireReply::Reentered(grant))
}

/// Why nobody holds it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freedom {
    /// No counter, or one whose tenure is over and which a foreign EXPIRE kept alive.
    Plain,
    /// An old workflow's counter without identity, watched for long enough.
    Orphan,
}

fn freedom(state: &mut LockState, want: &AcquireLock, now: Timestamp) -> Option<Freedom> {
    if state.held(now).is_some() {
        return None;
    }
    let Some(counter) = state.counter.clone() else { return Some(Freedom::Plain) };
    if counter.fence().is_some() {
        return Some(Freedom::Plain);
    }
    if state.foreign_meta().is_some() {
        state.orphan_watch = None;
        return None;
    }
    if want.orphan_grace.is_zero() {
        return None;
    }
    let value = counter.value();
    let seen = state.orphan_watch.filter(|watch| now.since(watch.seen_at) <= WATCH_GAP && value >= watch.value);
    let since = seen.map_or(now, |watch| watch.since);
    state.orphan_watch = Some(OrphanWatch { since, seen_at: now, value });
    (seen.is_some() && now.since(since) >= want.orphan_grace).then_some(Freedom::Orphan)
}

enum Turn {
    Now,
    In(Duration),
}

/// The live head enters, or anybody when nobody waits. A silent head is passed after `claim` for every place ahead.
fn turn(state: &mut LockState, want: &AcquireLock, now: Timestamp) -> Turn {
    let Some(head) = state.queue.live_head(now) else { return Turn::Now };
    if Some(head) == want.waiter.as_ref() {
        return Turn::Now;
    }
    let free_since = *state.free_since.get_or_insert(now);
    // A caller that does not wait counts as the last place.
    let ahead = want.waiter.as_ref().and_then(|waiter| state.queue.rank(waiter)).unwrap_or(state.queue.waiters.len());
    let may_pass_at = free_since + want.claim.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
    if may_pass_at > now {
        return Turn::In(may_pass_at.since(now));
    }
    state.queue.waiters.drain(..ahead);
    Turn::Now
}

fn grant(state: &mut LockState, want: &AcquireLock, freedom: Freedom, now: Timestamp) -> Grant {
    let last = state.fence_high;
    let previous = match freedom {
        Freedom::Orphan => Previous::Orphan,
        Freedom::Plain if last > state.last.fence => Previous::Expired,
        Freedom::Plain if last > Fence::default() => Previous::Released,
        Freedom::Plain => Previous::None,
    };
    let fence = Fence::after(last, now);
    let max_hold_end = now + want.max_hold;
    let tenure = Tenure {
        lock_id: want.lock_id.clone(),
        fence,
        holds: 1,
        execution_id: want.identity.execution_id.clone(),
        request_id: want.request_id.clone(),
        lease_end: (now + want.lease).min(max_hold_end),
        lease: want.lease,
        max_hold_end,
        meta: want.identity.sidecar(&want.lock_id, now, fence),
        locked_at: now,
    };
    let grant = tenure.grant(previous, now);
    (state.fence_high, state.tenure) = (fence, Some(tenure));
    (state.free_since, state.orphan_watch) = (None, None);
    state.publish();
    if let Some(waiter) = &want.waiter {
        state.queue.leave(waiter);
    }
    grant
}

fn busy(state: &mut LockState, want: &AcquireLock, turn_in: Option<Duration>, now: Timestamp) -> AcquireReply {
    let mut rank = None;
    if let Some(waiter) = &want.waiter {
        let waiters = u32::try_from(state.queue.waiters.len()).unwrap_or(u32::MAX);
        if waiters >= want.waiters_max && state.queue.rank(waiter).is_none() {
            return AcquireReply::QueueFull { waiters };
        }
        let place = state.queue.join(waiter, now + want.waiter_ttl, 1);
        rank = Some(u32::try_from(place).unwrap_or(u32::MAX));
    }
    let counter = state.counter.clone();
    let held = state.held(now).map(|tenure| (tenure.fence, tenure.lease_end, Holder::of(tenure)));
    let (with, free_in) = match (turn_in, held) {
        (Some(turn_in), _) => (BusyWith::Queue, Some(turn_in)),
        (None, Some((fence, lease_end, holder))) => {
            if counter.as_ref().is_some_and(Counter::is_crowded) {
                state.counter = Some(Counter::of(fence));
            }
            (BusyWith::Towpath(holder), Some(lease_end.since(now)))
        }
        // When an old workflow's counter runs out is for the store to know.
        (None, None) => (BusyWith::Legacy(Holder::from_meta(state.foreign_meta().map(|meta| &**meta))), None),
    };
    AcquireReply::Busy(Busy { with, free_in, rank, counter })
}

impl Tenure {
    fn grant(&self, previous: Previous, now: Timestamp) -> Grant {
        Grant {
            fence: self.fence,
            now,
            lease_end: self.lease_end,
            max_hold_end: self.max_hold_end,
            holds: self.holds,
            previous,
            locked_at: self.locked_at,
        }
    }
}

impl Grant {
    /// How much of the lease is left by the store's clock, when it answered.
    pub fn remaining(&self) -> Duration {
        Duration::from_millis(u64::try_from(millis(self.lease_end.since(self.now))).unwrap_or(0))
    }
}
