//! The moves of runs: load the header, ask the pure move, write header and rows back, wake after the commit.

mod rows;
mod store;

#[cfg(test)]
pub(crate) use rows::{DUE_POSTS, FACTS, FORGET_EVENTS, JOURNAL};

use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};
use towpath_core::names::BuildId;
use towpath_core::payload::Payload;
use towpath_core::run::{
    Child, ChildEnd, ChildStart, Commit, Effects, FactKind, NewRun, Parent, Post, Run, RunCommand, RunId, RunPlace, RunReply, RunState,
    RunTimer, Standing, StepId, step,
};
use towpath_core::store::{
    ClaimRuns, ClaimedRun, Durability, EventSent, FiredRuns, NewEvent, OnConflict, POST_KEPT_FOR, Reuse, RunCommitted, RunRequest,
    RunRequested, StartRun, Started, TakeOverRuns, TakenOver, end_without_code, event_of_start, post_again_after,
};
use towpath_core::time::Timestamp;

use self::rows::StoredPost;
use crate::trouble::{Moved, Trouble};
use crate::writer::Tx;

/// One claim of this number looks at new runs first.
const NEW_FIRST_EVERY: u64 = 8;
/// So many runs are looked at in one transaction when a build registers, or beyond those that a worker asked for.
const AT_ONCE: u32 = 256;

pub(crate) const QUEUED: &str = "SELECT run_id FROM runs WHERE place = ?1 AND queue = ?2 ORDER BY turn LIMIT ?3";
pub(crate) const CLAIMED: &str = "SELECT run_id FROM runs WHERE place = ?1 AND expires_ms <= ?2 ORDER BY expires_ms, run_id LIMIT ?3";
pub(crate) const NEXT_CLAIM_END: &str = "SELECT expires_ms FROM runs WHERE place = ?1 AND expires_ms > ?2 ORDER BY expires_ms LIMIT 1";
pub(crate) const UNFIT: &str = "SELECT run_id FROM runs WHERE place = ?1 AND run_id > ?2 \
     AND cause IN ('nondeterminism', 'foreign_await', 'panicked', 'decode') ORDER BY run_id LIMIT ?3";
pub(crate) const DUE: &str = "SELECT run_id, timer FROM run_timers WHERE due_ms <= ?1 ORDER BY due_ms, run_id LIMIT ?2";
pub(crate) const NEXT_DUE: &str = "SELECT due_ms FROM run_timers ORDER BY due_ms LIMIT 1";
/// The header has the length in whole milliseconds, as it has all lengths.
const RENEW_CLAIMS: &str = "UPDATE runs SET expires_ms = ?1 + json_extract(header, '$.idle'), \
     header = json_set(header, '$.expires_at', ?1 + json_extract(header, '$.idle')) WHERE expires_ms IS NOT NULL";
pub(crate) const FIRST_KEPT: &str = "SELECT kept_until_ms FROM runs WHERE kept_until_ms IS NOT NULL ORDER BY kept_until_ms LIMIT 1";
pub(crate) const GONE: &str = "SELECT run_id FROM runs WHERE kept_until_ms <= ?1 ORDER BY kept_until_ms LIMIT ?2";

/// The run, unless its retention is over.
fn load(tx: &Tx<'_>, run_id: &RunId) -> Moved<Option<Run>> {
    Ok(rows::load(tx.conn, run_id)?.filter(|run| !run.is_gone(tx.now)))
}

/// Puts one command to a run: load, decide, save header and rows. `None`: there is no such run.
fn put(tx: &mut Tx<'_>, run_id: &RunId, command: RunCommand, fact: Option<&FactKind>) -> Moved<Option<RunReply>> {
    let Some(before) = load(tx, run_id)? else { return Ok(None) };
    let (run, effects, reply) = step(before.clone(), command, tx.now);
    rows::update(tx, &before, &run)?;
    write(tx, &before, &run, effects, fact)?;
    tx.after.moves += u64::from(before != run);
    if before.standing() != run.standing() && matches!(run.standing(), Standing::Queued(_)) {
        tx.after.runs_queued = true;
    }
    if run.state.is_closed() && !before.state.is_closed() {
        tx.memory.first_kept = [tx.memory.first_kept, run.kept_until()].into_iter().flatten().min();
        tx.after.runs_closed.push(run_id.clone());
    }
    Ok(Some(reply))
}

/// Writes the rows beside the header.
fn write(tx: &Tx<'_>, before: &Run, run: &Run, effects: Effects, fact: Option<&FactKind>) -> Moved<()> {
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
    let mut posts = effects.posts;
    if effects.children_follow {
        posts.extend(rows::take_children(conn, run_id)?.iter().filter_map(Child::follow));
    }
    if effects.tells_parent {
        posts.extend(told_parent(run, outcome));
    }
    for (key, value) in &effects.published {
        rows::publish(conn, run_id, key, value)?;
    }
    posts.iter().try_for_each(|post| rows::post(conn, post, now))
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
        rows::remove(tx.conn, &start.run_id)?;
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
    tx.after.runs_queued |= run.state == RunState::Ready;
    Ok(())
}

/// Removes up to so many runs whose retention is over. No move sees them any more, so that removal may come late. Returns how many.
pub(crate) fn remove_gone(tx: &Tx<'_>, limit: u32) -> Moved<u32> {
    let gone = rows::ids(tx.conn, GONE, (tx.now.as_millis(), limit))?;
    gone.iter().try_for_each(|run_id| rows::remove(tx.conn, run_id))?;
    Ok(u32::try_from(gone.len()).unwrap_or(limit))
}

/// When the first of all closed runs is gone.
pub(crate) fn first_kept(conn: &Connection) -> Moved<Option<Timestamp>> {
    let at: Option<i64> = conn.prepare_cached(FIRST_KEPT)?.query_row([], |row| row.get(0)).optional()?;
    Ok(at.map(Timestamp::from_millis))
}

/// Counts every claim from now on: its owner could not renew it while the store was closed, or while the clock jumped.
pub(crate) fn renew_claims(conn: &Connection, now: Timestamp) -> Moved<()> {
    conn.prepare_cached(RENEW_CLAIMS)?.execute([now.as_millis()])?;
    Ok(())
}

/// Removes up to twice as many runs as the transaction has created.
pub(crate) fn keep_up(tx: &Tx<'_>) -> Moved<()> {
    if tx.after.runs_created > 0 {
        remove_gone(tx, tx.after.runs_created.saturating_mul(2))?;
    }
    Ok(())
}

fn claim(tx: &mut Tx<'_>, want: &ClaimRuns) -> Moved<Vec<ClaimedRun>> {
    let new_first = (tx.memory.run_claims + 1).is_multiple_of(NEW_FIRST_EVERY);
    let queues = if new_first { [1, 0] } else { [0, 1] };
    let mut claimed = Vec::new();
    for (queue, place) in queues.iter().flat_map(|queue| want.places.iter().map(move |place| (queue, place))) {
        let left = want.max.saturating_sub(u32::try_from(claimed.len()).unwrap_or(u32::MAX));
        for run_id in rows::ids(tx.conn, QUEUED, (place.stream(), queue, left))? {
            let claim = RunCommand::Claim { worker: want.worker.clone(), idle: want.idle };
            if let Some(RunReply::Claimed { .. }) = put(tx, &run_id, claim, None)? {
                claimed.extend(with_facts(tx, &run_id)?);
            }
        }
    }
    tx.memory.run_claims += u64::from(!claimed.is_empty());
    Ok(claimed)
}

fn with_facts(tx: &Tx<'_>, run_id: &RunId) -> Moved<Option<ClaimedRun>> {
    let Some(run) = rows::load(tx.conn, run_id)? else { return Ok(None) };
    Ok(Some(ClaimedRun { run, facts: rows::facts(tx.conn, run_id, 0)? }))
}

fn take_over(tx: &mut Tx<'_>, want: &TakeOverRuns) -> Moved<TakenOver> {
    let mut taken = TakenOver::default();
    let executing: HashSet<&RunId> = want.executing.iter().collect();
    for place in want.places.iter() {
        let limit = want.max.saturating_add(u32::try_from(executing.len()).unwrap_or(u32::MAX)).saturating_add(AT_ONCE);
        for run_id in rows::ids(tx.conn, CLAIMED, (place.stream(), tx.now.as_millis(), limit))? {
            if taken.claimed.len() == want.max as usize {
                break;
            }
            if executing.contains(&run_id) {
                continue;
            }
            let command = RunCommand::TakeOver { worker: want.worker.clone(), idle: want.idle, max_deliveries: want.max_deliveries };
            match put(tx, &run_id, command, None)? {
                Some(RunReply::Claimed { .. }) => taken.claimed.extend(with_facts(tx, &run_id)?),
                Some(RunReply::Poisoned) => taken.poisoned.push(run_id),
                _other => {}
            }
        }
    }
    for place in want.places.iter() {
        let end: Option<i64> =
            tx.conn.prepare_cached(NEXT_CLAIM_END)?.query_row((place.stream(), tx.now.as_millis()), |row| row.get(0)).optional()?;
        let end = end.map(Timestamp::from_millis);
        taken.next_due = [taken.next_due, end].into_iter().flatten().min();
    }
    Ok(taken)
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
fn register_build(tx: &mut Tx<'_>, build: &BuildId, place: &RunPlace, after: &str) -> Moved<(u64, Option<RunId>)> {
    let asked = rows::ids(tx.conn, UNFIT, (place.stream(), after, AT_ONCE))?;
    let mut unblocked = 0;
    for run_id in &asked {
        let reply = put(tx, run_id, RunCommand::BuildRegistered(build.clone()), None)?;
        unblocked += u64::from(matches!(reply, Some(RunReply::Done(_))));
    }
    let is_full = asked.len() == AT_ONCE as usize;
    Ok((unblocked, asked.into_iter().next_back().filter(|_| is_full)))
}

fn send_posts(tx: &mut Tx<'_>, limit: u32) -> Moved<u64> {
    let (mut sent, mut refused) = (0, HashSet::new());
    for StoredPost { number, post, written_at, tries } in rows::due_posts(tx.conn, limit, tx.now)? {
        let to = post.to().clone();
        if refused.contains(&to) {
            continue;
        }
        let is_given_up = tx.now >= written_at + POST_KEPT_FOR;
        if deliver(tx, post)? || is_given_up {
            rows::post_sent(tx.conn, number)?;
            sent += 1;
        } else {
            rows::put_off_posts(tx.conn, &to, tx.now + post_again_after(tries), tries + 1)?;
            refused.insert(to);
        }
    }
    Ok(sent)
}

/// Whether the post has arrived, or never can.
fn deliver(tx: &mut Tx<'_>, post: Post) -> Moved<bool> {
    match post {
        Post::Create(child) => create_child(tx, *child)?,
        Post::ChildClosed { to, step, run_id, completed, outcome } => {
            let open = rows::child(tx.conn, &to, &step)?;
            let fact = FactKind::ChildClosed { step, completed, outcome };
            put(tx, &to, RunCommand::ChildClosed(ChildEnd { run_id, open, completed }), Some(&fact))?;
        }
        Post::Cancel { to, reason } => drop(request(tx, &to, &RunRequest::Cancel { reason })?),
        Post::Terminate { to, reason } => drop(request(tx, &to, &RunRequest::Terminate { reason })?),
        Post::Send { to, name, data, reference } => {
            let event = NewEvent { name, data, reference: Some(reference) };
            return Ok(send(tx, &to, &event)? != EventSent::MailboxFull);
        }
    }
    Ok(true)
}

fn create_child(tx: &mut Tx<'_>, child: ChildStart) -> Moved<()> {
    if rows::load(tx.conn, &child.run_id)?.is_some() {
        return Ok(());
    }
    let (start, parent) = StartRun::of_child(child);
    create(tx, &start, Some(parent))
}

fn fire(tx: &mut Tx<'_>, limit: u32) -> Moved<FiredRuns> {
    let due: Vec<(String, String)> = {
        let mut statement = tx.conn.prepare_cached(DUE)?;
        let rows = statement.query_map((tx.now.as_millis(), limit), |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<Result<_, _>>()?
    };
    let mut fired = 0;
    for (run_id, timer) in due {
        let (timer, fact) = read_timer(&timer)?;
        let reply = put(tx, &rows::read_id(&run_id)?, RunCommand::TimerDue(timer), fact.as_ref())?;
        fired += u64::from(matches!(reply, Some(RunReply::Done(_))));
    }
    let next: Option<i64> = tx.conn.prepare_cached(NEXT_DUE)?.query_row([], |row| row.get(0)).optional()?;
    Ok(FiredRuns { fired, next_due: next.map(Timestamp::from_millis) })
}

/// A timer, and the fact that it is for its run.
fn read_timer(text: &str) -> Moved<(RunTimer, Option<FactKind>)> {
    const WHY: &str = "its deadline has passed";
    Ok(match text {
        "start" => (RunTimer::Start, None),
        "back_off" => (RunTimer::BackOff, None),
        "deadline" => {
            let timer = RunTimer::Deadline { entry: end_without_code("cancelled", WHY) };
            (timer, Some(FactKind::Cancel { reason: Arc::from(WHY) }))
        }
        "after_deadline" => (RunTimer::AfterDeadline { entry: end_without_code("terminated", WHY) }, None),
        step => {
            let step = StepId::parse(step).map_err(|cause| Trouble::Corrupt(cause.to_string()))?;
            (RunTimer::Step(step.clone()), Some(FactKind::TimerDue(step)))
        }
    })
}
