//! `towpath run export`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::client::{Ask, Client, routes};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::words;

/// A long journal takes its time.
const WITHIN: Duration = Duration::from_secs(600);
/// The last line of an export that was not cut.
const END: &str = "{\"end\":true}";

#[derive(Args, Debug)]
pub(super) struct ExportArgs {
    /// The run's id
    #[arg(value_name = "ID")]
    run_id: String,
    /// The file to write; it must not be there yet [default: standard output]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) async fn export(client: &Client, out: Output, args: &ExportArgs) -> Result<Exit, Failure> {
    let bytes = client.bytes(Ask::get(&routes::run_verb(&args.run_id, "export")).within(WITHIN)).await?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_end();
    if !text.ends_with(END) {
        return Err(Failure::new(Exit::Unreachable, "export_cut", "the export was cut: it has no last line").hint("export it again"));
    }
    let Some(path) = &args.output else {
        out.line(text);
        return Ok(Exit::Done);
    };
    write_new(path, text)?;
    out.note(&format!("{} written to {}", words::plural(text.lines().count() as u64, "line"), path.display()));
    Ok(Exit::Done)
}

fn write_new(path: &std::path::Path, text: &str) -> Result<(), Failure> {
    use std::io::Write;
    let shown = path.display();
    let mut file = std::fs::File::create_new(path)
        .map_err(|error| Failure::usage("unwritable_file", format!("'{shown}' cannot be written: {error}")).field("output"))?;
    writeln!(file, "{text}")
        .and_then(|()| file.sync_all())
        .map_err(|error| Failure::new(Exit::Failed, "unwritable_file", format!("'{shown}' could not be written to its end: {error}")))
}
