//! The settings of a batcher: shown, and changed one by one.

use clap::Args;
use serde_json::{Map, Value, json};
use towpath_server::http::wire::batches::SettingsBody;

use crate::cli::client::{Ask, Client, RequestError, routes};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::json_text;
use crate::cli::output::Output;

/// The policy that each delivery takes from.
#[derive(Args, Debug)]
pub(super) struct RateArgs {
    /// Batches wait for their turn by this policy: see `towpath limit put`. The same as --set rate='{"policy": ..}'
    #[arg(long, value_name = "POLICY")]
    rate: Option<String>,
    /// What the policy limits, where several share it [default: the batcher's name]
    #[arg(long, value_name = "SCOPE", requires = "rate")]
    rate_scope: Option<String>,
}

impl RateArgs {
    pub(super) fn setting(&self) -> Option<Value> {
        let policy = self.rate.as_ref()?;
        Some(match &self.rate_scope {
            Some(scope) => json!({ "policy": policy, "scope": scope }),
            None => json!({ "policy": policy }),
        })
    }
}

pub(super) async fn show(client: &Client, out: Output, batcher: &str) -> Result<Exit, Failure> {
    let body: SettingsBody = client.get(&routes::batch_verb(batcher, "settings")).await?;
    tell(out, &body);
    Ok(Exit::Done)
}

fn tell(out: Output, body: &SettingsBody) {
    if out.is_json() {
        return out.json(body);
    }
    out.line(&json_text::pretty(body.settings.get()));
    match &body.stored {
        Some(stored) => out.note(&format!("kept for all servers: {}", stored.get())),
        None => out.note("nothing of it is kept for all servers: it is the default, or the server's configuration file says so"),
    }
}

/// Changes what is kept; the rest of it stays.
pub(super) async fn change(
    client: &Client,
    out: Output,
    batcher: &str,
    set: &[String],
    unset: &[String],
    rate: &RateArgs,
) -> Result<Exit, Failure> {
    let path = routes::batch_verb(batcher, "settings");
    let known: Result<SettingsBody, RequestError> = client.get(&path).await;
    let mut kept = match known {
        Ok(body) => body.stored.and_then(|stored| serde_json::from_str::<Map<String, Value>>(stored.get()).ok()).unwrap_or_default(),
        Err(error) if error.is_not_found() => Map::new(), // a new batcher
        Err(error) => return Err(error.into()),
    };
    for name in unset {
        kept.remove(name);
    }
    for change in set {
        let (name, value) = read(change)?;
        kept.insert(name, value);
    }
    if let Some(rate) = rate.setting() {
        kept.insert("rate".to_owned(), rate);
    }
    let body: SettingsBody = client.ask(Ask::put(&path, &kept)).await?;
    tell(out, &body);
    Ok(Exit::Done)
}

fn read(change: &str) -> Result<(String, Value), Failure> {
    let Some((name, value)) = change.split_once('=') else {
        return Err(Failure::usage("invalid_field", format!("'{change}' sets nothing: write NAME=VALUE")).field("set"));
    };
    // What is no JSON is a text: people write order=arrival.
    Ok((name.trim().to_owned(), serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))))
}
