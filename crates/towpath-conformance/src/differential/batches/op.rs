//! What can be asked of batches.

use std::time::Duration;

use towpath_core::batch::{
    BatcherId, ClaimBatch, DeadLetter, ExtendBatch, FinishBatch, NewMessage, ReclaimBatch, Rules, SealBatch, SourceId,
};
use towpath_core::inspect::DeadLetterQuery;
use towpath_core::names::{BatchId, BatchKey, BatcherName};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    Ingest(BatcherId, Rules, Vec<NewMessage>),
    Claim(ClaimBatch),
    Reclaim(ReclaimBatch),
    Extend(ExtendBatch),
    Finish(FinishBatch),
    Seal(SealBatch),
    Due(BatcherId, usize),
    /// Which deadlines were heard of since the last time.
    Listen,
    Sweep(BatcherId, Option<Duration>),
    AddDead(BatcherId, Box<DeadLetter>, Option<SourceId>),
    Replay(BatcherId, Vec<BatchId>),
    Drop(BatcherId, Vec<BatchId>),
    Clear(BatcherId),
    /// All pages of a list.
    DeadLetters(BatcherId, DeadLetterQuery),
    Dead(BatcherId, BatchId),
    Open(BatcherId, BatchKey),
    PutBatcher(BatcherName, String),
    Batchers,
    /// Everything that is shown.
    Dump(BatcherId),
    Advance {
        ms: u64,
    },
    Reopen,
}

impl Op {
    pub(super) fn kind(&self) -> String {
        let debug = format!("{self:?}");
        debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
    }
}
