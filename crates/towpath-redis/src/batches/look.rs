//! Reads for people: open batches, batches in flight, and how much there is of everything.

use redis::Cmd;
use towpath_core::batch::{BatcherId, OpenBatch};
use towpath_core::inspect::{BatchCounts, BatchView, Cursor, CursorPage, FlightView, OpenBatchView, PageRequest};
use towpath_core::names::{BatchId, BatchKey};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::said::Said;
use super::scripts;
use crate::inspect::LISTENS_WITHIN;
use crate::store::RedisStore;
use crate::value;

impl RedisStore {
    pub(super) async fn count_batches(&self, batcher: &BatcherId) -> Result<BatchCounts, StoreError> {
        // Whoever has begun to listen shall hear; when the way there is cut, others see to that.
        drop(tokio::time::timeout(LISTENS_WITHIN, self.shared.news.listening().settled()).await);
        let mut counts = BatchCounts::default();
        for place in self.places(batcher).all() {
            let keys = &place.keys;
            let commands = [("ZCARD", &keys.first), ("GET", &keys.count), ("ZCARD", &keys.fly), ("LLEN", &keys.dead)];
            let ask = commands.map(|(command, key)| {
                let mut ask = Cmd::new();
                ask.arg(command).arg(key);
                ask
            });
            let replies = self.shared.link.ask_apart(&ask).await.into_iter();
            let mut counted = Vec::with_capacity(commands.len());
            // A key that holds something else counts as empty: the other counts are right.
            for ((_, key), reply) in commands.iter().zip(replies) {
                let count = self.shared.or_pass_over(key, reply.map(|reply| value::number(&reply)), None)?;
                counted.push(count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0));
            }
            if let [open_keys, open_messages, in_flight, dead_letters] = counted[..] {
                counts.open_keys += open_keys;
                counts.open_messages += open_messages;
                counts.in_flight += in_flight;
                counts.dead_letters += dead_letters;
            }
        }
        Ok(counts)
    }

    pub(super) async fn one_open(&self, batcher: &BatcherId, key: &BatchKey, from: u64) -> Result<Option<BatchView>, StoreError> {
        let places = self.places(batcher);
        let place = places.of(key);
        let mut args = self.batch_args(place, self.shared.now(), 5);
        args.push("one");
        args.push(key.as_str());
        args.number(i64::try_from(from).unwrap_or(i64::MAX));
        args.number(PageRequest::LIMIT_MAX);
        args.number(PageRequest::BYTES_MAX);
        let mut said = Said::new(self.run_at(&scripts::LOOK, place, &place.keys.of_key(key), &args).await?)?;
        if said.is_empty() {
            return Ok(None);
        }
        let open = read_open(&said.part(0)?, 0)?;
        let in_flight = Some(said.word(1)).filter(|id| !id.is_empty()).map(BatchId::new).transpose().map_err(|_| said.strange())?;
        Ok(Some(BatchView { key: key.clone(), open, in_flight, messages: said.messages(2)? }))
    }

    pub(super) async fn open_page(
        &self,
        batcher: &BatcherId,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<CursorPage<OpenBatchView>, StoreError> {
        let read = |row: &Said| Ok(OpenBatchView { key: row.key(0)?, open: read_open(row, 1)? });
        self.page("open", batcher, after, limit, read, |view| (view.open.first, view.key.as_str().to_owned())).await
    }

    pub(super) async fn flights_page(
        &self,
        batcher: &BatcherId,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<CursorPage<FlightView>, StoreError> {
        self.page("flights", batcher, after, limit, read_flight, |view| (view.at, view.batch_id.as_str().to_owned())).await
    }

    /// A page of what is ordered by an instant and a name, of all places together.
    async fn page<T>(
        &self,
        what: &str,
        batcher: &BatcherId,
        after: Option<&Cursor>,
        limit: u32,
        read: impl Fn(&Said) -> Result<T, StoreError>,
        place_of: impl Fn(&T) -> (Timestamp, String),
    ) -> Result<CursorPage<T>, StoreError> {
        let limit = limit.min(PageRequest::LIMIT_MAX) as usize;
        let mut items = Vec::new();
        for place in self.places(batcher).all() {
            let mut args = self.batch_args(place, self.shared.now(), 4);
            args.push(what);
            args.number(limit + 1);
            if let Some((at, name)) = after.and_then(Cursor::place) {
                args.number(at.as_millis());
                args.push(name);
            }
            let rows = Said::new(self.run_at(&scripts::LOOK, place, &[], &args).await?)?.rows()?;
            for row in &rows {
                match read(row) {
                    Ok(item) => items.push(item),
                    // One batch hides no other.
                    Err(error) => self.shared.pass_over(&place.keys.own, row.bytes(0).unwrap_or_default(), error),
                }
            }
        }
        items.sort_by_key(&place_of);
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|last| {
            let (at, name) = place_of(last);
            Cursor::behind(at, &name)
        });
        Ok(CursorPage { items, next })
    }
}

fn read_open(row: &Said, at: usize) -> Result<OpenBatch, StoreError> {
    Ok(OpenBatch {
        first: row.instant(at)?,
        last: row.instant(at + 1)?,
        deadline: row.instant(at + 2)?,
        reason: row.reason(at + 3)?,
        sealed: row.flag(at + 4)?,
        bytes: row.count(at + 5)?,
        size: row.count(at + 6)?,
        armed: row.flag(at + 7)?,
    })
}

fn read_flight(row: &Said) -> Result<FlightView, StoreError> {
    Ok(FlightView {
        batch_id: row.batch_id(0)?,
        at: row.instant(1)?,
        key: row.key(2)?,
        attempt: u32::try_from(row.number(3)?).unwrap_or(u32::MAX),
        held: !row.word(4).is_empty(),
        first: row.instant(5)?,
        last: row.instant(6)?,
        reason: row.reason(7)?,
        replayed: row.flag(8)?,
    })
}
