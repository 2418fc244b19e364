//! Entries that a new group begins behind: a legacy worker destroys the group of a stream, and a legacy worker that comes makes it again at the end.
//! Entries of legacy callers in between are imported, a bounded number with each tick. An old entry is imported only while its own timeout runs: of
//! one whose time is over nothing tells whether it was finished, and its caller has left.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use towpath_core::store::StoreError;

use super::entry::{Entry, Place};
use super::import::If;
use super::look::Look;
use super::scripts::MISSED;
use crate::calls::partition::Partition;
use crate::script::Args;
use crate::store::RedisStore;

/// So many missed entries are read at once.
const AT_ONCE: usize = 16;
/// One tick reads so often, as long as there is nothing to import, and stops after so many bytes.
const READS_MAX: usize = 8;
const BYTES_MAX: usize = 1024 * 1024;
/// An entry of a caller that waits for the default time may be finished, or not; it is imported in any case.
const RECENT: Duration = Duration::from_secs(300);

/// Ranges of entries that were missed.
#[derive(Clone, Default)]
pub(super) struct Missed {
    /// As it stands in Redis.
    text: String,
    ranges: Vec<Range>,
}

/// The entries behind `from`, up to `to`. Those behind `next` still have to be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    from: Place,
    next: Place,
    to: Place,
}

impl Missed {
    pub(super) fn read(text: &str) -> Self {
        let ranges: Vec<[String; 3]> = serde_json::from_str(text).unwrap_or_default();
        let range =
            |[from, next, to]: [String; 3]| Some(Range { from: Place::read(&from)?, next: Place::read(&next)?, to: Place::read(&to)? });
        Self { text: text.to_owned(), ranges: ranges.into_iter().filter_map(range).collect() }
    }

    /// Whether the entry was missed, unless a consumer holds it.
    pub(super) fn has(&self, place: Place) -> bool {
        self.ranges.iter().any(|range| range.from < place && place <= range.to)
    }

    fn write(&self) -> String {
        if self.ranges.is_empty() {
            return String::new();
        }
        let ranges = self.ranges.iter().map(|range| [range.from, range.next, range.to].map(|place| place.to_string()));
        serde_json::Value::from_iter(ranges.map(|range| range.map(serde_json::Value::from).to_vec())).to_string()
    }
}

impl RedisStore {
    /// Imports some missed entries. Exported calls among them go back to the queue by themselves.
    pub(super) async fn adopt_missed(&self, partition: &Arc<Partition>, look: &Look) -> Result<(), StoreError> {
        let mut missed = look.missed.clone();
        if let Some(range) = missed.ranges.iter_mut().find(|range| range.next < range.to) {
            let entries = self.read_missed(partition, look, range).await?;
            let entries = self.settle_answered(partition, entries).await?;
            if self.import(partition, entries, If::InStream).await? > 0 {
                self.work_came(partition);
            }
        }
        if !look.has_exported() {
            missed.ranges.retain(|range| range.next < range.to);
        }
        if missed.ranges == look.missed.ranges {
            return Ok(());
        }
        let mut args = Args::with_capacity(2);
        args.push(&missed.text);
        args.push(missed.write());
        self.shared.link.run_args(&MISSED, &[&partition.keys.legacy], &args).await.map(drop)
    }

    /// Some entries of a range that are to be imported. The range is shorter by what was looked at.
    async fn read_missed(&self, partition: &Partition, look: &Look, range: &mut Range) -> Result<Vec<Entry>, StoreError> {
        let (now, mut bytes) = (self.shared.now(), 0);
        for _ in 0..READS_MAX {
            let mut ask = Cmd::new();
            ask.arg("XRANGE").arg(&partition.keys.stream).arg(format!("({}", range.next)).arg(range.to.to_string());
            ask.arg("COUNT").arg(AT_ONCE);
            let entries = Entry::read_all(&self.shared.link.ask(&ask).await?);
            range.next = entries.last().filter(|_| entries.len() == AT_ONCE).map_or(range.to, |last| last.place);
            bytes += entries.iter().map(Entry::bytes).sum::<usize>();
            let is_missed = |entry: &Entry| !entry.is_exported && !look.pending.contains_key(&entry.place);
            let may_be_waited_for = |entry: &Entry| now.since(entry.place.at()) <= RECENT || entry.deadline() > now;
            let fit: Vec<Entry> = entries.into_iter().filter(|entry| is_missed(entry) && may_be_waited_for(entry)).collect();
            if !fit.is_empty() || range.next >= range.to || bytes > BYTES_MAX {
                return Ok(fit);
            }
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_written_as_scripts_have_them() {
        let text = r#"[["1-0","2-0","3-5"],["4-0","4-0","9-0"]]"#;
        let missed = Missed::read(text);
        assert_eq!(missed.write(), text);
        let has = |place: &str| missed.has(Place::read(place).expect("a place"));
        assert!(!has("1-0") && has("1-1") && has("3-5") && !has("3-6") && !has("4-0") && has("9-0"));
        assert_eq!(Missed::read("").write(), "");
        assert_eq!(Missed::read("{}").write(), "");
    }
}
