//! New ids, made here before anything is sent, so that a resend is the same call.

use std::hash::{BuildHasher, RandomState};

/// An id for a new call.
pub(crate) fn call_id() -> String {
    random()
}

/// An id for a worker that starts.
pub(crate) fn worker_id() -> String {
    format!("exec-{}-{}", std::process::id(), random())
}

fn random() -> String {
    let number = || RandomState::new().hash_one(super::time::unix_ms());
    format!("{:016x}{:016x}", number(), number())
}
