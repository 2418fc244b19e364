//! What can go wrong with a lock. That somebody else has it is no error.

use thiserror::Error;
use towpath_core::lock::OutOfRange;
use towpath_core::names::InvalidName;
use towpath_core::store::StoreError;

/// Why a lock could not be asked for. Each says what to do next.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum LockError {
    /// A scope or id that cannot be one. Nothing was asked.
    #[error(transparent)]
    BadName(#[from] InvalidName),
    /// A number that is too large or too small. Nothing was asked.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// Too many scopes at once. Nothing was asked.
    #[error("{given} locks at once: at most {max} can be taken together")]
    TooMany {
        /// How many were asked for.
        given: usize,
        /// How many may be.
        max: usize,
    },
    /// The store could not be asked, or its answer was lost. A lock that was granted unseen is free again when its lease ends.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LockError {
    /// A word for programs. It does not change between versions.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadName(_) => "invalid_name",
            Self::OutOfRange(_) => "out_of_range",
            Self::TooMany { .. } => "too_many",
            Self::Store(error) => crate::store_error_code(error),
        }
    }
}
