//! What the writer knows by heart of batches: how many messages are open, and which number the next batch has.

use std::collections::HashMap;

use rusqlite::Connection;
use towpath_core::names::BatcherName;

use crate::rows::name;
use crate::trouble::Moved;

const OPEN_MESSAGES: &str = "SELECT batcher, sum(size) FROM batch_open GROUP BY batcher";
const NEXT_BATCH: &str =
    "SELECT 1 + max(coalesce((SELECT max(batch) FROM batch_open), 0), coalesce((SELECT max(batch) FROM batch_flight), 0))";

#[derive(Debug, Default)]
pub(crate) struct BatchMemory {
    open_messages: HashMap<BatcherName, u64>,
    /// The counts that the transaction under way has changed, as they were before it.
    before: HashMap<BatcherName, u64>,
    next_batch: i64,
}

impl BatchMemory {
    pub(crate) fn load(conn: &Connection) -> Moved<Self> {
        let mut memory = Self { next_batch: conn.query_row(NEXT_BATCH, [], |row| row.get(0))?, ..Self::default() };
        let mut statement = conn.prepare(OPEN_MESSAGES)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            memory.open_messages.insert(name(row, 0)?, row.get(1)?);
        }
        Ok(memory)
    }

    pub(super) fn open_messages(&self, batcher: &BatcherName) -> u64 {
        self.open_messages.get(batcher).copied().unwrap_or(0)
    }

    pub(super) fn opened(&mut self, batcher: &BatcherName, messages: u64) {
        self.set(batcher, self.open_messages(batcher) + messages);
    }

    pub(super) fn closed(&mut self, batcher: &BatcherName, messages: u64) {
        self.set(batcher, self.open_messages(batcher).saturating_sub(messages));
    }

    fn set(&mut self, batcher: &BatcherName, messages: u64) {
        let before = self.open_messages(batcher);
        if !self.before.contains_key(batcher) {
            self.before.insert(batcher.clone(), before);
        }
        match self.open_messages.get_mut(batcher) {
            Some(count) => *count = messages,
            None => drop(self.open_messages.insert(batcher.clone(), messages)),
        }
    }

    /// The transaction under way was rolled back. A number of a batch is not given out again.
    pub(crate) fn roll_back(&mut self) {
        self.open_messages.extend(self.before.drain());
    }

    /// The transaction under way is kept.
    pub(crate) fn keep_changes(&mut self) {
        self.before.clear();
    }

    /// A number that no batch has which is open or in flight.
    pub(super) fn next_batch(&mut self) -> i64 {
        self.next_batch += 1;
        self.next_batch - 1
    }
}
