//! The embedded store's floor: a bare SQLite loop that writes the same rows in batches of the same size.

use std::path::Path;

use towpath::Floor;

use super::super::load::Measured;
use super::super::{PARAMS, blocking, failed};
use super::FloorMeasured;
use crate::cli::failure::Failure;
use crate::cli::time;

/// As many calls as were measured.
pub(in super::super) async fn run(folder: &Path, measured: &Measured) -> Result<FloorMeasured, Failure> {
    let (path, calls) = (folder.to_owned(), measured.calls);
    let moves_per_commit = measured.moves_per_commit;
    let bare = blocking(move || {
        let mut floor = Floor::open(&path, PARAMS)?;
        let begin = time::now();
        floor.run(calls, moves_per_commit)?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(calls as f64 / (time::now() - begin).as_secs_f64())
    });
    let calls_per_second = bare.await.map_err(|cause| failed(&format!("the bare loop failed: {cause}")))?;
    Ok(FloorMeasured { calls_per_second, latency: None, store_cpu_us: None })
}
