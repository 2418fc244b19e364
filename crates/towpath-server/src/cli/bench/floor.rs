//! The floor: a bare SQLite loop that writes the same rows in batches of the same size.

use towpath::Floor;

use super::PARAMS;
use super::folder::Folder;
use super::load::Measured;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::time;

/// Calls per second of the bare loop.
pub(super) async fn run(folder: &Folder, measured: &Measured) -> Result<f64, Failure> {
    let (path, calls) = (folder.path().to_owned(), measured.calls);
    let moves_per_commit = measured.moves_per_commit;
    let bare = tokio::task::spawn_blocking(move || {
        let mut floor = Floor::open(&path, PARAMS).map_err(|error| error.to_string())?;
        let begin = time::now();
        floor.run(calls, moves_per_commit).map_err(|error| error.to_string())?;
        Ok(calls as f64 / (time::now() - begin).as_secs_f64())
    });
    let result = bare.await.unwrap_or_else(|error| Err(error.to_string()));
    result.map_err(|cause: String| Failure::new(Exit::Failed, "bench_failed", format!("the bare loop failed: {cause}")))
}
