//! Lists of calls for people, newest first. An index answers every filter, and one page looks at a bounded number of calls, whatever the
//! number of calls in the file and the size of their payloads.

use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use rusqlite::{Connection, OptionalExtension};
use towpath_core::call::{CallRequest, CallState};
use towpath_core::inspect::{CallFilter, CallView, Page, PageRequest};
use towpath_core::names::{FunctionName, Scope};
use towpath_core::time::Timestamp;

use crate::inspect;
use crate::memory::read_key;
use crate::rows::{self, AFTER_CALL, call_columns};
use crate::trouble::Moved;

/// One page looks at this many calls at most.
const LOOKED_MAX: usize = 5_000;

pub(crate) const ALL: &str = "SELECT seq FROM calls WHERE seq < ?1 ORDER BY seq DESC";
pub(crate) const OF_WORKER: &str = "SELECT seq FROM calls WHERE holder = ?2 AND seq < ?1 ORDER BY seq DESC";
pub(crate) const OF_FUNCTION: &str = "SELECT seq FROM calls WHERE function_id = ?1 AND state = ?2 AND seq < ?3 ORDER BY seq DESC LIMIT 1";
const FUNCTIONS: &str = "SELECT id FROM functions WHERE (?1 IS NULL OR scope = ?1) AND (?2 IS NULL OR name = ?2)";
// The request is not read at all, and a result neither: they may be long, and what stands behind them in a row is behind all their pages.
const BRIEF: &str = concat!(
    "SELECT ",
    call_columns!(),
    ", f.scope, f.name FROM calls c JOIN functions f ON f.id = c.function_id \
     WHERE c.seq = ?1 AND (c.kept_until_ms IS NULL OR c.kept_until_ms > ?2)"
);

/// One page of calls.
pub(crate) fn calls(conn: &Connection, filter: &CallFilter, page: &PageRequest, now: Timestamp) -> Moved<Page<CallView>> {
    let mut search =
        Search { filter, now, limit: page.limit.min(PageRequest::LIMIT_MAX) as usize, found: Vec::new(), looked: 0, next: None };
    let below = page.after.map_or(i64::MAX, |after| i64::try_from(after).unwrap_or(i64::MAX));
    each_candidate(conn, filter, below, |seq| search.look_at(conn, seq))?;
    let Search { found, next, .. } = search;
    if filter.brief {
        let items = found.into_iter().map(|(_, view)| view).collect();
        return Ok(Page { items, next });
    }
    with_payloads(conn, found, next, now)
}

/// What a page has found so far.
struct Search<'a> {
    filter: &'a CallFilter,
    now: Timestamp,
    limit: usize,
    found: Vec<(i64, CallView)>,
    looked: usize,
    next: Option<u64>,
}

impl Search<'_> {
    fn look_at(&mut self, conn: &Connection, seq: i64) -> Moved<ControlFlow<()>> {
        let last = self.found.last().map(|(seq, _)| *seq);
        if self.looked >= LOOKED_MAX {
            // The next page looks at this one first.
            self.next = u64::try_from(seq + 1).ok();
            return Ok(ControlFlow::Break(()));
        }
        self.looked += 1;
        let Some(view) = brief(conn, seq, self.now)?.filter(|view| is_meant(view, self.filter)) else {
            return Ok(ControlFlow::Continue(()));
        };
        if self.found.len() == self.limit {
            self.next = last.and_then(|last| u64::try_from(last).ok());
            return Ok(ControlFlow::Break(()));
        }
        self.found.push((seq, view));
        Ok(ControlFlow::Continue(()))
    }
}

/// Calls in the order of lists that the filter may mean, until `visit` has enough.
fn each_candidate(conn: &Connection, filter: &CallFilter, below: i64, mut visit: impl FnMut(i64) -> Moved<ControlFlow<()>>) -> Moved<()> {
    if filter.worker.is_none() && (!filter.states.is_empty() || filter.function.is_some() || filter.scope.is_some()) {
        return each_of_functions(conn, filter, below, visit);
    }
    let mut statement = conn.prepare_cached(if filter.worker.is_some() { OF_WORKER } else { ALL })?;
    let mut rows = match &filter.worker {
        Some(worker) => statement.query((below, worker.as_str()))?,
        None => statement.query((below,))?,
    };
    while let Some(row) = rows.next()? {
        if visit(row.get(0)?)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// The newest of all functions and states that are meant, then the newest that is left, and so on.
fn each_of_functions(
    conn: &Connection,
    filter: &CallFilter,
    below: i64,
    mut visit: impl FnMut(i64) -> Moved<ControlFlow<()>>,
) -> Moved<()> {
    // Each once, also if the filter names one twice.
    let states: Vec<CallState> =
        CallState::ALL.into_iter().filter(|state| filter.states.is_empty() || filter.states.contains(state)).collect();
    let mut newest = conn.prepare_cached(OF_FUNCTION)?;
    let mut next = |function: i64, state: CallState, below: i64| -> Moved<Option<(i64, i64, &'static str)>> {
        let seq = newest.query_row((function, state.as_str(), below), |row| row.get(0)).optional()?;
        Ok(seq.map(|seq| (seq, function, state.as_str())))
    };
    let mut heap = BinaryHeap::new();
    for function in functions(conn, filter)? {
        for state in &states {
            heap.extend(next(function, *state, below)?);
        }
    }
    while let Some((seq, function, state)) = heap.pop() {
        if visit(seq)?.is_break() {
            break;
        }
        if let Some(state) = CallState::parse(state) {
            heap.extend(next(function, state, seq)?);
        }
    }
    Ok(())
}

fn functions(conn: &Connection, filter: &CallFilter) -> Moved<Vec<i64>> {
    let mut statement = conn.prepare_cached(FUNCTIONS)?;
    let meant = (filter.scope.as_ref().map(Scope::as_str), filter.function.as_ref().map(FunctionName::as_str));
    let ids = statement.query_map(meant, |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(ids)
}

/// A call without payloads; `None` if its retention is over.
fn brief(conn: &Connection, seq: i64, now: Timestamp) -> Moved<Option<CallView>> {
    let mut statement = conn.prepare_cached(BRIEF)?;
    let mut rows = statement.query((seq, now.as_millis()))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let stored = rows::with_brief_outcome(conn, rows::read_call(row)?)?;
    let request = CallRequest::of(read_key(row, AFTER_CALL, AFTER_CALL + 1)?);
    Ok(Some(CallView { call: stored.call, request, progress: None }.brief()))
}

fn is_meant(view: &CallView, filter: &CallFilter) -> bool {
    let (call, function) = (&view.call, &view.request.function);
    (filter.states.is_empty() || filter.states.contains(&call.state))
        && filter.scope.as_ref().is_none_or(|scope| *scope == function.scope)
        && filter.function.as_ref().is_none_or(|name| *name == function.name)
        && filter.worker.as_ref().is_none_or(|worker| call.holder.as_ref() == Some(worker))
}

/// Reads the payloads of what was found, until they are many bytes.
fn with_payloads(conn: &Connection, found: Vec<(i64, CallView)>, next: Option<u64>, now: Timestamp) -> Moved<Page<CallView>> {
    let (count, mut items, mut bytes) = (found.len(), Vec::with_capacity(found.len()), 0);
    for (place, (seq, view)) in found.into_iter().enumerate() {
        if let Some(whole) = inspect::call(conn, &view.call.call_id, now)? {
            bytes += whole.payload_bytes();
            items.push(whole);
        }
        if bytes >= PageRequest::BYTES_MAX && place + 1 < count {
            return Ok(Page { items, next: u64::try_from(seq).ok() });
        }
    }
    Ok(Page { items, next })
}
