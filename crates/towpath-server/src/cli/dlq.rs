//! `towpath dlq`: dead letters, kept until somebody replays or drops them.

use std::io::{BufRead, IsTerminal};

use clap::{Args, Subcommand};
use serde_json::json;
use towpath_server::http::wire::calls::CallDetail;
use towpath_server::http::wire::dead_letters::{DeadLetterFilter, DeadLetterQuery, DropAnswer, ReplayAnswer};
use towpath_server::http::wire::functions::FunctionList;

use super::client::{Ask, Client, routes};
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::{calls, words};

/// As many as the server deals with in one request.
const BULK_MAX: u32 = 10_000;

const EXAMPLES: &str = "\
A call becomes a dead letter when every attempt failed, or when worker after
worker died of it.

Examples:
  towpath dlq list                             what was given up, and why
  towpath dlq show ID
  towpath dlq replay ID                        runs it again as a new call
  towpath dlq replay --all --function charge   once the cause is gone
  towpath dlq drop --all --yes                 forgets all, without asking";

/// List, show, replay or drop dead letters
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DlqArgs {
    #[command(subcommand)]
    command: DlqCommand,
}

#[derive(Subcommand, Debug)]
enum DlqCommand {
    /// List dead letters, newest first
    List(ListArgs),
    /// Show one dead letter
    Show {
        /// The call's id
        #[arg(value_name = "ID")]
        call_id: String,
    },
    /// Run dead letters again, each as a new call
    Replay(WhichArgs),
    /// Drop dead letters: they will not run again
    Drop(WhichArgs),
}

#[derive(Args, Debug)]
struct ListArgs {
    /// Only those of this function
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// Only those in this scope
    #[arg(long)]
    scope: Option<String>,
    /// Only those given up for this reason
    #[arg(long, value_parser = ["exhausted", "poisoned"])]
    reason: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

#[derive(Args, Debug)]
struct WhichArgs {
    /// Ids of the calls
    #[arg(value_name = "ID", conflicts_with_all = ["all", "function", "scope", "reason"])]
    call_ids: Vec<String>,
    /// All that match the filters, or really all
    #[arg(long)]
    all: bool,
    /// Only those of this function
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// Only those in this scope
    #[arg(long)]
    scope: Option<String>,
    /// Only those given up for this reason
    #[arg(long, value_parser = ["exhausted", "poisoned"])]
    reason: Option<String>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(client: &Client, out: Output, args: DlqArgs) -> Result<Exit, Failure> {
    match args.command {
        DlqCommand::List(args) => list(client, out, args).await,
        DlqCommand::Show { call_id } => {
            let call: CallDetail = client.get(&routes::dead_letter(&call_id)).await?;
            calls::show_one(out, &call);
            Ok(Exit::Done)
        }
        DlqCommand::Replay(which) if which.call_ids.is_empty() => replay_all(client, out, which).await,
        DlqCommand::Replay(which) => replay_each(client, out, &which.call_ids).await,
        DlqCommand::Drop(which) if which.call_ids.is_empty() => drop_all(client, out, which).await,
        DlqCommand::Drop(which) => drop_each(client, out, &which.call_ids).await,
    }
}

async fn list(client: &Client, out: Output, args: ListArgs) -> Result<Exit, Failure> {
    let query = DeadLetterQuery { function: args.function, scope: args.scope, reason: args.reason, ..DeadLetterQuery::default() };
    let page = |after, limit| routes::with_query(routes::DEAD_LETTERS, &DeadLetterQuery { after, limit, ..query.clone() });
    let found = calls::pages(client, args.limit, page).await?;
    calls::show_list(out, &found, "no dead letters");
    Ok(Exit::Done)
}

async fn replay_each(client: &Client, out: Output, call_ids: &[String]) -> Result<Exit, Failure> {
    let mut replayed = Vec::new();
    for call_id in call_ids {
        let answer: ReplayAnswer = client.ask(Ask::post_empty(&routes::dead_letter_replay(call_id))).await?;
        if !out.is_json() {
            tell(out, &answer);
        }
        replayed.extend(answer.replayed);
    }
    if out.is_json() {
        out.json(&ReplayAnswer { replayed });
    }
    Ok(Exit::Done)
}

fn tell(out: Output, answer: &ReplayAnswer) {
    for replay in &answer.replayed {
        out.line(&format!("{} runs again as {}", replay.call_id, replay.replayed_as));
    }
}

async fn drop_each(client: &Client, out: Output, call_ids: &[String]) -> Result<Exit, Failure> {
    let mut dropped = 0;
    for call_id in call_ids {
        client.done(Ask::delete(&routes::dead_letter(call_id))).await?;
        dropped += 1;
        if !out.is_json() {
            out.line(&format!("{call_id} dropped"));
        }
    }
    if out.is_json() {
        out.json(&DropAnswer { dropped });
    }
    Ok(Exit::Done)
}

async fn replay_all(client: &Client, out: Output, which: WhichArgs) -> Result<Exit, Failure> {
    let Some(filter) = confirmed(client, out, which, "replay").await? else { return Ok(Exit::Failed) };
    let answer: ReplayAnswer = client.ask(Ask::post(routes::DEAD_LETTERS_REPLAY, &filter)).await?;
    if out.is_json() {
        out.json(&answer);
    } else {
        tell(out, &answer);
    }
    Ok(after_bulk(out, answer.replayed.len() as u64, "replayed"))
}

async fn drop_all(client: &Client, out: Output, which: WhichArgs) -> Result<Exit, Failure> {
    let Some(filter) = confirmed(client, out, which, "drop").await? else { return Ok(Exit::Failed) };
    let answer: DropAnswer = client.ask(Ask::post(routes::DEAD_LETTERS_DROP, &filter)).await?;
    if out.is_json() {
        out.json(&json!(answer));
    }
    Ok(after_bulk(out, answer.dropped, "dropped"))
}

fn after_bulk(out: Output, many: u64, done: &str) -> Exit {
    match many {
        0 => {
            out.note("no dead letter matches");
            Exit::NotFound
        }
        many => {
            out.note(&format!("{} {done}", words::plural(many, "dead letter")));
            if many >= u64::from(BULK_MAX) {
                out.note("there may be more: do it again");
            }
            Exit::Done
        }
    }
}

/// The filter, once it is certain that a bulk action is meant. `None`: the person said no.
async fn confirmed(client: &Client, out: Output, which: WhichArgs, verb: &str) -> Result<Option<DeadLetterFilter>, Failure> {
    let filtered = which.function.is_some() || which.scope.is_some() || which.reason.is_some();
    if !which.all && !filtered {
        let message = format!("which dead letters to {verb}? give their ids, a filter, or --all");
        return Err(Failure::usage("missing_choice", message).hint("`towpath dlq list` shows them"));
    }
    let person_is_there = std::io::stdin().is_terminal() && out.stderr_is_terminal();
    if person_is_there && !which.yes && !person_agrees(client, out, &which, verb).await? {
        out.note("nothing was done");
        return Ok(None);
    }
    Ok(Some(DeadLetterFilter { function: which.function, scope: which.scope, reason: which.reason, max: Some(BULK_MAX) }))
}

async fn person_agrees(client: &Client, out: Output, which: &WhichArgs, verb: &str) -> Result<bool, Failure> {
    let list: FunctionList = client.get(routes::FUNCTIONS).await?;
    let matches = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
    let meant = list.functions.iter().filter(|function| matches(&which.function, &function.name) && matches(&which.scope, &function.scope));
    let dead: u64 = meant.map(|function| function.dead).sum();
    let about = if which.reason.is_some() { "up to " } else { "" };
    out.error_line(&format!("{verb} {about}{}? [y/N]", words::plural(dead, "dead letter")));
    let mut answer = String::new();
    let _nothing_is_no = std::io::stdin().lock().read_line(&mut answer);
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
