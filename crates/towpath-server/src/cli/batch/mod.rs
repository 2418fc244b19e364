//! `towpath batch`: messages in, open batches looked at, closed and postponed, settings.

mod listing;
mod settings;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::value::RawValue;
use towpath_server::http::wire::Json;
use towpath_server::http::wire::batches::{BatchPage, BatchQuery, MessageAnswer, SealAnswer};

use super::client::{Ask, Client, routes};
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::{json_text, words};

const EXAMPLES: &str = "\
A batcher gathers messages per batch key (one chat, one order) until their
sender falls silent, then hands them over as one. Every message is a JSON
object; the batcher's setting `key` says which of its fields make the key.

Examples:
  towpath batch settings orders --set key='[\"customer\"]' \\
    --set debounce_seconds=5 --set target='{\"function\":\"ship\"}'
  towpath batch settings orders --rate default   as many as `towpath limit put` says
  towpath batch push orders '{\"customer\":\"anna\",\"item\":\"tea\"}'
  towpath batch push orders @order.json --debounce 0   goes at once
  towpath batch ls                      all batchers
  towpath batch ls orders               what gathers now
  towpath batch ls orders --in-flight   what is being delivered
  towpath batch show orders anna
  towpath batch flush orders anna       closes it now
  towpath dlq ls --batcher orders       what could not be delivered

push exits 6 when a message with the same message_id was taken before.";

/// Gather messages and hand them over as one
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BatchArgs {
    #[command(subcommand)]
    command: BatchCommand,
}

#[derive(Subcommand, Debug)]
enum BatchCommand {
    /// Push a message
    Push {
        /// The batcher
        batcher: String,
        /// The message as JSON, @FILE, or - for standard input
        #[arg(value_name = "JSON", required_unless_present = "file", allow_negative_numbers = true)]
        message: Option<String>,
        /// A file with the message
        #[arg(long, value_name = "FILE", conflicts_with = "message")]
        file: Option<PathBuf>,
        /// How long its sender must be silent after it; 0 closes the batch
        #[arg(long, value_name = "LENGTH", value_parser = words::parse_length)]
        debounce: Option<Duration>,
    },
    /// List batchers, or the batches of one
    #[command(alias = "list")]
    Ls {
        /// The batcher
        batcher: Option<String>,
        /// Those that are being delivered, instead of those that gather
        #[arg(long, requires = "batcher")]
        in_flight: bool,
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
    /// Show what gathers for a key
    Show {
        /// The batcher
        batcher: String,
        /// The batch key
        key: String,
    },
    /// Close an open batch now
    Flush {
        /// The batcher
        batcher: String,
        /// The batch key
        #[arg(required_unless_present = "all")]
        key: Option<String>,
        /// Close all open batches of the batcher
        #[arg(long, conflicts_with = "key")]
        all: bool,
    },
    /// Postpone an open batch: its sender is typing
    Touch {
        /// The batcher
        batcher: String,
        /// The batch key
        key: String,
    },
    /// Show the settings of a batcher, or change some
    Settings {
        /// The batcher
        batcher: String,
        /// A setting to change; its value is JSON, or a text as it is (repeat for more)
        #[arg(long = "set", value_name = "NAME=VALUE")]
        set: Vec<String>,
        /// A setting to give up, so that the file or the default counts again (repeat for more)
        #[arg(long = "unset", value_name = "NAME")]
        unset: Vec<String>,
        #[command(flatten)]
        rate: settings::RateArgs,
    },
}

impl BatchArgs {
    /// Whether a store may begin with it.
    pub(crate) fn puts_something(&self) -> bool {
        matches!(self.command, BatchCommand::Settings { .. })
    }
}

pub(crate) async fn run(client: &Client, out: Output, args: BatchArgs) -> Result<Exit, Failure> {
    match args.command {
        BatchCommand::Push { batcher, message, file, debounce } => {
            let argument = message.unwrap_or_else(|| format!("@{}", file.unwrap_or_default().display()));
            let message = with_debounce(json_text::read_argument("the message", &argument)?, debounce)?;
            push(client, out, &batcher, &message).await
        }
        BatchCommand::Ls { batcher: None, .. } => listing::batchers(client, out).await,
        BatchCommand::Ls { batcher: Some(batcher), in_flight, limit } => listing::batches(client, out, &batcher, in_flight, limit).await,
        BatchCommand::Show { batcher, key } => listing::show(client, out, &batcher, &key).await,
        BatchCommand::Flush { batcher, key: Some(key), .. } => seal(client, out, &batcher, &key, "flush").await,
        BatchCommand::Flush { batcher, key: None, .. } => flush_all(client, out, &batcher).await,
        BatchCommand::Touch { batcher, key } => seal(client, out, &batcher, &key, "touch").await,
        BatchCommand::Settings { batcher, set, unset, rate } if set.is_empty() && unset.is_empty() && rate.setting().is_none() => {
            settings::show(client, out, &batcher).await
        }
        BatchCommand::Settings { batcher, set, unset, rate } => settings::change(client, out, &batcher, &set, &unset, &rate).await,
    }
}

/// A message with the debounce time of the command line; of two fields with one name the later counts.
fn with_debounce(message: Json, debounce: Option<Duration>) -> Result<Json, Failure> {
    let Some(debounce) = debounce else { return Ok(message) };
    let not_object = || Failure::usage("bad_field", "a message is a JSON object").field("message");
    let inside = message.get().trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(not_object)?;
    let between = if inside.trim().is_empty() { "" } else { "," };
    let text = format!("{{{inside}{between}\"debounce_seconds\":{}}}", debounce.as_secs_f64());
    RawValue::from_string(text).map_err(|_| not_object())
}

async fn push(client: &Client, out: Output, batcher: &str, message: &Json) -> Result<Exit, Failure> {
    let answer: MessageAnswer = client.ask(Ask::post(&routes::batch_verb(batcher, "messages"), message)).await?;
    let key = answer.batch_key.as_deref().unwrap_or_default();
    let exit = if answer.accepted { Exit::Done } else { Exit::Duplicate };
    if out.is_json() {
        out.json(&answer);
    } else if answer.accepted {
        let size = words::plural(answer.size.unwrap_or(1), "message");
        let closes = words::instant(answer.deadline.unwrap_or_default());
        out.line(&format!("taken for '{key}': {size}, closes at {closes} ({})", answer.reason.as_deref().unwrap_or_default()));
    } else {
        out.line(&format!("duplicate: a message with this id was taken before for '{key}'"));
    }
    Ok(exit)
}

async fn seal(client: &Client, out: Output, batcher: &str, key: &str, verb: &str) -> Result<Exit, Failure> {
    let answer: SealAnswer = client.ask(Ask::post_empty(&routes::batch_key_verb(batcher, key, verb))).await?;
    if out.is_json() {
        out.json(&answer);
        return Ok(Exit::Done);
    }
    let closes = answer.deadline.map(|at| format!(", closes at {}", words::instant(at))).unwrap_or_default();
    let size = answer.size.map(|size| format!(", {}", words::plural(size, "message"))).unwrap_or_default();
    out.line(&format!("{}: '{key}'{size}{closes}", answer.outcome));
    Ok(Exit::Done)
}

async fn flush_all(client: &Client, out: Output, batcher: &str) -> Result<Exit, Failure> {
    let (mut keys, mut cursor) = (Vec::new(), None);
    // Collected before anything is closed, so that closing does not shift the pages.
    loop {
        let query = BatchQuery { cursor, limit: Some(200), ..BatchQuery::default() };
        let page: BatchPage = client.get(&routes::with_query(&routes::batcher(batcher), &query)).await?;
        keys.extend(page.batches.into_iter().map(|batch| batch.batch_key));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let mut flushed = 0;
    for key in &keys {
        let answer: Result<SealAnswer, _> = client.ask(Ask::post_empty(&routes::batch_key_verb(batcher, key, "flush"))).await;
        match answer {
            Ok(answer) => flushed += u64::from(answer.outcome == "flushed"),
            Err(error) if error.is_not_found() => {} // it was delivered meanwhile
            Err(error) => return Err(error.into()),
        }
    }
    if out.is_json() {
        out.json(&serde_json::json!({ "flushed": flushed }));
    } else {
        out.note(&format!("{flushed} of {} closed", words::plural(keys.len() as u64, "open batch")).replace("batchs", "batches"));
    }
    Ok(if keys.is_empty() { Exit::NotFound } else { Exit::Done })
}
