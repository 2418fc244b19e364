//! The embedded store's floor: a bare SQLite loop that writes the same rows in batches of the same size.

use std::path::Path;

use towpath::Floor;

use super::super::{PARAMS, blocking, failed};
use super::FloorMeasured;
use crate::cli::failure::Failure;
use crate::cli::time;

/// Makes so many calls in a new file in `folder`, which it creates and removes.
pub(in super::super) async fn run(folder: &Path, calls: u64, moves_per_commit: f64) -> Result<FloorMeasured, Failure> {
    let path = folder.to_owned();
    let bare = blocking(move || {
        std::fs::create_dir_all(&path)?;
        let mut floor = Floor::open(&path, PARAMS)?;
        let begin = time::now();
        floor.run(calls, moves_per_commit)?;
        let calls_per_second = calls as f64 / (time::now() - begin).as_secs_f64();
        drop(floor);
        std::fs::remove_dir_all(&path)?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(calls_per_second)
    });
    let calls_per_second = bare.await.map_err(|cause| failed(&format!("the bare loop failed: {cause}")))?;
    Ok(FloorMeasured { calls_per_second, latency: None, store_cpu_us: None })
}
