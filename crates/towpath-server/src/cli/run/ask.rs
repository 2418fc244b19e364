//! `towpath run send`, `cancel`, `terminate`, `pause` and `resume`

use clap::Args;
use serde_json::json;
use towpath_server::http::wire::runs::{ReasonBody, RunRequestAnswer, SendAnswer, SendBody};

use super::choice::ChoiceArgs;
use crate::cli::client::{Ask, Client, routes};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::json_text;
use crate::cli::output::Output;

#[derive(Args, Debug)]
pub(super) struct SendArgs {
    /// The run's id
    #[arg(value_name = "ID")]
    run_id: String,
    /// What the event is called
    event: String,
    /// Its data as JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", default_value = "null", allow_hyphen_values = true)]
    data: String,
    /// The same name and reference are the same event, for a day
    #[arg(long, value_name = "TEXT")]
    reference: Option<String>,
}

#[derive(Args, Debug)]
pub(super) struct EndArgs {
    #[command(flatten)]
    which: ChoiceArgs,
    /// Why, for people; it stands in the journal
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) async fn send(client: &Client, out: Output, args: SendArgs) -> Result<Exit, Failure> {
    let SendArgs { run_id, event, data, reference } = args;
    let body = SendBody { event, data: Some(json_text::read_argument("data", &data)?), reference };
    let answer: SendAnswer = client.ask(Ask::post(&routes::run_verb(&run_id, "send"), &body)).await?;
    let is_new = answer.sent.result == "accepted";
    if out.is_json() {
        out.json(&answer);
    } else if is_new {
        out.line(&format!("accepted ({}): run {run_id} has the event '{}'", answer.durability, body.event));
    } else {
        out.line(&format!("duplicate: run {run_id} got the event '{}' with this reference before", body.event));
    }
    Ok(if is_new { Exit::Done } else { Exit::Duplicate })
}

pub(super) async fn end(client: &Client, out: Output, verb: &str, args: EndArgs) -> Result<Exit, Failure> {
    ask_all(client, out, verb, args.which, args.reason).await
}

/// Asks the same of each run. One that had closed before changes nothing; the first other trouble ends the command.
pub(super) async fn ask_all(client: &Client, out: Output, verb: &str, which: ChoiceArgs, reason: Option<String>) -> Result<Exit, Failure> {
    let ids = which.ids(client, verb).await?;
    if ids.is_empty() {
        out.note("no run matches");
        return Ok(Exit::NotFound);
    }
    let mut exit = Exit::Done;
    for run_id in &ids {
        let path = routes::run_verb(run_id, verb);
        let ask = match &reason {
            Some(_) => Ask::post(&path, &ReasonBody { reason: reason.clone() }),
            None => Ask::post_empty(&path),
        };
        match client.ask::<RunRequestAnswer>(ask).await {
            Ok(answer) if out.is_json() => out.json(&answer),
            Ok(answer) => out.line(&said(verb, run_id, &answer.state)),
            Err(error) if error.refused_with() == Some("run_closed") => {
                exit = Exit::Duplicate;
                if out.is_json() {
                    out.json(&json!({ "run_id": run_id, "result": "run_closed" }));
                } else {
                    out.line(&format!("run {run_id} had closed before; nothing changed"));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(exit)
}

fn said(verb: &str, run_id: &str, state: &str) -> String {
    match (verb, state) {
        ("cancel", "cancelled") => format!("cancelled: run {run_id} never began"),
        ("cancel", _) => format!("requested: the code of run {run_id} is asked to end it; it is {state}"),
        ("terminate", _) => format!("terminated: run {run_id}"),
        ("pause", _) => format!("paused: run {run_id} is {state}, and no worker goes on with it"),
        _resume => format!("resumed: run {run_id} is {state}"),
    }
}
