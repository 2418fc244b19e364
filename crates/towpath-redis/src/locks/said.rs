//! What a script of a lock has answered: a word that names the outcome, and what belongs to it.

use std::time::Duration;

use redis::Value;
use towpath_core::lock::{Counter, Fence, Holder, HolderKind, LostLock};
use towpath_core::store::StoreError;
use towpath_core::time::{Timestamp, from_millis};

use crate::value;

/// An answer.
pub(super) struct Said {
    items: Vec<Value>,
}

impl Said {
    pub(super) fn new(reply: Value) -> Result<Self, StoreError> {
        value::array("a script of locks", reply).map(|items| Self { items })
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

    pub(super) fn count(&self, at: usize) -> Result<u32, StoreError> {
        Ok(u32::try_from(self.number(at)?).unwrap_or(u32::MAX))
    }

    pub(super) fn instant(&self, at: usize) -> Result<Timestamp, StoreError> {
        self.number(at).map(Timestamp::from_millis)
    }

    pub(super) fn fence(&self, at: usize) -> Result<Fence, StoreError> {
        self.number(at).and_then(|number| u64::try_from(number).map(Fence::new).map_err(|_| self.strange()))
    }

    /// A length; a negative one is not known.
    pub(super) fn length(&self, at: usize) -> Result<Option<Duration>, StoreError> {
        self.number(at).map(|ms| (ms >= 0).then(|| from_millis(ms)))
    }

    /// A place in the queue; a negative one is none.
    pub(super) fn rank(&self, at: usize) -> Result<Option<u32>, StoreError> {
        self.number(at).map(|rank| u32::try_from(rank).ok())
    }

    pub(super) fn counter(&self, at: usize) -> Option<Counter> {
        self.bytes(at).map(|bytes| Counter::new(String::from_utf8_lossy(bytes)))
    }

    /// Who a sidecar names; nobody when there is none.
    pub(super) fn written_holder(&self, at: usize) -> Option<Holder> {
        self.bytes(at).map(|meta| Holder::from_meta(Some(&String::from_utf8_lossy(meta))))
    }

    /// Who a sidecar names, and how long its lease is: of ours, if it has one.
    pub(super) fn holder(&self, meta: usize, lease_end: usize) -> Option<Holder> {
        let holder = self.written_holder(meta)?;
        Some(match self.instant(lease_end) {
            Ok(lease_end) => Holder { kind: HolderKind::Towpath, lease_end: Some(lease_end), ..holder },
            Err(_) => holder,
        })
    }

    pub(super) fn lost(&self, at: usize) -> Result<LostLock, StoreError> {
        match self.word(at) {
            "expired" => Ok(LostLock::Expired),
            "max_hold" => Ok(LostLock::MaxHold),
            "replaced" => Ok(LostLock::Replaced),
            "absent" => Ok(LostLock::Absent),
            _ => Err(self.strange()),
        }
    }

    /// It should never say that.
    pub(super) fn strange(&self) -> StoreError {
        value::strange("a script of locks", &Value::Array(self.items.clone()))
    }
}
