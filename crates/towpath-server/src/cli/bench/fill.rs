//! Many calls that wait for a function that no worker serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use tokio::task::JoinSet;
use towpath::core::worker::FunctionDefinition;
use towpath::{NewCall, Towpath};

use super::steady::Steady;
use super::{failed, open};
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::time;

/// How many calls are submitted at once.
const AT_ONCE: u32 = 1_024;
/// A deadline nearer than this would come while calls are still submitted, and this process would keep it.
const SPARE: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
pub(crate) struct FillSide {
    #[arg(long)]
    tag: String,
    /// How many
    #[arg(long)]
    calls: u64,
    /// Their deadlines come about so many seconds after the start of this process
    #[arg(long)]
    due_in: Option<u64>,
}

/// Submits calls and leaves them in the store.
pub(super) async fn run(out: Output, url: &str, side: FillSide) -> Result<(), Failure> {
    let due = side.due_in.map(|seconds| time::now() + Duration::from_secs(seconds));
    let towpath = open(url).await?;
    let mut call = Steady::FULL.call_of(format!("{}filled", side.tag))?;
    (call.detached, call.timeout) = (true, None);
    fill(&towpath, &call, side.calls, due).await?;
    towpath.close().await;
    out.line(&format!("{} calls wait", side.calls));
    Ok(())
}

/// Defines the function of a call and submits so many of it, all of them due at `due` if that is given.
pub(super) async fn fill(towpath: &Towpath, call: &NewCall, calls: u64, due: Option<Instant>) -> Result<(), Failure> {
    let define = FunctionDefinition::new(call.function.clone());
    towpath.store().define(define).await.map_err(|error| failed(&error.to_string()))?;
    let left = Arc::new(AtomicU64::new(calls));
    let mut callers = JoinSet::new();
    for _ in 0..AT_ONCE {
        callers.spawn(submit_while_left(towpath.clone(), call.clone(), Arc::clone(&left), due));
    }
    all(callers).await
}

async fn submit_while_left(towpath: Towpath, call: NewCall, left: Arc<AtomicU64>, due: Option<Instant>) -> Result<(), String> {
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        let mut call = call.clone();
        if let Some(due) = due {
            let timeout = due.saturating_duration_since(time::now());
            if timeout < SPARE {
                return Err("their deadline came before all were submitted: give them more time".to_owned());
            }
            call.timeout = Some(timeout);
        }
        towpath.submit(call).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Waits for all of them.
pub(super) async fn all(mut callers: JoinSet<Result<(), String>>) -> Result<(), Failure> {
    while let Some(caller) = callers.join_next().await {
        caller.map_err(|error| failed(&error.to_string()))?.map_err(|cause| failed(&cause))?;
    }
    Ok(())
}
