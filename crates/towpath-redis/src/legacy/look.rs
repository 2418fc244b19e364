//! One look at the stream of a function: what was delivered, what is held, what waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use towpath_core::names::CallId;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::entry::Place;
use super::missed::Missed;
use super::scripts::TEND;
use crate::calls::partition::Partition;
use crate::calls::record::Record;
use crate::calls::sections;
use crate::script::Args;
use crate::store::RedisStore;
use crate::value;

/// So many exported calls are looked at, the oldest first.
const EXPORTED_MAX: u32 = 64;

/// What a look has found.
#[derive(Default)]
pub(super) struct Look {
    /// The last entry that was delivered.
    pub(super) last: Place,
    /// Entries may wait that no consumer has read.
    pub(super) has_unread: bool,
    /// The stream has no entries.
    is_empty: bool,
    /// Entries that a consumer has read and not acknowledged, the first few hundred.
    pub(super) pending: HashMap<Place, Pending>,
    /// If more may be pending: the last of those in `pending`.
    pub(super) horizon: Option<Place>,
    /// Entries that the group begins behind.
    pub(super) missed: Missed,
    /// Calls that legacy workers run, some of them.
    pub(super) running: Vec<Arc<Record>>,
    /// Where the next look at calls that legacy workers run goes on.
    pub(super) notes_next: u64,
    /// No other call is run by legacy workers.
    pub(super) has_all_running: bool,
    /// Calls that wait in the stream, the oldest.
    pub(super) exported: Vec<Arc<Record>>,
    /// Number of calls that are exported.
    pub(super) exported_count: usize,
    /// Ended calls whose legacy caller has not been answered.
    pub(super) owed: Vec<CallId>,
    /// When the first call in the queue was submitted.
    pub(super) oldest_queued: Option<Timestamp>,
}

pub(super) struct Pending {
    pub(super) consumer: String,
    pub(super) idle: Duration,
}

impl Look {
    /// There is nothing that a later tick has to look after.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_empty && self.pending.is_empty() && !self.has_exported() && self.owed.is_empty()
    }

    /// Calls wait for legacy workers, or are run by them.
    pub(super) fn has_exported(&self) -> bool {
        self.exported_count > 0 || !self.running.is_empty() || !self.has_all_running
    }

    /// The entry was delivered, and it is not known whether a consumer holds it.
    pub(super) fn is_beyond_horizon(&self, place: Place) -> bool {
        place <= self.last && self.horizon.is_some_and(|horizon| horizon < place)
    }
}

impl RedisStore {
    /// Looks at a stream, makes its group again if it is gone, and removes what is acknowledged. `make`: also where there is no stream. `notes`:
    /// where the look at calls that legacy workers run goes on.
    pub(super) async fn look_at_stream(&self, partition: &Partition, make: bool, notes: u64) -> Result<Look, StoreError> {
        let keys = &partition.keys;
        let mut args = Args::with_capacity(5);
        args.push(&keys.group);
        args.number(self.shared.now().as_millis());
        args.number(EXPORTED_MAX);
        args.flag(make);
        args.number(notes);
        let names = [keys.stream.as_str(), &keys.legacy, &keys.calls, &keys.exported, &keys.owed, &keys.queue];
        let reply = self.shared.link.run_args(&TEND, &names, &args).await?;
        let reply = sections::read("a look at a stream", Value::Array(vec![reply]), 1)?.pop().unwrap_or(Ok(Value::Nil))?;
        let parts = value::array("a look at a stream", reply)?;
        let strange = |parts: &[Value]| value::strange("a look at a stream", &Value::Array(parts.to_vec()));
        let mut look = read(&parts).transpose().unwrap_or_else(|| Err(strange(&parts)))?;
        look.has_all_running = notes == 0 && look.notes_next == 0;
        Ok(look)
    }
}

/// `None`: the reply has another shape.
fn read(parts: &[Value]) -> Result<Option<Look>, StoreError> {
    let [last, unread, length, pending, horizon, missed, running, notes, exported, count, owed, oldest] = parts else { return Ok(None) };
    let place = |value: &Value| value::text(value).and_then(Place::read);
    let mut look = Look {
        last: place(last).unwrap_or_default(),
        has_unread: value::text(unread) == Some("1"),
        is_empty: value::number(length) == Some(0),
        horizon: place(horizon),
        missed: Missed::read(value::text(missed).unwrap_or_default()),
        notes_next: value::text(notes).and_then(|cursor| cursor.parse().ok()).unwrap_or_default(),
        ..Look::default()
    };
    for one in items(pending).chunks_exact(3) {
        look.pending.insert(place(&one[0]).unwrap_or_default(), Pending { consumer: lossy(&one[1]), idle: since(&one[2]) });
    }
    for pair in items(running).chunks_exact(2) {
        look.running.push(record(&pair[0], &pair[1])?);
    }
    for pair in items(exported).chunks_exact(2) {
        look.exported.push(record(&pair[0], &pair[1])?);
    }
    look.exported_count = value::number(count).and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
    look.owed = items(owed).iter().map(value::call_id).collect::<Result<_, _>>()?;
    #[expect(clippy::cast_possible_truncation, reason = "scores of the queue are microseconds, far below 2^53")]
    let submitted_at = |score: f64| Timestamp::from_millis((score / 1_000.0) as i64);
    look.oldest_queued = items(oldest).get(1).and_then(value::score).map(submitted_at);
    Ok(Some(look))
}

fn record(id: &Value, text: &Value) -> Result<Arc<Record>, StoreError> {
    let text = Bytes::from(value::bytes(text).unwrap_or_default().to_vec());
    Ok(Arc::new(Record::read(&value::call_id(id)?, &text)?))
}

pub(super) fn since(value: &Value) -> Duration {
    Duration::from_millis(value::number(value).and_then(|ms| u64::try_from(ms).ok()).unwrap_or_default())
}

pub(super) fn items(value: &Value) -> &[Value] {
    if let Value::Array(items) = value { items } else { &[] }
}

/// Consumers have any name they like.
pub(super) fn lossy(value: &Value) -> String {
    String::from_utf8_lossy(value::bytes(value).unwrap_or_default()).into_owned()
}
