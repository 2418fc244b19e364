//! Taking weighted permits, joining the queue, or learning how many units are left.

use std::time::Duration;

use super::{Permit, PermitKind, PermitState};
use crate::lock::{AcquireLock, Fence, Stepped};
use crate::names::{ExecutionId, LockId, LockScope, WaiterId};
use crate::time::Timestamp;

/// A question for permits. Whoever asks again under the same lock id gets the same answer again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquirePermit {
    /// Semaphore or read/write lock.
    pub kind: PermitKind,
    /// Of what.
    pub scope: LockScope,
    /// Who asks.
    pub lock_id: LockId,
    /// The execution that it ends with.
    pub execution_id: Option<ExecutionId>,
    /// How many units there are.
    pub limit: u32,
    /// How many are wanted.
    pub weight: u32,
    /// How long the holder may be silent.
    pub lease: Duration,
    /// How long it may hold them, however often it renews.
    pub max_hold: Duration,
    /// The place in the queue; `None` does not wait.
    pub waiter: Option<WaiterId>,
    /// How long the place is kept without asking again.
    pub waiter_ttl: Duration,
    /// How many may wait.
    pub waiters_max: u32,
    /// How long a silent head that could enter is waited for.
    pub claim: Duration,
}

impl AcquirePermit {
    /// A question for one unit that does not wait, with all defaults.
    pub fn new(kind: PermitKind, scope: LockScope, lock_id: LockId, limit: u32) -> Self {
        Self {
            kind,
            scope,
            lock_id,
            execution_id: None,
            limit,
            weight: 1,
            lease: AcquireLock::LEASE,
            max_hold: AcquireLock::MAX_HOLD,
            waiter: None,
            waiter_ttl: AcquireLock::WAITER_TTL,
            waiters_max: AcquireLock::WAITERS_MAX,
            claim: AcquireLock::CLAIM,
        }
    }
}

/// What became of the question.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermitReply {
    /// The units are the asker's.
    Granted(PermitGrant),
    /// They were the asker's already: the same answer again.
    Replayed(PermitGrant),
    /// There are not enough, or somebody goes first.
    Busy(PermitBusy),
    /// More were asked for than there are.
    Never,
    /// Too many wait already; the asker was not queued.
    QueueFull {
        /// How many wait.
        waiters: u32,
    },
}

/// Units in their holder's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitGrant {
    /// What the protected resource compares.
    pub fence: Fence,
    /// The store's clock.
    pub now: Timestamp,
    /// The end of the lease.
    pub lease_end: Timestamp,
    /// The end of all renewals.
    pub max_hold_end: Timestamp,
    /// Units that are left.
    pub units_left: u32,
}

/// Why it must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitBusy {
    /// When the next permit lapses, or when a silent head may be passed; `None` when nobody knows.
    pub free_in: Option<Duration>,
    /// How many are ahead in the queue; `None` when the asker did not queue.
    pub rank: Option<u32>,
    /// Units that are left.
    pub units_left: u32,
}

/// Takes the units if everybody who waits ahead fits as well, else joins the queue.
pub fn acquire(state: &mut PermitState, want: &AcquirePermit, now: Timestamp) -> Stepped<PermitReply> {
    if want.weight > want.limit {
        return Stepped::quiet(PermitReply::Never);
    }
    state.permits.retain(|permit| permit.lease_end > now);
    let units_left = units_left(state, want);
    if let Some(permit) = state.permits.iter().find(|permit| permit.lock_id == want.lock_id) {
        return Stepped::quiet(PermitReply::Replayed(permit.grant(units_left, now)));
    }
    let mut entry = may_enter(state, want, now);
    let mut turn_in = None;
    if !entry.fits && entry.head_fits && units_left >= want.weight {
        // The head could have entered and is silent: one place is passed per claim.
        let since = state.free_since.unwrap_or(now);
        let may_pass_at = since + want.claim;
        if may_pass_at > now {
            state.free_since = Some(since);
            turn_in = Some(may_pass_at.since(now));
        } else {
            state.queue.waiters.remove(0);
            state.free_since = None;
            entry = may_enter(state, want, now);
            turn_in = Some(want.claim);
        }
    }
    if entry.fits { grant(state, want, now) } else { Stepped::quiet(busy(state, want, turn_in, now)) }
}

struct Entry {
    /// Everybody ahead fits, and then the asker.
    fits: bool,
    /// The first of those ahead fits.
    head_fits: bool,
}

/// Walks the queue from its head. Whoever is gone is dropped on the way.
fn may_enter(state: &mut PermitState, want: &AcquirePermit, now: Timestamp) -> Entry {
    let (limit, weight) = (u64::from(want.limit), u64::from(want.weight));
    let mut sum = state.used();
    let mut head_fits = None;
    let mut place = 0;
    while let Some(ahead) = state.queue.waiters.get(place).filter(|ahead| Some(&ahead.waiter) != want.waiter.as_ref()) {
        if ahead.alive_until <= now {
            // The next head has not had its chance yet.
            state.free_since = state.free_since.filter(|_| place > 0);
            state.queue.waiters.remove(place);
            continue;
        }
        sum += u64::from(ahead.weight);
        head_fits.get_or_insert(sum <= limit);
        place += 1;
        if sum + weight > limit {
            return Entry { fits: false, head_fits: head_fits == Some(true) };
        }
    }
    Entry { fits: sum + weight <= limit, head_fits: head_fits == Some(true) }
}

fn units_left(state: &PermitState, want: &AcquirePermit) -> u32 {
    // A limit that was lowered may leave more in use than there is.
    u32::try_from(u64::from(want.limit).saturating_sub(state.used())).unwrap_or(u32::MAX)
}

fn grant(state: &mut PermitState, want: &AcquirePermit, now: Timestamp) -> Stepped<PermitReply> {
    let fence = Fence::after(state.fence_high, now);
    let max_hold_end = now + want.max_hold;
    let permit = Permit {
        lock_id: want.lock_id.clone(),
        weight: want.weight,
        fence,
        lease_end: (now + want.lease).min(max_hold_end),
        lease: want.lease,
        max_hold_end,
        execution_id: want.execution_id.clone(),
    };
    state.permits.push(permit.clone());
    (state.fence_high, state.free_since) = (fence, None);
    if let Some(waiter) = &want.waiter {
        state.queue.leave(waiter);
    }
    let units_left = units_left(state, want);
    let next = state.queue.waiters.first().filter(|_| units_left > 0);
    let wakes = next.map(|place| place.waiter.clone()).into_iter().collect();
    Stepped { reply: PermitReply::Granted(permit.grant(units_left, now)), wakes }
}

fn busy(state: &mut PermitState, want: &AcquirePermit, turn_in: Option<Duration>, now: Timestamp) -> PermitReply {
    let mut rank = None;
    if let Some(waiter) = &want.waiter {
        let waiters = u32::try_from(state.queue.waiters.len()).unwrap_or(u32::MAX);
        if waiters >= want.waiters_max && state.queue.rank(waiter).is_none() {
            return PermitReply::QueueFull { waiters };
        }
        let place = state.queue.join(waiter, now + want.waiter_ttl, want.weight);
        rank = Some(u32::try_from(place).unwrap_or(u32::MAX));
    }
    let next_lapse = state.permits.iter().map(|permit| permit.lease_end).min();
    let free_in = turn_in.or_else(|| next_lapse.map(|at| at.since(now)));
    PermitReply::Busy(PermitBusy { free_in, rank, units_left: units_left(state, want) })
}

impl Permit {
    fn grant(&self, units_left: u32, now: Timestamp) -> PermitGrant {
        PermitGrant { fence: self.fence, now, lease_end: self.lease_end, max_hold_end: self.max_hold_end, units_left }
    }
}
