//! The fence, which rises with every grant, and the counter that carries it where old workflows look.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A number that rises with every grant of a scope, so that the protected resource can refuse a stale holder. 0 is no fence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(u64);

/// 2024-01-01: fences are at least as high as the tenths of a second since then.
const EPOCH_MS: i64 = 1_704_067_200_000;

/// What old callers may add to a counter before it looks like the next fence.
const ROOM_FOR_OLD_CALLERS: i64 = 1_000_000;

impl Fence {
    /// The fence of this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// When the clock's own fence is this one: whatever is given out from then on is higher, also when this one is forgotten.
    pub fn reached_at(self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.0).unwrap_or(i64::MAX).saturating_mul(100).saturating_add(EPOCH_MS))
    }

    /// The fence after `last`. It is never below the clock's own, so that fences go on rising when everything was forgotten.
    pub fn after(last: Self, now: Timestamp) -> Self {
        let floor = now.as_millis().saturating_sub(EPOCH_MS).div_euclid(100);
        Self(last.0.saturating_add(1).max(u64::try_from(floor).unwrap_or(0)))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What stands in the counter. Ours is `fence * 1,000,000 + 1`, so that old callers see that it is not 1; theirs is below a million.
/// Text that is no number belongs to an old workflow, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Counter(Arc<str>);

impl Counter {
    /// The counter as it was read.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(Arc::from(text.as_ref()))
    }

    /// The counter of a tenure.
    pub fn of(fence: Fence) -> Self {
        let value = i64::try_from(fence.0).unwrap_or(i64::MAX).saturating_mul(ROOM_FOR_OLD_CALLERS).saturating_add(1);
        Self::new(value.to_string())
    }

    /// The counter as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its number; 0 when it is none.
    pub fn value(&self) -> i64 {
        self.0.parse().unwrap_or(0)
    }

    /// The fence that it carries; none when it is an old workflow's.
    pub fn fence(&self) -> Option<Fence> {
        u64::try_from(self.value().div_euclid(ROOM_FOR_OLD_CALLERS)).ok().filter(|fence| *fence > 0).map(Fence)
    }

    /// How often old callers have tried since it was written.
    pub fn attempts(&self) -> u64 {
        u64::try_from(self.value().rem_euclid(ROOM_FOR_OLD_CALLERS) - 1).unwrap_or(0)
    }

    /// Whether old callers have used up half of their room: time to write it anew.
    pub(super) fn is_crowded(&self) -> bool {
        self.value().rem_euclid(ROOM_FOR_OLD_CALLERS) > ROOM_FOR_OLD_CALLERS / 2
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
