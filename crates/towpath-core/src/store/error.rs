//! What a store can run into, named by what the caller can do next.

use std::fmt;

use thiserror::Error;

/// A move that did not get its reply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Certainly nothing was written. Try again later.
    #[error("the store did not take it: {0}")]
    Unavailable(StoreTrouble),
    /// The reply was lost and the move may have happened. Look it up by id, or repeat it under the same id.
    #[error("the store may or may not have taken it: {0}")]
    Unknown(String),
    /// Stored bytes make no sense. Stop and call the operator.
    #[error("the store holds something that cannot be read: {0}")]
    Corrupt(String),
}

/// Why a store took nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreTrouble {
    /// There is no room on the disk, or in the memory of the server that keeps it.
    Full(String),
    /// The data folder cannot be written.
    ReadOnly(String),
    /// The store is closing or has closed.
    Closed,
    /// A write to disk failed in a way that leaves nothing to trust: the store takes nothing more until it is opened again.
    Broken(String),
    /// The files of the store were removed or replaced while it was open: it takes nothing more until they are back; the text says what to do.
    Removed(String),
    /// It was done, too few replicas confirmed it, and it was undone; the text says how many.
    NotDurable(String),
    /// The store keeps less than the operator asked for, so it takes no new work; the text says what to change.
    BelowMinimum(String),
    /// The store's user may not do that; the text says what it lacks.
    NotAllowed(String),
    /// A key that the store needs holds something that is not the store's; the text says which.
    WrongType(String),
    /// Anything else; the text says what.
    Other(String),
}

impl fmt::Display for StoreTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(cause) => write!(f, "there is no room ({cause}); make some, and work goes on by itself"),
            Self::ReadOnly(cause) => write!(f, "the data folder is read-only ({cause}); make it writable, work goes on by itself"),
            Self::Closed => f.write_str("the store is closed"),
            Self::Broken(cause) => write!(f, "the disk failed ({cause}); check it, then start again"),
            Self::NotDurable(cause) => write!(f, "{cause}, and it was taken back; ask anew when the replicas follow"),
            Self::BelowMinimum(cause) => {
                write!(f, "{cause}; new work is taken again when that is done, and accepted work goes on meanwhile")
            }
            Self::Removed(cause) | Self::NotAllowed(cause) | Self::WrongType(cause) | Self::Other(cause) => f.write_str(cause),
        }
    }
}
