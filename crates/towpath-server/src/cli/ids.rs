//! New ids, made here before anything is sent, so that a resend is the same call.

use towpath::{Ids, SystemIds};

/// An id for a new call.
pub(crate) fn call_id() -> String {
    SystemIds::new().call_id().to_string()
}

/// An id for a worker that starts.
pub(crate) fn worker_id() -> String {
    SystemIds::new().worker_id().to_string()
}
