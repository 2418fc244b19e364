//! What has to be so before a claimed batch is handed over: what cannot be read is kept, what cannot be sent is given up.

use towpath_core::batch::{
    ClaimedBatch, DeadLetter, FinishBatch, FinishReply, NewDeadLetter, Settings, Verb, is_crash_loop, merge, unreadable,
};
use towpath_core::names::BatcherName;
use towpath_core::payload::Payload;

use crate::Towpath;
use crate::batches::BatchError;

/// What is sent. `None`: it is a dead letter now, or was lost.
pub(in crate::batches) async fn prepared(
    towpath: &Towpath,
    name: &BatcherName,
    settings: &Settings,
    batch: &ClaimedBatch,
) -> Result<Option<Payload>, BatchError> {
    keep_unreadable(towpath, name, settings, batch).await?;
    let merged = merge(settings, batch);
    if is_crash_loop(settings, batch.attempt) {
        let error = format!("{} dispatchers began to deliver it, and none of them ended", batch.attempt - 1);
        bury(towpath, name, settings, batch, merged.ok().as_ref(), "crash_loop", &error).await?;
        return Ok(None);
    }
    match merged {
        Ok(payload) => Ok(Some(payload)),
        Err(error) => {
            bury(towpath, name, settings, batch, None, "unmergeable", &error.to_string()).await?;
            Ok(None)
        }
    }
}

/// Messages that are no JSON are left out of what is sent; only an old worker leaves such behind. Each is kept once, as it is.
async fn keep_unreadable(towpath: &Towpath, name: &BatcherName, settings: &Settings, batch: &ClaimedBatch) -> Result<(), BatchError> {
    if batch.payload.is_some() {
        return Ok(());
    }
    let (store, id) = (towpath.batch_store()?, settings.batcher_id(name));
    for place in unreadable(&batch.messages) {
        let (raw, error) = (batch.messages[place].as_bytes(), "it was among the messages of a batch and is no JSON object");
        let letter = DeadLetter::unreadable(name, raw, None, "parse_error", error, batch.now);
        if store.dead_letter(&id, &letter.id).await?.is_none() {
            store.dead_letter_add(&id, letter, None).await?;
        }
    }
    Ok(())
}

/// Gives a batch up.
pub(super) async fn bury(
    towpath: &Towpath,
    name: &BatcherName,
    settings: &Settings,
    batch: &ClaimedBatch,
    payload: Option<&Payload>,
    reason: &str,
    error: &str,
) -> Result<FinishReply, BatchError> {
    let at = towpath.clock().now();
    let letter = DeadLetter::of_batch(NewDeadLetter { batcher: name, batch, payload, reason, error, at });
    tracing::warn!(batcher = %name, batch = %batch.batch_id, key = %batch.key, reason, error, "a batch is a dead letter");
    finish(towpath, name, settings, batch, Verb::Dead(letter)).await
}

/// Settles a batch.
pub(super) async fn finish(
    towpath: &Towpath,
    name: &BatcherName,
    settings: &Settings,
    batch: &ClaimedBatch,
    verb: Verb,
) -> Result<FinishReply, BatchError> {
    let want = FinishBatch {
        batcher: settings.batcher_id(name),
        batch_id: batch.batch_id.clone(),
        key: Some(batch.key.clone()),
        token: batch.token.clone(),
        verb,
    };
    let store = towpath.batch_store()?;
    let mut tries = 0;
    // A reply that was lost may have been `Done`: the second one is `Lost` then, and nothing is touched twice.
    loop {
        match store.batch_finish(want.clone()).await {
            Ok(reply) => return Ok(reply),
            Err(error) if tries >= TRIES => return Err(error.into()),
            Err(_) => {
                tries += 1;
                towpath.clock().sleep_until(towpath.clock().now() + PAUSE * tries).await;
            }
        }
    }
}

/// How often a settlement is tried before the batch is left to its lease.
const TRIES: u32 = 8;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(200);
