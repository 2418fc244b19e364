//! Six clients and the units of one semaphore, or one read/write lock.

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_core::lock::{Fence, RenewReply};
use towpath_core::names::{LockId, WaiterId};
use towpath_core::permit::{AcquirePermit, PermitGrant, PermitKind, PermitReply, ReleaseBy};
use towpath_core::time::Timestamp;

use super::{CLIENTS, Dice};
use crate::bench::Bench;
use crate::words::{PermitWords, read, semaphore, write};

/// Of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// Five units; weights of one to three.
    Semaphore,
    /// Readers and writers.
    ReadWrite,
}

impl Units {
    fn kind(self) -> PermitKind {
        match self {
            Self::Semaphore => PermitKind::Semaphore,
            Self::ReadWrite => PermitKind::ReadWrite,
        }
    }

    fn question(self, dice: &mut Dice, who: &str) -> AcquirePermit {
        match self {
            Self::Semaphore => semaphore("s", who, [1, 2, 3][dice.below(3)]),
            Self::ReadWrite if dice.percent() < 30 => write("s", who),
            Self::ReadWrite => read("s", who),
        }
    }
}

#[derive(Clone, Debug)]
enum Client {
    Idle,
    Waiting(AcquirePermit),
    Holding { who: LockId, fence: Fence },
}

/// What the judge knows.
#[derive(Default)]
struct Judge {
    /// Who holds how many, and until when.
    held: Vec<(Fence, u32, Timestamp)>,
    /// When each waiter last asked.
    heard: BTreeMap<WaiterId, Timestamp>,
    highest: Fence,
    grants: usize,
}

pub(super) async fn run(t: &Bench, units: Units, dice: &mut Dice, steps: usize) -> usize {
    let mut clients = vec![Client::Idle; CLIENTS];
    let mut judge = Judge::default();
    for step in 0..steps {
        let number = dice.below(CLIENTS);
        let client = std::mem::replace(&mut clients[number], Client::Idle);
        clients[number] = act(t, units, dice, &mut judge, client, &format!("{number}-{step}")).await;
        if dice.percent() < 40 {
            t.advance_ms([1, 50, 300, 1_000, 4_000, 11_000][dice.below(6)]);
        }
    }
    judge.grants
}

async fn act(t: &Bench, units: Units, dice: &mut Dice, judge: &mut Judge, client: Client, new_name: &str) -> Client {
    match client {
        Client::Idle => {
            let question = units.question(dice, new_name);
            let question = if dice.percent() < 75 { question.waiting() } else { question };
            ask(t, dice, judge, question).await
        }
        // Whoever comes back too late may have lost its place, and starts anew.
        Client::Waiting(question) if judge.is_gone(&question, t.now()) => Client::Idle,
        Client::Waiting(question) => match dice.percent() {
            0..5 => Client::Idle, // it crashed; its place is lost after its time
            5..10 => {
                let waiter = question.waiter.clone().expect("whoever waits has a place");
                t.give_back(units.kind(), "s", ReleaseBy::Waiter(waiter)).await;
                Client::Idle
            }
            _ => ask(t, dice, judge, question).await,
        },
        Client::Holding { who, fence } => match dice.percent() {
            0..8 => Client::Idle, // it crashed with its units
            8..35 => match t.renew_permit(units.kind(), "s", who.as_str(), fence).await {
                RenewReply::Renewed { lease_end, .. } => {
                    judge.held.iter_mut().filter(|(held, ..)| *held == fence).for_each(|(.., until)| *until = lease_end);
                    Client::Holding { who, fence }
                }
                RenewReply::Lost(_) => {
                    let counts = judge.held.iter().any(|(held, _, until)| *held == fence && *until > t.now());
                    assert!(!counts, "seed {}: {fence} was told that it is over while it holds its units", dice.seed);
                    Client::Idle
                }
            },
            _ => {
                t.give_back(units.kind(), "s", ReleaseBy::Permit { lock_id: who, fence: Some(fence) }).await;
                judge.held.retain(|(held, ..)| *held != fence);
                Client::Idle
            }
        },
    }
}

async fn ask(t: &Bench, dice: &Dice, judge: &mut Judge, question: AcquirePermit) -> Client {
    let before = t.permits(question.kind, "s").await.map_or(Vec::new(), |view| view.waiters);
    let reply = t.take(question.clone()).await;
    let after = t.permits(question.kind, "s").await.map_or(Vec::new(), |view| view.waiters);
    let gone = before.iter().filter(|place| !after.iter().any(|left| left.waiter == place.waiter));
    for passed in gone.filter(|place| Some(&place.waiter) != question.waiter.as_ref()) {
        judge.check_was_silent(&passed.waiter, question.claim, t.now(), dice.seed);
    }
    if let Some(waiter) = &question.waiter {
        judge.heard.insert(waiter.clone(), t.now());
    }
    match reply {
        PermitReply::Granted(grant) => {
            let ahead = before.iter().take_while(|place| Some(&place.waiter) != question.waiter.as_ref());
            let still_ahead = ahead.filter(|place| after.iter().any(|left| left.waiter == place.waiter));
            let waited_for = still_ahead.map(|place| u64::from(place.weight)).sum();
            judge.granted(&question, grant, waited_for, dice.seed);
            Client::Holding { who: question.lock_id, fence: grant.fence }
        }
        PermitReply::Busy(busy) if busy.rank.is_some() => Client::Waiting(question),
        PermitReply::Busy(_) => Client::Idle,
        other => panic!("seed {}: {other:?}", dice.seed),
    }
}

impl Judge {
    /// Those who were ahead and still wait must fit as well, or somebody was overtaken.
    fn granted(&mut self, question: &AcquirePermit, grant: PermitGrant, waited_for: u64, seed: u64) {
        let PermitGrant { fence, now, lease_end, .. } = grant;
        self.held.retain(|(.., until)| *until > now);
        let used: u64 = self.held.iter().map(|(_, weight, _)| u64::from(*weight)).sum();
        let (weight, limit) = (u64::from(question.weight), u64::from(question.limit));
        assert!(used + weight <= limit, "seed {seed}: {fence} takes {weight} of {limit} while {used} are in use");
        assert!(used + weight + waited_for <= limit, "seed {seed}: {fence} overtook somebody");
        assert!(fence > self.highest, "seed {seed}: {fence} after {}", self.highest);
        self.held.push((fence, question.weight, lease_end));
        (self.highest, self.grants) = (fence, self.grants + 1);
    }

    fn is_gone(&self, question: &AcquirePermit, now: Timestamp) -> bool {
        let heard = question.waiter.as_ref().and_then(|waiter| self.heard.get(waiter));
        heard.is_some_and(|heard| now.since(*heard) >= question.waiter_ttl)
    }

    /// Nobody is passed that was heard of less than a moment ago: it had no chance to take its turn.
    fn check_was_silent(&self, waiter: &WaiterId, claim: Duration, now: Timestamp, seed: u64) {
        let silent_for = self.heard.get(waiter).map(|heard| now.since(*heard));
        assert!(silent_for >= Some(claim), "seed {seed}: {waiter} was passed, heard {silent_for:?} ago");
    }
}
