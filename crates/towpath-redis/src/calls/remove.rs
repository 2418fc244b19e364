//! Removing a call whose record cannot be read: no worker can run it, no timer can end it, and only a person can tell that nobody needs it.

use redis::Value;
use towpath_core::names::CallId;
use towpath_core::store::StoreError;

use super::record::{PROGRESS, REQUEST, Record};
use crate::registry::reply::{command, read};
use crate::script::{Args, REMOVE};
use crate::store::RedisStore;
use crate::value;

impl RedisStore {
    /// Removes the record of a call and every line that names it, in one script, if the record cannot be read. `false`: there is no such record.
    pub(super) async fn remove_unreadable(&self, call_id: &CallId) -> Result<bool, StoreError> {
        let mut partitions = self.partitions_named_by(call_id).await?;
        partitions.extend(self.partitions_reserved_for(call_id).await?);
        // An id that a neighbour has written is reserved for no function.
        partitions.extend(self.all_partitions().await?);
        let mut removed = false;
        for partition in partitions {
            let keys = &partition.keys;
            let found =
                self.shared.link.ask(&command("HGET", &[keys.calls.as_str(), call_id.as_str()])).await.and_then(read::<Option<Vec<u8>>>);
            // A function in trouble has no record that could be removed.
            let Some(record) = found.unwrap_or_default() else { continue };
            if Record::read(call_id, &record.clone().into()).is_ok() {
                continue;
            }
            let mut args = Args::with_capacity(4);
            args.push(call_id.as_str());
            args.push(&record);
            args.push(format!("{REQUEST}{call_id}"));
            args.push(format!("{PROGRESS}{call_id}"));
            let touched =
                [keys.calls.as_str(), &keys.queue, &keys.running, &keys.delayed, &keys.exported, &keys.dead, &keys.deadlines, &keys.parked];
            let gone: Value = self.shared.link.run_args(&REMOVE, &touched, &args).await?;
            if value::number(&gone) == Some(1) {
                tracing::warn!(function = %partition.function, %call_id, "a call whose record could not be read was removed");
                removed = true;
            }
        }
        Ok(removed)
    }
}
