//! What the writer knows by heart of runs: how many each place has in each state, and whose turn comes next.

use std::collections::{BTreeMap, HashMap};

use rusqlite::Connection;
use towpath_core::run::{Run, RunPlace, RunState};
use towpath_core::time::Micros;

use crate::trouble::Moved;

pub(super) const COUNTS: &str = "SELECT place, state, count(*) FROM runs GROUP BY place, state";

/// Of the queues alone, which are short beside all runs.
pub(super) const LAST_TURN: &str = "SELECT coalesce(max(turn), 0) FROM runs WHERE queue IS NOT NULL";

/// How many runs are in each state, in the order of [`RunState::ALL`].
type Counts = [u64; RunState::ALL.len()];

#[derive(Debug, Default)]
pub(crate) struct RunMemory {
    counts: BTreeMap<RunPlace, Counts>,
    /// The counts that the transaction under way has changed, as they were before it.
    before: HashMap<RunPlace, Counts>,
    /// Number of claims that brought runs.
    pub(super) claims: u64,
    /// The latest place in a queue that was given out.
    last_turn: i64,
}

impl RunMemory {
    /// A row that names no place or no state is not counted.
    pub(crate) fn load(conn: &Connection) -> Moved<Self> {
        // A clock may have been set back since: no run comes into a queue before those that wait there.
        let mut memory = Self { last_turn: conn.query_row(LAST_TURN, [], |row| row.get(0))?, ..Self::default() };
        let mut statement = conn.prepare(COUNTS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (place, state): (String, String) = (row.get(0)?, row.get(1)?);
            if let (Some(place), Some(state)) = (RunPlace::of_stream(&place), RunState::parse(&state)) {
                memory.counts.entry(place).or_default()[state as usize] = row.get(2)?;
            }
        }
        Ok(memory)
    }

    /// The transaction under way was rolled back.
    pub(crate) fn roll_back(&mut self) {
        self.counts.extend(self.before.drain());
    }

    /// The transaction under way is kept.
    pub(crate) fn keep_changes(&mut self) {
        self.before.clear();
    }

    /// The next place in a queue: the present microsecond, or the one after the latest place.
    pub(super) fn next_turn(&mut self, now: Micros) -> i64 {
        self.last_turn = (self.last_turn + 1).max(now.get());
        self.last_turn
    }

    /// A run is in a state from now on.
    pub(super) fn enter(&mut self, run: &Run) {
        self.change(&run.place, run.state, |count| count.saturating_add(1));
    }

    /// A run of this place is not in this state any more.
    pub(super) fn leave(&mut self, place: &RunPlace, state: RunState) {
        self.change(place, state, |count| count.saturating_sub(1));
    }

    fn change(&mut self, place: &RunPlace, state: RunState, change: impl FnOnce(u64) -> u64) {
        let counts = self.counts.entry(place.clone()).or_default();
        if !self.before.contains_key(place) {
            self.before.insert(place.clone(), *counts);
        }
        counts[state as usize] = change(counts[state as usize]);
    }

    /// Places that have runs, each with the states that it has any in.
    pub(super) fn places(&self) -> impl Iterator<Item = (&RunPlace, Vec<(RunState, u64)>)> {
        let any = |counts: &Counts| RunState::ALL.into_iter().zip(*counts).filter(|(_, count)| *count > 0).collect::<Vec<_>>();
        self.counts.iter().map(move |(place, counts)| (place, any(counts))).filter(|(_, counts)| !counts.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_counted_at_its_place_in_the_list_of_all() {
        for (place, state) in RunState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, place);
        }
    }

    #[test]
    fn a_transaction_that_is_rolled_back_has_counted_nothing() {
        let (mut memory, place) = (RunMemory::default(), towpath_core::run::place("order", "1", None).unwrap());
        let counted = |memory: &RunMemory| memory.places().map(|(_, counts)| counts).collect::<Vec<_>>();
        memory.change(&place, RunState::Ready, |count| count + 2);
        memory.keep_changes();
        memory.leave(&place, RunState::Ready);
        memory.change(&place, RunState::Running, |count| count + 1);
        assert_eq!(counted(&memory), [vec![(RunState::Ready, 1), (RunState::Running, 1)]]);
        memory.roll_back();
        assert_eq!(counted(&memory), [vec![(RunState::Ready, 2)]]);
    }
}
