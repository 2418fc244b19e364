//! Finding calls by their ids.

use std::sync::Arc;

use bytes::Bytes;
use redis::{Cmd, Value};
use towpath_core::call::CallRequest;
use towpath_core::inspect::CallView;
use towpath_core::names::CallId;
use towpath_core::store::{StoreError, StoreTrouble};

use super::partition::Partition;
use super::record::{Record, read_progress, read_request};
use crate::keys::kind_of;
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
        if !matches!(error, StoreError::Unavailable(StoreTrouble::WrongType(_))) {
            return error;
        }
        let keys = partition.keys.all();
        let asks: Vec<Cmd> = keys.iter().map(|key| command("TYPE", &[key])).collect();
        let Ok(types) = self.shared.link.ask_all(&asks).await else { return error };
        for (key, found) in keys.iter().zip(types) {
            let (found, wanted) = (value::text(&found).unwrap_or_default(), kind_of(self.shared.keys.prefix(), key).unwrap_or_default());
            if found != "none" && !found.is_empty() && !wanted.contains(&found) {
                let wanted = wanted.first().copied().unwrap_or_default();
                return StoreError::Unavailable(StoreTrouble::WrongType(format!(
                    "the key {key} is a {found} and should be a {wanted}: rename or delete it. Other functions go on"
                )));
            }
        }
        error
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
        Ok(read.into_iter().map(|record| readable(partition, record)).collect())
    }

    /// The same with all that stands beside the records.
    pub(crate) async fn wholes(&self, partition: &Partition, call_ids: &[CallId]) -> Result<Vec<Option<Whole>>, StoreError> {
        let read = |call_id: &CallId, parts: Vec<Bytes>| {
            let mut parts = parts.into_iter();
            let mut next = || parts.next().unwrap_or_default();
            Ok(Whole { record: Record::read(call_id, &next())?, request: next(), progress: next() })
        };
        let read = self.read_calls(partition, call_ids, true, read).await?;
        Ok(read.into_iter().map(|whole| readable(partition, whole)).collect())
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
            let reply = self.shared.link.run_args(&FIND, &[&partition.keys.calls, &partition.keys.buckets], &args).await?;
            let replies = value::array("a look for calls", reply)?;
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

/// A call that can be read.
fn readable<T>(partition: &Partition, read: Option<Result<T, StoreError>>) -> Option<T> {
    match read? {
        Ok(call) => Some(call),
        Err(error) => {
            tracing::warn!(function = %partition.function, %error, "a call cannot be read");
            None
        }
    }
}
