//! How long a store keeps what no caller waits for any more: dead letters, audits, and outcomes beyond a number.

use std::time::Duration;

use crate::names::CallId;

const DAY: Duration = Duration::from_secs(86_400);

/// How long, and how much. `None` means without a bound.
///
/// ```
/// use std::time::Duration;
/// use towpath_core::store::Retention;
///
/// let keep = Retention { dead_letters: Some(Duration::from_secs(3_600)), ..Retention::default() };
/// assert_eq!(keep.audits, Some(Duration::from_secs(365 * 86_400)));
/// assert_eq!(Retention::FOREVER.dead_letters, None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// A dead letter that is older is dropped. Of batches, the setting `dlq_keep_days` of a batcher counts instead, where it is set.
    pub dead_letters: Option<Duration>,
    /// An entry of an audit (forced releases of locks, removals of dead letters) that is older is removed.
    pub audits: Option<Duration>,
    /// Number of ended calls that the embedded store keeps.
    pub outcomes: Option<u64>,
    /// Size of the embedded store in bytes, free pages not counted. While it is larger, ended calls and closed runs are removed before their
    /// retention ends.
    pub bytes: Option<u64>,
}

impl Retention {
    /// Nothing is removed but ended calls whose own retention is over.
    pub const FOREVER: Self = Self { dead_letters: None, audits: None, outcomes: None, bytes: None };

    /// An ended call or a closed run is kept for this long whatever `outcomes` and `bytes` say: its caller may be about to ask again.
    pub const OUTCOME_KEPT_AT_LEAST: Duration = Duration::from_secs(60);
}

impl Default for Retention {
    /// 90 days for dead letters, a year for audits, 5 million outcomes, 16 GiB.
    fn default() -> Self {
        Self { dead_letters: Some(DAY * 90), audits: Some(DAY * 365), outcomes: Some(5_000_000), bytes: Some(16 << 30) }
    }
}

/// What a store has removed because it was too old or too much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Calls that were dead letters; they are settled now, and gone when their own retention is over.
    pub dead_letters: Vec<CallId>,
    /// Entries of audits.
    pub audits: u64,
    /// Ended calls that were removed before their retention was over.
    pub outcomes: u64,
    /// Closed runs that were removed before their retention was over.
    pub runs: u64,
}

impl Forgotten {
    /// Number of runs that are removed with this limit: fewer than of other kinds, because a run may have thousands of rows.
    pub const fn runs_limit(limit: u32) -> u32 {
        limit.div_ceil(8)
    }

    /// Whether a limit may have cut the work short, so that the caller should ask again at once.
    pub fn has_more(&self, limit: u32) -> bool {
        let (limit, runs_limit) = (u64::from(limit), u64::from(Self::runs_limit(limit)));
        let others = [self.dead_letters.len() as u64, self.audits, self.outcomes];
        limit > 0 && (self.runs >= runs_limit || others.iter().any(|count| *count >= limit))
    }

    /// Whether nothing was removed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
