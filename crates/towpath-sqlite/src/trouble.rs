//! What SQLite says, in the store's words.

use std::fmt;

use rusqlite::ffi;
use towpath_core::store::{StoreError, StoreTrouble};

/// Why a move did not go through.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// SQLite refused.
    Sqlite {
        /// The extended result code.
        code: i32,
        /// SQLite's own words.
        message: String,
    },
    /// A record makes no sense.
    Corrupt(String),
}

pub(crate) type Moved<T> = Result<T, Trouble>;

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        match error {
            rusqlite::Error::SqliteFailure(cause, ref message) => {
                let message = message.clone().unwrap_or_else(|| cause.to_string());
                Self::Sqlite { code: cause.extended_code, message }
            }
            other => Self::Corrupt(other.to_string()),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite { code, message } => write!(f, "{message}, SQLite code {code}"),
            Self::Corrupt(what) => f.write_str(what),
        }
    }
}

impl Trouble {
    /// Whether the disk itself failed to keep a commit. Nothing that SQLite believes afterwards can be trusted.
    pub(crate) fn is_failed_sync(&self) -> bool {
        matches!(self, Self::Sqlite { code, .. } if [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC].contains(code))
    }

    /// There is no room on the disk.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self.nothing_written(), StoreError::Unavailable(StoreTrouble::Full(_)))
    }

    /// A page found no room and was not written as a whole. An index of the log that cannot grow is another matter: by then all pages are written.
    pub(crate) fn is_short_write(&self) -> bool {
        matches!(self, Self::Sqlite { code, .. } if code & 0xff == ffi::SQLITE_FULL)
    }

    /// What the caller hears when certainly nothing was written.
    pub(crate) fn nothing_written(&self) -> StoreError {
        match self {
            Self::Corrupt(what) => StoreError::Corrupt(what.clone()),
            Self::Sqlite { code, .. } => StoreError::Unavailable(classify(*code, self.to_string())),
        }
    }
}

fn classify(code: i32, cause: String) -> StoreTrouble {
    match code & 0xff {
        ffi::SQLITE_FULL => StoreTrouble::Full(cause),
        ffi::SQLITE_READONLY => StoreTrouble::ReadOnly(cause),
        // The shared index beside the log cannot grow: the same thing as a full disk, under another name.
        _ if code == ffi::SQLITE_IOERR_SHMSIZE => StoreTrouble::Full(cause),
        _ => StoreTrouble::Other(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: i32) -> StoreError {
        Trouble::Sqlite { code, message: "said".into() }.nothing_written()
    }

    #[test]
    fn a_full_disk_and_a_read_only_one_are_told_apart() {
        assert!(matches!(said(ffi::SQLITE_FULL), StoreError::Unavailable(StoreTrouble::Full(_))));
        assert!(matches!(said(ffi::SQLITE_IOERR_SHMSIZE), StoreError::Unavailable(StoreTrouble::Full(_))));
        assert!(matches!(said(ffi::SQLITE_READONLY), StoreError::Unavailable(StoreTrouble::ReadOnly(_))));
        assert!(matches!(said(ffi::SQLITE_READONLY_DBMOVED), StoreError::Unavailable(StoreTrouble::ReadOnly(_))));
        assert!(matches!(said(ffi::SQLITE_BUSY), StoreError::Unavailable(StoreTrouble::Other(_))));
    }

    #[test]
    fn only_a_failed_sync_breaks_the_store() {
        let sync = Trouble::Sqlite { code: ffi::SQLITE_IOERR_FSYNC, message: String::new() };
        let write = Trouble::Sqlite { code: ffi::SQLITE_IOERR_WRITE, message: String::new() };
        assert!(sync.is_failed_sync());
        assert!(!write.is_failed_sync());
    }
}
