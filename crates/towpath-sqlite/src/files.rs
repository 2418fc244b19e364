//! The files of the store, and whether they are still where the store opened them. A file that was removed can be written for as long as it is
//! open, and all of it is gone when the process ends.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The database and its log, as they were when the store opened them.
#[derive(Debug)]
pub(crate) struct Files(Vec<Opened>);

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    identity: Identity,
}

/// Device and inode. Two files that exist at the same time differ in them.
type Identity = (u64, u64);

impl Files {
    /// Remembers the files of an open database.
    pub(crate) fn of(database: &Path) -> Self {
        // The program may change its directory later.
        let database = std::path::absolute(database).unwrap_or_else(|_| database.to_owned());
        let mut log = OsString::from(&database);
        log.push("-wal");
        let opened = |path: PathBuf| {
            let found = fs::metadata(&path).ok()?;
            Some(Opened { identity: identity(&found), path })
        };
        Self([database, log.into()].into_iter().filter_map(opened).collect())
    }

    /// What to say if one of them was removed or replaced. It is asked before each transaction and costs one system call per file.
    pub(crate) fn removed(&self) -> Option<String> {
        self.0.iter().find(|file| file.is_removed()).map(|file| {
            let (path, process) = (file.path.display(), std::process::id());
            format!(
                "{path} was removed or replaced while process {process} has it open, and what is written to it would be lost. To save what it has, \
                 copy the open files before that process ends (on Linux: `ls -l /proc/{process}/fd` names them). Then stop the process, put the \
                 copies in place or restore a backup, and start it again"
            )
        })
    }
}

impl Opened {
    fn is_removed(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(found) => identity(&found) != self.identity,
            Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        }
    }
}

fn identity(found: &fs::Metadata) -> Identity {
    (found.dev(), found.ino())
}
