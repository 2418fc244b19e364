//! Tasks that do one thing over and over, for a length of time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::place::Place;
use super::{failed, load};
use crate::cli::failure::Failure;
use crate::cli::time;

/// So many of them.
pub(super) const TASKS: u32 = 64;

/// Lets all tasks work for so long, and says how often per second something was done.
pub(super) async fn over_and_over<W, F>(length: Duration, work: impl Fn(u32) -> W) -> Result<f64, Failure>
where
    W: FnMut() -> F + Send + 'static,
    F: Future<Output = Result<(), String>> + Send,
{
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let begin = time::now();
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        let (stop, done, mut once) = (Arc::clone(&stop), Arc::clone(&done), work(number));
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                once().await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), String>(())
        }));
    }
    time::sleep_until(begin + length).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.map_err(|error| failed(&error.to_string()))?.map_err(|cause| failed(&cause))?;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / (time::now() - begin).as_secs_f64())
}

/// The same, and what the server's process needed for each time, in microseconds, if there is a server.
pub(super) async fn with_store_cpu<W, F>(place: &Place, length: Duration, work: impl Fn(u32) -> W) -> Result<(f64, Option<f64>), Failure>
where
    W: FnMut() -> F + Send + 'static,
    F: Future<Output = Result<(), String>> + Send,
{
    let before = cpu_seconds(place).await?;
    let per_second = over_and_over(length, work).await?;
    let after = cpu_seconds(place).await?;
    let spent = before.zip(after).map(|(before, after)| (after - before) * 1e6 / (per_second * length.as_secs_f64()));
    Ok((per_second, spent))
}

async fn cpu_seconds(place: &Place) -> Result<Option<f64>, Failure> {
    if place.is_shared() { Ok(Some(load::gauge(place).await?.cpu_seconds)) } else { Ok(None) }
}
