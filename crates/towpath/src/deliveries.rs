//! Deliveries for workers outside this process: params are checked and filled in before a worker gets them.

use std::time::Duration;

use towpath_core::call::{Answer, Retry};
use towpath_core::names::WorkerId;
use towpath_core::store::{CompleteCalls, Delivery, StoreError};

use crate::Towpath;

impl Towpath {
    /// Checks the params of claimed calls against the functions' definitions and fills in defaults. A call whose params do not fit is ended
    /// with the error `invalid_params`, and its delivery is left out. For servers that hand deliveries to workers elsewhere; the workers of
    /// this library do it themselves.
    pub async fn prepare_deliveries(&self, worker: &WorkerId, deliveries: Vec<Delivery>) -> Result<Vec<Delivery>, StoreError> {
        let (mut ready, mut refused) = (Vec::with_capacity(deliveries.len()), Vec::new());
        for mut delivery in deliveries {
            let known = match self.known_function(&delivery.request.function).await {
                Ok(known) => known,
                Err(error) => {
                    self.put_back_later(worker, delivery, &error);
                    continue;
                }
            };
            // A function that was forgotten meanwhile has no definition to check with.
            if let Some(function) = known {
                match function.parameters.prepare(&delivery.request.function, &delivery.request.params) {
                    Ok(params) => delivery.request.params = params,
                    Err(failure) => {
                        refused.push((delivery.id, Answer::Failed { failure, retry: Retry::Never }));
                        continue;
                    }
                }
            }
            ready.push(delivery);
        }
        if !refused.is_empty() {
            let answers = CompleteCalls { worker: worker.clone(), answers: refused };
            self.retry_lost_replies(|| self.store().complete(answers.clone())).await?;
        }
        Ok(ready)
    }

    /// A function cannot be looked at: its call goes back after a moment, and the calls of other functions are delivered.
    pub fn put_back_later(&self, worker: &WorkerId, delivery: Delivery, error: &StoreError) {
        tracing::warn!(function = %delivery.request.function, %error, "a call of this function cannot be delivered; trying again");
        let (towpath, worker) = (self.clone(), worker.clone());
        tokio::spawn(async move {
            towpath.clock().sleep_until(towpath.clock().now() + PUT_BACK_AFTER).await;
            if let Err(error) = towpath.store().release(&worker, vec![delivery.id]).await {
                tracing::warn!(%error, "a call could not be put back; it comes back when its lease is over");
            }
        });
    }
}

/// So long a call stays with its worker before it is tried again.
const PUT_BACK_AFTER: Duration = Duration::from_secs(1);
