//! Six clients and one lock. A client that crashes forgets everything it held or waited for, and starts anew.

use towpath_core::lock::{AcquireLock, AcquireReply, Fence, ReleaseReply, RenewReply};
use towpath_core::time::Timestamp;

use super::{CLIENTS, Dice};
use crate::bench::Bench;
use crate::words::{LockWords, want};

/// What a client believes.
#[derive(Clone, Debug)]
enum Client {
    Idle,
    Waiting(AcquireLock),
    Holding {
        fence: Fence,
    },
    /// It was paused, its lease ran out, and it does not know.
    Stale {
        fence: Fence,
    },
}

/// What the judge knows.
#[derive(Default)]
struct Judge {
    /// The tenure that counts, and until when.
    tenure: Option<(Fence, Timestamp)>,
    highest: Fence,
    /// Since when nobody holds the lock.
    free_since: Option<Timestamp>,
    /// Who waits, by arrival, and until when its place is kept.
    queue: Vec<(AcquireLock, Timestamp)>,
    grants: usize,
}

pub(super) async fn run(t: &Bench, dice: &mut Dice, steps: usize) -> usize {
    let mut clients = vec![Client::Idle; CLIENTS];
    let mut judge = Judge::default();
    for step in 0..steps {
        let number = dice.below(CLIENTS);
        let client = std::mem::replace(&mut clients[number], Client::Idle);
        clients[number] = act(t, dice, &mut judge, client, number, step).await;
        if dice.percent() < 40 {
            t.advance_ms([1, 50, 300, 1_000, 4_000, 11_000][dice.below(6)]);
        }
        if dice.percent() < 5 {
            t.fire().await;
        }
    }
    judge.grants
}

async fn act(t: &Bench, dice: &mut Dice, judge: &mut Judge, client: Client, number: usize, step: usize) -> Client {
    match client {
        Client::Idle => {
            let mut question = want("s", &format!("client-{number}")).asked_as(&format!("{number}-{step}"));
            question = if dice.percent() < 75 { question.waiting() } else { question };
            ask(t, dice, judge, question).await
        }
        // Whoever comes back too late has lost its place, and starts anew.
        Client::Waiting(question) if judge.is_gone(&question, t.now()) => Client::Idle,
        Client::Waiting(question) => match dice.percent() {
            0..5 => Client::Idle, // it crashed; its place is lost after its time
            5..10 => {
                let _left = t.take_back("s", question.request_id.as_str()).await;
                judge.queue.retain(|(place, _)| place.waiter != question.waiter);
                Client::Idle
            }
            _ => ask(t, dice, judge, question).await,
        },
        Client::Holding { fence } => match dice.percent() {
            0..6 => Client::Idle, // it crashed with the lock
            6..10 => Client::Stale { fence },
            10..45 => match t.renew_lock("s", fence).await {
                RenewReply::Renewed { lease_end, .. } => {
                    judge.tenure = Some((fence, lease_end));
                    Client::Holding { fence }
                }
                RenewReply::Lost(_) => {
                    judge.check_is_over(fence, t.now(), dice.seed);
                    Client::Idle
                }
            },
            _ => leave(t, dice, judge, fence).await,
        },
        Client::Stale { fence } => leave(t, dice, judge, fence).await,
    }
}

async fn ask(t: &Bench, dice: &Dice, judge: &mut Judge, question: AcquireLock) -> Client {
    match t.acquire(question.clone()).await {
        AcquireReply::Granted(grant) => {
            judge.granted(&question, grant.fence, grant.lease_end, t.now(), dice.seed);
            Client::Holding { fence: grant.fence }
        }
        AcquireReply::Busy(busy) => {
            if busy.rank.is_none() {
                return Client::Idle;
            }
            judge.queued(&question, t.now());
            Client::Waiting(question)
        }
        // One that crashed with the lock and came back: it lets its old self run out.
        AcquireReply::SelfHeld { .. } => Client::Idle,
        other => panic!("seed {}: {other:?}", dice.seed),
    }
}

async fn leave(t: &Bench, dice: &Dice, judge: &mut Judge, fence: Fence) -> Client {
    match t.release_lock("s", fence).await {
        ReleaseReply::Released => {
            assert_eq!(judge.tenure.map(|(fence, _)| fence), Some(fence), "seed {}: a tenure ended that was over", dice.seed);
            (judge.tenure, judge.free_since) = (None, Some(t.now()));
        }
        ReleaseReply::Expired | ReleaseReply::Already | ReleaseReply::Lost { .. } => judge.check_is_over(fence, t.now(), dice.seed),
        ReleaseReply::StillHeld { .. } => panic!("seed {}: nobody enters twice", dice.seed),
    }
    Client::Idle
}

impl Judge {
    fn granted(&mut self, question: &AcquireLock, fence: Fence, lease_end: Timestamp, now: Timestamp, seed: u64) {
        if let Some((other, until)) = self.tenure {
            assert!(until <= now, "seed {seed}: {fence} was granted while {other} holds it until {until}, and it is {now}");
            self.free_since = Some(self.free_since.map_or(until, |since| since.max(until)));
        }
        assert!(fence > self.highest, "seed {seed}: {fence} after {}", self.highest);
        let place = self.queue.iter().position(|(place, _)| place.waiter == question.waiter).unwrap_or(self.queue.len());
        let ahead = self.queue[..place].iter().filter(|(_, alive_until)| *alive_until > now).count();
        if ahead > 0 {
            let free_for = now.since(self.free_since.expect("somebody held it before, or nobody would wait"));
            let patience = question.claim * u32::try_from(ahead).expect("six clients");
            assert!(free_for >= patience, "seed {seed}: {fence} overtook {ahead} after {free_for:?}");
        }
        self.queue.drain(..(place + 1).min(self.queue.len()));
        (self.tenure, self.highest, self.free_since) = (Some((fence, lease_end)), fence, None);
        self.grants += 1;
    }

    fn is_gone(&self, question: &AcquireLock, now: Timestamp) -> bool {
        let place = self.queue.iter().find(|(place, _)| place.waiter == question.waiter);
        place.is_some_and(|(_, alive_until)| *alive_until <= now)
    }

    fn queued(&mut self, question: &AcquireLock, now: Timestamp) {
        let alive_until = now + AcquireLock::WAITER_TTL;
        match self.queue.iter_mut().find(|(place, _)| place.waiter == question.waiter) {
            Some((_, until)) => *until = alive_until,
            None => self.queue.push((question.clone(), alive_until)),
        }
    }

    /// Whoever is told that it has lost the lock must have lost it.
    fn check_is_over(&self, fence: Fence, now: Timestamp, seed: u64) {
        let counts = self.tenure.is_some_and(|(holder, until)| holder == fence && until > now);
        assert!(!counts, "seed {seed}: {fence} was told that it is over while it holds the lock");
    }
}
