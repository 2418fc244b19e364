//! Reading what the scripts have written about a lock. How it is written stands at the top of `lua/locks/scope.lua`.

use std::sync::Arc;

use towpath_core::lock::{Fence, LastRelease, LockState, OrphanWatch, Tenure};
use towpath_core::names::{ExecutionId, LockId, RequestId};
use towpath_core::time::Timestamp;

/// The record as a lock's state, but for counter, sidecar and queue. `None`: it makes no sense.
pub(super) fn read_record(text: &str) -> Option<LockState> {
    let (line, texts) = text.split_once('\n')?;
    let words: Vec<&str> = line.split(' ').collect();
    let [
        "1",
        high,
        last,
        arrivals,
        free_since,
        watched,
        seen,
        value,
        last_request,
        last_size,
        fence,
        lease_end,
        cap,
        holds,
        at,
        request,
        size,
        execution_size,
    ] = words[..]
    else {
        return None;
    };
    let mut texts = Texts(texts);
    let last_id = if last_size == "-" { None } else { Some(LockId::new(texts.take(last_size)?).ok()?) };
    let mut state = LockState {
        fence_high: Fence::new(high.parse().ok()?),
        free_since: instant(free_since),
        last: LastRelease { fence: Fence::new(last.parse().ok()?), lock_id: last_id, request_id: request_id(last_request) },
        orphan_watch: instant(watched).zip(instant(seen)).zip(value.parse().ok()).map(|((since, seen_at), value)| OrphanWatch {
            since,
            seen_at,
            value,
        }),
        ..LockState::default()
    };
    state.queue.arrivals = arrivals.parse().ok()?;
    if fence != "-" {
        let lock_id = LockId::new(texts.take(size)?).ok()?;
        let execution = texts.take(execution_size)?;
        state.tenure = Some(Tenure {
            lock_id,
            fence: Fence::new(fence.parse().ok()?),
            holds: holds.parse().ok()?,
            execution_id: if execution.is_empty() { None } else { Some(ExecutionId::new(execution).ok()?) },
            request_id: request_id(request)?,
            lease_end: instant(lease_end)?,
            max_hold_end: instant(cap)?,
            meta: Arc::from(texts.0),
            locked_at: instant(at)?,
        });
    }
    Some(state)
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
        let text = "1 9 8 3 - 5 6 -7 =q-1 3 9 100 200 2 50 =q-2 2 4\nold\n\"4711{\"lock_id\":\"\\n\\\"\"}";
        let state = read_record(text).unwrap();
        assert_eq!((state.fence_high, state.last.fence, state.queue.arrivals), (Fence::new(9), Fence::new(8), 3));
        assert_eq!(state.last.lock_id.as_ref().map(LockId::as_str), Some("old"));
        assert_eq!(state.orphan_watch.map(|watch| watch.value), Some(-7));
        let tenure = state.tenure.unwrap();
        assert_eq!((tenure.lock_id.as_str(), tenure.execution_id.as_ref().map(ExecutionId::as_str)), ("\n\"", Some("4711")));
        assert_eq!((&*tenure.meta, tenure.holds), (r#"{"lock_id":"\n\""}"#, 2));
    }

    #[test]
    fn what_is_no_record_is_refused_and_no_panic() {
        for text in ["", "\n", "1", "2 0 0 0 - - - - - - - - - - - - - -\n", "1 0 0 0 - - - - - 9 - - - - - - - -\nshort", "1 x\n"] {
            assert_eq!(read_record(text), None, "{text:?}");
        }
    }
}
