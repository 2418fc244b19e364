//! The worker of a measurement: serves functions that do nothing, in this process or as a process of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use clap::{Args, Subcommand};
use tokio::io::AsyncReadExt;
use towpath::{CallContext, FunctionOptions, HandlerError, Payload, RawHandler, RunningWorker, Towpath};

use super::fill::FillSide;
use super::place::Place;
use super::process::Part;
use super::{ANSWER, blocking, failed, fill, floor};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::Output;

/// One side of a measurement, as a process of its own
#[derive(Subcommand, Debug)]
pub(crate) enum Side {
    /// Serves functions that do nothing until its standard input ends
    #[command(hide = true)]
    Worker(WorkerSide),
    /// Answers the bare caller until its standard input ends
    #[command(hide = true)]
    FloorWorker(FloorSide),
    /// Submits calls of a function that no worker serves, and leaves them there
    #[command(hide = true)]
    Fill(FillSide),
}

#[derive(Args, Debug)]
pub(crate) struct WorkerSide {
    #[arg(long)]
    tag: String,
    #[arg(long, default_value_t = 1)]
    functions: u32,
    #[arg(long, default_value_t = 16)]
    concurrency: u32,
}

#[derive(Args, Debug)]
pub(crate) struct FloorSide {
    #[arg(long)]
    tag: String,
}

/// A worker that runs somewhere.
pub(super) enum Worker {
    Here(RunningWorker),
    There(Part),
}

impl Worker {
    /// In a process of its own if the store can be used by several, else in this one.
    pub(super) async fn start(place: &Place, towpath: &Towpath, functions: u32, concurrency: u32) -> Result<Self, Failure> {
        if place.is_shared() {
            let (functions, concurrency) = (functions.to_string(), concurrency.to_string());
            let words = ["worker", "--functions", &functions, "--concurrency", &concurrency];
            return Ok(Self::There(Part::start(place, &words).await?));
        }
        let names = (0..functions).map(|number| place.function(number));
        Ok(Self::Here(serve(towpath, names, concurrency, Arc::new(Nothing)).await?))
    }

    pub(super) async fn stop(self) {
        match self {
            Self::Here(worker) => drop(worker.drain().await),
            Self::There(part) => part.stop().await,
        }
    }
}

/// Serves these functions with one handler.
pub(super) async fn serve(
    towpath: &Towpath,
    names: impl Iterator<Item = String>,
    concurrency: u32,
    handler: Arc<dyn RawHandler>,
) -> Result<RunningWorker, Failure> {
    let mut worker = towpath.worker().concurrency(concurrency);
    for name in names {
        worker = worker.raw_function(FunctionOptions::new(name), Arc::clone(&handler));
    }
    worker.start().await.map_err(|error| failed(&error.to_string()))
}

struct Nothing;

#[async_trait]
impl RawHandler for Nothing {
    async fn run(&self, _ctx: CallContext) -> Result<Payload, HandlerError> {
        Ok(Payload::from_json(ANSWER))
    }
}

/// Is one side of a measurement until standard input ends.
pub(super) async fn run(out: Output, url: String, side: Side) -> Result<Exit, Failure> {
    match side {
        Side::Worker(side) => {
            let towpath = super::open_as(&url, &owner(&side.tag)).await?;
            let names = (0..side.functions).map(|number| format!("{}{number}", side.tag));
            let worker = serve(&towpath, names, side.concurrency, Arc::new(Nothing)).await?;
            out.line("ready");
            until_input_ends().await;
            worker.drain().await;
            towpath.close().await;
        }
        Side::FloorWorker(side) => {
            let over = Arc::new(AtomicBool::new(false));
            let told = Arc::clone(&over);
            tokio::spawn(async move {
                until_input_ends().await;
                told.store(true, Ordering::Relaxed);
            });
            let serve = move || floor::redis::serve(&url, &side.tag, ANSWER, || out.line("ready"), || over.load(Ordering::Relaxed));
            blocking(serve).await.map_err(|cause| failed(&cause))?;
        }
        Side::Fill(side) => fill::run(out, &url, side).await?,
    }
    Ok(Exit::Done)
}

fn owner(tag: &str) -> String {
    format!("bench-worker-{tag}")
}

/// What the connections of a worker's process to a Redis are called.
pub(super) fn connection_name(tag: &str) -> String {
    format!("towpath:{}", owner(tag))
}

async fn until_input_ends() {
    let mut input = tokio::io::stdin();
    let mut nothing = [0; 64];
    while input.read(&mut nothing).await.is_ok_and(|read| read > 0) {}
}
