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
use crate::calls::record::{REQUEST, Record};
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
/// Without Towpath workers, this many calls wait in the stream at most. Each stands in Redis twice.
const ALONE_MAX: usize = 256;
/// One script exports so many calls, and so many bytes, unless one call alone has more.
const CALLS_AT_ONCE: usize = 100;
const BYTES_AT_ONCE: usize = 1024 * 1024;

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
        if serving.has_legacy && !serving.has_towpath { self.export(partition, ALONE_MAX, None).await } else { Ok(()) }
    }

    /// Exports what a tick finds to export.
    pub(super) async fn export_for(
        &self,
        partition: &Arc<Partition>,
        serving: &Serving,
        oldest: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        if !serving.has_legacy || oldest.is_none() {
            return Ok(());
        }
        if !serving.has_towpath {
            return self.export(partition, ALONE_MAX, None).await;
        }
        let before = self.shared.now().as_millis().saturating_sub(millis(WAITED));
        if oldest.is_some_and(|oldest| oldest.as_millis() <= before) {
            self.export(partition, BESIDE_MAX, Some(Timestamp::from_millis(before))).await?;
        }
        Ok(())
    }

    /// Exports calls from the head of the queue, those that were submitted before an instant, until `max` wait in the stream.
    async fn export(&self, partition: &Arc<Partition>, max: usize, before: Option<Timestamp>) -> Result<(), StoreError> {
        let (ids, definition) = self.head_of_queue(partition, max, before).await?;
        for portion in self.portions(partition, ids).await? {
            self.export_portion(partition, &portion, definition.as_ref()).await?;
        }
        Ok(())
    }

    /// These calls in portions that one script can export.
    async fn portions(&self, partition: &Partition, ids: Vec<CallId>) -> Result<Vec<Vec<CallId>>, StoreError> {
        let size = |field: String| command("HSTRLEN", &[partition.keys.calls.clone(), field]);
        let asks: Vec<Cmd> = ids.iter().flat_map(|id| [size(id.to_string()), size(format!("{REQUEST}{id}"))]).collect();
        let sizes = self.shared.link.ask_all(&asks).await?;
        let (mut portions, mut bytes) = (Vec::new(), 0_usize);
        for (id, sizes) in ids.into_iter().zip(sizes.chunks_exact(2)) {
            let size: usize = sizes.iter().filter_map(value::number).filter_map(|size| usize::try_from(size).ok()).sum();
            bytes += size;
            match portions.last_mut() {
                Some(portion) if Vec::len(portion) < CALLS_AT_ONCE && bytes <= BYTES_AT_ONCE => portion.push(id),
                _full => {
                    bytes = size;
                    portions.push(vec![id]);
                }
            }
        }
        Ok(portions)
    }

    async fn export_portion(
        &self,
        partition: &Arc<Partition>,
        ids: &[CallId],
        definition: Option<&FunctionDefinition>,
    ) -> Result<(), StoreError> {
        let (keys, now) = (&partition.keys, self.shared.now());
        let mut args = Args::with_capacity(2 + ids.len() * 24);
        args.push(&keys.group);
        args.number(now.as_millis());
        let (mut leaving, mut unfit) = (Vec::with_capacity(ids.len()), Vec::new());
        for whole in self.wholes(partition, ids).await?.into_iter().flatten() {
            let record = &whole.record;
            if record.call.state != CallState::Queued || !record.exported.is_empty() || record.call.deadline <= now {
                continue;
            }
            let mut request = whole.request(partition)?;
            match self.prepare_params(definition, request.params) {
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
            return Ok(());
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
        Ok(())
    }

    /// Calls at the head of the queue, those that were submitted before an instant, as many as may still be exported; and the function's definition.
    async fn head_of_queue(
        &self,
        partition: &Partition,
        max: usize,
        before: Option<Timestamp>,
    ) -> Result<(Vec<CallId>, Option<FunctionDefinition>), StoreError> {
        let until = before.map_or_else(|| "+inf".to_owned(), |before| before.as_millis().saturating_mul(1_000).to_string());
        let mut ask = Cmd::new();
        ask.arg("ZRANGEBYSCORE").arg(&partition.keys.queue).arg("-inf").arg(until).arg("LIMIT").arg(0).arg(max);
        let define = command("HGET", &[partition.keys.definition.as_str(), "definition"]);
        let exported = command("ZCARD", &[&partition.keys.exported]);
        let mut replies = self.shared.link.ask_all(&[ask, define, exported]).await?.into_iter();
        let mut next = || value::checked(replies.next().unwrap_or(Value::Nil));
        let ids = value::array("ZRANGEBYSCORE", next()?)?;
        let mut ids = ids.iter().map(value::call_id).collect::<Result<Vec<CallId>, StoreError>>()?;
        let definition = value::bytes(&next()?).and_then(|text| match read_definition(text) {
            Ok(definition) => Some(definition),
            Err(error) => {
                tracing::warn!(function = %partition.function, %error, "params are exported as they came");
                None
            }
        });
        let exported = value::number(&next()?).and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
        ids.truncate(max.saturating_sub(exported));
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
