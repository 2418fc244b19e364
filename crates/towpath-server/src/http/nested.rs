//! A call made by the handler of another: it inherits depth, deadline and trace, and its parent gives its permit back while it waits.

use std::sync::Arc;

use towpath::{NewCall, Store};
use towpath_core::call::{CallState, LostLease};
use towpath_core::ids::DeliveryId;
use towpath_core::names::WorkerId;
use towpath_core::store::Renewal;

use super::app::App;
use super::convert;
use super::error::{ApiError, lease_lost};

const FIELD: &str = "parent_delivery_id";
/// How long a waited call lives, unless the caller says otherwise.
const TIMEOUT_DEFAULT: std::time::Duration = std::time::Duration::from_secs(30);

/// The delivery that makes a call, if one does.
pub(crate) struct Nested(Option<Parent>);

struct Parent {
    store: Arc<dyn Store>,
    worker: WorkerId,
    delivery: DeliveryId,
}

impl Nested {
    /// Puts `call` below its parent. A delivery that is no longer its worker's makes no calls: what they would be for is lost.
    pub(crate) async fn below(app: &App, parent_delivery_id: Option<String>, call: &mut NewCall) -> Result<Self, ApiError> {
        let Some(text) = parent_delivery_id else { return Ok(Self(None)) };
        let delivery = convert::delivery_id(FIELD.to_owned(), text)?;
        let lost = |why| lease_lost(FIELD, &delivery.to_string(), why);
        let view = app.store().call(&delivery.call_id).await?.ok_or_else(|| lost(LostLease::Absent))?;
        let worker = match (view.call.state, view.call.holder) {
            (CallState::Running, Some(holder)) if view.call.delivery == delivery.number => holder,
            (CallState::Running, _) => return Err(lost(LostLease::Replaced)),
            (state, _) if state.has_ended() => return Err(lost(LostLease::Ended)),
            _ => return Err(lost(LostLease::Expired)),
        };
        call.depth = view.request.depth.saturating_add(1);
        call.parent = Some(delivery.call_id.clone());
        if call.traceparent.is_none() {
            call.traceparent = view.request.traceparent;
        }
        if !call.detached {
            // At least a millisecond, so that a parent at its very deadline gets the call's own time-out and not a refusal.
            let remaining = view.call.deadline.since(app.clock().now()).max(std::time::Duration::from_millis(1));
            call.timeout = Some(call.timeout.unwrap_or(TIMEOUT_DEFAULT).min(remaining));
        }
        Ok(Self(Some(Parent { store: app.store().clone(), worker, delivery })))
    }

    /// Parks the parent for as long as the guard lives. Parking is a courtesy to other calls: if it fails, the call goes on.
    pub(crate) async fn park(self) -> Option<Parked> {
        let parent = self.0?;
        match parent.store.park(&parent.worker, &parent.delivery, true).await {
            Ok(Renewal::Held { .. }) => Some(Parked(Some(parent))),
            Ok(Renewal::Lost(_)) | Err(_) => None,
        }
    }
}

/// A parked parent. It counts as running again when this is dropped, also when the caller went away in the middle.
pub(crate) struct Parked(Option<Parent>);

impl Drop for Parked {
    fn drop(&mut self) {
        let (Some(parent), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) else { return };
        runtime.spawn(async move {
            if let Err(error) = parent.store.park(&parent.worker, &parent.delivery, false).await {
                // Its next renewal tells the worker where it stands; until then one call too many may run.
                tracing::warn!(delivery = %parent.delivery, %error, "a delivery that waited for a nested call could not be taken up again");
            }
        });
    }
}
