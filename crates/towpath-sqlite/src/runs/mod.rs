//! The moves of runs: load the header, ask the pure move, write header and rows back, wake after the commit.

mod ahead;
mod claims;
mod lists;
mod memory;
mod posts;
mod rows;
mod store;
mod timers;
mod waiters;

#[cfg(test)]
mod plans;

pub(crate) use ahead::bring_back;
pub(crate) use claims::renew_claims;
pub(crate) use memory::RunMemory;
pub(crate) use timers::next_due;
pub(crate) use waiters::RunWaiters;

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};
use towpath_core::names::BuildId;
use towpath_core::payload::Payload;
use towpath_core::run::{
    Child, Commit, Effects, FactKind, NewRun, Parent, Post, Run, RunCommand, RunId, RunPlace, RunReply, RunState, Standing, StepId, step,
};
use towpath_core::store::{
    Durability, EventSent, NewEvent, OnConflict, Reuse, RunCommitted, RunPlaceView, RunRequest, RunRequested, StartRun, Started,
    end_without_code, event_of_start,
};
use towpath_core::time::Timestamp;

use crate::trouble::{Moved, Trouble};
use crate::writer::Tx;

/// Number of runs that are looked at in one transaction when a build registers, or beyond those that a worker asked for.
const AT_ONCE: u32 = 256;

const HEAD: &str = "SELECT changed_ms FROM runs WHERE place = ?1 AND queue = ?2 ORDER BY turn LIMIT 1";
const UNFIT: &str = "SELECT run_id FROM runs WHERE place = ?1 AND run_id > ?2 \
     AND cause IN ('nondeterminism', 'foreign_await', 'panicked', 'decode') ORDER BY run_id LIMIT ?3";
const FIRST_KEPT: &str = "SELECT kept_until_ms FROM runs WHERE kept_until_ms IS NOT NULL ORDER BY kept_until_ms LIMIT 1";
const GONE: &str = "SELECT run_id FROM runs WHERE kept_until_ms <= ?1 ORDER BY kept_until_ms LIMIT ?2";
/// Closed runs whose retention ends first, whether or not it is over.
const FIRST_TO_GO: &str = "SELECT run_id, changed_ms FROM runs WHERE kept_until_ms IS NOT NULL ORDER BY kept_until_ms LIMIT ?1";

/// The run, unless its retention is over.
fn load(tx: &Tx<'_>, run_id: &RunId) -> Moved<Option<Run>> {
    Ok(rows::load(tx.conn, run_id)?.filter(|run| !run.is_gone(tx.now)))
}

/// What was read of one of many runs. If it cannot be read, it is left out and named: `None` (decision 042). Nothing of it was written, because
/// moves read before they write.
fn or_passed_over<T>(tx: &Tx<'_>, run_id: &str, read: Moved<T>) -> Moved<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Trouble::Corrupt(why)) => {
            tx.memory.unreadable.pass_over(&format!("run {run_id}"), &why, tx.now);
            Ok(None)
        }
        Err(trouble) => Err(trouble),
    }
}

/// Puts one command to a run: load, decide, save header and rows. `None`: there is no such run.
fn put(tx: &mut Tx<'_>, run_id: &RunId, command: RunCommand, fact: Option<&FactKind>) -> Moved<Option<RunReply>> {
    let Some(before) = load(tx, run_id)? else { return Ok(None) };
    Ok(Some(put_to(tx, &before, command, fact)?.1))
}

/// Puts one command to a run that was loaded. What cannot be read makes it fail before it has written anything.
fn put_to(tx: &mut Tx<'_>, before: &Run, command: RunCommand, fact: Option<&FactKind>) -> Moved<(Run, RunReply)> {
    let (run, effects, reply) = step(before.clone(), command, tx.now);
    let children = if effects.children_follow { rows::children(tx.conn, &run.run_id)? } else { Vec::new() };
    let notified = before.owner.clone().filter(|_| effects.notifies_owner);
    rows::update(tx, before, &run)?;
    let posts = write(tx, before, &run, effects, fact, &children)?;
    posts.iter().try_for_each(|post| posts::keep(tx, post))?;
    tx.after.runs_notified.extend(notified.map(|owner| (owner, run.run_id.clone())));
    note_move(tx, before, &run);
    Ok((run, reply))
}

/// Counts a move, and notes what has to be said of it.
fn note_move(tx: &mut Tx<'_>, before: &Run, run: &Run) {
    tx.after.moves += u64::from(before != run);
    if before.standing() != run.standing() && matches!(run.standing(), Standing::Queued(_)) {
        tx.after.runs_queued.insert(run.place.clone());
    }
    if before.state != run.state {
        tx.memory.runs.leave(&before.place, before.state);
        tx.memory.runs.enter(run);
    }
    if run.state.is_closed() && !before.state.is_closed() {
        tx.memory.note_kept(run.kept_until());
        tx.after.runs_closed.push(run.run_id.clone());
    }
}

/// Writes the rows beside the header. Returns the posts. `children`: those that are open, if they follow the run.
fn write(tx: &Tx<'_>, before: &Run, run: &Run, effects: Effects, fact: Option<&FactKind>, children: &[Child]) -> Moved<Vec<Post>> {
    let (conn, run_id, now) = (tx.conn, &run.run_id, tx.now);
    rows::append(conn, run_id, before.entries, &effects.entries, now)?;
    let outcome = effects.entries.last().map(|entry| entry.body.clone());
    if let Some(begin) = effects.begins {
        rows::clear_journal(conn, run_id)?;
        rows::append(conn, run_id, 0, &[begin], now)?;
    }
    rows::consume(conn, run_id, &effects.consumed)?;
    if let (Some(number), Some(kind)) = (effects.fact, fact) {
        rows::add_fact(conn, run_id, number, kind, now)?;
    }
    if let Some(number) = effects.cancels_again {
        let again = FactKind::Cancel { reason: Arc::from("it was cancelled before it continued as new") };
        rows::add_fact(conn, run_id, number, &again, now)?;
    }
    rows::forget_facts(conn, run_id, effects.forgotten)?;
    for child in &effects.children {
        rows::open_child(conn, run_id, child)?;
    }
    if let Some(step) = &effects.closed_child {
        rows::close_child(conn, run_id, step)?;
    }
    for (key, value) in &effects.published {
        rows::publish(conn, run_id, key, value)?;
    }
    let mut posts = effects.posts;
    if effects.children_follow {
        // Those that this very commit opens follow, too.
        let open: BTreeMap<&StepId, &Child> = children.iter().chain(&effects.children).map(|child| (&child.step, child)).collect();
        posts.extend(open.into_values().filter_map(Child::follow));
        rows::close_children(conn, run_id)?;
    }
    if effects.tells_parent {
        posts.extend(told_parent(run, outcome));
    }
    Ok(posts)
}

/// What the parent of a run that has closed is told.
fn told_parent(run: &Run, outcome: Option<Payload>) -> Option<Post> {
    let parent = run.parent.as_ref()?;
    Some(Post::ChildClosed {
        to: parent.run_id.clone(),
        step: parent.step.clone(),
        run_id: run.run_id.clone(),
        completed: run.state == RunState::Completed,
        outcome: outcome.unwrap_or_else(Payload::null),
    })
}

fn start(tx: &mut Tx<'_>, start: &StartRun, durability: Durability) -> Moved<Started> {
    if rows::load(tx.conn, &start.run_id)?.is_some_and(|run| run.is_gone(tx.now)) {
        rows::remove(tx, start.run_id.as_str())?;
    }
    if let Some(existing) = existing(tx, start)? {
        let run_id = existing.run_id;
        // A start that brings an event is about the run that has the reference, whatever that began with.
        let is_same = start.event.is_some() || rows::input_hash(tx.conn, &run_id)?.as_deref() == Some(&*start.input_hash);
        if !is_same && start.on_conflict == OnConflict::Refuse {
            return Ok(Started::Conflict { run_id });
        }
        let event = event_of_start(start).map(|event| send(tx, &run_id, &event)).transpose()?;
        return Ok(Started::Existing { run_id, state: existing.state, event });
    }
    create(tx, start, None)?;
    if let Some(event) = event_of_start(start) {
        send(tx, &start.run_id, &event)?;
    }
    Ok(Started::Created { durability })
}

/// The run that a start is about, if there is one: by its id first, then by its reference.
fn existing(tx: &Tx<'_>, start: &StartRun) -> Moved<Option<Run>> {
    if let Some(run) = load(tx, &start.run_id)? {
        return Ok(Some(run));
    }
    let Some(reference) = &start.reference else { return Ok(None) };
    let Some(run_id) = rows::referenced(tx.conn, &start.place.workflow, reference)? else { return Ok(None) };
    let is_replaced = |run: &Run| start.reuse == Reuse::AfterClosed && run.state.is_closed();
    Ok(load(tx, &run_id)?.filter(|run| !is_replaced(run)))
}

fn create(tx: &mut Tx<'_>, start: &StartRun, parent: Option<Parent>) -> Moved<()> {
    let new = NewRun {
        run_id: start.run_id.clone(),
        place: start.place.clone(),
        start_at: (!start.delay.is_zero()).then(|| tx.now + start.delay),
        deadline: start.timeout.map(|timeout| tx.now + timeout),
        retain: start.retain,
        parent,
        begin_bytes: start.begin.body.len() as u64,
    };
    let run = Run::created(new, tx.now);
    rows::insert(tx, &run, &rows::Known { reference: start.reference.as_ref(), input_hash: &start.input_hash })?;
    rows::append(tx.conn, &run.run_id, 0, std::slice::from_ref(&start.begin), tx.now)?;
    tx.after.moves += 1;
    tx.after.runs_created += 1;
    tx.memory.runs.enter(&run);
    if run.state == RunState::Ready {
        tx.after.runs_queued.insert(run.place);
    }
    Ok(())
}

/// Removes up to `limit` runs whose retention is over. No move sees them any more, so that removal may come late. Returns how many.
pub(crate) fn remove_gone(tx: &mut Tx<'_>, limit: u32) -> Moved<u32> {
    let gone = rows::texts(tx.conn, GONE, (tx.now.as_millis(), limit))?;
    gone.iter().try_for_each(|run_id| rows::remove(tx, run_id))?;
    Ok(u32::try_from(gone.len()).unwrap_or(limit))
}

/// Removes up to `limit` closed runs whose retention ends first, those alone that closed by `closed_before`. Returns how many. Looks at twice
/// as many: those that closed later are either gone or old enough soon.
pub(crate) fn remove_early(tx: &mut Tx<'_>, closed_before: i64, limit: u32) -> Moved<u64> {
    let first: Vec<(String, i64)> = {
        let mut statement = tx.conn.prepare_cached(FIRST_TO_GO)?;
        let rows = statement.query_map([i64::from(limit) * 2], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<Result<_, _>>()?
    };
    let mut removed = 0;
    for (run_id, _) in first.iter().filter(|(_, closed)| *closed <= closed_before).take(limit as usize) {
        rows::remove(tx, run_id)?;
        removed += 1;
    }
    Ok(removed)
}

/// When the first of all closed runs is gone.
pub(crate) fn first_kept(conn: &Connection) -> Moved<Option<Timestamp>> {
    let at: Option<i64> = conn.prepare_cached(FIRST_KEPT)?.query_row([], |row| row.get(0)).optional()?;
    Ok(at.map(Timestamp::from_millis))
}

/// Removes up to twice as many runs as the transaction has created.
pub(crate) fn keep_up(tx: &mut Tx<'_>) -> Moved<()> {
    if tx.after.runs_created > 0 {
        remove_gone(tx, tx.after.runs_created.saturating_mul(2))?;
    }
    Ok(())
}

fn commit(tx: &mut Tx<'_>, run_id: &RunId, commit: &Commit) -> Moved<RunCommitted> {
    let events_consumed = rows::count_events(tx.conn, run_id, &commit.consumed)?;
    Ok(match put(tx, run_id, RunCommand::Commit { commit: Box::new(commit.clone()), events_consumed }, None)? {
        Some(RunReply::Committed(committed)) => {
            let facts = if committed.has_facts { rows::facts(tx.conn, run_id, commit.seen)? } else { Vec::new() };
            RunCommitted::Committed { committed, facts }
        }
        Some(RunReply::Stale { revision }) => RunCommitted::Stale { revision },
        Some(RunReply::HistoryFull) => RunCommitted::HistoryFull,
        Some(RunReply::WaitSetTooLarge) => RunCommitted::WaitSetTooLarge,
        Some(RunReply::NothingToWaitFor) => RunCommitted::NothingToWaitFor,
        _lost => RunCommitted::Lost,
    })
}

fn send(tx: &mut Tx<'_>, run_id: &RunId, event: &NewEvent) -> Moved<EventSent> {
    let reference = event.reference.as_ref();
    let known_as = reference.map(|reference| rows::known_event(tx, run_id, &event.name, reference)).transpose()?.flatten();
    let command = RunCommand::Send { name: event.name.clone(), known_as };
    let fact = FactKind::Event { name: event.name.clone(), data: event.data.clone() };
    Ok(match put(tx, run_id, command, Some(&fact))? {
        Some(RunReply::Accepted { number }) => {
            if let Some(reference) = reference {
                rows::know_event(tx, run_id, &event.name, reference, number)?;
            }
            EventSent::Accepted { number }
        }
        Some(RunReply::Duplicate { number }) => EventSent::Duplicate { number },
        Some(RunReply::MailboxFull) => EventSent::MailboxFull,
        Some(RunReply::Closed(state)) => EventSent::Closed(state),
        _other => EventSent::NotFound,
    })
}

fn request(tx: &mut Tx<'_>, run_id: &RunId, request: &RunRequest) -> Moved<RunRequested> {
    let (command, fact) = match request {
        RunRequest::Cancel { reason } => {
            let fact = FactKind::Cancel { reason: Arc::clone(reason) };
            (RunCommand::Cancel { entry: end_without_code("cancelled", reason) }, Some(fact))
        }
        RunRequest::Terminate { reason } => (RunCommand::Terminate { entry: end_without_code("terminated", reason) }, None),
        RunRequest::Pause => (RunCommand::Pause, None),
        RunRequest::Resume => (RunCommand::Resume, None),
    };
    Ok(match put(tx, run_id, command, fact.as_ref())? {
        Some(RunReply::Done(state)) => RunRequested::Done(state),
        Some(RunReply::Closed(state)) => RunRequested::Closed(state),
        _other => RunRequested::NotFound,
    })
}

/// Asks some runs of a place whether a build fits them, from this id on. Returns how many are ready now, and where to go on.
fn register_build(tx: &mut Tx<'_>, build: &BuildId, place: &RunPlace, after: &str) -> Moved<(u64, Option<String>)> {
    let asked = rows::texts(tx.conn, UNFIT, (place.stream(), after, AT_ONCE))?;
    let mut unblocked = 0;
    for run_id in &asked {
        let command = RunCommand::BuildRegistered(build.clone());
        let result = rows::read_id(run_id).and_then(|run_id| put(tx, &run_id, command, None));
        unblocked += u64::from(matches!(or_passed_over(tx, run_id, result)?.flatten(), Some(RunReply::Done(_))));
    }
    let is_full = asked.len() == AT_ONCE as usize;
    Ok((unblocked, asked.into_iter().next_back().filter(|_| is_full)))
}

/// How many runs each place has in each state, and since when the heads of its queues wait.
fn places(tx: &Tx<'_>) -> Moved<Vec<RunPlaceView>> {
    let mut views = Vec::new();
    for (place, counts) in tx.memory.runs.places() {
        let mut oldest_ready = None;
        for queue in [0, 1] {
            let since: Option<i64> = tx.conn.prepare_cached(HEAD)?.query_row((place.stream(), queue), |row| row.get(0)).optional()?;
            oldest_ready = oldest_ready.into_iter().chain(since.map(Timestamp::from_millis)).min();
        }
        views.push(RunPlaceView { place: place.clone(), counts, oldest_ready });
    }
    Ok(views)
}
