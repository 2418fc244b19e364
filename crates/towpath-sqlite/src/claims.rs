//! Claims: calls into workers' hands, oldest first, each under a new delivery number.

use rusqlite::Row;
use tokio::sync::oneshot;
use towpath_core::call::{CallCommand, CallReply, Claim};
use towpath_core::ids::DeliveryId;
use towpath_core::names::WorkerId;
use towpath_core::store::{ClaimCalls, Delivery, StoreError};
use towpath_core::time::Timestamp;

use crate::calls::apply;
use crate::memory::Function;
use crate::rows::{self, Stored, call_columns, request_columns};
use crate::trouble::Moved;
use crate::writer::Tx;

pub(crate) const QUEUED: &str = concat!(
    "SELECT ",
    call_columns!(),
    ", ",
    request_columns!(),
    " FROM calls c JOIN call_requests r ON r.seq = c.seq \
     WHERE c.function_id = ?1 AND c.state = 'queued' ORDER BY c.seq LIMIT ?2"
);

/// A claim on its way: just come in, or waiting for work.
pub(crate) struct ParkedClaim {
    want: ClaimCalls,
    /// When to stop waiting. Every claim is looked at once before, however slow the disk.
    until: Timestamp,
    found: Vec<Delivery>,
    /// Its worker fell silent while it waited.
    dismissed: bool,
    /// Not looked for yet; a parked claim looks again only when one of its functions was woken.
    fresh: bool,
    to: oneshot::Sender<Result<Vec<Delivery>, StoreError>>,
}

/// What became of a claim after the commit.
pub(crate) enum Handed {
    /// Answered.
    Over,
    /// Found nothing and may wait.
    Waits(ParkedClaim),
    /// Found something, but whoever asked is gone.
    Back { worker: WorkerId, deliveries: Vec<DeliveryId> },
}

impl ParkedClaim {
    pub(crate) fn new(want: ClaimCalls, until: Timestamp) -> (Self, oneshot::Receiver<Result<Vec<Delivery>, StoreError>>) {
        let (to, reply) = oneshot::channel();
        (Self { want, until, found: Vec::new(), dismissed: false, fresh: true, to }, reply)
    }

    pub(crate) fn is_wanted(&self) -> bool {
        !self.to.is_closed()
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The transaction that served it was rolled back, and others have run since.
    pub(crate) fn look_again(&mut self) {
        self.found.clear();
        self.fresh = true;
    }

    pub(crate) fn refuse(self, error: StoreError) {
        let _nobody_waits_any_more = self.to.send(Err(error));
    }

    pub(crate) fn deliver(mut self, now: Timestamp) -> Handed {
        if self.found.is_empty() && !self.dismissed && now < self.until && self.is_wanted() {
            self.fresh = false;
            return Handed::Waits(self);
        }
        let worker = self.want.worker;
        match self.to.send(Ok(self.found)) {
            Ok(()) => Handed::Over,
            Err(unheard) => {
                let deliveries = unheard.unwrap_or_default().into_iter().map(|delivery| delivery.id).collect();
                Handed::Back { worker, deliveries }
            }
        }
    }
}

/// Looks for work, if the claim is new or one of its functions has some.
pub(crate) fn serve(tx: &mut Tx<'_>, claim: &mut ParkedClaim) -> Moved<()> {
    claim.found.clear();
    claim.dismissed = !claim.fresh && tx.after.silent.contains(&claim.want.worker);
    if claim.dismissed || (!claim.fresh && tx.after.woken.is_empty()) {
        return Ok(());
    }
    for wish in claim.want.functions.iter() {
        let Some(function) = tx.memory.function(&wish.function) else { continue };
        if claim.fresh || tx.after.woken.contains(&function.id) {
            let max = claim.want.max.saturating_sub(u32::try_from(claim.found.len()).unwrap_or(u32::MAX)).min(wish.max);
            take(tx, &claim.want, &function, max, &mut claim.found)?;
        }
    }
    Ok(())
}

/// Takes up to `max` calls of one function. Calls that turn out to be over, expired or poisoned, do not count.
fn take(tx: &mut Tx<'_>, want: &ClaimCalls, function: &Function, max: u32, found: &mut Vec<Delivery>) -> Moved<()> {
    let mut left = max;
    loop {
        let room = left.min(tx.memory.room(function, &want.worker));
        if room == 0 || tx.memory.counts(function.id).queued == 0 {
            return Ok(());
        }
        let queued = queued(tx, function, room)?;
        if queued.is_empty() {
            return Ok(());
        }
        for (stored, delivery) in queued {
            if let Some(delivery) = claim_one(tx, want, stored, delivery)? {
                found.push(delivery);
                left -= 1;
            }
        }
    }
}

fn queued(tx: &Tx<'_>, function: &Function, limit: u32) -> Moved<Vec<(Stored, Delivery)>> {
    let mut statement = tx.conn.prepare_cached(QUEUED)?;
    let mut rows = statement.query((function.id, limit))?;
    let mut queued = Vec::new();
    while let Some(row) = rows.next()? {
        queued.push(read_queued(row, tx, function)?);
    }
    Ok(queued)
}

fn read_queued(row: &Row<'_>, tx: &Tx<'_>, function: &Function) -> Moved<(Stored, Delivery)> {
    let stored = rows::read_call(row)?;
    let delivery = Delivery {
        id: DeliveryId { call_id: stored.call.call_id.clone(), number: 0 },
        request: rows::read_request(row, rows::AFTER_CALL, function.definition.key.clone())?,
        attempt: stored.call.attempt(),
        submitted_at: stored.call.submitted_at,
        deadline: stored.call.deadline,
        remaining: stored.call.deadline.since(tx.now),
        lease_until: tx.now,
    };
    Ok((stored, delivery))
}

fn claim_one(tx: &mut Tx<'_>, want: &ClaimCalls, stored: Stored, mut delivery: Delivery) -> Moved<Option<Delivery>> {
    let claim = Claim { worker: want.worker.clone(), lease: want.lease };
    let (_, reply) = apply(tx, stored, CallCommand::Claim(claim))?;
    if let CallReply::Claimed { number, until } = reply {
        delivery.id.number = number;
        delivery.lease_until = until;
        return Ok(Some(delivery));
    }
    Ok(None)
}
