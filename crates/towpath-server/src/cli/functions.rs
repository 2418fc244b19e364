//! `towpath functions`: what can be called, and who serves it.

use clap::{Args, Subcommand};
use comfy_table::Cell;
use towpath_core::call::{Backoff, RetryPolicy};
use towpath_core::worker::FunctionLimits;
use towpath_server::http::wire::functions::{
    DefineBody, FunctionBody, FunctionList, LimitsBody, RateBody, RetryBody, ScopeQuery, StreamBody, StreamGroupBody, TargetBody,
};

use super::client::{Ask, Client, routes};
use super::exit::Exit;
use super::failure::Failure;
use super::output::{self, Output};
use super::{json_text, words};

const EXAMPLES: &str = "\
Examples:
  towpath functions               all of them, with their backlog and workers
  towpath functions show add      parameters, retries and limits of one
  towpath functions define mail --target https://example.org/hooks/mail
                                  the server posts each call there
  towpath functions forget mail   without workers, open calls, dead letters";

/// List, show, define or forget functions
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FunctionsArgs {
    #[command(subcommand)]
    command: Option<FunctionsCommand>,
}

#[derive(Subcommand, Debug)]
enum FunctionsCommand {
    /// List all functions (the default)
    #[command(alias = "list")]
    Ls,
    /// Show one function
    Show(NameArgs),
    /// Define a function without a worker of its own: its calls are posted to a URL
    Define(DefineArgs),
    /// Forget a function that has no worker and no open call
    Forget(NameArgs),
}

#[derive(Args, Debug)]
struct NameArgs {
    /// The function's name
    name: String,
    /// The scope in which it is known
    #[arg(long)]
    scope: Option<String>,
}

#[derive(Args, Debug)]
struct DefineArgs {
    #[command(flatten)]
    function: NameArgs,
    /// Where the server posts each call; the response is the result
    #[arg(long, value_name = "URL")]
    target: Option<String>,
    /// How many calls are posted at once [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    concurrency: Option<u32>,
    /// One sentence for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Parameter definitions (a JSON list) or a JSON Schema (an object), or @FILE
    #[arg(long, value_name = "JSON")]
    parameters: Option<String>,
    /// How often a call is tried before it becomes a dead letter
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: Option<u32>,
    /// Calls that may wait; more are refused
    #[arg(long, value_name = "N")]
    max_backlog: Option<u64>,
    /// Calls that may run at once over all workers
    #[arg(long, value_name = "N")]
    max_concurrent: Option<u32>,
    /// Spread its calls over so many more streams of a Redis, without an order among them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    shards: Option<u16>,
    #[command(flatten)]
    rate: RateArgs,
}

/// The policy that each call takes from.
#[derive(Args, Debug)]
pub(crate) struct RateArgs {
    /// Calls wait for their turn by this policy: see `towpath limit put`
    #[arg(long, value_name = "POLICY")]
    rate: Option<String>,
    /// What the policy limits, where several functions share it [default: the function's name]
    #[arg(long, value_name = "SCOPE", requires = "rate")]
    rate_scope: Option<String>,
}

impl RateArgs {
    pub(crate) fn body(&self) -> Option<RateBody> {
        self.rate.clone().map(|policy| RateBody { policy, scope: self.rate_scope.clone() })
    }
}

impl FunctionsArgs {
    /// Whether a store may begin with it.
    pub(crate) fn puts_something(&self) -> bool {
        matches!(self.command, Some(FunctionsCommand::Define(_)))
    }
}

pub(crate) async fn run(client: &Client, out: Output, args: FunctionsArgs) -> Result<Exit, Failure> {
    match args.command.unwrap_or(FunctionsCommand::Ls) {
        FunctionsCommand::Ls => list(client, out).await,
        FunctionsCommand::Show(args) => show(client, out, &args).await,
        FunctionsCommand::Define(args) => define(client, out, args).await,
        FunctionsCommand::Forget(args) => forget(client, out, &args).await,
    }
}

async fn list(client: &Client, out: Output) -> Result<Exit, Failure> {
    let list: FunctionList = client.get_all(routes::FUNCTIONS).await?;
    if out.is_json() {
        out.json(&list);
        return Ok(Exit::Done);
    }
    if list.functions.is_empty() {
        out.note("no function is known yet; serve one with `towpath worker NAME --exec CMD`");
        return Ok(Exit::Done);
    }
    let mut table = output::table(["function", "scope", "queued", "delayed", "running", "dead", "workers", "oldest", "description"]);
    for function in &list.functions {
        table.add_row(vec![
            Cell::new(&function.name),
            Cell::new(&function.scope),
            output::count(function.queued),
            output::count(function.delayed),
            output::count(function.running),
            output::count(function.dead),
            Cell::new(served_by(function)),
            Cell::new(function.oldest_queued_age_ms.map_or_else(String::new, age)),
            Cell::new(json_text::brief(function.description.as_deref().unwrap_or_default(), 60)),
        ]);
    }
    out.table(&table);
    Ok(Exit::Done)
}

fn served_by(function: &FunctionBody) -> String {
    match (function.healthy_workers, function.workers) {
        (0, 0) if function.target.is_some() => "push".to_owned(),
        (healthy, all) if healthy == all => healthy.to_string(),
        (healthy, all) => format!("{healthy} of {all}"),
    }
}

fn age(ms: u64) -> String {
    words::length(std::time::Duration::from_millis(ms))
}

async fn show(client: &Client, out: Output, args: &NameArgs) -> Result<Exit, Failure> {
    let function: FunctionBody = client.get(&target_of(args)).await?;
    if out.is_json() {
        out.json(&function);
    } else {
        out.line(&output::facts(&facts(&function)));
    }
    Ok(Exit::Done)
}

fn target_of(args: &NameArgs) -> String {
    routes::with_query(&routes::function(&args.name), &ScopeQuery { scope: args.scope.clone() })
}

fn facts(function: &FunctionBody) -> Vec<(&'static str, String)> {
    let mut facts = vec![("function", function.name.clone()), ("scope", function.scope.clone())];
    facts.extend(function.description.clone().map(|text| ("description", text)));
    facts.extend(function.target.as_ref().map(|target| ("target", format!("{}, {} at a time", target.url, target.concurrency))));
    facts.push(("workers", format!("{} healthy of {}", function.healthy_workers, function.workers)));
    let calls = [
        (function.queued, "queued"),
        (function.delayed, "delayed"),
        (function.running, "running"),
        (function.parked, "of them waiting for a nested call"),
        (function.dead, "dead"),
    ];
    facts.push(("calls", calls.map(|(number, state)| format!("{number} {state}")).join(", ")));
    facts.extend(function.oldest_queued_age_ms.map(|ms| ("oldest queued", age(ms))));
    facts.extend(function.stream.as_ref().and_then(stream).map(|text| ("legacy stream", text)));
    facts.extend(function.problems.iter().map(|problem| ("problem", problem.clone())));
    facts.push(("retries", retries(&function.retry)));
    facts.push(("limits", limits(&function.limits)));
    facts.extend(function.parameters.as_ref().map(|parameters| ("parameters", json_text::pretty(parameters.get()))));
    facts
}

/// How the stream of legacy peers is; `None` when no peer uses it.
fn stream(stream: &StreamBody) -> Option<String> {
    let is_used =
        stream.length > 0 || stream.pending > 0 || stream.groups.iter().any(|group| group.consumers > 0) || stream.groups.len() > 1;
    let old = |ms: Option<u64>| ms.map_or_else(String::new, |ms| format!(", the oldest {} old", age(ms)));
    let group = |group: &StreamGroupBody| format!("{} ({} consumers, {} pending)", group.name, group.consumers, group.pending);
    let groups = stream.groups.iter().map(group).collect::<Vec<_>>().join(", ");
    is_used.then(|| {
        let (entries, pending) = (old(stream.oldest_age_ms), old(stream.oldest_pending_age_ms));
        format!("{} entries{entries}; {} read and not finished{pending}; groups: {groups}", stream.length, stream.pending)
    })
}

fn retries(policy: &RetryPolicy) -> String {
    let ms = |ms: u64| words::length(std::time::Duration::from_millis(ms));
    let wait = match policy.backoff {
        Backoff::Fixed { delay_ms } => format!("{} apart", ms(delay_ms)),
        Backoff::Exponential { delay_ms, delay_ms_max } => format!("{} apart and doubling up to {}", ms(delay_ms), ms(delay_ms_max)),
    };
    let attempts = words::plural(policy.max_attempts.into(), "attempt");
    format!("{attempts}, {wait}; given up after {}", words::plural(policy.max_deliveries.into(), "lost worker"))
}

fn limits(limits: &FunctionLimits) -> String {
    let backlog = limits.max_backlog.map_or_else(|| "any backlog".to_owned(), |max| format!("backlog of {max}"));
    let at_once = limits.max_concurrent.map_or_else(|| "any number at once".to_owned(), |max| format!("{max} at once"));
    let rate = limits.rate.as_ref().map_or_else(String::new, |rate| {
        let scope = rate.scope.as_ref().map_or_else(String::new, |scope| format!(" of scope '{scope}'"));
        format!(", turns by policy '{}'{scope}", rate.policy)
    });
    let spread = limits.shards.map_or_else(String::new, |shards| format!(", spread over {shards} more streams on a Redis"));
    format!("{backlog}, {at_once}, {} bytes of parameters{rate}{spread}", limits.max_payload_bytes)
}

async fn define(client: &Client, out: Output, args: DefineArgs) -> Result<Exit, Failure> {
    let parameters = args.parameters.as_deref().map(|text| json_text::read_argument("parameters", text)).transpose()?;
    let (max_backlog, max_concurrent, shards) = (args.max_backlog, args.max_concurrent, args.shards);
    let limited = max_backlog.is_some() || max_concurrent.is_some() || shards.is_some() || args.rate.body().is_some();
    let body = DefineBody {
        scope: args.function.scope,
        description: args.description,
        parameters,
        retry: args.max_attempts.map(|max_attempts| RetryBody { max_attempts: Some(max_attempts), ..RetryBody::default() }),
        limits: limited.then_some(LimitsBody { max_backlog, max_concurrent, max_payload_bytes: None, rate: args.rate.body(), shards }),
        target: args.target.map(|url| TargetBody { url, concurrency: args.concurrency }),
    };
    let defined: FunctionBody = client.ask(Ask::put(&routes::function(&args.function.name), &body)).await?;
    if out.is_json() {
        out.json(&defined);
    } else {
        out.line(&output::facts(&facts(&defined)));
    }
    Ok(Exit::Done)
}

async fn forget(client: &Client, out: Output, args: &NameArgs) -> Result<Exit, Failure> {
    let was: FunctionBody = client.ask(Ask::delete(&target_of(args))).await?;
    if out.is_json() {
        out.json(&was);
    } else {
        out.line(&format!("forgot '{}'", args.name));
    }
    Ok(Exit::Done)
}
