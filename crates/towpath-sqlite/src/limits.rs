//! Limits: load, decide with the core's pure function, write back, in the writer's transaction.
//!
//! An answer does not wait for the commit that it is part of: after a power cut what was granted may be forgotten, never invented.

use rusqlite::{OptionalExtension, Row};
use towpath_core::limit::{Algorithm, Check, LimitReply, LimitState, Rule, Rules, StateName, in_use, take};
use towpath_core::names::LimitScope;

use crate::trouble::Moved;
use crate::writer::Tx;

pub(crate) mod list;

pub(crate) use list::page;

pub(crate) const LOAD: &str = "SELECT a, b, c, d FROM limit_states WHERE scope = ?1 AND name = ?2";
pub(crate) const UNITS: &str = "SELECT at_us, n FROM limit_units WHERE scope = ?1 AND name = ?2 ORDER BY at_us";
const PUT: &str = "INSERT INTO limit_states (scope, name, a, b, c, d, sweep_us) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
     ON CONFLICT (scope, name) DO UPDATE SET a = excluded.a, b = excluded.b, c = excluded.c, d = excluded.d, sweep_us = excluded.sweep_us";
const DROP_OTHER_UNITS: &str = "DELETE FROM limit_units WHERE scope = ?1 AND name = ?2 AND (at_us < ?3 OR at_us > ?4)";
const PUT_UNITS: &str = "INSERT INTO limit_units (scope, name, at_us, n) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (scope, name, at_us) DO UPDATE SET n = excluded.n";
const DROP: &str = "DELETE FROM limit_states WHERE scope = ?1 AND name = ?2";
const DROP_UNITS: &str = "DELETE FROM limit_units WHERE scope = ?1 AND name = ?2";
pub(crate) const OVER: &str = "SELECT scope, name FROM limit_states WHERE sweep_us < ?1 ORDER BY sweep_us LIMIT ?2";

/// What is over is kept so much longer, for a rule that is changed to a longer window meanwhile.
const KEPT_US: i64 = 3_600_000_000;
/// Every new state sweeps so many that are over: more go than come.
const SWEPT_PER_NEW: i64 = 2;

pub(crate) fn put(tx: &mut Tx<'_>, check: &Check) -> Moved<LimitReply> {
    let (scope, rules) = (check.scope(), check.rules());
    let before = load_all(tx, scope, rules)?;
    let (after, reply) = take(check, &before, tx.now_us);
    for (place, (rule, state)) in rules.iter().zip(&after).enumerate() {
        if let Some(state) = state.as_ref().filter(|state| before[place].as_ref() != Some(*state)) {
            save(tx, scope, rule, before[place].as_ref(), state)?;
        }
    }
    list::note(tx, check, &reply)?;
    Ok(reply)
}

pub(crate) fn reset(tx: &mut Tx<'_>, scope: &LimitScope, rules: &Rules) -> Moved<u64> {
    let states = load_all(tx, scope, rules)?;
    for rule in rules.iter() {
        forget(tx, scope.as_str(), StateName::of(rule, tx.now_us).as_str())?;
    }
    Ok(in_use(rules, &states, tx.now_us))
}

fn load_all(tx: &Tx<'_>, scope: &LimitScope, rules: &Rules) -> Moved<Vec<Option<LimitState>>> {
    rules.iter().map(|rule| load(tx, scope, rule)).collect()
}

fn load(tx: &Tx<'_>, scope: &LimitScope, rule: &Rule) -> Moved<Option<LimitState>> {
    let name = StateName::of(rule, tx.now_us);
    let place = (scope.as_str(), name.as_str());
    if rule.algorithm() == Algorithm::SlidingLog {
        let mut statement = tx.conn.prepare_cached(UNITS)?;
        let units: Vec<(i64, u32)> = statement.query_map(place, |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
        return Ok((!units.is_empty()).then_some(LimitState::SlidingLog { units }));
    }
    Ok(tx.conn.prepare_cached(LOAD)?.query_row(place, |row| read(row, rule.algorithm())).optional()?)
}

fn read(row: &Row<'_>, algorithm: Algorithm) -> rusqlite::Result<LimitState> {
    Ok(match algorithm {
        Algorithm::Gcra => LimitState::Gcra { at_us: row.get(0)?, part: row.get(1)?, parts: row.get(2)? },
        Algorithm::FixedWindow => LimitState::FixedWindow { count: row.get(0)? },
        Algorithm::SlidingCounter => {
            LimitState::SlidingCounter { window_us: row.get(0)?, window: row.get(1)?, current: row.get(2)?, previous: row.get(3)? }
        }
        Algorithm::SlidingLog => LimitState::SlidingLog { units: Vec::new() },
    })
}

fn save(tx: &Tx<'_>, scope: &LimitScope, rule: &Rule, before: Option<&LimitState>, state: &LimitState) -> Moved<()> {
    let name = StateName::of(rule, tx.now_us);
    let (now, window) = (tx.now_us.get(), rule.window_us());
    let (columns, over_us) = match state {
        LimitState::Gcra { at_us, part, parts } => ([*at_us, *part, *parts, 0], *at_us),
        LimitState::FixedWindow { count } => ([*count, 0, 0, 0], now.saturating_add(window)),
        LimitState::SlidingCounter { window_us, window: number, current, previous } => {
            ([*window_us, *number, *current, *previous], now.saturating_add(window.saturating_mul(2)))
        }
        LimitState::SlidingLog { units } => {
            save_units(tx, scope, &name, before, units)?;
            ([0, 0, 0, 0], now.saturating_add(window))
        }
    };
    let [a, b, c, d] = columns;
    let sweep_us = over_us.saturating_add(KEPT_US);
    tx.conn.prepare_cached(PUT)?.execute((scope.as_str(), name.as_str(), a, b, c, d, sweep_us))?;
    if before.is_none() { sweep(tx) } else { Ok(()) }
}

/// Writes only what differs: of a thousand units one is new, and a few have left.
fn save_units(tx: &Tx<'_>, scope: &LimitScope, name: &StateName, before: Option<&LimitState>, units: &[(i64, u32)]) -> Moved<()> {
    let known: &[(i64, u32)] = if let Some(LimitState::SlidingLog { units }) = before { units } else { &[] };
    let (first, last) = (units.first().map_or(i64::MAX, |(at, _)| *at), units.last().map_or(i64::MIN, |(at, _)| *at));
    tx.conn.prepare_cached(DROP_OTHER_UNITS)?.execute((scope.as_str(), name.as_str(), first, last))?;
    for (at, n) in units.iter().filter(|unit| known.binary_search(unit).is_err()) {
        tx.conn.prepare_cached(PUT_UNITS)?.execute((scope.as_str(), name.as_str(), at, n))?;
    }
    Ok(())
}

fn forget(tx: &Tx<'_>, scope: &str, name: &str) -> Moved<()> {
    tx.conn.prepare_cached(DROP)?.execute((scope, name))?;
    tx.conn.prepare_cached(DROP_UNITS)?.execute((scope, name))?;
    Ok(())
}

fn sweep(tx: &Tx<'_>) -> Moved<()> {
    let over: Vec<(String, String)> = {
        let mut statement = tx.conn.prepare_cached(OVER)?;
        let rows = statement.query_map((tx.now_us.get(), SWEPT_PER_NEW), |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<Result<_, _>>()?
    };
    over.iter().try_for_each(|(scope, name)| forget(tx, scope, name))
}
