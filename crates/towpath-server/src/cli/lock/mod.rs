//! `towpath lock`: only one at a time, among all who use the same store.

mod asking;
mod ls;
mod run;

use std::cell::Cell;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use towpath_server::http::wire::locks::{
    AcquireAnswer, CleanupAnswer, CleanupBody, ForceLockAnswer, ForceLockBody, LockBody, LockKindQuery, ReleaseLockAnswer, ReleaseLockBody,
    RenewLockAnswer, RenewLockBody,
};

use self::asking::AskArgs;
use super::client::{Ask, Client, routes};
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::{ids, words};

const EXAMPLES: &str = "\
Examples:
  towpath lock run nightly -- ./import.sh          the program runs while the lock is held
  towpath lock run nightly --wait 30s -- make all  waits its turn first
  towpath lock acquire excel --ttl 10m --wait 30s  prints the fence
  towpath lock release excel --fence 959328001
  towpath lock ls                                  who holds what, and who waits
  towpath lock ls --scan                           with every lock of older workflows
  towpath lock release excel --force --reason 'its host burnt down'

The fence rises with every grant of the same scope. Hand it to what the lock protects, which
refuses a smaller one than it has seen: a holder that was paused for too long
cannot do harm.

A program of `lock run` gets SIGTERM when the lock is lost, and when `lock run`
gets SIGTERM, Ctrl-C or a closed terminal. What it started and left running then
has ten seconds to end before it is killed (on Linux); only after that does
`lock run` release the lock. If `lock run` itself is killed, the program and all
that it started are killed at once (on Linux). What a program that ends by itself
leaves running lives on.";

/// Take, hold, release and look at locks
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LockArgs {
    #[command(subcommand)]
    command: LockCommand,
}

#[derive(Subcommand, Debug)]
enum LockCommand {
    /// Take a lock and print its fence
    Acquire(AcquireArgs),
    /// Prolong the lease of a lock
    Renew(RenewArgs),
    /// Release a lock
    Release(ReleaseArgs),
    /// Run a program while the lock is held
    Run(run::RunArgs),
    /// List locks that are held or waited for
    #[command(alias = "list")]
    Ls {
        #[command(flatten)]
        args: ls::LsArgs,
    },
    /// Show who holds a lock and who waits for it
    Show {
        /// What is locked
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        scope: String,
        /// What kind of lock
        #[arg(long, value_parser = ["exclusive", "semaphore", "rw"], default_value = "exclusive")]
        kind: String,
    },
    /// Free whatever a failed execution holds
    Cleanup {
        /// The execution that failed
        execution_id: String,
        /// A scope that an old workflow of it may hold; may be given several times
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        /// Look at every lock there is, whatever it is called
        #[arg(long)]
        scan: bool,
    },
}

#[derive(Args, Debug)]
struct AcquireArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// How long the holder may be silent before others get it [default: as long as --ttl]
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    lease: Option<Duration>,
}

#[derive(Args, Debug)]
struct RenewArgs {
    /// What is locked
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    scope: String,
    /// The fence that the lock was granted under
    #[arg(long, value_name = "N")]
    fence: u64,
    /// How long the holder may be silent from now on [default: as long as it was given last]
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    lease: Option<Duration>,
    /// As it was asked for
    #[arg(long, value_parser = ["exclusive", "read", "write", "semaphore"], default_value = "exclusive")]
    kind: String,
    /// Needed unless the lock is exclusive
    #[arg(long, value_name = "ID")]
    lock_id: Option<String>,
}

#[derive(Args, Debug)]
struct ReleaseArgs {
    /// What is locked
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    scope: String,
    /// The fence that the lock was granted under
    #[arg(long, value_name = "N")]
    fence: Option<u64>,
    /// Who holds it
    #[arg(long, value_name = "ID")]
    lock_id: Option<String>,
    /// As it was asked for
    #[arg(long, value_parser = ["exclusive", "read", "write", "semaphore"], default_value = "exclusive")]
    kind: String,
    /// The present holder; kept on record
    #[arg(long, requires = "reason", conflicts_with_all = ["fence", "lock_id", "kind"])]
    force: bool,
    /// Why it is forced, for the record
    #[arg(long, value_name = "TEXT", requires = "force")]
    reason: Option<String>,
}

impl LockArgs {
    /// Whether a store may begin with it.
    pub(crate) fn puts_something(&self) -> bool {
        matches!(self.command, LockCommand::Acquire(_) | LockCommand::Run(_))
    }
}

/// `program_code` gets what the program of `lock run` exited with.
pub(crate) async fn run(client: &Client, out: Output, args: LockArgs, program_code: &Cell<Option<u8>>) -> Result<Exit, Failure> {
    match args.command {
        LockCommand::Acquire(args) => acquire(client, out, args).await,
        LockCommand::Renew(args) => renew(client, out, args).await,
        LockCommand::Release(args) if args.force => force(client, out, args).await,
        LockCommand::Release(args) => release(client, out, args).await,
        LockCommand::Run(args) => run::run(client, out, args, program_code).await,
        LockCommand::Ls { args } => ls::list(client, out, args).await,
        LockCommand::Show { scope, kind } => ls::show(client, out, &scope, &kind).await,
        LockCommand::Cleanup { execution_id, scopes, scan } => {
            cleanup(client, out, CleanupBody { execution_id, lock_scopes: scopes, scan }).await
        }
    }
}

async fn acquire(client: &Client, out: Output, args: AcquireArgs) -> Result<Exit, Failure> {
    let granted: AcquireAnswer = asking::ask(client, &args.ask, args.lease, &ids::call_id()).await?;
    if out.is_json() {
        out.json(&granted);
    } else {
        out.line_of(&format!("the fence of '{}'", granted.scope), &granted.fence.unwrap_or_default().to_string());
        let release = match args.ask.kind.as_str() {
            "exclusive" => "release it with --fence".to_owned(),
            kind => release_of(&granted.scope, kind, &granted.lock_id, granted.fence),
        };
        out.note(&format!("'{}' is held as '{}'; {release}", granted.scope, granted.lock_id));
    }
    Ok(Exit::Done)
}

async fn renew(client: &Client, out: Output, args: RenewArgs) -> Result<Exit, Failure> {
    let RenewArgs { scope, fence, lease, kind, lock_id } = args;
    let body = RenewLockBody { fence, lease_ms: lease.map(asking::decimal_ms), kind: Some(kind), lock_id };
    let renewed: RenewLockAnswer = client.ask(Ask::post(&routes::lock_verb(&scope, "renew"), &body)).await?;
    if out.is_json() {
        out.json(&renewed);
    } else {
        out.line(&format!("'{scope}' is held for another {}", words::length(Duration::from_millis(renewed.lease_remaining_ms))));
    }
    Ok(Exit::Done)
}

async fn release(client: &Client, out: Output, args: ReleaseArgs) -> Result<Exit, Failure> {
    let ReleaseArgs { scope, fence, lock_id, kind, .. } = args;
    if fence.is_none() && lock_id.is_none() {
        let hint = "`towpath lock show` says who holds it";
        return Err(Failure::usage("missing_choice", "whose lock? give --fence, --lock-id, or --force with --reason").hint(hint));
    }
    let is_exclusive = kind == "exclusive";
    let body = ReleaseLockBody { fence, lock_id, kind: Some(kind) };
    let released: ReleaseLockAnswer = client.ask(Ask::post(&routes::lock_verb(&scope, "release"), &body)).await?;
    if out.is_json() {
        out.json(&released);
        return Ok(Exit::Done);
    }
    out.line(&format!("'{scope}': {}", released.outcome.replace('_', " ")));
    if is_exclusive && ["absent", "expired"].contains(&released.outcome.as_str()) {
        name_other_kinds(client, out, &scope).await;
    }
    Ok(Exit::Done)
}

/// How units of a semaphore or of a read/write lock are released.
fn release_of(scope: &str, kind: &str, lock_id: &str, fence: Option<u64>) -> String {
    let fence = fence.map_or_else(String::new, |fence| format!(" --fence {fence}"));
    format!("release it with `towpath lock release '{scope}' --kind {kind} --lock-id '{lock_id}'{fence}`")
}

/// Says which other kinds of lock are held under a scope that has no exclusive one. It is only a remark: a kind that cannot be read is left out.
async fn name_other_kinds(client: &Client, out: Output, scope: &str) {
    for (kind, word, release_kind) in [("semaphore", "semaphore", "semaphore"), ("rw", "read/write lock", "read")] {
        let query = LockKindQuery { kind: Some(kind.to_owned()) };
        let found: Result<LockBody, _> = client.get(&routes::with_query(&routes::lock(scope), &query)).await;
        if let Some(held) = found.ok().and_then(|lock| lock.holders.into_iter().next()) {
            let release = release_of(scope, release_kind, &held.lock_id, Some(held.fence));
            out.note(&format!("no exclusive lock '{scope}' is held, but a {word} of this name is, by '{}': {release}", held.lock_id));
        }
    }
}

/// Looks first, so that nothing is forced that has changed hands meanwhile.
async fn force(client: &Client, out: Output, args: ReleaseArgs) -> Result<Exit, Failure> {
    let seen: LockBody = client.get(&routes::lock(&args.scope)).await?;
    let body = ForceLockBody { counter: seen.counter, reason: args.reason.unwrap_or_default() };
    let ended: ForceLockAnswer = client.ask(Ask::delete_with(&routes::lock(&args.scope), &body)).await?;
    if out.is_json() {
        out.json(&ended);
    } else {
        let holder = ended.holder.map_or_else(|| "nobody".to_owned(), |holder| format!("'{}'", holder.lock_id));
        out.line(&format!("'{}' is free; it was held by {holder}", args.scope));
    }
    Ok(Exit::Done)
}

async fn cleanup(client: &Client, out: Output, body: CleanupBody) -> Result<Exit, Failure> {
    let cleaned: CleanupAnswer = client.ask(Ask::post(routes::LOCKS_CLEANUP, &body)).await?;
    if out.is_json() {
        out.json(&cleaned);
    } else {
        cleaned.scopes.iter().for_each(|scope| out.line(scope));
        out.note(&cleaned.reason.unwrap_or_else(|| format!("{} freed", words::plural(cleaned.cleaned_count, "lock"))));
    }
    Ok(if cleaned.cleaned { Exit::Done } else { Exit::NotFound })
}
