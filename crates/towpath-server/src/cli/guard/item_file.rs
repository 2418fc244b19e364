//! The input item of a call, in a file that only this user can read. The guard removes it, so that it goes also when the worker is killed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Names that are tried before the guard gives up: a guard that was killed may have left a file behind.
const NAMES: u32 = 100;

/// A file that goes with this.
pub(super) struct ItemFile(PathBuf);

impl ItemFile {
    /// Where a program finds the file's name.
    pub(super) const VARIABLE: &str = "TOWPATH_INPUT_ITEM_FILE";

    /// Writes the item to a new file in the folder for temporary files.
    pub(super) fn create(item: &[u8]) -> io::Result<Self> {
        let folder = std::env::temp_dir();
        for number in 0..NAMES {
            let path = folder.join(format!("towpath-input-item-{}-{number}.json", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(mut file) => {
                    let created = Self(path);
                    file.write_all(item)?;
                    return Ok(created);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::from_raw_os_error(nix::errno::Errno::EEXIST as i32))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ItemFile {
    fn drop(&mut self) {
        let _the_program_removed_it = fs::remove_file(&self.0);
    }
}
