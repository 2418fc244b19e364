//! The build of this program: which executable runs.

use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::sync::OnceLock;

use towpath_core::names::BuildId;

use crate::error::WorkerError;

/// The build of this program, once it is known.
static BUILD: OnceLock<String> = OnceLock::new();

/// A hash of the executable: two copies of it are one build.
pub(crate) async fn of_this_program() -> Result<BuildId, WorkerError> {
    if BUILD.get().is_none() {
        let hashed = tokio::task::spawn_blocking(hash_executable).await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let build = hashed.map_err(|error| WorkerError::UnknownBuild { message: error.to_string() })?;
        BUILD.get_or_init(|| build);
    }
    Ok(BuildId::new(BUILD.get().map_or("", String::as_str))?)
}

fn hash_executable() -> std::io::Result<String> {
    let mut file = std::fs::File::open(std::env::current_exe()?)?;
    // One executable always has one hasher in it, so equal executables have equal hashes.
    let mut hasher = DefaultHasher::new();
    let mut page = vec![0; 64 * 1024];
    loop {
        match file.read(&mut page)? {
            0 => return Ok(format!("exe-{:016x}", hasher.finish())),
            count => hasher.write(&page[..count]),
        }
    }
}
