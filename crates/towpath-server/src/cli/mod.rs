//! The command line: one enum of commands, one flat match, one file per command.

mod call;
mod calls;
mod client;
mod completions;
mod config;
mod dlq;
mod exit;
mod failure;
mod follow;
mod functions;
mod globals;
mod ids;
mod json_text;
mod nested;
mod outcome;
mod output;
mod pauses;
mod signals;
mod time;
mod version;
mod words;
mod worker;
mod workers;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use self::client::Client;
use self::exit::Exit;
use self::failure::Failure;
use self::globals::Globals;
use self::output::Output;

const ABOUT: &str = "Durable function calls: call a function by name from anywhere and get its answer, even if a worker dies";

const FIRST_STEPS: &str = "\
First steps:
  towpath dev                                  a server with some functions to play with
  towpath call add '{\"a\":1,\"b\":2}'             in another terminal: calls one of them
  towpath worker upper --exec 'tr a-z A-Z'     serves a function of your own
  towpath call upper '{\"text\":\"hi\"}'";

/// The whole command line.
#[derive(Parser, Debug)]
#[command(name = "towpath", version, about = ABOUT, after_help = format!("{FIRST_STEPS}\n\n{}", exit::HELP), propagate_version = true)]
#[command(arg_required_else_help = true, subcommand_required = true, infer_long_args = false)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Call(call::CallArgs),
    Worker(worker::WorkerArgs),
    Functions(functions::FunctionsArgs),
    Workers(workers::WorkersArgs),
    Calls(calls::CallsArgs),
    Dlq(dlq::DlqArgs),
    Config(config::ConfigArgs),
    Completions(completions::CompletionsArgs),
    /// Print the version
    Version,
}

/// Reads the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    let out = Output::new(cli.globals.json);
    match in_runtime(cli, out) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.report(&out);
            failure.exit.into()
        }
    }
}

/// A command line that cannot be read, or a question for help.
fn explain(error: &clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    if error.use_stderr() && wants_json {
        let text = error.to_string();
        Failure::usage("usage", text.trim().trim_start_matches("error: ")).report(&Output::new(true));
    } else {
        let _nobody_listens = error.print();
    }
    if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() }
}

fn in_runtime(cli: Cli, out: Output) -> Result<Exit, Failure> {
    // Whoever connects over TLS needs it; a second installation is refused and does no harm.
    let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = match &cli.command {
        Command::Worker(_) => tokio::runtime::Builder::new_multi_thread().enable_all().build(),
        _short => tokio::runtime::Builder::new_current_thread().enable_all().build(),
    };
    let runtime = runtime.map_err(|error| Failure::new(Exit::Failed, "no_runtime", format!("the process cannot start its threads: {error}")))?;
    runtime.block_on(dispatch(cli.globals, cli.command, out))
}

async fn dispatch(globals: Globals, command: Command, out: Output) -> Result<Exit, Failure> {
    let client = match command {
        Command::Completions(args) => return Ok(completions::run(out, &args)),
        Command::Version => return Ok(version::run(out)),
        _ => Client::connect(&globals).await?,
    };
    match command {
        Command::Call(args) => call::run(&client, out, args).await,
        Command::Worker(args) => return worker::run(client, out, args).await,
        Command::Functions(args) => functions::run(&client, out, args).await,
        Command::Workers(args) => workers::run(&client, out, args).await,
        Command::Calls(args) => calls::run(&client, out, args).await,
        Command::Dlq(args) => dlq::run(&client, out, args).await,
        Command::Config(args) => config::run(&client, out, args).await,
        Command::Completions(_) | Command::Version => Ok(Exit::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
