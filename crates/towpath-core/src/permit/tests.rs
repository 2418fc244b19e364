//! What each move of a permit decides, one sentence at a time.

use std::time::Duration;

use super::*;
use crate::lock::{LostLock, RenewReply};
use crate::names::{LockScope, NodeId, RequestId, WaiterId};

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn after_ms(ms: u64) -> Timestamp {
    START + Duration::from_millis(ms)
}

fn waiter(name: &str) -> WaiterId {
    WaiterId::new(&NodeId::new("node").unwrap(), &RequestId::new(name).unwrap())
}

/// A question for units of five, ten seconds at a time and a minute in all.
fn want(who: &str, weight: u32) -> AcquirePermit {
    let mut want = AcquirePermit::new(PermitKind::Semaphore, LockScope::new("s").unwrap(), LockId::new(who).unwrap(), 5);
    (want.weight, want.lease, want.max_hold) = (weight, Duration::from_secs(10), Duration::from_secs(60));
    want
}

fn waiting(who: &str, weight: u32) -> AcquirePermit {
    AcquirePermit { waiter: Some(waiter(who)), ..want(who, weight) }
}

#[track_caller]
fn granted(state: &mut PermitState, want: &AcquirePermit, now: Timestamp) -> PermitGrant {
    match acquire(state, want, now).reply {
        PermitReply::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn busy(state: &mut PermitState, want: &AcquirePermit, now: Timestamp) -> PermitBusy {
    match acquire(state, want, now).reply {
        PermitReply::Busy(busy) => busy,
        other => panic!("{other:?}"),
    }
}

fn give_back(by: ReleaseBy) -> ReleasePermit {
    ReleasePermit { kind: PermitKind::Semaphore, scope: LockScope::new("s").unwrap(), by }
}

fn permit_of(who: &str, fence: Option<Fence>) -> ReleaseBy {
    ReleaseBy::Permit { lock_id: LockId::new(who).unwrap(), fence }
}

#[test]
fn no_more_units_are_given_than_there_are() {
    let mut state = PermitState::default();
    assert_eq!(granted(&mut state, &want("a", 3), START).units_left, 2);
    assert_eq!(busy(&mut state, &want("b", 3), START), PermitBusy { free_in: Some(Duration::from_secs(10)), rank: None, units_left: 2 });
    assert_eq!(granted(&mut state, &want("c", 2), START).units_left, 0);
    assert_eq!(acquire(&mut state, &want("d", 6), START).reply, PermitReply::Never);
    assert!(matches!(acquire(&mut state, &want("a", 3), START).reply, PermitReply::Replayed(grant) if grant.units_left == 0));
}

#[test]
fn a_heavy_head_is_not_overtaken_by_a_light_one() {
    let mut state = PermitState::default();
    let first = granted(&mut state, &want("a", 4), START);
    assert_eq!(busy(&mut state, &waiting("heavy", 3), START).rank, Some(0));
    assert_eq!(busy(&mut state, &waiting("light", 1), START).rank, Some(1), "one unit is free, but the heavy one came first");
    let released = release(&mut state, &give_back(permit_of("a", Some(first.fence))), START);
    assert_eq!((released.reply, released.wakes), (1, vec![waiter("heavy"), waiter("light")]));
    granted(&mut state, &waiting("light", 1), START);
    granted(&mut state, &waiting("heavy", 3), START);
}

#[test]
fn a_silent_head_that_could_enter_is_passed_after_a_second() {
    let mut state = PermitState::default();
    let first = granted(&mut state, &want("a", 5), START);
    let _queued = (busy(&mut state, &waiting("silent", 4), START), busy(&mut state, &waiting("b", 2), START));
    let _released = release(&mut state, &give_back(permit_of("a", Some(first.fence))), START);
    assert_eq!(busy(&mut state, &waiting("b", 2), START).free_in, Some(Duration::from_secs(1)));
    assert_eq!(busy(&mut state, &waiting("b", 2), after_ms(999)).free_in, Some(Duration::from_millis(1)));
    granted(&mut state, &waiting("b", 2), after_ms(1_000));
    assert_eq!(state.queue.waiters, []);
}

#[test]
fn a_permit_lapses_with_its_lease_and_is_renewed_up_to_its_cap() {
    let mut state = PermitState::default();
    let grant = granted(&mut state, &want("a", 5), START);
    let renewal = |fence| RenewPermit {
        kind: PermitKind::Semaphore,
        scope: LockScope::new("s").unwrap(),
        lock_id: LockId::new("a").unwrap(),
        fence,
        lease: Some(Duration::from_secs(10)),
    };
    let lost = |state: &PermitState, fence, now| renew(&mut state.clone(), &renewal(fence), now).reply;
    assert!(matches!(renew(&mut state, &renewal(grant.fence), after_ms(5_000)).reply, RenewReply::Renewed { .. }));
    assert_eq!(lost(&state, Fence::new(1), START), RenewReply::Lost(LostLock::Replaced));
    assert_eq!(lost(&state, grant.fence, after_ms(15_000)), RenewReply::Lost(LostLock::Expired));
    assert_eq!(lost(&state, grant.fence, after_ms(60_000)), RenewReply::Lost(LostLock::MaxHold));
    let next = granted(&mut state, &want("b", 1), after_ms(15_000));
    assert!(next.fence > grant.fence);
    assert_eq!(lost(&state, grant.fence, after_ms(15_000)), RenewReply::Lost(LostLock::Absent));
}

#[test]
fn permits_are_given_back_once_by_holder_execution_or_not_at_all() {
    let mut state = PermitState::default();
    let execution = ExecutionId::new("4711").unwrap();
    for who in ["a", "b"] {
        granted(&mut state, &AcquirePermit { execution_id: Some(execution.clone()), ..want(who, 1) }, START);
    }
    let grant = granted(&mut state, &want("c", 1), START);
    assert_eq!(release(&mut state, &give_back(permit_of("c", Some(Fence::new(1)))), START).reply, 0);
    assert_eq!(release(&mut state, &give_back(permit_of("c", Some(grant.fence))), START).reply, 1);
    assert_eq!(release(&mut state, &give_back(permit_of("c", None)), START).reply, 0);
    assert_eq!(release(&mut state, &give_back(ReleaseBy::Execution(execution.clone())), START).reply, 2);
    assert_eq!(release(&mut state, &give_back(ReleaseBy::Execution(execution)), START).reply, 0);
}

#[test]
fn readers_join_readers_and_nobody_passes_a_queued_writer() {
    let mut state = PermitState::default();
    let rw = |who, weight| AcquirePermit { kind: PermitKind::ReadWrite, limit: RW_LIMIT, ..waiting(who, weight) };
    granted(&mut state, &rw("r1", 1), START);
    granted(&mut state, &rw("r2", 1), START);
    assert_eq!(busy(&mut state, &rw("w", RW_LIMIT), START).rank, Some(0));
    assert_eq!(busy(&mut state, &rw("r3", 1), START).rank, Some(1));
    let _left =
        (release(&mut state, &give_back(permit_of("r1", None)), START), release(&mut state, &give_back(permit_of("r2", None)), START));
    assert_eq!(busy(&mut state, &rw("r3", 1), START).rank, Some(1));
    assert_eq!(granted(&mut state, &rw("w", RW_LIMIT), START).units_left, 0);
}
