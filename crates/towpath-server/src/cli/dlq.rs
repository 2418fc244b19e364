//! `towpath dlq`: dead letters of calls and of batches, kept until they are replayed or dropped.

mod batches;

use std::io::{BufRead, IsTerminal};

use clap::{Args, Subcommand};
use serde_json::json;
use towpath_server::http::wire::batches::{BatchDeadLetter, BatchDeadLetterChoice, BatchDeadLetterQuery};
use towpath_server::http::wire::calls::CallDetail;
use towpath_server::http::wire::dead_letters::{DeadLetterFilter, DeadLetterQuery, DropAnswer, ReplayAnswer};
use towpath_server::http::wire::functions::FunctionList;

use super::client::{Ask, Client, RequestError, routes};
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::{calls, words};

/// As many as the server deals with in one request.
const BULK_MAX: u32 = 10_000;

const EXAMPLES: &str = "\
A call becomes a dead letter when every attempt failed, or when worker after
worker died of it; a batch when it was refused, or when every attempt to
deliver it failed. Ids are found in both; filters mean calls, or with --batcher
or --batches those of batches.

Examples:
  towpath dlq ls                               what was given up, and why
  towpath dlq show ID
  towpath dlq replay ID                        runs it again as a new call
  towpath dlq replay --all --function charge   once the cause is gone
  towpath dlq drop --all --yes                 forgets all, without asking
  towpath dlq ls --batches                     those of all batchers
  towpath dlq replay --batcher orders --rate 10/s
                                               delivers them again, under the
                                               same batch ids";

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
    #[command(alias = "list")]
    Ls(ListArgs),
    /// Show one dead letter
    Show {
        /// The id of the call or the batch
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Run dead letters again: a call as a new call, a batch under its own id
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
    #[command(flatten)]
    of_batches: OfBatches,
    /// Only those given up for this reason: exhausted, poisoned; of batches max_retries_exceeded, rejected_404, ..
    #[arg(long)]
    reason: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

/// Those of batches are meant.
#[derive(Args, Debug)]
struct OfBatches {
    /// Only those of this batcher
    #[arg(long, value_name = "NAME", conflicts_with_all = ["function", "scope"])]
    batcher: Option<String>,
    /// Those of all batchers
    #[arg(long, conflicts_with_all = ["function", "scope", "batcher"])]
    batches: bool,
    /// Of batches: only those of this batch key
    #[arg(long, value_name = "KEY", conflicts_with_all = ["function", "scope"])]
    key: Option<String>,
}

impl OfBatches {
    fn are_meant(&self) -> bool {
        self.batches || self.batcher.is_some() || self.key.is_some()
    }
}

#[derive(Args, Debug)]
struct WhichArgs {
    /// Ids of calls or batches
    #[arg(value_name = "ID", conflicts_with_all = ["all", "function", "scope", "reason", "key"])]
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
    #[command(flatten)]
    of_batches: OfBatches,
    /// Only those given up for this reason: exhausted, poisoned; of batches max_retries_exceeded, rejected_404, ..
    #[arg(long)]
    reason: Option<String>,
    /// Replay so many batches per second at most, such as 10/s
    #[arg(long, value_name = "N/s", value_parser = parse_rate)]
    rate: Option<u32>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

fn parse_rate(text: &str) -> Result<u32, String> {
    let number = text.trim().trim_end_matches("/s").parse::<u32>().ok().filter(|rate| (1..=10_000).contains(rate));
    number.ok_or_else(|| format!("'{text}' is no rate: write a number from 1 to 10000 and /s, such as 10/s"))
}

pub(crate) async fn run(client: &Client, out: Output, args: DlqArgs) -> Result<Exit, Failure> {
    match args.command {
        DlqCommand::Ls(args) if args.of_batches.are_meant() => {
            let OfBatches { batcher, key, .. } = args.of_batches;
            let query = BatchDeadLetterQuery { batcher, reason: args.reason, batch_key: key, ..BatchDeadLetterQuery::default() };
            batches::list(client, out, query, args.limit).await
        }
        DlqCommand::Ls(args) => list(client, out, args).await,
        DlqCommand::Show { id } => show(client, out, &id).await,
        DlqCommand::Replay(which) if which.means_batches(client).await? => {
            if which.call_ids.is_empty() && !confirmed_batches(out, &which, "replay")? {
                return Ok(Exit::Failed);
            }
            batches::replay(client, out, &which.choice()).await
        }
        DlqCommand::Drop(which) if which.means_batches(client).await? => {
            if which.call_ids.is_empty() && !confirmed_batches(out, &which, "drop")? {
                return Ok(Exit::Failed);
            }
            batches::drop_chosen(client, out, &which.choice()).await
        }
        DlqCommand::Replay(which) if which.call_ids.is_empty() => replay_all(client, out, which).await,
        DlqCommand::Replay(which) => replay_each(client, out, &which.call_ids).await,
        DlqCommand::Drop(which) if which.call_ids.is_empty() => drop_all(client, out, which).await,
        DlqCommand::Drop(which) => drop_each(client, out, &which.call_ids).await,
    }
}

/// A call's, or else a batch's.
async fn show(client: &Client, out: Output, id: &str) -> Result<Exit, Failure> {
    let call: Result<CallDetail, RequestError> = client.get(&routes::dead_letter(id)).await;
    match call {
        Ok(call) => {
            calls::show_one(out, &call);
            Ok(Exit::Done)
        }
        Err(error) if error.is_not_found() => batches::show(client, out, id).await,
        Err(error) => Err(error.into()),
    }
}

impl WhichArgs {
    /// Whether dead letters of batches are meant: said so, or the first id is one.
    async fn means_batches(&self, client: &Client) -> Result<bool, Failure> {
        let Some(id) = self.call_ids.first().filter(|_| !self.of_batches.are_meant()) else { return Ok(self.of_batches.are_meant()) };
        let batch: Result<BatchDeadLetter, RequestError> = client.get(&routes::batch_dead_letter(id)).await;
        Ok(batch.is_ok())
    }

    fn choice(&self) -> BatchDeadLetterChoice {
        let filtered = self.of_batches.batcher.is_some() || self.of_batches.key.is_some() || self.reason.is_some();
        BatchDeadLetterChoice {
            ids: self.call_ids.clone(),
            batcher: self.of_batches.batcher.clone(),
            reason: self.reason.clone(),
            batch_key: self.of_batches.key.clone(),
            all: self.call_ids.is_empty() && !filtered,
            rate_per_second: self.rate,
        }
    }
}

/// Whether a person must be asked first. What is dropped is gone, so without a person who could be asked it needs --yes.
fn must_ask(out: Output, which: &WhichArgs, verb: &str) -> Result<bool, Failure> {
    let person_is_there = std::io::stdin().is_terminal() && out.stderr_is_terminal();
    if verb == "drop" && !which.yes && !person_is_there {
        let message = "dropped dead letters are gone for good, and there is no terminal to ask at: nothing was dropped";
        return Err(Failure::usage("not_confirmed", message).field("yes").hint("say --yes if that is meant"));
    }
    Ok(person_is_there && !which.yes)
}

/// Asks the person who is there, if there is one.
fn confirmed_batches(out: Output, which: &WhichArgs, verb: &str) -> Result<bool, Failure> {
    if !must_ask(out, which, verb)? {
        return Ok(true);
    }
    let whose = which.of_batches.batcher.as_deref().map_or("of all batchers".to_owned(), |name| format!("of batcher '{name}'"));
    out.error_line(&format!("{verb} the dead letters {whose} that match? [y/N]"));
    let agrees = says_yes();
    if !agrees {
        out.note("nothing was done");
    }
    Ok(agrees)
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
        return Err(Failure::usage("missing_choice", message).hint("`towpath dlq ls` shows them"));
    }
    if must_ask(out, &which, verb)? && !person_agrees(client, out, &which, verb).await? {
        out.note("nothing was done");
        return Ok(None);
    }
    Ok(Some(DeadLetterFilter { function: which.function, scope: which.scope, reason: which.reason, max: Some(BULK_MAX) }))
}

async fn person_agrees(client: &Client, out: Output, which: &WhichArgs, verb: &str) -> Result<bool, Failure> {
    let list: FunctionList = client.get_all(routes::FUNCTIONS).await?;
    let matches = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
    let meant = list.functions.iter().filter(|function| matches(&which.function, &function.name) && matches(&which.scope, &function.scope));
    let dead: u64 = meant.map(|function| function.dead).sum();
    let about = if which.reason.is_some() { "up to " } else { "" };
    out.error_line(&format!("{verb} {about}{}? [y/N]", words::plural(dead, "dead letter")));
    Ok(says_yes())
}

fn says_yes() -> bool {
    let mut answer = String::new();
    let _nothing_is_no = std::io::stdin().lock().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes")
}
