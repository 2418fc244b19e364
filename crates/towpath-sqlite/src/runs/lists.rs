//! Lists of runs for people, those created last first. An index answers every filter, and one page looks at a bounded number of runs, whatever
//! the number of runs in the file and the size of their wait sets.

use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use rusqlite::{Connection, OptionalExtension, Statement};
use towpath_core::run::{RunId, RunPlace, RunState};
use towpath_core::store::{RUNS_PAGE_MAX, RunFilter, RunPage, RunPageRequest, RunView};
use towpath_core::time::Timestamp;

use super::rows;
use crate::trouble::{Moved, Trouble};
use crate::unreadable::Unreadable;

/// One page looks at this many runs at most.
const LOOKED_MAX: usize = 2_000;
/// One page ends with the run whose header reaches this many bytes: a wait set may be large.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Beyond this many places, or pairs of a place and a state, a list looks at all runs by creation instead of at each of them.
const MERGED_MAX: usize = 1_000;

macro_rules! in_order {
    ($condition:literal) => {
        concat!(
            "SELECT created_ms, run_id FROM runs WHERE ",
            $condition,
            "(created_ms, run_id) < (?1, ?2) ORDER BY created_ms DESC, run_id DESC"
        )
    };
}

pub(super) const ALL: &str = in_order!("");
pub(super) const OF_REFERENCE: &str = in_order!("reference = ?3 AND ");
pub(super) const OF_PARENT: &str = in_order!("parent = ?3 AND ");
pub(super) const OF_CAUSE: &str = in_order!("cause = ?3 AND ");
pub(super) const OF_PLACE: &str = concat!(in_order!("place = ?3 AND state = ?4 AND "), " LIMIT 1");
pub(super) const NEXT_PLACE: &str = "SELECT place FROM runs WHERE place > ?1 ORDER BY place LIMIT 1";
const BRIEF: &str = "SELECT place, state, reference, header FROM runs WHERE run_id = ?1 AND (kept_until_ms IS NULL OR kept_until_ms > ?2)";

/// Where a run stands in a list: by creation, then by id. Lists go from the highest to the lowest.
type Rank = (i64, String);

/// One page of runs.
pub(super) fn runs(
    conn: &Connection,
    filter: &RunFilter,
    page: &RunPageRequest,
    now: Timestamp,
    unreadable: &Unreadable,
) -> Moved<RunPage> {
    let mut search = Search {
        filter,
        now,
        unreadable,
        limit: page.limit.min(RUNS_PAGE_MAX) as usize,
        page: RunPage::default(),
        looked: 0,
        bytes: 0,
        last: None,
    };
    let after = page.after.as_ref().map(|(at, run_id)| (at.as_millis(), run_id.to_string()));
    // No id is lower than an empty one: a list that begins here has what was created before this instant.
    let until = filter.until.map(|until| (until.as_millis(), String::new()));
    let below = after.into_iter().chain(until).min().unwrap_or((i64::MAX, String::new()));
    each_candidate(conn, filter, below, |rank| search.look_at(conn, rank))?;
    Ok(search.page)
}

/// What a page has found so far.
struct Search<'a> {
    filter: &'a RunFilter,
    now: Timestamp,
    unreadable: &'a Unreadable,
    limit: usize,
    page: RunPage,
    looked: usize,
    bytes: usize,
    /// The latest run that was looked at.
    last: Option<(Timestamp, RunId)>,
}

impl Search<'_> {
    fn look_at(&mut self, conn: &Connection, (created, run_id): &Rank) -> Moved<ControlFlow<()>> {
        if self.filter.since.is_some_and(|since| *created < since.as_millis()) {
            return Ok(ControlFlow::Break(()));
        }
        if self.looked >= LOOKED_MAX || self.bytes >= BYTES_MAX {
            self.page.next = self.last.clone();
            return Ok(ControlFlow::Break(()));
        }
        self.looked += 1;
        let view = match self.brief(conn, run_id) {
            Ok(view) => view.filter(|view| self.filter.takes(view)),
            Err(Trouble::Corrupt(why)) => {
                self.unreadable.pass_over(&format!("run {run_id}"), &why, self.now);
                None
            }
            Err(trouble) => return Err(trouble),
        };
        if view.is_some() && self.page.runs.len() == self.limit {
            self.page.next = self.page.runs.last().map(|last| (last.run.created_at, last.run.run_id.clone()));
            return Ok(ControlFlow::Break(()));
        }
        self.page.runs.extend(view);
        if let Ok(run_id) = RunId::parse(run_id) {
            self.last = Some((Timestamp::from_millis(*created), run_id));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A run without payloads; `None` if its retention is over, or if its place or state is not meant.
    fn brief(&mut self, conn: &Connection, run_id: &str) -> Moved<Option<RunView>> {
        let mut statement = conn.prepare_cached(BRIEF)?;
        let mut found = statement.query((run_id, self.now.as_millis()))?;
        let Some(row) = found.next()? else { return Ok(None) };
        // Without reading the header, which may be long.
        let (place, state): (String, String) = (row.get(0)?, row.get(1)?);
        let is_of_state = self.filter.states.is_empty() || self.filter.states.iter().any(|meant| meant.as_str() == state);
        if !is_of_state || !is_of_place(self.filter, &place) {
            return Ok(None);
        }
        let (reference, header): (Option<String>, String) = (row.get(2)?, row.get(3)?);
        self.bytes += header.len();
        let reference = reference.map(rows::read_reference).transpose()?;
        Ok(Some(RunView { run: rows::read_json(&header)?, reference, outcome: None }))
    }
}

/// Runs in the order of lists that the filter may mean, until `visit` has enough.
fn each_candidate(conn: &Connection, filter: &RunFilter, below: Rank, visit: impl FnMut(&Rank) -> Moved<ControlFlow<()>>) -> Moved<()> {
    let by_value = if let Some(reference) = &filter.reference {
        Some((OF_REFERENCE, reference.as_str()))
    } else if let Some(parent) = &filter.parent {
        Some((OF_PARENT, parent.as_str()))
    } else {
        filter.cause.map(|cause| (OF_CAUSE, cause.as_str()))
    };
    if let Some((sql, value)) = by_value {
        return each_row(&mut *conn.prepare_cached(sql)?, (below.0, below.1, value), visit);
    }
    let is_of_places = filter.workflow.is_some() || filter.version.is_some() || filter.shard.is_some() || !filter.states.is_empty();
    let places = if is_of_places { places(conn, filter)? } else { None };
    match places.map(|places| pairs(&places, filter)).filter(|pairs| pairs.len() <= MERGED_MAX) {
        Some(pairs) => each_of_pairs(conn, &pairs, &below, visit),
        None => each_row(&mut *conn.prepare_cached(ALL)?, below, visit),
    }
}

fn each_row(
    statement: &mut Statement<'_>,
    columns: impl rusqlite::Params,
    mut visit: impl FnMut(&Rank) -> Moved<ControlFlow<()>>,
) -> Moved<()> {
    let mut rows = statement.query(columns)?;
    while let Some(row) = rows.next()? {
        if visit(&(row.get(0)?, row.get(1)?))?.is_break() {
            break;
        }
    }
    Ok(())
}

/// The latest run of all places and states that are meant, then the latest that is left, and so on.
fn each_of_pairs(
    conn: &Connection,
    pairs: &[(String, RunState)],
    below: &Rank,
    mut visit: impl FnMut(&Rank) -> Moved<ControlFlow<()>>,
) -> Moved<()> {
    let mut latest = conn.prepare_cached(OF_PLACE)?;
    let mut next = |pair: usize, below: &Rank| -> Moved<Option<(Rank, usize)>> {
        let (place, state) = &pairs[pair];
        let found = latest.query_row((below.0, &below.1, place, state.as_str()), |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        Ok(found.map(|rank| (rank, pair)))
    };
    let mut heap = BinaryHeap::new();
    for pair in 0..pairs.len() {
        heap.extend(next(pair, below)?);
    }
    while let Some((rank, pair)) = heap.pop() {
        if visit(&rank)?.is_break() {
            break;
        }
        heap.extend(next(pair, &rank)?);
    }
    Ok(())
}

fn pairs(places: &[String], filter: &RunFilter) -> Vec<(String, RunState)> {
    // Each state once, also if the filter names one twice.
    let states = || RunState::ALL.into_iter().filter(|state| filter.states.is_empty() || filter.states.contains(state));
    places.iter().flat_map(|place| states().map(move |state| (place.clone(), state))).collect()
}

/// The places that the filter means; `None` if there are too many to look at each of them.
fn places(conn: &Connection, filter: &RunFilter) -> Moved<Option<Vec<String>>> {
    let begins = filter.workflow.as_ref().map(RunPlace::streams_of).unwrap_or_default();
    let mut statement = conn.prepare_cached(NEXT_PLACE)?;
    let (mut meant, mut after) = (Vec::new(), begins.clone());
    for _ in 0..MERGED_MAX {
        let next: Option<String> = statement.query_row([&after], |row| row.get(0)).optional()?;
        let Some(next) = next.filter(|next| next.starts_with(&begins)) else { return Ok(Some(meant)) };
        if is_of_place(filter, &next) {
            meant.push(next.clone());
        }
        after = next;
    }
    Ok(None)
}

/// Whether the filter means runs of the place that has this stream.
fn is_of_place(filter: &RunFilter, stream: &str) -> bool {
    if filter.workflow.is_none() && filter.version.is_none() && filter.shard.is_none() {
        return true;
    }
    RunPlace::of_stream(stream).is_some_and(|place| {
        filter.workflow.as_ref().is_none_or(|workflow| *workflow == place.workflow)
            && filter.version.as_ref().is_none_or(|version| *version == place.version)
            && filter.shard.as_ref().is_none_or(|shard| place.shard.as_ref() == Some(shard))
    })
}
