//! The system's ids: ordered by time, unique without asking anyone.

use std::hash::{BuildHasher, RandomState};
use std::time::SystemTime;

use towpath_core::ids::Ids;
use towpath_core::names::{CallId, WorkerId};
use uuid::Uuid;

/// The longest host name that a worker id shows.
const HOST_CHARS_MAX: usize = 64;

/// Ids that are unique over all machines: UUIDs of version 7 for calls, `host-pid-random` for workers.
///
/// ```
/// use towpath::{Ids, SystemIds};
///
/// let ids = SystemIds::new();
/// assert_ne!(ids.call_id(), ids.call_id());
/// assert!(!ids.worker_id().as_str().contains(':'));
/// ```
#[derive(Debug)]
pub struct SystemIds {
    /// `host-pid`, so that a person who sees a worker's id knows where to look.
    process: String,
}

impl SystemIds {
    /// A source of ids for this process.
    pub fn new() -> Self {
        Self { process: format!("{}-{}", host_name(), std::process::id()) }
    }
}

impl Default for SystemIds {
    fn default() -> Self {
        Self::new()
    }
}

impl Ids for SystemIds {
    fn call_id(&self) -> CallId {
        let mut buffer = Uuid::encode_buffer();
        let text = new_uuid().hyphenated().encode_lower(&mut buffer);
        CallId::new(&*text).expect("the text of a UUID is a valid id")
    }

    fn worker_id(&self) -> WorkerId {
        let uuid = new_uuid().simple().to_string();
        // The tail is the random part; the head is the time, which two workers of one start share.
        let tail = &uuid[uuid.len() - 12..];
        WorkerId::new(format!("{}-{tail}", self.process)).expect("the host name was cleaned when it was read")
    }
}

/// Ordered by time; the rest are random bits. They come from the standard library's hashers, whose secret keys the operating system's
/// randomness seeds: asking the system itself for every call would cost as much as all else that makes an id.
fn new_uuid() -> Uuid {
    #[expect(clippy::disallowed_methods, reason = "this is the source of ids that everyone else asks")]
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (millis, nanos) = (u64::try_from(now.as_millis()).unwrap_or(u64::MAX), now.subsec_nanos());
    let random = |half: u8| RandomState::new().hash_one((nanos, half)).to_be_bytes();
    let mut bits = [0; 10];
    bits[..8].copy_from_slice(&random(0));
    bits[8..].copy_from_slice(&random(1)[..2]);
    uuid::Builder::from_unix_timestamp_millis(millis, &bits).into_uuid()
}

fn host_name() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    clean_host_name(told.as_deref().unwrap_or("").trim())
}

/// A host name with nothing in it that a worker id may not hold.
fn clean_host_name(told: &str) -> String {
    let is_bad = |c: char| c == ':' || c.is_control() || c.is_whitespace();
    let name: String = told.chars().take(HOST_CHARS_MAX).map(|c| if is_bad(c) { '-' } else { c }).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_id_says_which_process_it_is() {
        let id = SystemIds::new().worker_id();
        assert!(id.as_str().contains(&format!("-{}-", std::process::id())), "{id}");
    }

    #[test]
    fn odd_host_names_still_make_worker_ids() {
        for told in ["", "a:b", "a\u{7}b", &"ü".repeat(300)] {
            let ids = SystemIds { process: format!("{}-1", clean_host_name(told)) };
            assert!(ids.worker_id().as_str().ends_with(|c: char| c.is_ascii_hexdigit()), "{told}");
        }
    }

    #[test]
    fn ids_made_later_sort_later() {
        let ids = SystemIds::new();
        let made: Vec<CallId> = (0..1_000).map(|_| ids.call_id()).collect();
        assert!(made.is_sorted());
    }
}
