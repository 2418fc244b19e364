//! Calls that a submit hands to a claim that waits, in the same script: they run from the moment in which they are taken.
//!
//! A claim that waits is written down under the name of its worker, with its room. A submit that finds the queue of a function empty, and
//! there the claim of one of the function's workers, writes its calls as running, replaces the claim by what it has handed to it, and tells
//! the worker's process. The process accepts what was handed to a ticket once, whether it hears it or finds it there later. A Cluster has no hand-over: a script cannot reach the claim from the slot of the function.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::Notify;
use towpath_core::names::WorkerId;
use towpath_core::store::{ClaimCalls, Delivery, StoreError};
use towpath_core::time::millis;

use crate::definition::read_shard_member;
use crate::pieces::Pieces;
use crate::quick::QuickMap;
use crate::store::RedisStore;
use crate::value;

/// The first character of what was handed to a claim. A claim that waits begins with a digit, and a reply with another letter.
const HANDED: u8 = b'd';
/// One submit hands this many calls to a claim at most. The others go to the queue.
const ROOM_MAX: u32 = 32;

/// How often other tasks have their turn before a claim is written down.
const ANSWERS_GO_FIRST: usize = 4;

/// What is to be written down of the waiting claims of this process: of each worker the latest.
#[derive(Default)]
pub(crate) struct WrittenClaims {
    changes: Mutex<QuickMap<WorkerId, Option<Written>>>,
    pub(crate) changed: Arc<Notify>,
}

/// A claim that waits, and for how long.
struct Written {
    text: String,
    wait: Duration,
}

/// The task that writes them down ends with the store.
impl Drop for WrittenClaims {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

impl WrittenClaims {
    fn put(&self, worker: &WorkerId, written: Option<Written>) {
        self.lock().insert(worker.clone(), written);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, QuickMap<WorkerId, Option<Written>>> {
        // No code under this lock can panic half way.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls that were handed to a claim.
struct Handed<'a> {
    ticket: u64,
    process: &'a str,
    worker: WorkerId,
    calls: Vec<HandedCall<'a>>,
}

#[derive(Default)]
struct HandedCall<'a> {
    member: &'a str,
    id: &'a [u8],
    record: &'a [u8],
}

impl<'a> Handed<'a> {
    fn read(message: &'a [u8]) -> Option<Self> {
        let (mut ticket, mut process, mut worker, mut calls) = (None, None, None, Vec::<HandedCall<'a>>::new());
        for piece in Pieces::of(message.strip_prefix(&[HANDED])?) {
            let (letter, text) = piece?;
            match letter {
                b't' => ticket = std::str::from_utf8(text).ok()?.parse().ok(),
                b'p' => process = std::str::from_utf8(text).ok(),
                b'w' => worker = WorkerId::new(std::str::from_utf8(text).ok()?).ok(),
                b'f' => calls.push(HandedCall { member: std::str::from_utf8(text).ok()?, ..HandedCall::default() }),
                b'i' => calls.last_mut()?.id = text,
                b'r' => calls.last_mut()?.record = text,
                _of_a_newer_version => {}
            }
        }
        Some(Self { ticket: ticket?, process: process?, worker: worker?, calls })
    }
}

impl RedisStore {
    /// Has a claim that waits written down, so that a submit can hand calls to it. `false`: this claim is not of that kind.
    pub(super) fn write_down_claim(&self, want: &ClaimCalls, ticket: u64) -> bool {
        if !want.takes_any || self.shared.link.is_cluster() {
            return false;
        }
        let text = format!("{ticket}\t{}\t{}\t{}", self.shared.process, millis(want.lease), want.max.min(ROOM_MAX));
        self.shared.written_claims.put(&want.worker, Some(Written { text, wait: want.wait }));
        true
    }

    /// The claim does not wait any more, and nothing was handed to it as far as is known.
    pub(super) fn withdraw_claim(&self, worker: &WorkerId) {
        self.shared.written_claims.put(worker, None);
    }

    /// Writes down what has changed about waiting claims, one after the other, so that the latest stays.
    pub(crate) async fn write_claims(&self) -> Result<(), StoreError> {
        // What workers answer at this moment goes first: callers wait for it.
        for _ in 0..ANSWERS_GO_FIRST {
            tokio::task::yield_now().await;
        }
        loop {
            let changes = std::mem::take(&mut *self.shared.written_claims.lock());
            if changes.is_empty() {
                return Ok(());
            }
            for (worker, written) in changes {
                if let Err(error) = self.write_claim(&worker, written).await {
                    tracing::debug!(%worker, %error, "a waiting claim is not written down as it should be; its worker is notified of calls");
                }
            }
        }
    }

    /// Replaces the text under the worker's name. If a submit has handed calls over there and this process did not hear of it, it accepts them now.
    async fn write_claim(&self, worker: &WorkerId, written: Option<Written>) -> Result<(), StoreError> {
        let (text, wait_ms) = written.map_or((String::new(), 1), |written| (written.text, millis(written.wait).max(1)));
        let mut set = Cmd::new();
        set.arg("SET").arg(self.shared.keys.claim(worker.as_str())).arg(text).arg("PX").arg(wait_ms).arg("GET");
        let before = self.shared.link.ask(&set).await?;
        if let Some(handed) = value::bytes(&before).and_then(Handed::read) {
            self.accept_handed(&handed);
        }
        Ok(())
    }

    /// Hears a message on the channel of this process. `false`: it is not about calls that were handed to a claim.
    pub(crate) fn hear_handed_calls(&self, message: &[u8]) -> bool {
        if message.first() != Some(&HANDED) {
            return false;
        }
        match Handed::read(message) {
            Some(handed) => self.accept_handed(&handed),
            None => tracing::warn!(bytes = message.len(), "calls were handed over in a way that cannot be read; their leases will run out"),
        }
        true
    }

    /// Messages may have been missed: the claims of this process that wait are written down again, and what was handed to them is found.
    pub(crate) fn write_claims_again(&self) {
        for (want, ticket) in self.shared.claims.written_down() {
            self.write_down_claim(&want, ticket);
        }
    }

    fn accept_handed(&self, handed: &Handed<'_>) {
        if handed.process != self.shared.process {
            return;
        }
        let accepted = self.shared.claims.accept(handed.ticket, handed.calls.iter().map(|one| one.id));
        let news = handed.calls.iter().zip(accepted.are_new).filter(|(_, is_new)| *is_new);
        let deliveries: Vec<Delivery> = news.filter_map(|(one, _)| self.handed_delivery(one)).collect();
        let not_wanted = if accepted.serves { self.shared.claims.serve_handed(handed.ticket, deliveries) } else { deliveries };
        if !not_wanted.is_empty() {
            let (store, worker) = (self.clone(), handed.worker.clone());
            tokio::spawn(async move { store.give_back(&worker, not_wanted).await });
        }
    }

    /// `None`: it cannot be read.
    fn handed_delivery(&self, one: &HandedCall<'_>) -> Option<Delivery> {
        let (function, shard) = read_shard_member(one.member)?;
        let partition = self.shard(&function, shard);
        let bytes = |text: &[u8]| Value::BulkString(text.to_vec());
        match self.delivered(&partition, &bytes(one.id), bytes(one.record), Value::BulkString(Vec::new()), self.shared.now()) {
            Ok(delivery) => Some(delivery),
            Err(error) => {
                tracing::warn!(%function, %error, "a call cannot be delivered; its lease will run out");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_handed_over_is_read_and_nothing_else() {
        let handed = Handed::read(b"dt1:7p1:aw2:w1f15:__global__\nechoi2:c1r3:3R\tf15:__global__\nechoi2:c2r0:").expect("it can be read");
        assert_eq!((handed.ticket, handed.process, handed.worker.as_str(), handed.calls.len()), (7, "a", "w1", 2));
        assert_eq!((handed.calls[0].id, handed.calls[0].record, handed.calls[1].id), (&b"c1"[..], &b"3R\t"[..], &b"c2"[..]));
        for broken in [&b"7\tprocess\t30000\t1"[..], b"", b"d", b"dt1:7", b"dt1:xp1:aw1:w", b"dw1:wt1:7p1:ai1:c", b"dt1:7w1:w", b"dt9:7w"] {
            assert!(Handed::read(broken).is_none(), "{broken:?}");
        }
    }
}
