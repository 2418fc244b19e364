//! A lock's record, read and written as the scripts do. How it is written stands at the top of `lua/locks/scope.lua`.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use towpath_core::lock::{Fence, LastRelease, LockState, OrphanWatch, Tenure};
use towpath_core::names::{ExecutionId, LockId, RequestId};
use towpath_core::time::{Timestamp, millis};

/// A record is kept so long beyond the time when anything in it counts.
const KEPT: Duration = Duration::from_secs(7_200);

/// The record as a lock's state, but for counter, sidecar and queue. `None`: it makes no sense.
pub(super) fn read_record(text: &str) -> Option<LockState> {
    let (line, texts) = text.split_once('\n')?;
    let words: Vec<&str> = line.split(' ').collect();
    let ["2", high, last, arrivals, free_since, watch, last_request, last_size] = words[..] else { return None };
    let mut texts = Texts(texts);
    let last_id = if last_size == "-" { None } else { Some(LockId::new(texts.take(last_size)?).ok()?) };
    let mut state = LockState {
        fence_high: Fence::new(high.parse().ok()?),
        free_since: instant(free_since),
        last: LastRelease { fence: Fence::new(last.parse().ok()?), lock_id: last_id, request_id: request_id(last_request) },
        orphan_watch: if watch == "-" { None } else { Some(read_watch(watch)?) },
        tenure: if texts.0.is_empty() { None } else { Some(read_tenure(texts.0)?) },
        ..LockState::default()
    };
    state.queue.arrivals = arrivals.parse().ok()?;
    Some(state)
}

fn read_watch(word: &str) -> Option<OrphanWatch> {
    let mut parts = word.split('/');
    let (since, seen_at, value) = (instant(parts.next()?)?, instant(parts.next()?)?, parts.next()?.parse().ok()?);
    Some(OrphanWatch { since, seen_at, value })
}

fn read_tenure(text: &str) -> Option<Tenure> {
    let (line, texts) = text.split_once('\n')?;
    let words: Vec<&str> = line.split(' ').collect();
    let [fence, lease_end, cap, holds, at, lease, request, size, execution_size] = words[..] else { return None };
    let mut texts = Texts(texts);
    let lock_id = LockId::new(texts.take(size)?).ok()?;
    let execution = texts.take(execution_size)?;
    Some(Tenure {
        lock_id,
        fence: Fence::new(fence.parse().ok()?),
        holds: holds.parse().ok()?,
        execution_id: if execution.is_empty() { None } else { Some(ExecutionId::new(execution).ok()?) },
        request_id: request_id(request)?,
        lease_end: instant(lease_end)?,
        lease: Duration::from_millis(lease.parse().ok()?),
        max_hold_end: instant(cap)?,
        meta: Arc::from(texts.0),
        locked_at: instant(at)?,
    })
}

/// The record of a state, and how long it is to be kept at least from now on. The queue is elsewhere.
pub(super) fn write_record(state: &LockState, now: Timestamp) -> (String, Duration) {
    let or_none = |word: Option<String>| word.unwrap_or_else(|| "-".to_owned());
    let LastRelease { fence: last, lock_id: last_id, request_id } = &state.last;
    let watch = state.orphan_watch.map(|watch| format!("{}/{}/{}", watch.since.as_millis(), watch.seen_at.as_millis(), watch.value));
    let mut text = format!(
        "2 {} {last} {} {} {} {} {}\n{}",
        state.fence_high,
        state.queue.arrivals,
        or_none(state.free_since.map(|at| at.as_millis().to_string())),
        or_none(watch),
        or_none(request_id.as_ref().map(|id| format!("={id}"))),
        or_none(last_id.as_ref().map(|id| id.as_str().len().to_string())),
        last_id.as_ref().map_or("", LockId::as_str),
    );
    if let Some(tenure) = &state.tenure {
        let (id, execution) = (tenure.lock_id.as_str(), tenure.execution_id.as_ref().map_or("", ExecutionId::as_str));
        let (ends, cap, at) = (tenure.lease_end.as_millis(), tenure.max_hold_end.as_millis(), tenure.locked_at.as_millis());
        let (fence, holds, request) = (tenure.fence, tenure.holds, &tenure.request_id);
        let (lease, sizes) = (millis(tenure.lease), (id.len(), execution.len()));
        // Writing to a string does not fail.
        let _ =
            write!(text, "{fence} {ends} {cap} {holds} {at} {lease} ={request} {} {}\n{id}{execution}{}", sizes.0, sizes.1, tenure.meta);
    }
    let lease_end = state.tenure.as_ref().map_or(now, |tenure| tenure.lease_end);
    (text, state.fence_high.reached_at().max(lease_end).since(now) + KEPT)
}

/// Texts one after the other.
struct Texts<'a>(&'a str);

impl<'a> Texts<'a> {
    fn take(&mut self, size: &str) -> Option<&'a str> {
        let (text, rest) = self.0.split_at_checked(size.parse().ok()?)?;
        self.0 = rest;
        Some(text)
    }
}

fn instant(word: &str) -> Option<Timestamp> {
    word.parse().ok().map(Timestamp::from_millis)
}

fn request_id(word: &str) -> Option<RequestId> {
    word.strip_prefix('=').and_then(|id| RequestId::new(id).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_is_written() {
        let text = "2 9 8 3 - 5/6/-7 =q-1 3\nold9 100 200 2 50 30 =q-2 2 4\n\n\"4711{\"lock_id\":\"\\n\\\"\"}";
        let state = read_record(text).unwrap();
        assert_eq!(write_record(&state, Timestamp::default()).0, text);
        assert_eq!((state.fence_high, state.last.fence, state.queue.arrivals), (Fence::new(9), Fence::new(8), 3));
        assert_eq!(state.last.lock_id.as_ref().map(LockId::as_str), Some("old"));
        assert_eq!(state.orphan_watch.map(|watch| watch.value), Some(-7));
        let tenure = state.tenure.unwrap();
        assert_eq!((tenure.lock_id.as_str(), tenure.execution_id.as_ref().map(ExecutionId::as_str)), ("\n\"", Some("4711")));
        assert_eq!((&*tenure.meta, tenure.holds), (r#"{"lock_id":"\n\""}"#, 2));
    }

    #[test]
    fn what_is_no_record_is_refused_and_no_panic() {
        for text in ["", "\n", "2", "1 0 0 0 - - - -\n", "2 0 0 0 - - - 9\nshort", "2 0 0 0 - 5 - -\n", "2 0 0 0 - - - -\n9 1\n", "2 x\n"] {
            assert_eq!(read_record(text), None, "{text:?}");
        }
    }
}
