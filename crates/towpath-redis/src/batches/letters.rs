//! Reading a list of dead letters piece by piece, in either direction, from where a page ended.
//!
//! Entries have no numbers, and others may be removed between two pages. So the place of a page's end is that of the entry behind it, with a
//! mark of its text: an entry moves only towards the head, and is looked for there. If it is gone, what was shown may be shown again;
//! nothing is left out.

use std::collections::VecDeque;

use bytes::Bytes;
use redis::Cmd;
use towpath_core::batch::{DeadLetter, hash12};
use towpath_core::inspect::DeadLetterQuery;
use towpath_core::store::StoreError;

use super::places::Place;
use crate::link::trouble;
use crate::store::RedisStore;
use crate::value;

/// This many entries are asked for at once, if they are small.
const PIECE_MAX: i64 = 100;
/// The first few say how large entries are: one may have 16 MiB and more.
const PIECE_FIRST: i64 = 4;
/// About this much is read at once.
const PIECE_BYTES: usize = 1024 * 1024;

/// An entry, byte for byte, and where it stands.
pub(super) struct Entry {
    index: i64,
    pub(super) raw: Bytes,
    pub(super) letter: DeadLetter,
}

/// A reader of one list. What it shows next is its head.
pub(super) struct Reader<'a> {
    store: &'a RedisStore,
    place: &'a Place,
    backwards: bool,
    /// The next place to ask for; `None` when there is no more.
    next: Option<i64>,
    read: VecDeque<Entry>,
    /// How many are asked for next.
    piece: i64,
}

impl<'a> Reader<'a> {
    /// Reads everything, the oldest first.
    pub(super) fn forwards(store: &'a RedisStore, place: &'a Place) -> Self {
        Self { store, place, backwards: false, next: Some(0), read: VecDeque::new(), piece: PIECE_FIRST }
    }

    /// Begins a page: at the end of the list that comes first, or where the page before ended.
    pub(super) async fn begin(
        store: &'a RedisStore,
        place: &'a Place,
        backwards: bool,
        mark: Option<&str>,
    ) -> Result<Reader<'a>, StoreError> {
        let mut reader = Self { backwards, ..Self::forwards(store, place) };
        reader.next = match mark {
            Some(mark) => match mark.split_once(':').and_then(|(index, hash)| Some((index.parse().ok()?, hash))) {
                Some((index, hash)) => reader.find(index, hash).await?,
                None => None,
            },
            None if backwards => Some(reader.len().await? - 1).filter(|last| *last >= 0),
            None => Some(0),
        };
        Ok(reader)
    }

    /// Where the next page of this list begins; `-` when there is no more.
    pub(super) fn mark(&self) -> String {
        self.read.front().map_or_else(|| "-".to_owned(), |entry| format!("{}:{}", entry.index, hash12(&entry.raw)))
    }

    /// Reads on until the head is an entry that is meant.
    pub(super) async fn head(&mut self, query: Option<&DeadLetterQuery>) -> Result<Option<&Entry>, StoreError> {
        loop {
            while self.read.front().is_some_and(|entry| query.is_some_and(|query| !query.means(&entry.letter))) {
                self.read.pop_front();
            }
            if !self.read.is_empty() || !self.read_on().await? {
                return Ok(self.read.front());
            }
        }
    }

    /// Takes the head away.
    pub(super) fn take(&mut self) -> Option<Entry> {
        self.read.pop_front()
    }

    /// `false`: there is no more.
    async fn read_on(&mut self) -> Result<bool, StoreError> {
        let Some(next) = self.next else { return Ok(false) };
        let (from, to) = if self.backwards { ((next - self.piece + 1).max(0), next) } else { (next, next + self.piece - 1) };
        let piece = self.range(from, to).await?;
        self.piece = fitting(&piece);
        self.next = if self.backwards { Some(from - 1).filter(|next| *next >= 0) } else { Some(to + 1).filter(|_| !piece.is_empty()) };
        let entries = piece.into_iter().zip(from..).map(|(raw, index)| Entry { index, letter: DeadLetter::parse(raw.clone()), raw });
        if self.backwards {
            // Nothing else is left when more is read.
            entries.for_each(|entry| self.read.push_front(entry));
        } else {
            self.read.extend(entries);
        }
        Ok(self.next.is_some() || !self.read.is_empty())
    }

    /// The place of an entry that stood here once.
    async fn find(&self, index: i64, hash: &str) -> Result<Option<i64>, StoreError> {
        let (mut to, mut at_once) = (index, PIECE_FIRST);
        while to >= 0 {
            let from = (to - at_once + 1).max(0);
            let piece = self.range(from, to).await?;
            at_once = fitting(&piece);
            if let Some(found) = piece.iter().rposition(|raw| hash12(raw) == hash) {
                return Ok(i64::try_from(found).ok().map(|found| from + found));
            }
            to = from - 1;
        }
        Ok(if self.backwards { Some(index.min(self.len().await?) - 1).filter(|place| *place >= 0) } else { Some(0) })
    }

    async fn len(&self) -> Result<i64, StoreError> {
        let mut ask = Cmd::new();
        ask.arg("LLEN").arg(&self.place.keys.dead);
        value::number(&self.ask(&ask).await?).ok_or_else(|| trouble("LLEN had no number".to_owned()))
    }

    async fn range(&self, from: i64, to: i64) -> Result<Vec<Bytes>, StoreError> {
        let mut ask = Cmd::new();
        ask.arg("LRANGE").arg(&self.place.keys.dead).arg(from).arg(to);
        let piece = value::array("LRANGE", self.ask(&ask).await?)?;
        Ok(piece.into_iter().filter_map(value::into_bytes).map(Bytes::from).collect())
    }

    async fn ask(&self, command: &Cmd) -> Result<redis::Value, StoreError> {
        self.store.or_corrupt(self.store.shared.link.ask(command).await, &[&self.place.keys.dead]).await
    }
}

/// How many entries like these are about [`PIECE_BYTES`].
fn fitting(piece: &[Bytes]) -> i64 {
    let bytes: usize = piece.iter().map(Bytes::len).sum();
    let fitting = (PIECE_BYTES * piece.len()).checked_div(bytes).unwrap_or(0);
    i64::try_from(fitting).unwrap_or(PIECE_MAX).clamp(1, PIECE_MAX)
}
