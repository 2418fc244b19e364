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
    /// The last entry of the stream.
    pub(super) newest: Place,
    /// Entries that a consumer has read and not acknowledged.
    pub(super) pending: HashMap<Place, Pending>,
    /// Entries whose group was destroyed while they were held, or made again behind them.
    pub(super) orphans: HashMap<Place, Orphan>,
    /// Calls that legacy workers run.
    pub(super) running: Vec<Arc<Record>>,
    pub(super) exported: Vec<Exported>,
    /// Number of calls that are exported.
    pub(super) exported_count: usize,
    /// Ended calls whose legacy caller has not been answered.
    pub(super) owed: Vec<CallId>,
    /// When the first call in the queue was submitted.
    pub(super) oldest_queued: Option<Timestamp>,
    /// All consumers, and since when each has not asked for entries, if there is anything pending or orphaned.
    pub(super) consumers: Vec<(String, Duration)>,
}

pub(super) struct Pending {
    pub(super) consumer: String,
    pub(super) idle: Duration,
}

pub(super) struct Orphan {
    /// Empty: it was never delivered.
    pub(super) consumer: String,
    pub(super) since: Timestamp,
}

/// A call that waits in the stream.
pub(super) struct Exported {
    pub(super) record: Arc<Record>,
    /// Its entry is in the stream.
    pub(super) is_there: bool,
}

impl Look {
    /// Entries wait that no consumer has read.
    pub(super) fn has_unread(&self) -> bool {
        self.newest > self.last
    }

    /// There is nothing that a later tick has to look after.
    pub(super) fn is_quiet(&self) -> bool {
        self.newest == Place::default()
            && self.pending.is_empty()
            && self.orphans.is_empty()
            && self.running.is_empty()
            && self.exported_count == 0
            && self.owed.is_empty()
    }
}

impl RedisStore {
    /// Looks at a stream, makes its group again if it is gone, and removes what is acknowledged. `make`: also where there is no stream.
    pub(super) async fn look_at_stream(&self, partition: &Partition, make: bool) -> Result<Look, StoreError> {
        let keys = &partition.keys;
        let mut args = Args::with_capacity(4);
        args.push(&keys.group);
        args.number(self.shared.now().as_millis());
        args.number(EXPORTED_MAX);
        args.flag(make);
        let names = [keys.stream.as_str(), &keys.legacy, &keys.calls, &keys.exported, &keys.owed, &keys.queue];
        let reply = self.shared.link.run_args(&TEND, &names, &args).await?;
        let reply = sections::read("a look at a stream", Value::Array(vec![reply]), 1)?.pop().unwrap_or(Ok(Value::Nil))?;
        let parts = value::array("a look at a stream", reply)?;
        let strange = |parts: &[Value]| value::strange("a look at a stream", &Value::Array(parts.to_vec()));
        read(&parts).transpose().unwrap_or_else(|| Err(strange(&parts)))
    }
}

/// `None`: the reply has another shape.
fn read(parts: &[Value]) -> Result<Option<Look>, StoreError> {
    let [last, newest, pending, orphans, running, exported, count, owed, oldest, consumers] = parts else { return Ok(None) };
    let place = |value: &Value| value::text(value).and_then(Place::read).unwrap_or_default();
    let mut look = Look { last: place(last), newest: place(newest), ..Look::default() };
    for one in items(pending).chunks_exact(3) {
        look.pending.insert(place(&one[0]), Pending { consumer: lossy(&one[1]), idle: since(&one[2]) });
    }
    for pair in items(orphans).chunks_exact(2) {
        let text = lossy(&pair[1]);
        let (since, consumer) = text.split_once(' ').unwrap_or((&text, ""));
        let since = Timestamp::from_millis(since.parse().unwrap_or_default());
        look.orphans.insert(place(&pair[0]), Orphan { consumer: consumer.to_owned(), since });
    }
    for pair in items(running).chunks_exact(2) {
        look.running.push(record(&pair[0], &pair[1])?);
    }
    for one in items(exported).chunks_exact(3) {
        look.exported.push(Exported { record: record(&one[0], &one[1])?, is_there: value::text(&one[2]) == Some("1") });
    }
    look.exported_count = value::number(count).and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
    look.owed = items(owed).iter().map(value::call_id).collect::<Result<_, _>>()?;
    #[expect(clippy::cast_possible_truncation, reason = "scores of the queue are microseconds, far below 2^53")]
    let submitted_at = |score: f64| Timestamp::from_millis((score / 1_000.0) as i64);
    look.oldest_queued = items(oldest).get(1).and_then(value::score).map(submitted_at);
    look.consumers = items(consumers).chunks_exact(2).map(|pair| (lossy(&pair[0]), since(&pair[1]))).collect();
    Ok(Some(look))
}

fn record(id: &Value, text: &Value) -> Result<Arc<Record>, StoreError> {
    let text = Bytes::from(value::bytes(text).unwrap_or_default().to_vec());
    Ok(Arc::new(Record::read(&value::call_id(id)?, &text)?))
}

fn since(value: &Value) -> Duration {
    Duration::from_millis(value::number(value).and_then(|ms| u64::try_from(ms).ok()).unwrap_or_default())
}

fn items(value: &Value) -> &[Value] {
    if let Value::Array(items) = value { items } else { &[] }
}

/// Consumers have any name they like.
fn lossy(value: &Value) -> String {
    String::from_utf8_lossy(value::bytes(value).unwrap_or_default()).into_owned()
}
