//! `towpath bench`: measures this machine and prints ratios against the bare store, because absolute figures say little about another one.

mod batches;
mod calls;
mod fill;
mod findings;
mod floor;
mod folder;
mod functions;
mod growth;
mod idle;
mod keys;
mod lateness;
mod limits;
mod lists;
mod load;
mod locks;
mod measure;
mod meter;
mod pace;
mod place;
mod plot;
mod process;
mod report;
mod runs;
mod series;
mod slow;
mod steady;
mod tasks;
mod thread;
mod worker;

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use towpath::Towpath;

use self::place::{Keys, Target};
use self::steady::Steady;
use self::worker::Side;
use super::exit::Exit;
use super::failure::Failure;
use super::globals::Globals;
use super::output::Output;
use super::signals::Signals;

/// What every call of the benchmark carries, and what every answer is.
const PARAMS: &str = r#"{"order_id":"A-1001","amount":12.5,"currency":"EUR","lines":[{"sku":"x-1","quantity":2}]}"#;
const ANSWER: &str = r#"{"accepted":true}"#;
/// So many calls in flight are a decisive level: it is measured longest, and watched over time.
const MANY: u32 = 1_024;
/// Not measured: caches fill, files grow their first pages. Calls warm up for longer, until they are in steady state.
const WARM_UP: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  towpath bench                                   the embedded store on this folder's disk
  towpath bench --store redis://127.0.0.1:6379    a Redis; it gets all the load it can take
  towpath bench --only calls --in-flight 256 --seconds 10
  towpath bench --json > bench.json
  towpath bench --svg bench.svg                   the ratios as a picture

What is measured:
  calls   N calls of a function that does nothing in flight, in steady state:
          outcomes are kept for 2 s and deadlines come after 5 s, and each level
          warms up for at least 8 s, until the number of kept calls is level.
          The decisive level (1,024 in flight or more) is measured for 60 s and
          the others for 15 s. The bare store takes turns with them: a SQLite
          loop that writes the same rows in batches of the same size, or a bare
          caller and a bare worker that send Redis only the commands that every
          call needs. On a Redis the caller is this process and the worker
          another one, each on one thread, with Towpath and without.
          At the decisive level also: calls/s, memory and kept calls over time,
          and how late retries and deadlines are under that load.
  pace    half of the most calls/s that were found, at a steady pace: p50, p99
  growth  calls spread over 1, 10, 100 and 400 functions of one worker, with 1
          and 64 in flight; connections of the worker's process to a Redis; and
          calls while many wait
  locks   64 tasks that take and give back a lock of their own, against SET NX PX and
          a script that compares and deletes; and how long a lock takes from one
          of ten who wait to the next
  limits  checks of limits by 64 tasks, against as many that send Redis INCR and
          EXPIRE in one pipeline
  batches messages taken by 64 tasks, with ids that are remembered and without,
          against as many that send Redis RPUSH and ZADD in one pipeline
  keys    checks of a limit with a key per user: the first thousand keys of a scope
          against the last thousand of 100,000
  lists   every filtered list of 100,000 calls (with --full 1.8 million), and a
          push beside 20 lists. Not measured unless asked for with --only
  runs    256 workflow runs of three tasks in flight, in steady state, caller and
          worker in this process, against one bare commit for each task; the time
          of a step, and from an event to the end of a parked run
  idle    memory of a server with nothing to do, and its commands to a Redis

On a Redis the longest script is read from its slow log, whose threshold is set
to 2 ms meanwhile and restored. Kept calls there are counted as the records (the
fields of hashes, or keys) under the prefix of the store.

A run takes about seven minutes, four of them for the calls; --quick takes about
one minute. All keys and files have names of their own and are removed.";

/// Measure this machine and print ratios against the bare store
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    side: Option<Side>,
    /// How long the decisive level (1,024 in flight or more) is measured, in seconds; others a quarter of it [default: 60, with --quick 3]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Into how many rounds those seconds are divided, with the bare store before and after each [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Calls under way at once; may be given more than once
    #[arg(long, value_name = "N", default_values_t = [1, 64, 1024], value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: Vec<u32>,
    /// Only this; may be given more than once
    #[arg(long, value_name = "WHAT")]
    only: Vec<Measurement>,
    /// A few seconds for everything, not in steady state: the figures are only a hint
    #[arg(long)]
    quick: bool,
    /// A million calls waiting instead of 100,000; takes a gigabyte of memory on a Redis and a minute more
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// A folder on the disk to measure; a new one inside it is made and removed
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    data: PathBuf,
    /// Measure among the calls that a Redis has already, under its own prefix. For a Redis of your own: ended calls are left there
    #[arg(long, hide = true)]
    shared_keys: bool,
    /// Write the ratios as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    Calls,
    Pace,
    Growth,
    Locks,
    Limits,
    Batches,
    Keys,
    Lists,
    Runs,
    Idle,
}

pub(crate) async fn run(globals: &Globals, out: Output, mut args: BenchArgs) -> Result<Exit, Failure> {
    if let Some(side) = args.side.take() {
        return worker::run(out, globals.store_choice()?.url, side).await;
    }
    let keys = if args.shared_keys { Keys::Shared } else { Keys::Own };
    let target = Target::choose(globals.store.as_deref(), &args.data, keys)?;
    let mut signals = Signals::listen()?;
    let measured = tokio::select! {
        measured = measure::everything(&target, out, &args) => measured.map(Some),
        () = signals.next() => Ok(None),
    };
    // Also when a measurement failed or was interrupted: what it made must not stay on the user's server.
    let cleared = target.clear().await;
    let Some(report) = measured? else { return Ok(Exit::Interrupted) };
    cleared?;
    if let Some(path) = &args.svg {
        let written = std::fs::write(path, plot::svg(&report));
        written.map_err(|cause| Failure::new(Exit::Failed, "cannot_write", format!("{} cannot be written: {cause}", path.display())))?;
    }
    report.print(out);
    Ok(Exit::Done)
}

impl BenchArgs {
    /// Whether this process is only one side of a measurement.
    pub(crate) const fn is_one_side(&self) -> bool {
        self.side.is_some()
    }

    fn wants(&self, measurement: Measurement) -> bool {
        self.only.contains(&measurement) || (self.only.is_empty() && measurement != Measurement::Lists)
    }

    /// How long the decisive level is measured.
    fn decisive_length(&self) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(if self.quick { 3 } else { 60 }))
    }

    /// How long any other level is measured.
    fn level_length(&self) -> Duration {
        (self.decisive_length() / 4).max(Duration::from_secs(1))
    }

    /// How long what is only compared with itself is measured.
    fn short_length(&self) -> Duration {
        self.decisive_length().min(Duration::from_secs(if self.quick { 1 } else { 3 }))
    }

    fn steady(&self) -> Steady {
        if self.quick { Steady::QUICK } else { Steady::FULL }
    }

    /// Long enough for a heartbeat of ten seconds to be in it.
    /// How long an idle server is left alone before it is looked at: a worker registers again a few seconds after it came.
    fn settle_length(&self) -> Duration {
        Duration::from_secs(if self.quick { 2 } else { 15 })
    }

    /// What an idle server does comes round within 15 seconds; this is two rounds.
    fn idle_length(&self) -> Duration {
        Duration::from_secs(if self.quick { 3 } else { 30 })
    }

    fn backlog(&self) -> u64 {
        match (self.quick, self.full) {
            (true, _) => 10_000,
            (_, true) => 1_000_000,
            _ => 100_000,
        }
    }
}

async fn open(url: &str) -> Result<Towpath, Failure> {
    open_as(url, "towpath bench").await
}

async fn open_as(url: &str, owner: &str) -> Result<Towpath, Failure> {
    Towpath::builder().owner(owner).open(url).await.map_err(|error| failed(&error.to_string()))
}

fn failed(cause: &str) -> Failure {
    Failure::new(Exit::Failed, "bench_failed", cause)
}

/// `None`: of nothing.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// Work that waits for a disk or a socket, on a thread of its own.
async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, String>
where
    T: Send + 'static,
    E: Display + Send + 'static,
{
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}
