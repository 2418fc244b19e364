//! Batches for those who fetch them: claim with a long poll, extend, settle.

use std::fmt;
use std::time::Duration;

use towpath_core::batch::{
    ClaimReply, ClaimedBatch, DeadLetter, Delivered, ExtendBatch, ExtendReply, FinishBatch, FinishReply, NewDeadLetter, ReclaimBatch,
    Settings, Verb, Verdict, settle,
};
use towpath_core::names::{BatchId, BatchToken, BatcherName};
use towpath_core::payload::Payload;
use towpath_core::store::BatchNews;
use towpath_core::time::Timestamp;

use super::dispatch::pace::Pace;
use super::dispatch::{claim, prepare};
use super::{BatchError, BatchHandle};

/// No more batches are fetched with one request when these have this many bytes.
const PULL_BYTES_MAX: usize = 16 << 20;
/// A wait looks anyway after so long.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// What a look brought.
enum Pulled {
    /// These, or nothing was due.
    Some(Vec<PulledBatch>),
    /// It is nobody's turn before then.
    NotBefore(Timestamp),
}

/// A batch that somebody has fetched, and has to settle before its lease ends.
#[derive(Clone, Debug)]
pub struct PulledBatch {
    /// The batch.
    pub batch: ClaimedBatch,
    /// The right to settle it.
    pub token: PullToken,
    /// The messages made one.
    pub payload: Payload,
}

/// The right to settle a batch, as it is given away: with the attempt that it is for, so that nobody has to remember it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullToken {
    attempt: u32,
    token: BatchToken,
}

impl PullToken {
    /// Reads what a claim gave. `None`: it gave no such thing.
    pub fn parse(text: &str) -> Option<Self> {
        let (attempt, token) = text.split_once('.')?;
        Some(Self { attempt: attempt.parse().ok()?, token: BatchToken::new(token).ok()? })
    }
}

impl fmt::Display for PullToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.attempt, self.token)
    }
}

/// What became of a fetched batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settle {
    /// It was dealt with.
    Ack,
    /// It goes again, not before this, until its attempts are used up.
    Retry {
        /// Why, for people.
        error: String,
        /// Not before this, instead of the usual wait.
        delay: Option<Duration>,
    },
    /// It is given up.
    Dead {
        /// Why, for people.
        error: String,
    },
}

/// Whether it was so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// So it is.
    Done,
    /// Another has it, or it is settled: nothing was touched.
    Lost,
}

impl BatchHandle {
    /// Fetches up to `max` batches, waiting up to `wait` for the first. Whoever fetches a batch settles it with its token.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use serde_json::json;
    /// use towpath::Towpath;
    /// use towpath::batches::{Batcher, Settle, Settled, Target};
    ///
    /// let towpath = Towpath::open("memory:").await?;
    /// let orders = towpath.batch(Batcher::builder("orders").key(["/customer"]).target(Target::Pull).build()?);
    /// orders.push(&json!({"customer": "anna"})).debounce(Duration::ZERO).send().await?;
    /// let pulled = orders.claim(10, Duration::from_secs(5)).await?.remove(0);
    /// assert_eq!(orders.settle(&pulled.batch.batch_id, &pulled.token, Settle::Ack).await?, Settled::Done);
    /// # towpath.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn claim(&self, max: usize, wait: Duration) -> Result<Vec<PulledBatch>, BatchError> {
        self.claim_unless(max, wait, std::future::pending()).await
    }

    /// The same, and no longer than until `enough`. A claim that is dropped half way would leave batches to their leases; this ends well.
    pub async fn claim_unless(&self, max: usize, wait: Duration, enough: impl Future<Output = ()>) -> Result<Vec<PulledBatch>, BatchError> {
        let mut enough = std::pin::pin!(enough);
        let (name, settings) = self.resolved().await?;
        let (store, clock) = (self.towpath().batch_store()?, self.towpath().clock());
        let id = settings.batcher_id(&name);
        // Listening starts before the look, so that nothing falls between them.
        let mut wakes = store.batch_wakes(&id);
        let until = clock.now() + wait;
        let pace = Pace::of(self.towpath(), &name, &settings);
        loop {
            let due = store.batch_due(&id, max).await?;
            let (pulled, not_before) = match self.claim_due(&name, &settings, &pace, claim::candidates(&due).take(max)).await? {
                Pulled::Some(pulled) => (pulled, None),
                Pulled::NotBefore(at) => (Vec::new(), Some(at)),
            };
            if !pulled.is_empty() || clock.now() >= until {
                return Ok(pulled);
            }
            let next = not_before.or(due.next).map_or(until, |next| next.min(until));
            let mut look_at = next.min(clock.now() + LOOK_EVERY);
            loop {
                tokio::select! {
                    () = &mut enough => return Ok(Vec::new()),
                    () = clock.sleep_until(look_at) => break,
                    news = wakes.next() => match news {
                        // It may be nobody's turn yet, whatever is due.
                        BatchNews::Due(at) => look_at = look_at.min(not_before.map_or(at, |turn| turn.max(at))),
                        BatchNews::Doubtful => break,
                    },
                }
            }
        }
    }

    async fn claim_due(
        &self,
        name: &BatcherName,
        settings: &Settings,
        pace: &Pace,
        due: impl Iterator<Item = claim::Candidate<'_>>,
    ) -> Result<Pulled, BatchError> {
        let (mut pulled, mut bytes) = (Vec::new(), 0);
        for what in due {
            if bytes >= PULL_BYTES_MAX {
                break;
            }
            let turn = match pace.draw_one().await {
                Ok(turn) => turn,
                Err(at) if pulled.is_empty() => return Ok(Pulled::NotBefore(at)),
                Err(_) => break,
            };
            let Some(batch) = claim::claim(self.towpath(), name, settings, what).await? else {
                turn.give_back().await;
                continue;
            };
            match prepare::prepared(self.towpath(), name, settings, &batch).await? {
                Some(payload) => {
                    turn.use_up();
                    bytes += payload.as_str().len();
                    let token = PullToken { attempt: batch.attempt, token: batch.token.clone() };
                    pulled.push(PulledBatch { batch, token, payload });
                }
                // What cannot be given away is a dead letter by now.
                None => turn.give_back().await,
            }
        }
        Ok(Pulled::Some(pulled))
    }

    /// Prolongs the lease of a fetched batch; `None`: it is lost.
    pub async fn extend(&self, batch_id: &BatchId, token: &PullToken) -> Result<Option<Timestamp>, BatchError> {
        let (_, settings) = self.resolved().await?;
        self.extend_by(batch_id, token, settings.lease).await
    }

    async fn extend_by(&self, batch_id: &BatchId, token: &PullToken, lease: Duration) -> Result<Option<Timestamp>, BatchError> {
        let (name, settings) = self.resolved().await?;
        let want = ExtendBatch { batcher: settings.batcher_id(&name), batch_id: batch_id.clone(), token: token.token.clone(), lease };
        Ok(match self.towpath().batch_store()?.batch_extend(want).await? {
            ExtendReply::Extended { lease_end } => Some(lease_end),
            ExtendReply::Lost => None,
        })
    }

    /// Settles a fetched batch.
    pub async fn settle(&self, batch_id: &BatchId, token: &PullToken, settle: Settle) -> Result<Settled, BatchError> {
        let (name, settings) = self.resolved().await?;
        let verb = match settle {
            Settle::Ack => Verb::Ack,
            Settle::Dead { error } => return self.bury(batch_id, token, "rejected", &error).await,
            Settle::Retry { error, delay } => match retried(&settings, batch_id, token.attempt, delay) {
                Verdict::Retry { delay } => Verb::Retry { delay },
                Verdict::Dead { reason } => return self.bury(batch_id, token, &reason, &error).await,
                Verdict::Release => Verb::Release,
                Verdict::Ack => Verb::Ack,
            },
        };
        let batcher = settings.batcher_id(&name);
        let want = FinishBatch { batcher, batch_id: batch_id.clone(), key: None, token: token.token.clone(), verb };
        Ok(settled(self.towpath().batch_store()?.batch_finish(want).await?))
    }

    /// Gives a batch up. Its messages are needed for that, and only a claim tells them: so its lease is ended and it is claimed once more.
    /// Whoever comes in between has it then, and it is lost here.
    async fn bury(&self, batch_id: &BatchId, token: &PullToken, reason: &str, error: &str) -> Result<Settled, BatchError> {
        let (name, settings) = self.resolved().await?;
        if self.extend_by(batch_id, token, Duration::ZERO).await?.is_none() {
            return Ok(Settled::Lost);
        }
        let (store, batcher) = (self.towpath().batch_store()?, settings.batcher_id(&name));
        let own = claim::new_token(self.towpath());
        let want = ReclaimBatch { batcher: batcher.clone(), batch_id: batch_id.clone(), token: own.clone(), lease: settings.lease };
        let ClaimReply::Claimed(batch) = store.batch_reclaim(want).await? else { return Ok(Settled::Lost) };
        let batch = ClaimedBatch { attempt: token.attempt, ..batch };
        let payload = towpath_core::batch::merge(&settings, &batch).ok();
        let new = NewDeadLetter { batcher: &name, batch: &batch, payload: payload.as_ref(), reason, error, at: batch.now };
        let verb = Verb::Dead(DeadLetter::of_batch(new));
        let want = FinishBatch { batcher, batch_id: batch_id.clone(), key: Some(batch.key.clone()), token: own, verb };
        Ok(settled(store.batch_finish(want).await?))
    }
}

fn retried(settings: &Settings, batch_id: &BatchId, attempt: u32, delay: Option<Duration>) -> Verdict {
    match (settle(settings, batch_id, attempt, &Delivered::Unanswered), delay) {
        (Verdict::Retry { .. }, Some(delay)) => Verdict::Retry { delay },
        (verdict, _) => verdict,
    }
}

fn settled(reply: FinishReply) -> Settled {
    match reply {
        FinishReply::Done => Settled::Done,
        FinishReply::Lost => Settled::Lost,
    }
}
