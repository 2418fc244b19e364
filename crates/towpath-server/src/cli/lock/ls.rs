//! `towpath lock ls` and `towpath lock show`: who holds what, and who waits.

use clap::Args;
use comfy_table::Cell;
use towpath_server::http::wire::locks::{LockBody, LockKindQuery, LockList, LockQueryBody, UnitsBody};

use crate::cli::client::{Client, routes};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, count, facts, table};

/// As many as the server shows at once.
const PAGE: u32 = 200;
const KINDS: [&str; 3] = ["exclusive", "semaphore", "rw"];

#[derive(Args, Debug)]
pub(super) struct LsArgs {
    /// Only scopes that begin so
    #[arg(long)]
    prefix: Option<String>,
    /// Only this kind [default: all]
    #[arg(long, value_parser = KINDS)]
    kind: Option<String>,
    /// Also find locks of legacy workflows that were never met or named, by looking at the names of all keys
    #[arg(long)]
    scan: bool,
}

pub(super) async fn list(client: &Client, out: Output, args: LsArgs) -> Result<Exit, Failure> {
    let mut locks = Vec::new();
    for kind in KINDS.into_iter().filter(|kind| args.kind.as_deref().is_none_or(|wanted| wanted == *kind)) {
        locks.extend(of_kind(client, &args, kind).await?);
    }
    if out.is_json() {
        out.json(&LockList { locks, next: None });
        return Ok(Exit::Done);
    }
    if locks.is_empty() {
        out.note("no locks are held or waited for");
        return Ok(Exit::Done);
    }
    let mut shown = table(["scope", "kind", "holder", "workflow", "execution", "fence", "waiting"]);
    for lock in &locks {
        let (holder, workflow, execution) = who(lock);
        let texts = [&lock.scope, &lock.kind, &holder, &workflow, &execution].map(Cell::new);
        shown.add_row(texts.into_iter().chain([Cell::new(lock.fence_high), count(lock.waiter_count)]));
    }
    out.table(&shown);
    Ok(Exit::Done)
}

async fn of_kind(client: &Client, args: &LsArgs, kind: &str) -> Result<Vec<LockBody>, Failure> {
    let (mut locks, mut cursor) = (Vec::new(), None);
    loop {
        let scan = (args.scan && kind == "exclusive").then_some(true);
        let query = LockQueryBody { prefix: args.prefix.clone(), cursor, limit: Some(PAGE), kind: Some(kind.to_owned()), scan };
        let page: LockList = client.get(&routes::with_query(routes::LOCKS, &query)).await?;
        locks.extend(page.locks);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(locks);
        }
    }
}

/// Holder, workflow, execution: of units those of the first, and how many more there are.
fn who(lock: &LockBody) -> (String, String, String) {
    let none = || "-".to_owned();
    match (&lock.holder, lock.holders.as_slice()) {
        (Some(holder), _) => (holder.lock_id.clone(), holder.workflow_name.clone(), holder.execution_id.clone()),
        (None, [first, rest @ ..]) => {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            (format!("{}{more}", first.lock_id), none(), first.execution_id.clone().unwrap_or_else(none))
        }
        (None, []) => (none(), none(), none()),
    }
}

pub(super) async fn show(client: &Client, out: Output, scope: &str, kind: &str) -> Result<Exit, Failure> {
    let query = LockKindQuery { kind: Some(kind.to_owned()) };
    let lock: LockBody = client.get(&routes::with_query(&routes::lock(scope), &query)).await?;
    if out.is_json() {
        out.json(&lock);
        return Ok(Exit::Done);
    }
    let mut lines = vec![("scope", lock.scope), ("kind", lock.kind)];
    match (lock.holder, lock.holders.as_slice()) {
        (Some(holder), _) => lines.extend([
            ("holder", format!("{} ({})", holder.lock_id, holder.kind)),
            ("workflow", format!("{} ({})", holder.workflow_name, holder.workflow_id)),
            ("execution", holder.execution_id),
            ("since", holder.locked_at),
            ("fence", holder.fence.map_or_else(|| "none".to_owned(), |fence| fence.to_string())),
        ]),
        (None, []) => lines.push(("holder", "nobody".to_owned())),
        (None, holders) => lines.push(("holders", holders.iter().map(units).collect::<Vec<_>>().join("\n"))),
    }
    let waiting: Vec<String> = lock.waiters.into_iter().map(|waiter| waiter.waiter).collect();
    lines.push(("waiting", if waiting.is_empty() { "nobody".to_owned() } else { waiting.join("\n") }));
    out.line(&facts(&lines));
    Ok(Exit::Done)
}

fn units(held: &UnitsBody) -> String {
    format!("{} (units {}, fence {})", held.lock_id, held.weight, held.fence)
}
