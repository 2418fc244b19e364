//! Removing a call whose record cannot be read: no worker can run it, no timer can end it, and only a person can tell that nobody needs it.

use redis::{Cmd, Value};
use towpath_core::names::CallId;
use towpath_core::store::StoreError;

use super::record::{PROGRESS, REQUEST, Record};
use crate::registry::reply::{command, read};
use crate::script::{Args, REMOVE};
use crate::store::RedisStore;
use crate::unreadable::is_odd;
use crate::value;

impl RedisStore {
    /// Removes the record of a call and every line that names it, in one script, if the record cannot be read. `false`: there is no such record.
    pub(super) async fn remove_unreadable(&self, call_id: &CallId) -> Result<bool, StoreError> {
        let mut partitions = self.partitions_named_by(call_id).await?;
        partitions.extend(self.partitions_reserved_for(call_id).await?);
        // An id that a neighbour has written is reserved for no function.
        partitions.extend(self.all_partitions().await?);
        let asks: Vec<Cmd> =
            partitions.iter().map(|partition| command("HGET", &[partition.keys.calls.as_str(), call_id.as_str()])).collect();
        let (mut removed, mut unreached) = (false, None);
        for (partition, found) in partitions.iter().zip(self.shared.link.ask_apart(&asks).await) {
            let keys = &partition.keys;
            let record = match found.and_then(read::<Option<Vec<u8>>>) {
                Ok(record) => record,
                // A key of another type has no record that could be removed. Of a function that cannot be reached nothing is known.
                Err(error) => {
                    unreached = unreached.or(Some(error).filter(|error| !is_odd(error)));
                    None
                }
            };
            let Some(record) = record else { continue };
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
        match unreached {
            Some(error) if !removed => Err(error),
            _ => Ok(removed),
        }
    }
}
