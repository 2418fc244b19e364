//! Six clients of ours and three old workflows contend for one lock. Old callers that fail cut the counter of a tenure short, so that it
//! lapses: no other of ours may take that for a free lock.

use std::sync::Arc;

use towpath_core::lock::{AcquireReply, Fence, Previous, ReleaseReply, RenewReply};
use towpath_core::time::Timestamp;

use super::{CLIENTS, Dice};
use crate::backend::OldCaller;
use crate::bench::Bench;
use crate::words::want;

const COUNTER: &str = "n8n-lock-s";
const META: &str = "n8n-lock-s:meta";
const OLD: usize = 3;

/// What the histories have seen, so that they prove something.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) grants: usize,
    pub(super) old_grants: usize,
    pub(super) lapses: usize,
}

/// What the judge knows.
#[derive(Default)]
struct Judge {
    /// Our tenure that counts, and until when.
    tenure: Option<(Fence, Timestamp)>,
    /// The counter of our tenure has lapsed: an old caller that comes now reads 1, and nothing can prevent that.
    lapsed: bool,
    /// The old workflow that holds it, and whether it has said who it is.
    old: Option<(usize, bool)>,
    highest: Fence,
}

struct Fleet<'a> {
    t: &'a Bench,
    old: Arc<dyn OldCaller>,
    judge: Judge,
    /// The fence that each client of ours believes to hold.
    ours: [Option<Fence>; CLIENTS],
}

pub(super) async fn run(t: &Bench, dice: &mut Dice, steps: usize, seen: &mut Seen) {
    let mut fleet = Fleet { t, old: t.old_caller(), judge: Judge::default(), ours: [None; CLIENTS] };
    for step in 0..steps {
        match dice.percent() {
            0..45 => fleet.one_of_ours(dice, step, seen).await,
            45..75 => fleet.an_old_one(dice, seen).await,
            75..85 => fleet.a_counter_lapses(dice, step, seen).await,
            _ => {
                t.advance_ms([1, 50, 300, 1_000, 4_000][dice.below(5)]);
            }
        }
        if dice.percent() < 5 {
            t.fire().await;
        }
    }
}

impl Fleet<'_> {
    async fn one_of_ours(&mut self, dice: &mut Dice, step: usize, seen: &mut Seen) {
        let number = dice.below(CLIENTS);
        let Some(fence) = self.ours[number] else { return self.ask(dice, number, step, seen).await };
        match dice.percent() {
            0..10 => self.ours[number] = None, // it crashed with the lock
            10..50 => match self.t.renew_lock("s", fence).await {
                RenewReply::Renewed { lease_end, .. } => {
                    self.check_counts(fence, dice.seed);
                    (self.judge.tenure, self.judge.lapsed) = (Some((fence, lease_end)), false);
                }
                RenewReply::Lost(_) => {
                    self.check_is_over(fence, dice.seed);
                    self.ours[number] = None;
                }
            },
            _ => {
                match self.t.release_lock("s", fence).await {
                    ReleaseReply::Released => {
                        self.check_counts(fence, dice.seed);
                        (self.judge.tenure, self.judge.lapsed) = (None, false);
                    }
                    _over_before => self.check_is_over(fence, dice.seed),
                }
                self.ours[number] = None;
            }
        }
    }

    async fn ask(&mut self, dice: &Dice, number: usize, step: usize, seen: &mut Seen) {
        let mut question = want("s", &format!("client-{number}-{step}"));
        question.orphan_grace = std::time::Duration::ZERO;
        let AcquireReply::Granted(grant) = self.t.acquire(question).await else { return };
        let (now, seed, judge) = (self.t.now(), dice.seed, &mut self.judge);
        if let Some((other, until)) = judge.tenure {
            assert!(until <= now, "seed {seed}: {} was granted while {other} holds it until {until}, and it is {now}", grant.fence);
        }
        assert!(judge.old.is_none(), "seed {seed}: {} was granted beside an old workflow", grant.fence);
        assert!(grant.fence > judge.highest && grant.previous != Previous::Orphan, "seed {seed}: {grant:?}");
        (judge.tenure, judge.highest, judge.lapsed) = (Some((grant.fence, grant.lease_end)), grant.fence, false);
        self.ours[number] = Some(grant.fence);
        seen.grants += 1;
    }

    /// INCR, and SET a moment later; or DEL and DEL.
    async fn an_old_one(&mut self, dice: &mut Dice, seen: &mut Seen) {
        let number = dice.below(OLD);
        let identity = format!(r#"{{"lock_id":"old-{number}","execution_id":"e-{number}","workflow_name":"Old"}}"#);
        match self.judge.old {
            Some((holder, false)) if holder == number => {
                self.old.set(META, &identity).await;
                self.judge.old = Some((number, true));
            }
            Some((holder, true)) if holder == number => {
                self.old.del(COUNTER).await;
                self.old.del(META).await;
                self.judge.old = None;
            }
            _ => {
                if self.old.incr(COUNTER).await != 1 {
                    return;
                }
                let live = self.judge.tenure.filter(|(_, until)| *until > self.t.now());
                assert!(live.is_none() || self.judge.lapsed, "seed {}: an old workflow got in beside {live:?}", dice.seed);
                assert!(self.judge.old.is_none(), "seed {}: two old workflows got in", dice.seed);
                // Ours learns of it at its next renewal.
                (self.judge.tenure, self.judge.lapsed) = (None, false);
                self.judge.old = Some((number, false));
                seen.old_grants += 1;
            }
        }
    }

    /// An old caller that failed had a shorter time than our lease, and it is over. Whoever of ours comes now must stay out.
    async fn a_counter_lapses(&mut self, dice: &Dice, step: usize, seen: &mut Seen) {
        let live = self.judge.tenure.filter(|(_, until)| *until > self.t.now());
        if live.is_none() || self.judge.old.is_some() {
            return;
        }
        self.old.del(COUNTER).await;
        self.judge.lapsed = true;
        seen.lapses += 1;
        let reply = self.t.acquire(want("s", &format!("late-{step}"))).await;
        assert!(matches!(reply, AcquireReply::Busy(_)), "seed {}: a lapsed counter was taken for a free lock: {reply:?}", dice.seed);
    }

    /// Whoever is told that it holds the lock must hold it.
    fn check_counts(&self, fence: Fence, seed: u64) {
        let holder = self.judge.tenure.map(|(fence, _)| fence);
        assert_eq!(holder, Some(fence), "seed {seed}: {fence} was told that it holds the lock");
    }

    /// Whoever is told that it has lost the lock must have lost it.
    fn check_is_over(&self, fence: Fence, seed: u64) {
        let counts = self.judge.tenure.is_some_and(|(holder, until)| holder == fence && until > self.t.now());
        assert!(!counts, "seed {seed}: {fence} was told that it is over while it holds the lock");
    }
}
