//! `towpath config`: the configuration that all workers and callers share.

use std::time::Duration;

use clap::{Args, Subcommand};
use towpath_server::http::wire::config::{ConfigBody, ConfigQuery, SetConfigBody};

use super::client::{Ask, Client, routes};
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::pauses::Pauses;
use super::{json_text, time, words};

/// How long one request waits for a change.
const WATCH_WAIT: Duration = Duration::from_secs(20);

const EXAMPLES: &str = "\
Examples:
  towpath config get
  towpath config set '{\"mode\":\"careful\"}'
  towpath config set @config.json --if-version 3   if it was not changed since
  towpath config watch                             a line for each change";

/// Read, write or watch the shared configuration
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand, Debug)]
enum ConfigCommand {
    /// Print the configuration
    Get,
    /// Replace the configuration
    Set {
        /// The new value as JSON, @FILE, or - for standard input
        #[arg(value_name = "JSON", allow_negative_numbers = true)]
        value: String,
        /// Only if the version still is this
        #[arg(long, value_name = "N")]
        if_version: Option<u64>,
    },
    /// Print the configuration now and after each change
    Watch,
}

pub(crate) async fn run(client: &Client, out: Output, args: ConfigArgs) -> Result<Exit, Failure> {
    match args.command {
        ConfigCommand::Get => {
            let config: ConfigBody = client.get(routes::CONFIG).await?;
            show(out, &config);
            Ok(Exit::Done)
        }
        ConfigCommand::Set { value, if_version } => {
            let value = json_text::read_argument("value", &value)?;
            let config: ConfigBody = client.ask(Ask::put(routes::CONFIG, &SetConfigBody { value, if_version })).await?;
            show(out, &config);
            Ok(Exit::Done)
        }
        ConfigCommand::Watch => tokio::select! {
            ended = watch(client, out) => ended,
            _ = tokio::signal::ctrl_c() => Ok(Exit::Done),
        },
    }
}

fn show(out: Output, config: &ConfigBody) {
    if out.is_json() {
        return out.json(config);
    }
    if config.version == 0 {
        out.note("it was never set");
    } else {
        out.note(&format!(
            "version {}{}",
            config.version,
            config.updated_at.map_or_else(String::new, |at| format!(", set {}", words::ago(at)))
        ));
    }
    let text = config.value.get();
    if out.stdout_is_terminal() { out.line(&json_text::pretty(text)) } else { out.line(&json_text::brief(text, usize::MAX)) }
}

async fn watch(client: &Client, out: Output) -> Result<Exit, Failure> {
    let mut seen: ConfigBody = client.get(routes::CONFIG).await?;
    show(out, &seen);
    let mut pauses = Pauses::of("config watch");
    loop {
        let query = ConfigQuery { not_version: Some(seen.version), wait_ms: Some(words::millis(WATCH_WAIT)) };
        let asked: Result<ConfigBody, _> = client.ask(Ask::get(&routes::with_query(routes::CONFIG, &query)).waiting(WATCH_WAIT)).await;
        match asked {
            Ok(config) => {
                pauses.reset();
                if config.version != seen.version {
                    show(out, &config);
                    seen = config;
                }
            }
            Err(error) if error.may_pass() => {
                if pauses.is_fresh() {
                    out.note(&format!("{}; trying again", error.brief()));
                }
                time::sleep(pauses.next(error.retry_after())).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
