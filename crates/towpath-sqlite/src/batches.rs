//! The moves of batches: load what is kept of the key, ask the pure move, write it back, wake after the commit.

mod dead_letters;
mod flights;
mod lists;
mod memory;
mod messages;
mod open;
#[cfg(test)]
mod plans;
mod seen;
mod settings;
mod store;

use towpath_core::batch::{
    self, BatcherId, ClaimBatch, ClaimReply, ClaimedBatch, ExtendBatch, ExtendReply, FinishBatch, FinishReply, Finished, IngestReply,
    KeyState, Known, NewMessage, ReclaimBatch, Rules, SealBatch, SealReply, Skip, Stepped, Verb,
};
use towpath_core::names::{BatchKey, BatcherName};
use towpath_core::time::Timestamp;

use crate::trouble::Moved;
use crate::writer::Tx;

pub(crate) use memory::BatchMemory;
pub(crate) use settings::version as settings_version;

/// What is kept of one key, and the number under which the messages of its open batch are found.
struct Kept {
    state: KeyState,
    batch: Option<i64>,
}

fn load(tx: &Tx<'_>, batcher: &BatcherName, key: &BatchKey) -> Moved<Kept> {
    let (open, batch) = open::load(tx.conn, batcher, key)?.unzip();
    Ok(Kept { state: KeyState { open, in_flight: flights::serial_of(tx.conn, batcher, key)? }, batch })
}

fn wake(tx: &mut Tx<'_>, batcher: &BatcherName, at: Option<Timestamp>) {
    tx.after.batch_dues.extend(at.map(|at| (batcher.clone(), at)));
}

pub(crate) fn ingest_all(tx: &mut Tx<'_>, batcher: &BatcherId, rules: &Rules, messages: &[NewMessage]) -> Moved<Vec<IngestReply>> {
    seen::sweep(tx.conn, messages.len(), tx.now)?;
    messages.iter().map(|message| ingest(tx, &batcher.name, rules, message)).collect()
}

fn ingest(tx: &mut Tx<'_>, batcher: &BatcherName, rules: &Rules, message: &NewMessage) -> Moved<IngestReply> {
    let marks = seen::marks(message, rules);
    let mut kept = load(tx, batcher, &message.key)?;
    let known = Known {
        seen: seen::any(tx.conn, batcher, &marks, tx.now)?,
        open_messages: tx.memory.batches.open_messages(batcher),
        earliest: open::earliest(tx.conn, batcher)?,
    };
    let Stepped { reply, wake: at } = batch::ingest(&mut kept.state, message, rules, &known, tx.now);
    if let (IngestReply::Accepted { .. }, Some(open)) = (&reply, &kept.state.open) {
        let number = kept.batch.unwrap_or_else(|| tx.memory.batches.next_batch());
        open::save(tx.conn, batcher, &message.key, open, number)?;
        messages::append(tx.conn, number, &message.body)?;
        seen::remember(tx.conn, batcher, &marks, tx.now)?;
        tx.memory.batches.opened(batcher, 1);
        wake(tx, batcher, at);
    }
    Ok(reply)
}

pub(crate) fn claim(tx: &mut Tx<'_>, want: &ClaimBatch) -> Moved<ClaimReply> {
    let batcher = &want.batcher.name;
    if flights::load(tx.conn, batcher, &want.batch_id)?.is_some() {
        return Ok(ClaimReply::Skip(Skip::Gone));
    }
    let mut kept = load(tx, batcher, &want.key)?;
    let Some(number) = kept.batch else { return Ok(ClaimReply::Skip(Skip::Gone)) };
    let is_due = kept.state.open.is_some_and(|open| open.armed && open.deadline <= tx.now);
    let mut found = if is_due { messages::first(tx.conn, number, want.rules.max_messages)? } else { Vec::new() };
    let sizes: Vec<u64> = found.iter().map(|message| message.body.len() as u64).collect();
    let before = kept.state.open;
    let claimed = batch::claim(&mut kept.state, want, &sizes, tx.now);
    let taken = match claimed {
        Ok(taken) => taken,
        Err(skip) => {
            if let Some(open) = kept.state.open.filter(|open| Some(*open) != before) {
                open::save(tx.conn, batcher, &want.key, &open, number)?;
            }
            return Ok(ClaimReply::Skip(skip));
        }
    };
    found.truncate(taken.messages);
    let number = match &kept.state.open {
        Some(rest) => {
            open::save(tx.conn, batcher, &want.key, rest, number)?;
            let own = tx.memory.batches.next_batch();
            messages::hand_over(tx.conn, number, own, &found)?;
            own
        }
        None => {
            open::forget(tx.conn, batcher, &want.key)?;
            number
        }
    };
    flights::insert(tx.conn, batcher, &taken.flight, Some(number))?;
    tx.memory.batches.closed(batcher, taken.messages as u64);
    let bodies = found.into_iter().map(|message| message.body).collect();
    Ok(ClaimReply::Claimed(ClaimedBatch::new(taken.flight, want.token.clone(), bodies, tx.now)))
}

pub(crate) fn reclaim(tx: &mut Tx<'_>, want: &ReclaimBatch) -> Moved<ClaimReply> {
    let batcher = &want.batcher.name;
    let (mut flight, number) = flights::load(tx.conn, batcher, &want.batch_id)?.unzip();
    match batch::reclaim(flight.as_mut(), want, tx.now) {
        Ok(flight) => {
            flights::update(tx.conn, batcher, &flight)?;
            let bodies = number.flatten().map_or(Ok(Vec::new()), |number| messages::all(tx.conn, number))?;
            Ok(ClaimReply::Claimed(ClaimedBatch::new(flight, want.token.clone(), bodies, tx.now)))
        }
        Err(skip) => Ok(ClaimReply::Skip(skip)),
    }
}

pub(crate) fn extend(tx: &mut Tx<'_>, want: &ExtendBatch) -> Moved<ExtendReply> {
    let batcher = &want.batcher.name;
    let mut flight = flights::load(tx.conn, batcher, &want.batch_id)?.map(|(flight, _)| flight);
    let reply = batch::extend(flight.as_mut(), want, tx.now);
    if let (ExtendReply::Extended { .. }, Some(flight)) = (reply, &flight) {
        flights::update(tx.conn, batcher, flight)?;
    }
    Ok(reply)
}

pub(crate) fn finish(tx: &mut Tx<'_>, want: &FinishBatch) -> Moved<FinishReply> {
    let batcher = &want.batcher.name;
    let Some((flight, number)) = flights::load(tx.conn, batcher, &want.batch_id)? else { return Ok(FinishReply::Lost) };
    let mut kept = load(tx, batcher, &flight.key)?;
    let Stepped { reply, wake: at } = batch::finish(Some(&flight), &mut kept.state, want, tx.now);
    match &reply {
        Finished::Lost => {}
        Finished::Waits(flight) => flights::update(tx.conn, batcher, flight)?,
        Finished::Over => {
            flights::forget(tx.conn, batcher, &want.batch_id)?;
            if let Some(number) = number {
                messages::forget(tx.conn, number)?;
            }
            if let (Some(open), Some(number)) = (&kept.state.open, kept.batch) {
                open::save(tx.conn, batcher, &flight.key, open, number)?;
            }
            if let Verb::Dead(letter) = &want.verb {
                dead_letters::put(tx.conn, batcher, letter)?;
            }
        }
    }
    wake(tx, batcher, at);
    Ok(reply.reply())
}

pub(crate) fn seal(tx: &mut Tx<'_>, want: &SealBatch) -> Moved<SealReply> {
    let batcher = &want.batcher.name;
    let mut kept = load(tx, batcher, &want.key)?;
    let before = kept.state.open;
    let Stepped { reply, wake: at } = batch::seal(&mut kept.state, want, tx.now);
    if let (Some(open), Some(number)) = (kept.state.open.filter(|open| Some(*open) != before), kept.batch) {
        open::save(tx.conn, batcher, &want.key, &open, number)?;
    }
    wake(tx, batcher, at);
    Ok(reply)
}
