//! Entries of legacy callers become calls. A claim with free slots imports as many as it has room for; the script that writes the records
//! removes the entries.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::try_join_all;
use redis::{Cmd, Value};
use towpath_core::call::{CallState, Failure, Outcome};
use towpath_core::names::{CallId, FunctionKey};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::CONSUMER;
use super::entry::Entry;
use super::scripts::IMPORT;
use crate::calls::change::Change;
use crate::calls::names::Reserved;
use crate::calls::partition::Partition;
use crate::calls::record::REQUEST;
use crate::calls::sections;
use crate::definition::read_definition;
use crate::registry::reply::command;
use crate::script::Args;
use crate::store::RedisStore;
use crate::value;

/// So many entries are read at once.
const READ_MAX: usize = 64;
/// One script imports so many bytes, unless one entry alone has more.
const BYTES_AT_ONCE: usize = 1024 * 1024;

/// What must be true of an entry when it is imported.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum If {
    /// It was read by this process.
    Read,
    /// A consumer still holds it.
    Pending,
    /// It is still in the stream, and no consumer holds it.
    InStream,
}

impl RedisStore {
    /// Imports entries of legacy callers as calls, as many as there is room for. It sends nothing if the stream has no entries.
    pub(crate) async fn import_for(&self, partition: &Arc<Partition>, room: usize) {
        let state = &partition.legacy;
        if partition.is_shard() || room == 0 {
            return;
        }
        if !state.is_listened_to.load(Ordering::Acquire) && !state.is_listened_to.swap(true, Ordering::AcqRel) {
            self.listen_to_stream(partition);
        }
        if !state.may_have_entries.load(Ordering::Acquire) || !state.may_have_entries.swap(false, Ordering::AcqRel) {
            return;
        }
        match self.read_and_import(partition, room.min(READ_MAX)).await {
            Ok(false) => {}
            Ok(true) => {
                state.note_entries();
                partition.note_work();
            }
            Err(error) => {
                tracing::debug!(function = %partition.function, %error, "entries of legacy callers were not imported; trying again");
                state.note_entries();
                state.tend();
            }
        }
    }

    /// Reads new entries and imports them. `true`: there may be more.
    async fn read_and_import(&self, partition: &Arc<Partition>, count: usize) -> Result<bool, StoreError> {
        let entries = match self.read_group(partition, count).await? {
            Some(entries) => entries,
            None => {
                // A legacy worker has destroyed the group.
                self.look_at_stream(partition, true, 0).await?;
                self.read_group(partition, count).await?.unwrap_or_default()
            }
        };
        let may_be_more = entries.len() == count;
        self.import(partition, entries, If::Read).await?;
        Ok(may_be_more)
    }

    /// `None`: there is no group.
    async fn read_group(&self, partition: &Partition, count: usize) -> Result<Option<Vec<Entry>>, StoreError> {
        let mut read = Cmd::new();
        read.arg("XREADGROUP").arg("GROUP").arg(&partition.keys.group).arg(CONSUMER).arg("COUNT").arg(count);
        read.arg("STREAMS").arg(&partition.keys.stream).arg(">");
        let reply = self.shared.link.ask_all(&[read]).await?.pop().unwrap_or(Value::Nil);
        match &reply {
            Value::ServerError(error) if error.code() == "NOGROUP" => Ok(None),
            _ => Ok(Some(Entry::read_stream(&value::checked(reply)?))),
        }
    }

    /// Imports these entries. Says how many calls came into the queue.
    pub(super) async fn import(&self, partition: &Arc<Partition>, entries: Vec<Entry>, how: If) -> Result<usize, StoreError> {
        let now = self.shared.now();
        self.answer_refused_ids(partition, &entries).await?;
        let of_another = entries.iter().map(|entry| self.is_of_another_function(partition, entry, now));
        let of_another = try_join_all(of_another).await?;
        let largest = if entries.is_empty() { u64::MAX } else { self.max_payload_bytes(partition).await? };
        let mut fit = Vec::with_capacity(entries.len());
        for (entry, of_another) in entries.into_iter().zip(of_another) {
            let problem = if of_another {
                Some(Failure::new("call_id_conflict", "a call of another function has this id"))
            } else if !entry.is_exported && !entry.has_sound_params() {
                Some(Failure::new("invalid_params", "the parameters of this call are not JSON"))
            } else {
                too_large(&entry, largest)
            };
            match (problem, entry.call_id.clone()) {
                (Some(problem), Some(call_id)) => self.refuse(partition, &entry, &call_id, problem).await?,
                _ => fit.push(entry),
            }
        }
        let mut words = Vec::with_capacity(fit.len());
        let mut rest = &fit[..];
        while !rest.is_empty() {
            let portion = portion(rest);
            words.extend(self.run_import(partition, &rest[..portion], how, now).await?);
            rest = &rest[portion..];
        }
        let count = |letter: &str| words.iter().filter(|word| value::text(word) == Some(letter)).count();
        let came = count("N") + count("B");
        if count("N") > 0 {
            self.shared.legacy.note_imported(&partition.function, count("N"));
        }
        let not_calls = count("I");
        if not_calls > 0 {
            tracing::debug!(function = %partition.function, not_calls, "entries that are not calls were acknowledged");
        }
        if came > 0 {
            let first = fit.iter().filter_map(|entry| Some(entry.call(entry.call_id.as_ref()?, now).deadline)).min();
            first.into_iter().for_each(|deadline| self.shared.agenda.note(partition, deadline));
            partition.note_work();
        }
        Ok(came)
    }

    /// How many bytes of parameters and input item a call of the function may have.
    async fn max_payload_bytes(&self, partition: &Partition) -> Result<u64, StoreError> {
        let ask = command("HGET", &[partition.keys.definition.as_str(), "definition"]);
        let stored = self.shared.link.ask_all(&[ask]).await?.pop().unwrap_or(Value::Nil);
        // A function that is not defined yet has the default. A definition that cannot be read is told elsewhere, and holds up no entry.
        let limits = value::bytes(&stored).and_then(|text| read_definition(text).ok()).map(|definition| definition.limits);
        Ok(limits.unwrap_or_default().max_payload_bytes)
    }

    async fn run_import(&self, partition: &Partition, entries: &[Entry], how: If, now: Timestamp) -> Result<Vec<Value>, StoreError> {
        let keys = &partition.keys;
        let mut args = Args::with_capacity(4 + entries.len() * 8);
        args.number(now.as_millis());
        args.push(&keys.ended);
        args.push(&keys.group);
        args.push(keys.work.as_bytes());
        for entry in entries {
            args.shown(entry.place);
            args.push(match how {
                If::Read => "",
                If::Pending => "P",
                If::InStream => "S",
            });
            args.push(entry.call_id.as_ref().map_or("", CallId::as_str));
            args.flag(entry.is_exported);
            match entry.call_id.as_ref().filter(|_| !entry.is_exported) {
                Some(call_id) => write_new(entry, call_id, &partition.function, now, &mut args),
                None => ["0", "0", "", ""].iter().for_each(|word| args.push(word)),
            }
        }
        let names = [keys.calls.as_str(), &keys.queue, &keys.deadlines, &keys.buckets, &keys.exported, &keys.stream];
        let reply = self.shared.link.run_args(&IMPORT, &names, &args).await?;
        let reply = sections::read("an import", Value::Array(vec![reply]), 1)?.pop().unwrap_or(Ok(Value::Nil))?;
        value::array("an import", reply)
    }

    /// A legacy caller's id is reserved like any id that Towpath did not make. `true`: it is taken.
    async fn is_of_another_function(&self, partition: &Partition, entry: &Entry, now: Timestamp) -> Result<bool, StoreError> {
        let Some(call_id) = entry.call_id.as_ref().filter(|_| !entry.is_exported) else { return Ok(false) };
        Ok(matches!(self.reserve(&partition.function, &entry.call(call_id, now)).await?, Reserved::ByAnother))
    }

    /// Ends a call that cannot be run, and answers its caller. It is never delivered.
    async fn refuse(&self, partition: &Arc<Partition>, entry: &Entry, call_id: &CallId, failure: Failure) -> Result<(), StoreError> {
        let (keys, now, place) = (&partition.keys, self.shared.now(), entry.place.to_string());
        tracing::info!(function = %partition.function, %call_id, %failure.code, "a call of a legacy caller was refused");
        let mut call = entry.call(call_id, now);
        (call.state, call.ended_at, call.outcome) = (CallState::Failed, Some(now), Some(Outcome::Failed(failure)));
        let (record, asked) = entry.record(&partition.function, call);
        let (is_beside, answered) = (record.request.is_none(), !record.replies.is_empty());
        let is_known = self.records(partition, std::slice::from_ref(call_id)).await?.iter().any(Option::is_some);
        let id = call_id.as_str().as_bytes();
        let mut change = Change::insert(record);
        if is_beside {
            let field = format!("{REQUEST}{call_id}");
            change = change.with([b"HSET", keys.calls.as_bytes(), field.as_bytes(), &asked]);
        }
        if answered {
            change = change.with([b"SADD", keys.owed.as_bytes(), id]);
        }
        let record = Arc::clone(&change.after);
        let is_refused = !is_known && self.apply(partition, vec![change]).await?[0];
        let ack = command("XACK", &[&keys.stream, &keys.group, &place]);
        let delete = command("XDEL", &[&keys.stream, &place]);
        self.shared.link.ask_all(&[ack, delete]).await?;
        if is_refused && answered {
            self.answer(partition, &[record]).await?;
        }
        Ok(())
    }
}

/// Why a call of a legacy caller is refused for its size, if it is.
fn too_large(entry: &Entry, largest: u64) -> Option<Failure> {
    let bytes = entry.bytes() as u64;
    let is_too_large = !entry.is_exported && bytes > largest;
    is_too_large.then(|| {
        let says = format!("the parameters and the input item have {bytes} bytes, and the function takes {largest} (max_payload_bytes)");
        Failure::new("payload_too_large", says)
    })
}

/// How many of these entries one script can import.
fn portion(entries: &[Entry]) -> usize {
    let mut bytes = 0;
    let fits = |entry: &&Entry| {
        bytes += entry.bytes();
        bytes <= BYTES_AT_ONCE
    };
    entries.iter().take_while(fits).count().max(1)
}

fn write_new(entry: &Entry, call_id: &CallId, function: &FunctionKey, now: Timestamp, args: &mut Args) {
    let (record, asked) = entry.record(function, entry.call(call_id, now));
    args.number(record.sequence);
    args.number(record.call.deadline.as_millis());
    args.push(record.write());
    args.push(if record.request.is_none() { &asked[..] } else { &[] });
}
