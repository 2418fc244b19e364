//! Calls become complete entries of the stream, for legacy workers: all of them if no Towpath worker serves the function, and those that have
//! waited for a second if one does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::call::{Answer, CallState, Failure, Retry};
use towpath_core::names::CallId;
use towpath_core::payload::Payload;
use towpath_core::store::StoreError;
use towpath_core::time::{Timestamp, millis};
use towpath_core::worker::FunctionDefinition;

use super::entry;
use super::peers::Serving;
use super::replies::answered;
use super::scripts::EXPORT;
use crate::calls::change::Change;
use crate::calls::partition::Partition;
use crate::calls::record::Record;
use crate::calls::sections;
use crate::definition::read_definition;
use crate::registry::reply::command;
use crate::script::Args;
use crate::store::RedisStore;
use crate::value;

/// Beside Towpath workers, a call is exported when it has waited for this long.
const WAITED: Duration = Duration::from_secs(1);
/// Beside Towpath workers, so many calls wait in the stream at most.
const BESIDE_MAX: usize = 50;
/// So many calls are exported by one script.
const CHUNK: usize = 100;
/// So many scripts are run in one go.
const CHUNKS_MAX: usize = 50;

impl RedisStore {
    /// A call was submitted: if legacy workers alone serve the function, it is exported. Without legacy workers it sends nothing.
    pub(crate) fn call_was_submitted(&self, partition: &Arc<Partition>) {
        match self.serving_unchanged(&partition.function) {
            Some(serving) if !serving.has_legacy || serving.has_towpath => return,
            // Under a test's clock nothing is looked for by itself.
            None if !self.shared.lives_by_the_server => return,
            _only_legacy_or_not_known => {}
        }
        // Calls of other shards are run by Towpath workers, which alone can read them.
        if partition.is_shard() {
            return;
        }
        let state = &partition.legacy;
        state.wants_export.store(true, Ordering::Release);
        if state.is_exporting.swap(true, Ordering::AcqRel) {
            return;
        }
        let (store, exporting) = (self.clone(), Exporting(Arc::clone(partition)));
        tokio::spawn(async move {
            let partition = &exporting.0;
            while partition.legacy.wants_export.swap(false, Ordering::AcqRel) {
                if let Err(error) = store.export_submitted(partition).await {
                    tracing::debug!(function = %partition.function, %error, "calls were not exported; the tick tries again");
                    partition.legacy.tend();
                }
            }
        });
    }

    async fn export_submitted(&self, partition: &Arc<Partition>) -> Result<(), StoreError> {
        let function = &partition.function;
        if self.serving_unchanged(function).is_none() {
            self.look_at_peers(std::slice::from_ref(function)).await?;
        }
        let Some(serving) = self.last_serving(function) else { return Ok(()) };
        if serving.has_legacy && !serving.has_towpath { self.export_all(partition).await } else { Ok(()) }
    }

    /// Exports what a tick finds to export.
    pub(super) async fn export_for(
        &self,
        partition: &Arc<Partition>,
        serving: &Serving,
        exported: usize,
        oldest: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        if !serving.has_legacy || oldest.is_none() {
            return Ok(());
        }
        if !serving.has_towpath {
            return self.export_all(partition).await;
        }
        let before = self.shared.now().as_millis().saturating_sub(millis(WAITED));
        if oldest.is_some_and(|oldest| oldest.as_millis() <= before) && exported < BESIDE_MAX {
            self.export(partition, BESIDE_MAX - exported, Some(Timestamp::from_millis(before))).await?;
        }
        Ok(())
    }

    async fn export_all(&self, partition: &Arc<Partition>) -> Result<(), StoreError> {
        for _chunk in 0..CHUNKS_MAX {
            if self.export(partition, CHUNK, None).await? < CHUNK {
                break;
            }
        }
        Ok(())
    }

    /// Exports calls from the head of the queue, those that were submitted before an instant. Says how many it has looked at.
    async fn export(&self, partition: &Arc<Partition>, count: usize, before: Option<Timestamp>) -> Result<usize, StoreError> {
        let keys = &partition.keys;
        let (ids, definition) = self.head_of_queue(partition, count, before).await?;
        if ids.is_empty() {
            return Ok(0);
        }
        let now = self.shared.now();
        let mut args = Args::with_capacity(2 + ids.len() * 24);
        args.push(&keys.group);
        args.number(now.as_millis());
        let (mut leaving, mut unfit) = (Vec::with_capacity(ids.len()), Vec::new());
        for whole in self.wholes(partition, &ids).await?.into_iter().flatten() {
            let record = &whole.record;
            if record.call.state != CallState::Queued || !record.exported.is_empty() || record.call.deadline <= now {
                continue;
            }
            let mut request = whole.request(partition)?;
            match self.prepare_params(definition.as_ref(), request.params) {
                Ok(params) => request.params = params,
                Err(failure) => {
                    unfit.push((whole.record, failure));
                    continue;
                }
            }
            let words = entry::write(record, &request);
            args.push(record.call.call_id.as_str());
            args.written(|text| record.write_start(text));
            args.number(words.len());
            words.iter().for_each(|word| args.push(word));
            leaving.push((record.call.call_id.clone(), entry::worker_list(record), record.call.deadline));
        }
        self.end_unfit(partition, unfit).await?;
        if leaving.is_empty() {
            return Ok(ids.len());
        }
        let names = [keys.calls.as_str(), &keys.queue, &keys.exported, &keys.stream, &keys.legacy];
        // Before the entries are there: a legacy worker may answer sooner than the script's reply comes.
        for (call_id, list, deadline) in &leaving {
            self.await_reply(partition, call_id, list, *deadline);
        }
        let reply = self.shared.link.run_args(&EXPORT, &names, &args).await?;
        let reply = sections::read("an export", Value::Array(vec![reply]), 1)?.pop().unwrap_or(Ok(Value::Nil))?;
        let places = value::array("an export", reply)?;
        // A call that has changed meanwhile may have been exported by another process. Whichever of the two gets the reply ends the call.
        tracing::debug!(function = %partition.function, calls = places.len(), "calls were exported for legacy workers");
        partition.legacy.tend();
        Ok(ids.len())
    }

    /// Calls at the head of the queue, those that were submitted before an instant, and the function's definition.
    async fn head_of_queue(
        &self,
        partition: &Partition,
        count: usize,
        before: Option<Timestamp>,
    ) -> Result<(Vec<CallId>, Option<FunctionDefinition>), StoreError> {
        let until = before.map_or_else(|| "+inf".to_owned(), |before| before.as_millis().saturating_mul(1_000).to_string());
        let mut ask = Cmd::new();
        ask.arg("ZRANGEBYSCORE").arg(&partition.keys.queue).arg("-inf").arg(until).arg("LIMIT").arg(0).arg(count);
        let define = command("HGET", &[partition.keys.definition.as_str(), "definition"]);
        let mut replies = self.shared.link.ask_all(&[ask, define]).await?.into_iter();
        let mut next = || value::checked(replies.next().unwrap_or(Value::Nil));
        let ids = value::array("ZRANGEBYSCORE", next()?)?;
        let ids = ids.iter().map(value::call_id).collect::<Result<Vec<CallId>, StoreError>>()?;
        let definition = value::bytes(&next()?).and_then(|text| match read_definition(text) {
            Ok(definition) => Some(definition),
            Err(error) => {
                tracing::warn!(function = %partition.function, %error, "params are exported as they came");
                None
            }
        });
        Ok((ids, definition))
    }

    /// The params as a legacy worker gets them, or the failure that ends their call.
    fn prepare_params(&self, definition: Option<&FunctionDefinition>, params: Payload) -> Result<Payload, Failure> {
        match (self.shared.legacy.prepare.get(), definition) {
            (Some(prepare), Some(definition)) => prepare.prepare(definition, &params),
            _ => Ok(params),
        }
    }

    /// Ends calls whose params do not fit. One that has changed meanwhile is looked at again with the next export.
    async fn end_unfit(&self, partition: &Arc<Partition>, unfit: Vec<(Record, Failure)>) -> Result<(), StoreError> {
        let now = self.shared.now();
        let end = |(record, failure): (Record, Failure)| {
            let after = answered(&record.call, &Answer::Failed { failure, retry: Retry::Never }, now)?;
            Some(Change::new(Arc::new(record), after))
        };
        let changes: Vec<Change> = unfit.into_iter().filter_map(end).collect();
        if changes.is_empty() {
            return Ok(());
        }
        tracing::info!(function = %partition.function, calls = changes.len(), "calls whose params do not fit were not exported");
        self.apply(partition, changes).await.map(drop)
    }
}

/// Says that exporting has ended, also after a panic.
struct Exporting(Arc<Partition>);

impl Drop for Exporting {
    fn drop(&mut self) {
        self.0.legacy.is_exporting.store(false, Ordering::Release);
        if self.0.legacy.wants_export.load(Ordering::Acquire) {
            // A submit came in the last moment: the tick exports it.
            self.0.legacy.tend();
        }
    }
}
