//! A folder for one measurement, gone when it is over.

use std::path::{Path, PathBuf};

use crate::cli::exit::Exit;
use crate::cli::failure::Failure;

pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn make(path: &Path) -> Result<Self, Failure> {
        let cannot = |cause| Failure::new(Exit::Failed, "cannot_write", format!("{} cannot be made: {cause}", path.display()));
        std::fs::create_dir_all(path).map_err(|cause| cannot(cause).hint("choose a folder on the disk to measure with --data"))?;
        Ok(Self(path.to_owned()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn store_url(&self) -> String {
        format!("sqlite:{}", self.0.join("data").display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left_for_the_person = std::fs::remove_dir_all(&self.0);
    }
}
