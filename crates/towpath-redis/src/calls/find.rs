//! Finding calls by their ids.

use std::sync::Arc;

use bytes::Bytes;
use redis::Value;
use towpath_core::call::CallRequest;
use towpath_core::inspect::CallView;
use towpath_core::names::CallId;
use towpath_core::store::{StoreError, StoreTrouble};

use super::partition::Partition;
use super::record::{Record, read_progress, read_request};
use crate::registry::reply::command;
use crate::script::{Args, FIND};
use crate::store::RedisStore;
use crate::value;

/// So many calls are read by one script.
const CHUNK: usize = 256;

/// A call and where it is kept.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) partition: Arc<Partition>,
    pub(crate) record: Arc<Record>,
}

/// A record and what stands beside it.
pub(crate) struct Whole {
    pub(crate) record: Record,
    request: Bytes,
    pub(crate) progress: Bytes,
}

impl Whole {
    /// The request as it is written down.
    pub(crate) fn asked(&self) -> &Bytes {
        self.record.request.as_ref().unwrap_or(&self.request)
    }

    pub(crate) fn request(&self, partition: &Partition) -> Result<CallRequest, StoreError> {
        read_request(&partition.function, self.asked())
    }

    pub(crate) fn view(self, partition: &Partition) -> Result<CallView, StoreError> {
        let (request, progress) = (self.request(partition)?, read_progress(&self.progress));
        Ok(CallView { call: self.record.call, request, progress })
    }
}

impl RedisStore {
    /// Names the key that holds something else, if that is the trouble of a partition. It is asked for only then.
    pub(crate) async fn explain(&self, partition: &Partition, error: StoreError) -> StoreError {
        self.explain_with(partition, &[], error).await
    }

    /// The same, where other keys of the partition may be the trouble, too.
    pub(crate) async fn explain_with(&self, partition: &Partition, others: &[&str], error: StoreError) -> StoreError {
        if !matches!(error, StoreError::Unavailable(StoreTrouble::WrongType(_))) {
            return error;
        }
        let keys = &partition.keys;
        let mut named: Vec<&str> = keys.all().into_iter().chain(others.iter().copied()).collect();
        let buckets = self.shared.link.ask(&command("ZRANGE", &[keys.buckets.as_str(), "0", "-1"])).await.unwrap_or(Value::Nil);
        let of_bucket =
            |bucket: &Value| value::text(bucket).map(|bucket| [&keys.ended, &keys.listed].map(|start| format!("{start}{bucket}")));
        let of_buckets: Vec<String> = value::array("ZRANGE", buckets).unwrap_or_default().iter().filter_map(of_bucket).flatten().collect();
        named.extend(of_buckets.iter().map(String::as_str));
        match self.odd_key(&named).await {
            Some(odd) => {
                let function = &partition.function;
                StoreError::Unavailable(StoreTrouble::WrongType(format!("function '{function}': {odd}. Other functions go on")))
            }
            None => error,
        }
    }

    /// One call, if it is there and still kept.
    pub(crate) async fn find_call(&self, call_id: &CallId) -> Result<Option<Found>, StoreError> {
        let found = self.find_in(&self.partitions_named_by(call_id).await?, call_id).await?;
        if found.is_some() { Ok(found) } else { self.find_in(&self.partitions_reserved_for(call_id).await?, call_id).await }
    }

    async fn find_in(&self, partitions: &[Arc<Partition>], call_id: &CallId) -> Result<Option<Found>, StoreError> {
        for partition in partitions {
            let found = self.read_calls(partition, std::slice::from_ref(call_id), false, read_record).await?.pop().flatten();
            if let Some(record) = found.transpose()? {
                return Ok(Some(Found { partition: Arc::clone(partition), record: Arc::new(record) }));
            }
        }
        Ok(None)
    }

    /// One call with all that is known of it.
    pub(crate) async fn find_whole(&self, call_id: &CallId) -> Result<Option<(Arc<Partition>, Whole)>, StoreError> {
        let Some(found) = self.find_call(call_id).await? else { return Ok(None) };
        let whole = self.wholes(&found.partition, std::slice::from_ref(call_id)).await?.pop().flatten();
        Ok(whole.map(|whole| (found.partition, whole)))
    }

    /// Calls of one partition, each where it was asked for. A call that cannot be read counts as absent: it does not keep others from theirs.
    pub(crate) async fn records(&self, partition: &Partition, call_ids: &[CallId]) -> Result<Vec<Option<Record>>, StoreError> {
        let read = self.read_calls(partition, call_ids, false, read_record).await?;
        Ok(self.readable(partition, call_ids, read))
    }

    /// The same with all that stands beside the records.
    pub(crate) async fn wholes(&self, partition: &Partition, call_ids: &[CallId]) -> Result<Vec<Option<Whole>>, StoreError> {
        let read = |call_id: &CallId, parts: Vec<Bytes>| {
            let mut parts = parts.into_iter();
            let mut next = || parts.next().unwrap_or_default();
            Ok(Whole { record: Record::read(call_id, &next())?, request: next(), progress: next() })
        };
        let read = self.read_calls(partition, call_ids, true, read).await?;
        Ok(self.readable(partition, call_ids, read))
    }

    /// Those that can be read.
    fn readable<T>(&self, partition: &Partition, call_ids: &[CallId], read: Vec<Option<Result<T, StoreError>>>) -> Vec<Option<T>> {
        let keep = |(call_id, read): (&CallId, Option<Result<T, StoreError>>)| {
            read?.inspect_err(|error| self.shared.pass_over(&partition.keys.calls, call_id.as_str().as_bytes(), error)).ok()
        };
        call_ids.iter().zip(read).map(keep).collect()
    }

    async fn read_calls<T>(
        &self,
        partition: &Partition,
        call_ids: &[CallId],
        whole: bool,
        read: impl Fn(&CallId, Vec<Bytes>) -> Result<T, StoreError>,
    ) -> Result<Vec<Option<Result<T, StoreError>>>, StoreError> {
        let mut found = Vec::with_capacity(call_ids.len());
        for some in call_ids.chunks(CHUNK) {
            let mut args = Args::with_capacity(some.len() + 3);
            args.number(self.shared.now().as_millis());
            args.push(&partition.keys.ended);
            args.flag(whole);
            some.iter().for_each(|call_id| args.push(call_id.as_str()));
            let reply = self.shared.link.run_args(&FIND, &[&partition.keys.calls, &partition.keys.buckets], &args).await;
            let replies = match reply {
                Err(error) => return Err(self.explain(partition, error).await),
                Ok(reply) => value::array("a look for calls", reply)?,
            };
            for (call_id, reply) in some.iter().zip(replies) {
                let Value::Array(parts) = reply else {
                    found.push(None);
                    continue;
                };
                let parts = parts.into_iter().map(|part| Bytes::from(value::into_bytes(part).unwrap_or_default())).collect();
                found.push(Some(read(call_id, parts)));
            }
        }
        Ok(found)
    }
}

fn read_record(call_id: &CallId, mut parts: Vec<Bytes>) -> Result<Record, StoreError> {
    Record::read(call_id, &parts.swap_remove(0))
}
