//! What a script of batches has answered: a word that names the outcome, and what belongs to it.

use redis::Value;
use towpath_core::batch::{CloseReason, Message};
use towpath_core::names::{BatchId, BatchKey};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use crate::value;

/// An answer, or a row of one.
pub(super) struct Said {
    items: Vec<Value>,
}

impl Said {
    pub(super) fn new(reply: Value) -> Result<Self, StoreError> {
        value::array("a script of batches", reply).map(|items| Self { items })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The rows that it consists of.
    pub(super) fn rows(self) -> Result<Vec<Self>, StoreError> {
        self.items.into_iter().map(Self::new).collect()
    }

    /// The part at this place, as an answer of its own.
    pub(super) fn part(&mut self, at: usize) -> Result<Self, StoreError> {
        Self::new(self.items.get_mut(at).map_or(Value::Nil, std::mem::take))
    }

    /// How it came out.
    pub(super) fn outcome(&self) -> &str {
        self.word(0)
    }

    pub(super) fn word(&self, at: usize) -> &str {
        self.items.get(at).and_then(value::text).unwrap_or_default()
    }

    pub(super) fn bytes(&self, at: usize) -> Option<&[u8]> {
        self.items.get(at).and_then(value::bytes)
    }

    pub(super) fn number(&self, at: usize) -> Result<i64, StoreError> {
        self.items.get(at).and_then(value::number).ok_or_else(|| self.strange())
    }

    pub(super) fn count(&self, at: usize) -> Result<u64, StoreError> {
        Ok(u64::try_from(self.number(at)?).unwrap_or(0))
    }

    pub(super) fn flag(&self, at: usize) -> Result<bool, StoreError> {
        Ok(self.number(at)? == 1)
    }

    pub(super) fn instant(&self, at: usize) -> Result<Timestamp, StoreError> {
        self.number(at).map(Timestamp::from_millis)
    }

    pub(super) fn reason(&self, at: usize) -> Result<CloseReason, StoreError> {
        self.word(at).parse().map_err(|_unknown| self.strange())
    }

    pub(super) fn key(&self, at: usize) -> Result<BatchKey, StoreError> {
        BatchKey::new(self.word(at)).map_err(|_invalid| self.strange())
    }

    pub(super) fn batch_id(&self, at: usize) -> Result<BatchId, StoreError> {
        BatchId::new(self.word(at)).map_err(|_invalid| self.strange())
    }

    /// The messages at this place, which are then gone from here.
    pub(super) fn messages(&mut self, at: usize) -> Result<Vec<Message>, StoreError> {
        let items = self.part(at)?.items;
        Ok(items.into_iter().filter_map(value::into_bytes).map(Message::new).collect())
    }

    /// Names and scores in turn, as they stand in a sorted set.
    pub(super) fn scored(&self) -> impl Iterator<Item = (&str, f64)> {
        self.items.chunks_exact(2).filter_map(|pair| Some((value::text(&pair[0])?, value::score(&pair[1])?)))
    }

    /// It should never say that.
    pub(super) fn strange(&self) -> StoreError {
        value::strange("a script of batches", &Value::Array(self.items.clone()))
    }
}
