//! `towpath bench`: measures this machine and prints ratios against the bare store, because absolute figures say little about another one.

mod floor;
mod folder;
mod idle;
mod load;
mod plot;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use self::folder::Folder;
use self::report::{Report, Row};
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;

/// What every call of the benchmark carries.
const PARAMS: &str = r#"{"order_id":"A-1001","amount":12.5,"currency":"EUR","lines":[{"sku":"x-1","quantity":2}]}"#;

const EXAMPLES: &str = "\
Examples:
  towpath bench                                 about a minute, a table
  towpath bench --in-flight 256 --seconds 10    one level, longer
  towpath bench --json > bench.json
  towpath bench --svg bench.svg                 the ratios as a picture

Each level keeps that many calls of a function that does nothing under way, in this process, on a file with fsync, and then lets a
bare SQLite loop write the same rows in batches of the same size. The ratio of the two is what Towpath leaves of the disk's speed.";

/// Measure this machine and print ratios against the bare store
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// How long each level is measured, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Calls under way at once; may be given more than once
    #[arg(long, value_name = "N", default_values_t = [1, 64, 1024], value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: Vec<u32>,
    /// A folder on the disk to measure; a new one inside it is made and removed
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    data: PathBuf,
    /// Write the ratios as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(crate) async fn run(out: Output, args: BenchArgs) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    for in_flight in &args.in_flight {
        out.note(&format!("measuring {in_flight} in flight for {} s …", args.seconds));
        rows.push(measure(&args, *in_flight).await?);
    }
    out.note("measuring an idle server …");
    let idle_rss_bytes = idle::rss_bytes(&Folder::make(&args.data)?).await?;
    let report = Report { machine: report::machine(), idle_rss_bytes, rows };
    if let Some(path) = &args.svg {
        let written = std::fs::write(path, plot::svg(&report));
        written.map_err(|cause| Failure::new(Exit::Failed, "cannot_write", format!("{} cannot be written: {cause}", path.display())))?;
    }
    report.print(out);
    Ok(Exit::Done)
}

async fn measure(args: &BenchArgs, in_flight: u32) -> Result<Row, Failure> {
    let folder = Folder::make(&args.data)?;
    let measured = load::run(&folder, in_flight, Duration::from_secs(args.seconds)).await?;
    let floor_calls_per_second = floor::run(&folder, &measured).await?;
    Ok(Row { in_flight, measured, floor_calls_per_second })
}
