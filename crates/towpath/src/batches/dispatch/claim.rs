//! Claiming what is due.

use towpath_core::batch::{ClaimBatch, ClaimReply, ClaimedBatch, ReclaimBatch, Settings};
use towpath_core::names::{BatchId, BatchKey, BatchToken, BatcherName};
use towpath_core::store::DueBatches;

use crate::Towpath;
use crate::batches::BatchError;

/// Something that is due.
#[derive(Clone, Copy, Debug)]
pub(in crate::batches) enum Candidate<'a> {
    /// A batch that should be taken over.
    Flight(&'a BatchId),
    /// A key whose open batch should be closed.
    Key(&'a BatchKey),
}

/// What is due, those first that wait the longest: what was tried before.
pub(in crate::batches) fn candidates(due: &DueBatches) -> impl Iterator<Item = Candidate<'_>> {
    due.flights.iter().map(Candidate::Flight).chain(due.keys.iter().map(Candidate::Key))
}

/// A right of one's own.
pub(in crate::batches) fn new_token(towpath: &Towpath) -> BatchToken {
    BatchToken::new(towpath.ids().call_id().as_str()).unwrap_or_else(|_| unreachable!("what names a call names a token"))
}

fn new_batch_id(towpath: &Towpath) -> BatchId {
    BatchId::new(towpath.ids().call_id().as_str()).unwrap_or_else(|_| unreachable!("what names a call names a batch"))
}

/// Claims one of them; `None`: another was faster, or it is not due after all.
pub(in crate::batches) async fn claim(
    towpath: &Towpath,
    name: &BatcherName,
    settings: &Settings,
    what: Candidate<'_>,
) -> Result<Option<ClaimedBatch>, BatchError> {
    let (store, batcher, token) = (towpath.batch_store()?, settings.batcher_id(name), new_token(towpath));
    let reply = match what {
        Candidate::Flight(batch_id) => {
            store.batch_reclaim(ReclaimBatch { batcher, batch_id: batch_id.clone(), token, lease: settings.lease }).await?
        }
        Candidate::Key(key) => {
            let (batch_id, rules) = (new_batch_id(towpath), settings.rules());
            store.batch_claim(ClaimBatch { batcher, key: key.clone(), batch_id, token, lease: settings.lease, rules }).await?
        }
    };
    Ok(match reply {
        ClaimReply::Claimed(batch) => {
            towpath.observer().batch_late(name, lateness(settings, &batch));
            Some(batch)
        }
        ClaimReply::Skip(_) => None,
    })
}

/// How long after its deadline a batch was claimed, as far as its messages and the settings tell.
fn lateness(settings: &Settings, batch: &ClaimedBatch) -> std::time::Duration {
    use towpath_core::batch::CloseReason::{MaxWaitReached, SilenceReached};
    if batch.attempt > 1 || batch.payload.is_some() {
        return std::time::Duration::ZERO;
    }
    let due = match batch.reason {
        MaxWaitReached => batch.first + settings.max_wait,
        SilenceReached => {
            // Read as one that nobody waits for: whatever it says is brought into range.
            let source = towpath_core::batch::SourceId { list: "".into(), number: 0 };
            let last = batch.messages.last().and_then(|last| settings.message(last.clone(), Some(source)).ok());
            batch.last + last.map_or(settings.debounce, |read| read.message.debounce)
        }
        _ => batch.last,
    };
    batch.now.since(due)
}
