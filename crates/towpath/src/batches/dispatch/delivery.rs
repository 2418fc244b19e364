//! One claimed batch, from the claim to its end.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use towpath_core::batch::{ClaimedBatch, ExtendBatch, ExtendReply, FinishReply, Settings, Verb, Verdict, settle};
use towpath_core::names::BatcherName;

use super::pace::Drawn;
use super::prepare;
use super::receiver::{Delivery, Parcel, Receiver};
use crate::Towpath;
use crate::batches::BatchError;

pub(super) struct Courier {
    pub(super) towpath: Towpath,
    pub(super) name: BatcherName,
    pub(super) receiver: Arc<dyn Receiver>,
    /// Deliveries that are still under way are given up.
    pub(super) abandon: CancellationToken,
}

impl Courier {
    /// Delivers a batch and settles it. Whatever goes wrong on the way is made up for by its lease.
    pub(super) async fn carry(&self, settings: Arc<Settings>, batch: ClaimedBatch, turn: Drawn) {
        let (batch_id, attempt) = (batch.batch_id.clone(), batch.attempt);
        match self.try_carry(settings, batch, turn).await {
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(batcher = %self.name, batch = %batch_id, attempt, %error, "a batch could not be settled; its lease decides");
            }
        }
    }

    async fn try_carry(&self, settings: Arc<Settings>, batch: ClaimedBatch, turn: Drawn) -> Result<(), BatchError> {
        let Some(payload) = prepare::prepared(&self.towpath, &self.name, &settings, &batch).await? else {
            turn.give_back().await;
            return Ok(());
        };
        turn.use_up();
        let parcel = Parcel { batcher: self.name.clone(), settings, batch, payload };
        let delivery = tokio::select! {
            delivery = self.receiver.deliver(&parcel) => delivery,
            () = self.lost(&parcel) => {
                tracing::warn!(batcher = %self.name, batch = %parcel.batch.batch_id, "the lease of a batch was lost while it was delivered");
                return Ok(());
            }
            () = self.abandon.cancelled() => return Ok(()),
        };
        self.towpath.observer().batch_attempted(&self.name, delivery.label);
        self.settle(&parcel, &delivery).await
    }

    async fn settle(&self, parcel: &Parcel, delivery: &Delivery) -> Result<(), BatchError> {
        let Parcel { settings, batch, payload, .. } = parcel;
        let reply = match settle(settings, &batch.batch_id, batch.attempt, &delivery.delivered) {
            Verdict::Ack => prepare::finish(&self.towpath, &self.name, settings, batch, Verb::Ack).await?,
            Verdict::Retry { delay } => {
                let error = &delivery.error;
                tracing::info!(batcher = %self.name, batch = %batch.batch_id, attempt = batch.attempt, ?delay, error, "a batch goes again");
                prepare::finish(&self.towpath, &self.name, settings, batch, Verb::Retry { delay }).await?
            }
            Verdict::Release => {
                tracing::info!(batcher = %self.name, batch = %batch.batch_id, error = delivery.error, "a batch is given back");
                prepare::finish(&self.towpath, &self.name, settings, batch, Verb::Release).await?
            }
            Verdict::Dead { reason } => {
                prepare::bury(&self.towpath, &self.name, settings, batch, Some(payload), &reason, &delivery.error).await?
            }
        };
        if reply == FinishReply::Lost {
            tracing::warn!(batcher = %self.name, batch = %batch.batch_id, "another has settled or taken a batch that was just delivered");
        }
        Ok(())
    }

    /// Keeps the lease alive, and ends when it is lost.
    async fn lost(&self, parcel: &Parcel) {
        let Ok(store) = self.towpath.batch_store() else { return };
        let (settings, batch, clock) = (&parcel.settings, &parcel.batch, self.towpath.clock());
        let want = ExtendBatch {
            batcher: settings.batcher_id(&self.name),
            batch_id: batch.batch_id.clone(),
            token: batch.token.clone(),
            lease: settings.lease,
        };
        loop {
            clock.sleep_until(clock.now() + settings.lease / 3).await;
            match store.batch_extend(want.clone()).await {
                Ok(ExtendReply::Extended { .. }) => {}
                Ok(ExtendReply::Lost) => return,
                // Two more thirds are left to try again in.
                Err(error) => tracing::debug!(%error, "a lease could not be prolonged"),
            }
        }
    }
}
