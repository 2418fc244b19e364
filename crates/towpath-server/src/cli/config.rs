//! `towpath config`: the configuration that all workers and callers share.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use towpath_server::http::wire::Json;
use towpath_server::http::wire::config::{ConfigBody, ConfigQuery, SetConfigBody};
use towpath_server::http::wire::health::HealthBody;

use super::client::{Ask, Client, RequestError, routes};
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::pauses::Pauses;
use super::{json_text, time, words};

/// How long one request waits for a change.
const WATCH_WAIT: Duration = Duration::from_secs(20);

/// The members that legacy peers on the same Redis read and write.
const LEGACY_MEMBERS: [&str; 8] = ["queueMode", "redisHost", "redisPort", "redisDb", "redisUser", "redisPassword", "redisSsl", "timestamp"];

const EXAMPLES: &str = "\
Examples:
  towpath config get
  towpath config set '{\"mode\":\"careful\"}'
  towpath config set @config.json --if-version 3   if it was not changed since
  towpath config set '{}' --replace                removes all that it has
  towpath config watch                             a line for each change

The rate policies of `towpath limit put` stand in it, as limit_policies. A new
value that lacks a member of the present one is refused, unless --replace says
that the member shall go.";

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
    /// Set the configuration to a new value, which has every member of the present one
    Set {
        /// The new value, a JSON object: as it is, @FILE, or - for standard input
        #[arg(value_name = "JSON", allow_negative_numbers = true)]
        value: String,
        /// Only if the version still is this
        #[arg(long, value_name = "N")]
        if_version: Option<u64>,
        /// Remove the members of the present configuration that the new value lacks
        #[arg(long)]
        replace: bool,
    },
    /// Print the configuration now and after each change
    Watch,
}

impl ConfigArgs {
    /// Whether a store may begin with it.
    pub(crate) fn puts_something(&self) -> bool {
        matches!(self.command, ConfigCommand::Set { .. })
    }
}

pub(crate) async fn run(client: &Client, out: Output, args: ConfigArgs) -> Result<Exit, Failure> {
    match args.command {
        ConfigCommand::Get => {
            let config: ConfigBody = client.get(routes::CONFIG).await?;
            show(out, &config);
            Ok(Exit::Done)
        }
        ConfigCommand::Set { value, if_version, replace } => {
            let value = json_text::read_argument("value", &value)?;
            let new = members(&value).ok_or_else(|| {
                let message = "the shared configuration is a JSON object, and the new value is not";
                Failure::usage("bad_field", message).field("value").hint(r#"write for example '{"mode":"careful"}'"#)
            })?;
            let config = if replace { put(client, &value, if_version).await? } else { set(client, &value, &new, if_version).await? };
            show(out, &config);
            Ok(Exit::Done)
        }
        ConfigCommand::Watch => tokio::select! {
            ended = watch(client, out) => ended,
            _ = tokio::signal::ctrl_c() => Ok(Exit::Done),
        },
    }
}

type Members = BTreeMap<String, Json>;

/// The members of an object; `None`: the value is something else.
fn members(value: &Json) -> Option<Members> {
    serde_json::from_str(value.get()).ok()
}

async fn put(client: &Client, value: &Json, if_version: Option<u64>) -> Result<ConfigBody, RequestError> {
    client.ask(Ask::put(routes::CONFIG, &SetConfigBody { value: value.clone(), if_version })).await
}

/// Sets a value that lacks no member of the present configuration. It looks again when another writer came first.
async fn set(client: &Client, value: &Json, new: &Members, if_version: Option<u64>) -> Result<ConfigBody, Failure> {
    loop {
        let present: ConfigBody = client.get(routes::CONFIG).await?;
        // The server refuses any other version than the one that was asked for.
        if if_version.is_none_or(|version| version == present.version) {
            refuse_missing(client, &present, new).await?;
        }
        match put(client, value, if_version.or(Some(present.version))).await {
            Err(error) if if_version.is_none() && error.refused_with() == Some("config_conflict") => {}
            answered => return Ok(answered?),
        }
    }
}

async fn refuse_missing(client: &Client, present: &ConfigBody, new: &Members) -> Result<(), Failure> {
    let present_members = members(&present.value).unwrap_or_default();
    let mut missing: Vec<&String> = present_members.keys().filter(|name| !new.contains_key(*name)).collect();
    let is_of_legacy = |name: &&String| LEGACY_MEMBERS.contains(&name.as_str());
    if missing.iter().any(is_of_legacy) && keeps_legacy_members(client).await? {
        missing.retain(|name| !is_of_legacy(name));
    }
    if missing.is_empty() {
        return Ok(());
    }
    let named = missing.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let message = format!("the new value lacks {named}, which the configuration has (version {}): nothing was changed", present.version);
    Err(Failure::usage("members_missing", message)
        .field("value")
        .hint("add it to the new value (`towpath config get` prints the present one), or remove it with --replace")
        .details(&json!({ "missing": missing, "version": present.version })))
}

/// Whether the store is a Redis: there the members of legacy peers stay, whatever is set.
async fn keeps_legacy_members(client: &Client) -> Result<bool, Failure> {
    let health: HealthBody = client.get(routes::HEALTH).await?;
    Ok(!health.store.starts_with("sqlite:") && !health.store.starts_with("memory:"))
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
