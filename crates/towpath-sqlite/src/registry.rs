//! The registry's moves: who serves what, and the configuration that all share.

use rusqlite::{OptionalExtension, named_params};
use towpath_core::call::CallCommand;
use towpath_core::call::{CallReply, Held};
use towpath_core::inspect::FunctionView;
use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::store::{ConfigView, Heartbeat, SetConfig};
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, RegisterWorker};

use crate::calls::{apply, by_seq};
use crate::memory::{Function, Worker};
use crate::trouble::{Moved, Trouble};
use crate::writer::Tx;

const PUT_FUNCTION: &str = "INSERT INTO functions (scope, name, description, parameters, retry, limits, target) \
     VALUES (:scope, :name, :description, :parameters, :retry, :limits, :target) \
     ON CONFLICT (scope, name) DO UPDATE SET description = excluded.description, parameters = excluded.parameters, \
     retry = excluded.retry, limits = excluded.limits, target = excluded.target, forgotten = 0 RETURNING id";
const FORGET_FUNCTION: &str = "UPDATE functions SET forgotten = 1 WHERE id = ?1";
const PUT_WORKER: &str = "INSERT INTO workers (worker_id, kind, registered_ms, last_heartbeat_ms) VALUES (?1, ?2, ?3, ?3) \
     ON CONFLICT (worker_id) DO UPDATE SET kind = excluded.kind, registered_ms = excluded.registered_ms, \
     last_heartbeat_ms = excluded.last_heartbeat_ms";
const DROP_OFFERS: &str = "DELETE FROM offers WHERE worker_id = ?1";
const PUT_OFFER: &str = "INSERT INTO offers (worker_id, position, function_id, concurrency) VALUES (?1, ?2, ?3, ?4)";
const DROP_WORKER: &str = "DELETE FROM workers WHERE worker_id = ?1";
const BEAT: &str = "UPDATE workers SET last_heartbeat_ms = ?2 WHERE worker_id = ?1";
const OLDEST: &str = "SELECT submitted_ms FROM calls WHERE function_id = ?1 AND state = 'queued' ORDER BY seq LIMIT 1";
const CONFIG: &str = "SELECT version, value, updated_ms FROM config WHERE only = 1";
const PUT_CONFIG: &str = "INSERT INTO config (only, version, value, updated_ms) VALUES (1, ?1, ?2, ?3) \
     ON CONFLICT (only) DO UPDATE SET version = excluded.version, value = excluded.value, updated_ms = excluded.updated_ms";

pub(crate) fn register(tx: &mut Tx<'_>, worker: &RegisterWorker) -> Moved<()> {
    let id = worker.worker_id.as_str();
    tx.conn.prepare_cached(PUT_WORKER)?.execute((id, &worker.kind, tx.now.as_millis()))?;
    tx.conn.prepare_cached(DROP_OFFERS)?.execute([id])?;
    let mut offers: Vec<(i64, Option<u32>)> = Vec::with_capacity(worker.offers.len());
    for offer in &worker.offers {
        let function_id = define(tx, &offer.definition)?;
        // Naming a function twice is one offer; the later word counts.
        offers.retain(|(known, _)| *known != function_id);
        offers.push((function_id, offer.concurrency));
    }
    for (position, (function_id, concurrency)) in offers.iter().enumerate() {
        let position = i64::try_from(position).unwrap_or(i64::MAX);
        tx.conn.prepare_cached(PUT_OFFER)?.execute((id, position, function_id, concurrency))?;
        tx.after.woken.insert(*function_id);
    }
    let known = Worker { kind: worker.kind.clone(), registered_at: tx.now, last_heartbeat: tx.now, offers };
    tx.after.note_due(Some(known.is_removed_at()));
    tx.memory.workers.insert(worker.worker_id.clone(), known);
    Ok(())
}

/// Makes a function known as defined; returns its place. The same definition again changes nothing.
pub(crate) fn define(tx: &mut Tx<'_>, definition: &FunctionDefinition) -> Moved<i64> {
    if let Some(known) = tx.memory.function(&definition.key).filter(|known| known.definition == *definition) {
        return Ok(known.id);
    }
    let columns = named_params! {
        ":scope": definition.key.scope.as_str(),
        ":name": definition.key.name.as_str(),
        ":description": definition.description,
        ":parameters": definition.parameters.as_ref().map(Payload::as_str),
        ":retry": json(&definition.retry)?,
        ":limits": json(&definition.limits)?,
        ":target": definition.target.as_ref().map(json).transpose()?,
    };
    let id = tx.conn.prepare_cached(PUT_FUNCTION)?.query_row(columns, |row| row.get(0))?;
    tx.memory.put_function(Function { id, definition: definition.clone(), forgotten: false });
    tx.after.functions_changed = true;
    tx.after.woken.insert(id); // a raised limit may let waiting calls go
    Ok(id)
}

pub(crate) fn redefine(tx: &mut Tx<'_>, before: &FunctionDefinition, after: &FunctionDefinition) -> Moved<bool> {
    if tx.memory.function(&before.key).is_none_or(|known| known.definition != *before) {
        return Ok(false);
    }
    define(tx, after).map(|_| true)
}

fn json(value: &impl serde::Serialize) -> Moved<String> {
    serde_json::to_string(value).map_err(|cause| Trouble::Corrupt(cause.to_string()))
}

pub(crate) fn forget(tx: &mut Tx<'_>, key: &FunctionKey) -> Moved<bool> {
    let Some(function) = tx.memory.function(key) else { return Ok(false) };
    let counts = tx.memory.counts(function.id);
    let (workers, _) = tx.memory.workers_of(function.id, tx.now);
    if workers > 0 || counts.backlog() + counts.running + counts.dead > 0 {
        return Ok(false);
    }
    tx.conn.prepare_cached(FORGET_FUNCTION)?.execute([function.id])?;
    tx.memory.put_function(Function { id: function.id, definition: function.definition.clone(), forgotten: true });
    tx.after.functions_changed = true;
    Ok(true)
}

pub(crate) fn heartbeat(tx: &mut Tx<'_>, worker_id: &WorkerId) -> Moved<Heartbeat> {
    let now = tx.now;
    let Some(worker) = tx.memory.workers.get_mut(worker_id) else { return Ok(Heartbeat::Unknown) };
    if worker.last_heartbeat != now {
        worker.last_heartbeat = now;
        tx.conn.prepare_cached(BEAT)?.execute((worker_id.as_str(), now.as_millis()))?;
    }
    Ok(Heartbeat::Known)
}

pub(crate) fn unregister(tx: &mut Tx<'_>, worker: &WorkerId) -> Moved<u64> {
    let mut handed_back = 0;
    for seq in tx.memory.held_by(worker) {
        let Some(stored) = by_seq(tx, seq)? else { continue };
        let held = Held { worker: worker.clone(), number: stored.call.delivery };
        let (_, reply) = apply(tx, stored, CallCommand::Release(held))?;
        handed_back += u64::from(reply == CallReply::Recorded);
    }
    remove_worker(tx, worker)?;
    Ok(handed_back)
}

pub(crate) fn remove_worker(tx: &mut Tx<'_>, worker: &WorkerId) -> Moved<()> {
    tx.conn.prepare_cached(DROP_WORKER)?.execute([worker.as_str()])?;
    tx.conn.prepare_cached(DROP_OFFERS)?.execute([worker.as_str()])?;
    tx.memory.forget_worker(worker);
    tx.after.gone.push(worker.clone());
    Ok(())
}

pub(crate) fn view(tx: &Tx<'_>, function: &Function) -> Moved<FunctionView> {
    let (workers, healthy_workers) = tx.memory.workers_of(function.id, tx.now);
    let oldest: Option<i64> = tx.conn.prepare_cached(OLDEST)?.query_row([function.id], |row| row.get(0)).optional()?;
    Ok(FunctionView {
        definition: function.definition.clone(),
        counts: tx.memory.counts(function.id),
        workers,
        healthy_workers,
        oldest_queued_at: oldest.map(Timestamp::from_millis),
        stream: None,
        problems: Vec::new(),
    })
}

pub(crate) fn config(tx: &Tx<'_>) -> Moved<ConfigView> {
    let mut statement = tx.conn.prepare_cached(CONFIG)?;
    let found = statement.query_row([], |row| {
        Ok(ConfigView {
            version: row.get(0)?,
            value: Payload::from_json(row.get::<_, String>(1)?),
            updated_at: Some(Timestamp::from_millis(row.get(2)?)),
        })
    });
    Ok(found.optional()?.unwrap_or(ConfigView { version: 0, value: Payload::null(), updated_at: None }))
}

pub(crate) fn set_config(tx: &mut Tx<'_>, change: &SetConfig) -> Moved<Option<ConfigView>> {
    let version = config(tx)?.version;
    if change.if_version.is_some_and(|expected| expected != version) {
        return Ok(None);
    }
    let view = ConfigView { version: version + 1, value: change.value.clone(), updated_at: Some(tx.now) };
    tx.conn.prepare_cached(PUT_CONFIG)?.execute((view.version, view.value.as_str(), tx.now.as_millis()))?;
    tx.after.config_version = Some(view.version);
    Ok(Some(view))
}
