//! Random operations on locks. They look at the model first, so that most of them hit something: a holder's fence, a waiter's place.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use towpath_core::inspect::{LockQuery, LockView};
use towpath_core::lock::{AcquireLock, CancelLock, Counter, EndBy, EndLock, Fence, ReleaseLock, RenewLock};
use towpath_core::names::{LockScope, WaiterId};
use towpath_core::permit::{AcquirePermit, PermitKind, RW_LIMIT, ReleaseBy, ReleasePermit, RenewPermit};
use towpath_core::store::Store;
use towpath_core::time::Timestamp;

use super::OldCallers;
use super::op::Op;
use crate::bench::sure;
use crate::words::{execution, lock_id, request, scope, waiter};

// Small alphabets: the same names meet again and again.
const SCOPES: [&str; 3] = ["s", "s:2", "заказ"];
const PEOPLE: [&str; 4] = ["a", "b", "c", "d"];
const EXECUTIONS: [&str; 2] = ["4711", "4712"];
const LEASES_MS: [u64; 4] = [1_000, 5_000, 10_000, 30_000];
const CAPS_MS: [u64; 3] = [2_000, 20_000, 60_000];
const STEPS_MS: [u64; 8] = [1, 99, 500, 999, 1_000, 4_000, 5_000, 12_000];

/// A source of operations, the same for the same seed.
pub(super) struct Generator {
    random: StdRng,
    old: OldCallers,
}

impl Generator {
    pub(super) fn new(seed: u64, old: OldCallers) -> Self {
        Self { random: StdRng::seed_from_u64(seed), old }
    }

    pub(super) async fn next(&mut self, model: &dyn Store, now: Timestamp) -> Op {
        let what = scope(self.pick(&SCOPES));
        let lock = sure(model.lock(&what).await);
        if self.old == OldCallers::Some && self.one_in(4) {
            return self.old_caller(what);
        }
        match self.random.random_range(0..100) {
            0..26 => Op::Acquire(self.acquire(what)),
            26..36 => self.speak(what, lock.as_ref()),
            36..44 => self.end(what, lock),
            44..47 => self.cancel(what, lock),
            47..49 => Op::Reap(what),
            49..69 => self.permit(what, model).await,
            69..82 => self.pass_time(lock.as_ref(), now),
            82..86 => Op::Fire { limit: self.pick(&[1, 1_000, 1_000]) },
            86..90 => Op::Listen,
            90..99 => self.look(what),
            _ => Op::Reopen,
        }
    }

    fn acquire(&mut self, what: LockScope) -> AcquireLock {
        let who = self.pick(&PEOPLE);
        let asked_as = format!("{who}{}", self.random.random_range(0..3));
        let mut want = AcquireLock::new(what, lock_id(who), request(&asked_as));
        want.waiter = (!self.one_in(3)).then(|| waiter(&asked_as));
        want.lease = self.ms(&LEASES_MS);
        want.max_hold = self.ms(&CAPS_MS);
        want.max_holds = self.pick(&[1, 1, 2, 3]);
        want.waiters_max = self.pick(&[3, 10_000]);
        want.orphan_grace = self.ms(&[0, 1_000, 1_000, 1_000, 6_000]);
        want.identity.execution_id = self.one_in(2).then(|| execution(self.pick(&EXECUTIONS)));
        want
    }

    /// A fence that is right, or was, or will be.
    fn fence(&mut self, lock: Option<&LockView>) -> Fence {
        let high = lock.map_or(1, |view| view.fence_high.as_u64());
        let near = [high, high, high, high.saturating_sub(1), high + 1, high.saturating_sub(30)];
        Fence::new(self.pick(&near))
    }

    fn speak(&mut self, scope: LockScope, lock: Option<&LockView>) -> Op {
        let fence = self.fence(lock);
        if self.one_in(2) {
            Op::Renew(RenewLock { scope, fence, lease: self.renewal() })
        } else {
            Op::Release(ReleaseLock { scope, fence })
        }
    }

    fn end(&mut self, scope: LockScope, lock: Option<LockView>) -> Op {
        let by = match self.random.random_range(0..4) {
            0..2 => EndBy::LockId(lock_id(self.pick(&["a", "b", "c", "d", "old", "old 2"]))),
            2 => EndBy::Execution(execution(self.pick(&EXECUTIONS))),
            _ => {
                let seen = lock.and_then(|view| view.counter);
                let counter = if self.one_in(3) { Some(Counter::new("7")) } else { seen };
                EndBy::Force { counter, who: "operator".to_owned(), reason: "random".to_owned() }
            }
        };
        Op::End(EndLock { scope, by })
    }

    fn cancel(&mut self, scope: LockScope, lock: Option<LockView>) -> Op {
        let waiters = lock.map_or(Vec::new(), |view| view.waiters);
        let waiting = waiters.choose(&mut self.random).map(|place| place.waiter.clone());
        let guess = format!("{}{}", self.pick(&PEOPLE), self.random.random_range(0..3));
        let asked_as = match &waiting {
            Some(place) if self.one_in(2) => place.as_str().split('|').nth(1).unwrap_or_default().to_owned(),
            _ => guess,
        };
        Op::Cancel(CancelLock { scope, request_id: request(&asked_as), waiter: (!self.one_in(4)).then(|| waiter(&asked_as)) })
    }

    async fn permit(&mut self, what: LockScope, model: &dyn Store) -> Op {
        let kind = self.pick(&[PermitKind::Semaphore, PermitKind::Semaphore, PermitKind::ReadWrite]);
        let view = sure(model.permits(kind, &what).await);
        let held = view.iter().flat_map(|view| &view.permits).map(|permit| (permit.lock_id.clone(), permit.fence)).collect::<Vec<_>>();
        let high = view.as_ref().map_or(1, |view| view.fence_high.as_u64());
        let stranger = (lock_id(self.pick(&PEOPLE)), Fence::new(self.pick(&[high, high.saturating_sub(1), high + 1])));
        let (who, fence) = if self.one_in(3) { stranger } else { held.choose(&mut self.random).cloned().unwrap_or(stranger) };
        match self.random.random_range(0..10) {
            0..6 => Op::Take(self.take(kind, what)),
            6..8 => Op::RenewPermit(RenewPermit { kind, scope: what, lock_id: who, fence, lease: self.renewal() }),
            _ => {
                let waiters: Vec<WaiterId> = view.iter().flat_map(|view| &view.waiters).map(|place| place.waiter.clone()).collect();
                let by = match (self.random.random_range(0..5), waiters.choose(&mut self.random)) {
                    (0, Some(waiter)) => ReleaseBy::Waiter(waiter.clone()),
                    (1, _) => ReleaseBy::Execution(execution(self.pick(&EXECUTIONS))),
                    _ => ReleaseBy::Permit { lock_id: who, fence: (!self.one_in(4)).then_some(fence) },
                };
                Op::GiveBack(ReleasePermit { kind, scope: what, by })
            }
        }
    }

    fn take(&mut self, kind: PermitKind, what: LockScope) -> AcquirePermit {
        let who = self.pick(&PEOPLE);
        let limit = if kind == PermitKind::Semaphore { self.pick(&[5, 5, 5, 3]) } else { RW_LIMIT };
        let mut want = AcquirePermit::new(kind, what, lock_id(who), limit);
        want.weight = if kind == PermitKind::Semaphore { self.pick(&[1, 1, 2, 3, 4, 6]) } else { self.pick(&[1, 1, RW_LIMIT]) };
        want.waiter = (!self.one_in(3)).then(|| waiter(who));
        want.lease = self.ms(&LEASES_MS);
        want.max_hold = self.ms(&CAPS_MS);
        want.waiters_max = self.pick(&[1, 10_000, 10_000]);
        want.execution_id = self.one_in(2).then(|| execution(self.pick(&EXECUTIONS)));
        want
    }

    /// Often exactly to where something ends, or to just before.
    fn pass_time(&mut self, lock: Option<&LockView>, now: Timestamp) -> Op {
        let lease_end = lock.and_then(|view| view.holder.as_ref()?.lease_end);
        let cap = lock.and_then(|view| view.max_hold_end);
        let to = if self.one_in(3) { cap } else { lease_end };
        let left = to.map(|to| u64::try_from(to.since(now).as_millis()).unwrap_or(u64::MAX));
        match left.filter(|left| *left > 1) {
            Some(left) if self.one_in(3) => Op::Advance { ms: left - u64::from(self.one_in(4)) },
            _ => Op::Advance { ms: self.pick(&STEPS_MS) },
        }
    }

    fn look(&mut self, what: LockScope) -> Op {
        match self.random.random_range(0..5) {
            0 => Op::Lock(what),
            1 => Op::HeldBy(execution(self.pick(&EXECUTIONS))),
            2 => Op::Permits(self.pick(&PermitKind::ALL), what),
            3 => Op::PermitList(self.pick(&PermitKind::ALL), self.query(what)),
            _ => Op::Locks(self.query(what)),
        }
    }

    /// Locks of old workflows that none of ours has met are found by a scan alone.
    fn query(&mut self, what: LockScope) -> LockQuery {
        LockQuery {
            prefix: self.pick(&["", "s", "x"]).to_owned(),
            after: self.one_in(4).then_some(what),
            limit: self.pick(&[1, 2, 100]),
            also: Vec::new(),
            scan: self.old == OldCallers::Some || self.one_in(2),
        }
    }

    fn old_caller(&mut self, what: LockScope) -> Op {
        match self.random.random_range(0..12) {
            0..4 => Op::OldIncr(what),
            4..6 => {
                let id = self.pick(&["old", "old 2", "a"]);
                let execution = self.pick(&["\"4711\"", "4712", "null"]);
                let json =
                    format!(r#"{{"lock_id":"{id}","workflow_id":"wf","workflow_name":"Old","execution_id":{execution},"locked_at":"x"}}"#);
                Op::OldSet(what, if self.one_in(4) { id.to_owned() } else { json })
            }
            6..9 => Op::OldDelCounter(what),
            9..11 => Op::OldDelMeta(what),
            _ => Op::OldGet(what),
        }
    }

    /// The length of a renewal; now and then it does not say.
    fn renewal(&mut self) -> Option<Duration> {
        if self.one_in(3) { None } else { Some(self.ms(&LEASES_MS)) }
    }

    fn ms(&mut self, choices: &[u64]) -> Duration {
        Duration::from_millis(self.pick(choices))
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random.random_range(0..count) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        *choices.choose(&mut self.random).expect("there is something to choose from")
    }
}
