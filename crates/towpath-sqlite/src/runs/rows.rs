//! A run to rows and back. The only place that knows which column holds what.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use towpath_core::names::{EventName, Reference, WorkflowName};
use towpath_core::payload::Payload;
use towpath_core::run::{
    Child, Entry, EntryKind, Fact, FactKind, ForgottenFacts, Run, RunId, RunPlace, RunQueue, RunState, Standing, StepId, TERMINATED_AFTER,
};
use towpath_core::store::{EVENT_KNOWN_FOR, FACTS_BYTES_MAX, FACTS_MAX, JournalEntry};
use towpath_core::time::{Timestamp, millis};

use crate::trouble::{Moved, Trouble};
use crate::writer::Tx;

const LOAD: &str = "SELECT header FROM runs WHERE run_id = ?1";
const INSERT: &str = "INSERT INTO runs (run_id, place, workflow, reference, input_hash, state, cause, queue, turn, expires_ms, \
     kept_until_ms, created_ms, changed_ms, parent, header) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
const UPDATE: &str = "UPDATE runs SET state = ?2, cause = ?3, queue = ?4, turn = coalesce(?5, turn), expires_ms = ?6, kept_until_ms = ?7, \
     changed_ms = ?8, header = ?9 WHERE run_id = ?1";
const APPEND: &str = "INSERT INTO run_journal (run_id, number, at_ms, kind, step, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const LAST_AT: &str = "SELECT at_ms FROM run_journal WHERE run_id = ?1 ORDER BY number DESC LIMIT 1";
const LAST_BODY: &str = "SELECT body FROM run_journal WHERE run_id = ?1 ORDER BY number DESC LIMIT 1";
pub(super) const JOURNAL: &str =
    "SELECT number, at_ms, kind, step, body FROM run_journal WHERE run_id = ?1 AND number >= ?2 ORDER BY number";
const ADD_FACT: &str = "INSERT INTO run_facts (run_id, number, at_ms, of_step, body) VALUES (?1, ?2, ?3, ?4, ?5)";
const FACT: &str = "SELECT body FROM run_facts WHERE run_id = ?1 AND number = ?2";
const CONSUME: &str = "DELETE FROM run_facts WHERE run_id = ?1 AND number = ?2";
pub(super) const FACTS: &str = "SELECT number, at_ms, body FROM run_facts WHERE run_id = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
const ARM: &str =
    "INSERT INTO run_timers (run_id, timer, due_ms) VALUES (?1, ?2, ?3) ON CONFLICT (run_id, timer) DO UPDATE SET due_ms = ?3";
const DISARM: &str = "DELETE FROM run_timers WHERE run_id = ?1 AND timer = ?2";
const PUBLISH: &str =
    "INSERT INTO run_published (run_id, key, value) VALUES (?1, ?2, ?3) ON CONFLICT (run_id, key) DO UPDATE SET value = ?3";
pub(super) const FORGET_EVENTS: &str = "DELETE FROM run_events_known WHERE (run_id, name, reference) IN \
     (SELECT run_id, name, reference FROM run_events_known WHERE at_ms <= ?1 ORDER BY at_ms LIMIT 2)";
/// All rows of a run, but for its own.
const ROWS: [&str; 6] = [
    "DELETE FROM run_journal WHERE run_id = ?1",
    "DELETE FROM run_facts WHERE run_id = ?1",
    "DELETE FROM run_events_known WHERE run_id = ?1",
    "DELETE FROM run_timers WHERE run_id = ?1",
    "DELETE FROM run_children WHERE run_id = ?1",
    "DELETE FROM run_published WHERE run_id = ?1",
];

/// What the columns of a new run need besides its header.
pub(super) struct Known<'a> {
    pub(super) reference: Option<&'a Reference>,
    pub(super) input_hash: &'a str,
}

pub(super) fn load(conn: &Connection, run_id: &RunId) -> Moved<Option<Run>> {
    let found: Option<String> = conn.prepare_cached(LOAD)?.query_row([run_id.as_str()], |row| row.get(0)).optional()?;
    found.as_deref().map(read_json).transpose()
}

/// The run that a reference leads to.
pub(super) fn referenced(conn: &Connection, workflow: &WorkflowName, reference: &Reference) -> Moved<Option<RunId>> {
    const SQL: &str = "SELECT run_id FROM run_references WHERE workflow = ?1 AND reference = ?2";
    let found = conn.prepare_cached(SQL)?.query_row((workflow.as_str(), reference.as_str()), |row| row.get::<_, String>(0)).optional()?;
    found.as_deref().map(read_id).transpose()
}

pub(super) fn input_hash(conn: &Connection, run_id: &RunId) -> Moved<Option<String>> {
    Ok(conn.prepare_cached("SELECT input_hash FROM runs WHERE run_id = ?1")?.query_row([run_id.as_str()], |row| row.get(0)).optional()?)
}

pub(super) fn reference(conn: &Connection, run_id: &RunId) -> Moved<Option<Reference>> {
    let found: Option<Option<String>> =
        conn.prepare_cached("SELECT reference FROM runs WHERE run_id = ?1")?.query_row([run_id.as_str()], |row| row.get(0)).optional()?;
    found.flatten().map(read_reference).transpose()
}

pub(super) fn read_reference(text: String) -> Moved<Reference> {
    Reference::new(text).map_err(|cause| Trouble::Corrupt(cause.to_string()))
}

fn queue_column(run: &Run) -> Option<i64> {
    match run.standing() {
        Standing::Queued(RunQueue::First) => Some(0),
        Standing::Queued(RunQueue::New) => Some(1),
        _other => None,
    }
}

fn expires_column(run: &Run) -> Option<i64> {
    match run.standing() {
        Standing::Claimed(until) => Some(until.as_millis()),
        _other => None,
    }
}

pub(super) fn insert(tx: &mut Tx<'_>, run: &Run, known: &Known<'_>) -> Moved<()> {
    let turn = tx.memory.runs.next_turn(tx.now_us);
    tx.conn.prepare_cached(INSERT)?.execute(params![
        run.run_id.as_str(),
        run.place.stream(),
        run.place.workflow.as_str(),
        known.reference.map(Reference::as_str),
        known.input_hash,
        run.state.as_str(),
        run.cause.map(towpath_core::run::BlockCause::as_str),
        queue_column(run),
        turn,
        expires_column(run),
        run.kept_until().map(Timestamp::as_millis),
        run.created_at.as_millis(),
        run.changed_at.as_millis(),
        run.parent.as_ref().map(|parent| parent.run_id.as_str()),
        write_json(run)?,
    ])?;
    if let Some(reference) = known.reference {
        const SQL: &str = "INSERT INTO run_references (workflow, reference, run_id) VALUES (?1, ?2, ?3) \
             ON CONFLICT (workflow, reference) DO UPDATE SET run_id = ?3";
        tx.conn.prepare_cached(SQL)?.execute((run.place.workflow.as_str(), reference.as_str(), run.run_id.as_str()))?;
    }
    set_timers(tx, None, run)
}

/// Writes a header that has changed, and the timers that follow from it.
pub(super) fn update(tx: &mut Tx<'_>, before: &Run, run: &Run) -> Moved<()> {
    if before == run {
        return Ok(());
    }
    let comes_into_queue = before.standing() != run.standing() && queue_column(run).is_some();
    let turn = comes_into_queue.then(|| tx.memory.runs.next_turn(tx.now_us));
    tx.conn.prepare_cached(UPDATE)?.execute(params![
        run.run_id.as_str(),
        run.state.as_str(),
        run.cause.map(towpath_core::run::BlockCause::as_str),
        queue_column(run),
        turn,
        expires_column(run),
        run.kept_until().map(Timestamp::as_millis),
        run.changed_at.as_millis(),
        write_json(run)?,
    ])?;
    set_timers(tx, Some(before), run)
}

/// The timers of a run, as its header has them.
pub(super) fn timers(run: &Run) -> BTreeMap<String, Timestamp> {
    let mut timers = BTreeMap::new();
    if run.state.is_closed() {
        return timers;
    }
    timers.extend(run.wait.timers.iter().map(|(step, at)| (step.to_string(), *at)));
    match run.standing() {
        Standing::Start(at) => drop(timers.insert("start".to_owned(), at)),
        Standing::BacksOff(at) => drop(timers.insert("back_off".to_owned(), at)),
        _other => {}
    }
    if let Some(at) = run.deadline {
        let (name, at) = if run.cancel_requested { ("after_deadline", at + TERMINATED_AFTER) } else { ("deadline", at) };
        timers.insert(name.to_owned(), at);
    }
    timers
}

/// Writes the timers that the header has now. The timekeeper hears of the new ones.
fn set_timers(tx: &mut Tx<'_>, before: Option<&Run>, run: &Run) -> Moved<()> {
    let (old, new) = (before.map(timers).unwrap_or_default(), timers(run));
    for timer in old.keys().filter(|timer| !new.contains_key(*timer)) {
        disarm(tx.conn, run.run_id.as_str(), timer)?;
    }
    for (timer, at) in new.iter().filter(|(timer, at)| old.get(*timer) != Some(at)) {
        arm(tx.conn, run.run_id.as_str(), timer, *at)?;
        tx.after.note_due(Some(*at));
    }
    Ok(())
}

pub(super) fn arm(conn: &Connection, run_id: &str, timer: &str, at: Timestamp) -> Moved<()> {
    conn.prepare_cached(ARM)?.execute((run_id, timer, at.as_millis()))?;
    Ok(())
}

pub(super) fn disarm(conn: &Connection, run_id: &str, timer: &str) -> Moved<()> {
    conn.prepare_cached(DISARM)?.execute((run_id, timer))?;
    Ok(())
}

/// Appends to the journal. An instant never decreases within a journal.
pub(super) fn append(conn: &Connection, run_id: &RunId, first: u64, entries: &[Entry], now: Timestamp) -> Moved<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let last: Option<i64> = conn.prepare_cached(LAST_AT)?.query_row([run_id.as_str()], |row| row.get(0)).optional()?;
    let at = last.map_or(now, |at| Timestamp::from_millis(at).max(now));
    for (number, entry) in (first..).zip(entries) {
        let step = entry.step.as_ref().map(StepId::as_str);
        let row = (run_id.as_str(), number, at.as_millis(), entry.kind.as_str(), step, entry.body.as_str());
        conn.prepare_cached(APPEND)?.execute(row)?;
    }
    Ok(())
}

/// The body of the last entry of a journal.
pub(super) fn last_body(conn: &Connection, run_id: &RunId) -> Moved<Option<Payload>> {
    let body: Option<String> = conn.prepare_cached(LAST_BODY)?.query_row([run_id.as_str()], |row| row.get(0)).optional()?;
    Ok(body.map(Payload::from_json))
}

/// The journal of the generation goes.
pub(super) fn clear_journal(conn: &Connection, run_id: &RunId) -> Moved<()> {
    conn.prepare_cached(ROWS[0])?.execute([run_id.as_str()])?;
    Ok(())
}

pub(super) fn journal(conn: &Connection, run_id: &RunId, from: u64, bytes_max: usize) -> Moved<Vec<JournalEntry>> {
    let mut statement = conn.prepare_cached(JOURNAL)?;
    let mut rows = statement.query((run_id.as_str(), column(from)))?;
    let (mut page, mut left) = (Vec::new(), bytes_max);
    while let Some(row) = rows.next()? {
        let body = Payload::from_json(row.get::<_, String>(4)?);
        if !page.is_empty() && body.len() > left {
            break;
        }
        left = left.saturating_sub(body.len().max(1));
        let kind: String = row.get(2)?;
        let kind = EntryKind::parse(&kind).ok_or_else(|| Trouble::Corrupt(format!("'{kind}' is not a kind of entry")))?;
        let step = row.get::<_, Option<String>>(3)?.map(|step| StepId::parse(&step).map_err(|cause| Trouble::Corrupt(cause.to_string())));
        let at = Timestamp::from_millis(row.get(1)?);
        page.push(JournalEntry { number: row.get(0)?, at, entry: Entry { kind, step: step.transpose()?, body } });
        if left == 0 {
            break;
        }
    }
    Ok(page)
}

pub(super) fn add_fact(conn: &Connection, run_id: &RunId, number: u64, kind: &FactKind, now: Timestamp) -> Moved<()> {
    let row = (run_id.as_str(), number, now.as_millis(), i64::from(!kind.outlives_generation()), write_json(kind)?);
    conn.prepare_cached(ADD_FACT)?.execute(row)?;
    Ok(())
}

pub(super) fn consume(conn: &Connection, run_id: &RunId, numbers: &[u64]) -> Moved<()> {
    for number in numbers {
        conn.prepare_cached(CONSUME)?.execute((run_id.as_str(), column(*number)))?;
    }
    Ok(())
}

/// How many of these facts are events that are in the inbox.
pub(super) fn count_events(conn: &Connection, run_id: &RunId, numbers: &[u64]) -> Moved<u32> {
    let mut count = 0;
    for number in numbers {
        let body: Option<String> = conn.prepare_cached(FACT)?.query_row((run_id.as_str(), column(*number)), |row| row.get(0)).optional()?;
        let kind: Option<FactKind> = body.as_deref().map(read_json).transpose()?;
        count += u32::from(matches!(kind, Some(FactKind::Event { .. })));
    }
    Ok(count)
}

/// A number as SQLite keeps it. None that a store has given out is larger.
fn column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn forget_facts(conn: &Connection, run_id: &RunId, forgotten: ForgottenFacts) -> Moved<()> {
    let sql = match forgotten {
        ForgottenFacts::None => return Ok(()),
        ForgottenFacts::OfSteps => "DELETE FROM run_facts WHERE run_id = ?1 AND of_step = 1",
        ForgottenFacts::All => ROWS[1],
    };
    conn.prepare_cached(sql)?.execute([run_id.as_str()])?;
    Ok(())
}

pub(super) fn facts(conn: &Connection, run_id: &RunId, after: u64) -> Moved<Vec<Fact>> {
    let mut statement = conn.prepare_cached(FACTS)?;
    let mut rows = statement.query((run_id.as_str(), column(after), i64::try_from(FACTS_MAX).unwrap_or(i64::MAX)))?;
    let (mut facts, mut left) = (Vec::new(), FACTS_BYTES_MAX);
    while let Some(row) = rows.next()? {
        if left == 0 {
            break;
        }
        let kind: FactKind = read_json(&row.get::<_, String>(2)?)?;
        left = left.saturating_sub(kind.bytes());
        facts.push(Fact { number: row.get(0)?, at: Timestamp::from_millis(row.get(1)?), kind });
    }
    Ok(facts)
}

/// The number of an event that came with this reference lately.
pub(super) fn known_event(tx: &Tx<'_>, run_id: &RunId, name: &EventName, reference: &Reference) -> Moved<Option<u64>> {
    const SQL: &str = "SELECT number FROM run_events_known WHERE run_id = ?1 AND name = ?2 AND reference = ?3 AND at_ms > ?4";
    let row = (run_id.as_str(), name.as_str(), reference.as_str(), known_since(tx.now));
    Ok(tx.conn.prepare_cached(SQL)?.query_row(row, |row| row.get(0)).optional()?)
}

/// Remembers an event by its reference, and forgets two that came too long ago.
pub(super) fn know_event(tx: &Tx<'_>, run_id: &RunId, name: &EventName, reference: &Reference, number: u64) -> Moved<()> {
    const PUT: &str = "INSERT INTO run_events_known (run_id, name, reference, number, at_ms) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT (run_id, name, reference) DO UPDATE SET number = ?4, at_ms = ?5";
    tx.conn.prepare_cached(PUT)?.execute((run_id.as_str(), name.as_str(), reference.as_str(), number, tx.now.as_millis()))?;
    tx.conn.prepare_cached(FORGET_EVENTS)?.execute([known_since(tx.now)])?;
    Ok(())
}

/// Events that came at this instant or before are not recognised any more.
fn known_since(now: Timestamp) -> i64 {
    now.as_millis().saturating_sub(millis(EVENT_KNOWN_FOR))
}

pub(super) fn open_child(conn: &Connection, run_id: &RunId, child: &Child) -> Moved<()> {
    const SQL: &str =
        "INSERT INTO run_children (run_id, step, child) VALUES (?1, ?2, ?3) ON CONFLICT (run_id, step) DO UPDATE SET child = ?3";
    conn.prepare_cached(SQL)?.execute((run_id.as_str(), child.step.as_str(), write_json(child)?))?;
    Ok(())
}

pub(super) fn child(conn: &Connection, run_id: &RunId, step: &StepId) -> Moved<Option<Child>> {
    const SQL: &str = "SELECT child FROM run_children WHERE run_id = ?1 AND step = ?2";
    let found = conn.prepare_cached(SQL)?.query_row((run_id.as_str(), step.as_str()), |row| row.get::<_, String>(0)).optional()?;
    found.as_deref().map(read_json).transpose()
}

pub(super) fn close_child(conn: &Connection, run_id: &RunId, step: &StepId) -> Moved<()> {
    const SQL: &str = "DELETE FROM run_children WHERE run_id = ?1 AND step = ?2";
    conn.prepare_cached(SQL)?.execute((run_id.as_str(), step.as_str()))?;
    Ok(())
}

/// All open children.
pub(super) fn children(conn: &Connection, run_id: &RunId) -> Moved<Vec<Child>> {
    let texts = texts(conn, "SELECT child FROM run_children WHERE run_id = ?1 ORDER BY step", [run_id.as_str()])?;
    texts.iter().map(|text| read_json(text)).collect()
}

/// No child is open any more.
pub(super) fn close_children(conn: &Connection, run_id: &RunId) -> Moved<()> {
    conn.prepare_cached(ROWS[4])?.execute([run_id.as_str()])?;
    Ok(())
}

pub(super) fn publish(conn: &Connection, run_id: &RunId, key: &str, value: &Payload) -> Moved<()> {
    conn.prepare_cached(PUBLISH)?.execute((run_id.as_str(), key, value.as_str()))?;
    Ok(())
}

pub(super) fn published(conn: &Connection, run_id: &RunId) -> Moved<Vec<(Arc<str>, Payload)>> {
    let mut statement = conn.prepare_cached("SELECT key, value FROM run_published WHERE run_id = ?1 ORDER BY key")?;
    let rows = statement
        .query_map([run_id.as_str()], |row| Ok((Arc::from(row.get::<_, String>(0)?), Payload::from_json(row.get::<_, String>(1)?))))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Removes a run with all its rows.
pub(super) fn remove(tx: &mut Tx<'_>, run_id: &str) -> Moved<()> {
    const STOOD: &str = "SELECT place, state FROM runs WHERE run_id = ?1";
    const LEADS_HERE: &str = "DELETE FROM run_references WHERE run_id = ?1 AND (workflow, reference) = \
         (SELECT workflow, reference FROM runs WHERE run_id = ?1)";
    let stood = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
    let stood = tx.conn.prepare_cached(STOOD)?.query_row([run_id], stood).optional()?;
    tx.conn.prepare_cached(LEADS_HERE)?.execute([run_id])?;
    for statement in ROWS.iter().chain(&["DELETE FROM runs WHERE run_id = ?1"]) {
        tx.conn.prepare_cached(statement)?.execute([run_id])?;
    }
    if let Some((Some(place), Some(state))) = stood.map(|(place, state)| (RunPlace::of_stream(&place), RunState::parse(&state))) {
        tx.memory.runs.leave(&place, state);
    }
    Ok(())
}

/// The texts in the first column.
pub(super) fn texts(conn: &Connection, sql: &str, columns: impl rusqlite::Params) -> Moved<Vec<String>> {
    let mut statement = conn.prepare_cached(sql)?;
    let rows = statement.query_map(columns, |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn read_id(text: &str) -> Moved<RunId> {
    RunId::parse(text).map_err(|cause| Trouble::Corrupt(cause.to_string()))
}

pub(super) fn read_json<T: DeserializeOwned>(text: &str) -> Moved<T> {
    serde_json::from_str(text).map_err(|cause| Trouble::Corrupt(format!("a row of a run cannot be read: {cause}")))
}

pub(super) fn write_json<T: Serialize>(value: &T) -> Moved<String> {
    serde_json::to_string(value).map_err(|cause| Trouble::Corrupt(format!("a row of a run cannot be written: {cause}")))
}
