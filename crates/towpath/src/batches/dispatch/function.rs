//! Batches that are calls of a function: the call's id comes from the batch's, so that a repeated hand-over is one call.

use std::time::Duration;

use async_trait::async_trait;
use towpath_core::batch::{ClaimedBatch, Settings, Target, merge};
use towpath_core::names::{CallId, FunctionKey, FunctionName, Scope};

use super::receiver::{Admission, Delivery, Parcel, Receiver};
use crate::call::Wait;
use crate::error::CallError;
use crate::{NewCall, Towpath};

/// The call of a batch ends after this at the latest, and its outcome is kept as long: a batch may be handed over again meanwhile.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);
/// An outcome is asked for anew after so long.
const ASK_EVERY: Duration = Duration::from_secs(30);

/// After trouble with the store, it is asked again after this.
const ASK_AGAIN: Duration = Duration::from_secs(1);

fn global(name: &FunctionName) -> FunctionKey {
    FunctionKey { scope: Scope::global(), name: name.clone() }
}

/// Makes a call of each batch whose target is a function.
#[derive(Clone, Debug)]
pub struct FunctionReceiver {
    towpath: Towpath,
}

impl FunctionReceiver {
    /// Calls on this store.
    pub fn new(towpath: Towpath) -> Self {
        Self { towpath }
    }

    /// Ends when the function is known: until then its batches wait where they are, without a lease, and use no attempt up.
    async fn known(&self, function: &FunctionKey) {
        let clock = self.towpath.clock();
        loop {
            let until = clock.now() + ASK_EVERY;
            let found = match self.towpath.known_function(function).await {
                Ok(Some(_)) => return,
                Ok(None) => self.towpath.store().find(function, until).await,
                Err(error) => Err(error),
            };
            match found {
                Ok(Some(_)) => return,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%function, %error, "whether the function of a batcher is known cannot be told; it is asked again");
                    clock.sleep_until(clock.now() + ASK_AGAIN).await;
                }
            }
        }
    }

    async fn call(&self, name: &FunctionName, wait: bool, parcel: &Parcel) -> Result<(), CallError> {
        let function = global(name);
        // The same bytes at every attempt: it is the same call.
        let first = ClaimedBatch { attempt: 1, ..parcel.batch.clone() };
        let params = merge(&parcel.settings, &first).unwrap_or_else(|_| parcel.payload.clone());
        let call_id = CallId::new(format!("batch-{}", parcel.batch.batch_id)).map_err(CallError::InvalidName)?;
        let mut call = NewCall::new(function, params);
        (call.call_id, call.detached, call.continues) = (Some(call_id.clone()), true, true);
        (call.timeout, call.retain) = (Some(KEPT), Some(KEPT));
        match self.towpath.submit(call).await {
            Ok(_taken) => {}
            // The id is the batch's own: it was handed over before, and its settings have changed since.
            Err(CallError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
        if wait { self.outcome(&call_id).await } else { Ok(()) }
    }

    /// Ends when the call has, or is known no longer.
    async fn outcome(&self, call_id: &CallId) -> Result<(), CallError> {
        loop {
            let until = self.towpath.clock().now() + ASK_EVERY;
            let asked = self.towpath.wait(call_id, Wait { until, after_progress: None }).await;
            let view = asked.map_err(|error| CallError::Store { call_id: Some(call_id.clone()), error })?;
            if view.is_none_or(|view| view.call.outcome.is_some()) {
                return Ok(());
            }
        }
    }
}

#[async_trait]
impl Receiver for FunctionReceiver {
    fn takes(&self, settings: &Settings) -> bool {
        matches!(settings.target, Some(Target::Function { .. }))
    }

    fn try_admit(&self, _settings: &Settings) -> Option<Admission> {
        Some(Box::new(()))
    }

    async fn admit(&self, settings: &Settings) -> Admission {
        if let Some(Target::Function { name, .. }) = &settings.target {
            self.known(&global(name)).await;
        }
        Box::new(())
    }

    async fn deliver(&self, parcel: &Parcel) -> Delivery {
        let Some(Target::Function { name, wait }) = &parcel.settings.target else {
            return Delivery::unanswered("the batcher has no function to call any more", "no_target");
        };
        match self.call(name, *wait, parcel).await {
            Ok(()) => Delivery::answered(202, None, "called"),
            // It was forgotten since the batch was claimed. `admit` waits for it, or for another target, without a lease.
            Err(error @ CallError::FunctionNotFound { .. }) => Delivery::not_tried(error.to_string()),
            Err(error @ (CallError::InvalidParams { .. } | CallError::PayloadTooLarge { .. })) => {
                Delivery::fatal("rejected_by_function", error.to_string())
            }
            Err(error) => Delivery::unanswered(error.to_string(), "not_called"),
        }
    }
}
