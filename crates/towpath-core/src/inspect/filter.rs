//! Which calls, and how many at a time.

use crate::call::CallState;
use crate::names::{FunctionName, Scope, WorkerId};

/// Which calls are meant. Empty means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallFilter {
    /// Only calls in one of these states.
    pub states: Vec<CallState>,
    /// Only calls of functions in this scope.
    pub scope: Option<Scope>,
    /// Only calls of functions of this name.
    pub function: Option<FunctionName>,
    /// Only calls that this worker holds or last held.
    pub worker: Option<WorkerId>,
    /// Without payloads, as [`CallView::brief`](super::CallView::brief) leaves them.
    pub brief: bool,
}

/// One page of a list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// Where the page before ended; `None` for the first.
    pub after: Option<u64>,
    /// At most this many.
    pub limit: u32,
}

impl PageRequest {
    /// The largest page that a store serves.
    pub const LIMIT_MAX: u32 = 200;
    /// A page with payloads ends with the call that reaches this many bytes of them.
    pub const BYTES_MAX: usize = 1024 * 1024;

    /// The first page, of this size.
    pub fn first(limit: u32) -> Self {
        Self { after: None, limit: limit.min(Self::LIMIT_MAX) }
    }
}

/// A page, and where the next one begins. A page may have fewer items than were asked for, even none, and a next one all the same: a store
/// looks at a bounded number of calls for one page, and a page with payloads at a bounded number of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Ask for the next page with this; `None` when this was the last.
    pub next: Option<u64>,
}
