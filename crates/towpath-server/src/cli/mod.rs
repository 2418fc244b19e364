//! The command line: one enum of commands, one flat match, one file per command.

mod batch;
mod bench;
mod call;
mod calls;
mod client;
mod completions;
mod config;
mod dev;
mod dlq;
mod doctor;
mod exit;
mod export;
mod export_file;
mod failure;
mod follow;
mod functions;
mod globals;
mod groups;
mod guard;
mod hosting;
mod ids;
mod import;
mod json_text;
mod limit;
mod lock;
mod missing_store;
mod nested;
mod openapi;
mod outcome;
mod output;
mod pauses;
mod retention;
mod run;
mod serve;
mod signals;
mod time;
mod version;
mod words;
mod worker;
mod workers;

use std::cell::Cell;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use self::client::Client;
use self::exit::Exit;
use self::failure::Failure;
use self::globals::Globals;
use self::output::Output;

const ABOUT: &str = "Durable function calls: call a function by name from anywhere and get its answer, even if a worker dies";

const FIRST_STEPS: &str = "\
First steps:
  towpath dev                                a server with functions to play with
  towpath call add '{\"a\":1,\"b\":2}'         in another terminal: calls one
  towpath worker upper --exec 'tr a-z A-Z'   serves a function of your own
  towpath call upper '{\"text\":\"hi\"}'";

/// The whole command line.
#[derive(Parser, Debug)]
#[command(name = "towpath", version, about = ABOUT, after_help = format!("{FIRST_STEPS}\n\n{}", exit::HELP))]
#[command(subcommand_required = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Dev(dev::DevArgs),
    Serve(serve::ServeArgs),
    Call(call::CallArgs),
    Worker(worker::WorkerArgs),
    Functions(functions::FunctionsArgs),
    Workers(workers::WorkersArgs),
    Calls(calls::CallsArgs),
    Run(run::RunArgs),
    Batch(batch::BatchArgs),
    Dlq(dlq::DlqArgs),
    Limit(limit::LimitArgs),
    Lock(lock::LockArgs),
    Config(config::ConfigArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Doctor(doctor::DoctorArgs),
    Bench(bench::BenchArgs),
    Completions(completions::CompletionsArgs),
    /// Print the description of the HTTP API (OpenAPI)
    Openapi,
    /// Print the version
    Version,
}

impl Command {
    /// Whether it opens no store, or may begin one because it puts something there.
    fn may_begin_store(&self) -> bool {
        match self {
            Self::Functions(args) => args.puts_something(),
            Self::Batch(args) => args.puts_something(),
            Self::Limit(args) => args.puts_something(),
            Self::Lock(args) => args.puts_something(),
            Self::Config(args) => args.puts_something(),
            Self::Run(args) => args.puts_something(),
            Self::Call(_) | Self::Workers(_) | Self::Calls(_) | Self::Dlq(_) | Self::Export(_) => false,
            Self::Dev(_) | Self::Serve(_) | Self::Worker(_) | Self::Import(_) | Self::Doctor(_) | Self::Bench(_) => true,
            Self::Completions(_) | Self::Openapi | Self::Version => true,
        }
    }
}

/// Reads the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    if let Some(guarded) = guard::main() {
        return guarded;
    }
    let mut command = groups::in_groups(Cli::command());
    if std::env::args_os().len() <= 1 {
        let _unread = command.print_help(); // a question, not a mistake
        return Exit::Done.into();
    }
    let cli = match command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches)) {
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
        let _the_output_is_closed = error.print();
    }
    if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() }
}

fn in_runtime(cli: Cli, out: Output) -> Result<Exit, Failure> {
    // Every connection over TLS needs it; a second installation is refused and does no harm.
    let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = match &cli.command {
        Command::Bench(args) if args.is_one_side() => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        Command::Dev(_) | Command::Serve(_) | Command::Worker(_) | Command::Bench(_) => {
            tokio::runtime::Builder::new_multi_thread().enable_all().build()
        }
        _short => tokio::runtime::Builder::new_current_thread().enable_all().build(),
    };
    let runtime =
        runtime.map_err(|error| Failure::new(Exit::Failed, "no_runtime", format!("the process cannot start its threads: {error}")))?;
    runtime.block_on(dispatch(cli.globals, cli.command, out))
}

async fn dispatch(globals: Globals, command: Command, out: Output) -> Result<Exit, Failure> {
    if !command.may_begin_store() {
        missing_store::refuse(&globals)?;
    }
    match command {
        Command::Dev(args) => dev::run(&globals, out, args).await,
        Command::Serve(args) => serve::run(&globals, out, args).await,
        Command::Call(args) => with_client(&globals, async |client| call::run(client, out, args).await).await,
        Command::Worker(args) => with_client(&globals, async |client| worker::run(client, out, args).await).await,
        Command::Functions(args) => with_client(&globals, async |client| functions::run(client, out, args).await).await,
        Command::Workers(args) => with_client(&globals, async |client| workers::run(client, out, args).await).await,
        Command::Calls(args) => with_client(&globals, async |client| calls::run(client, out, args).await).await,
        Command::Run(args) => with_client(&globals, async |client| run::run(client, out, args).await).await,
        Command::Batch(args) => with_client(&globals, async |client| batch::run(client, out, args).await).await,
        Command::Dlq(args) => with_client(&globals, async |client| dlq::run(client, out, args).await).await,
        Command::Limit(args) => with_client(&globals, async |client| limit::run(client, out, args).await).await,
        Command::Lock(args) => {
            let program_code = Cell::new(None);
            let done = with_client(&globals, async |client| lock::run(client, out, args, &program_code).await).await;
            if let (Ok(Exit::Done), Some(code)) = (&done, program_code.get()) {
                std::process::exit(code.into()); // the program's own code is ours
            }
            done
        }
        Command::Config(args) => with_client(&globals, async |client| config::run(client, out, args).await).await,
        Command::Export(args) => with_client(&globals, async |client| export::run(client, out, args).await).await,
        Command::Import(args) => with_client(&globals, async |client| import::run(client, out, args).await).await,
        Command::Doctor(args) => doctor::run(&globals, out, args).await,
        Command::Bench(args) => bench::run(&globals, out, args).await,
        Command::Completions(args) => Ok(completions::run(out, &args)),
        Command::Openapi => Ok(openapi::run(out)),
        Command::Version => Ok(version::run(out)),
    }
}

/// Gives a command its client, and closes it whatever the command did: with `--store` there is a store to close.
async fn with_client<F>(globals: &Globals, command: F) -> Result<Exit, Failure>
where
    F: AsyncFnOnce(&Arc<Client>) -> Result<Exit, Failure>,
{
    let client = Arc::new(Client::connect(globals).await?);
    let done = command(&client).await;
    if let Some(client) = Arc::into_inner(client) {
        client.close().await;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
