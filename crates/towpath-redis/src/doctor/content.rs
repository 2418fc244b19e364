//! What lies in the Redis: workers that are gone and still listed, deliveries that nobody finishes, groups that are missing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use towpath_core::clock::Clock;
use towpath_core::names::{FunctionKey, FunctionName, WorkerId};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::check::Check;
use super::{kinds, past};
use crate::about;
use crate::clock::ServerClock;
use crate::keys::{self, Keys};
use crate::link::{Link, trouble};
use crate::options::RedisOptions;

/// Enough to see what is wrong; a doctor does not read everything.
const FUNCTIONS_MAX: usize = 200;
const ENTRIES_MAX: usize = 100;
const NAMES_SHOWN: usize = 5;
/// A worker that was silent for so long is not healthy.
const SILENT: Duration = Duration::from_secs(30);
/// Deliveries are taken over when their lease of 30 s ends; one that is much older is nobody's.
const OLD: Duration = Duration::from_secs(120);
/// Legacy peers trim their streams to about so many entries.
const LONG_STREAM: u64 = 10_000;

/// What was seen of all functions.
#[derive(Default)]
struct Seen {
    functions: usize,
    ghosts: Vec<String>,
    /// Workers that are alive and know nothing of Towpath.
    old: Vec<String>,
    /// Entries in all streams, and the longest stream.
    entries: u64,
    longest: Option<(u64, String)>,
    pending: u64,
    oldest: Option<(Duration, String)>,
    bodiless: Vec<String>,
    groupless: Vec<String>,
}

/// All checks of the content.
pub(crate) async fn checks(link: &Link, options: &RedisOptions, local: &Arc<dyn Clock>) -> Result<Vec<Check>, StoreError> {
    let keys = &Keys::of(options);
    let clock = ServerClock::new(Arc::clone(local));
    clock.measure(link).await?;
    let mut checks = Vec::new();
    let functions = match functions(link, keys).await? {
        Functions::Known(functions) => {
            checks.extend(of_functions(link, keys, &functions, clock.now()).await?);
            functions
        }
        Functions::NotPermitted => {
            checks.push(Check::not_permitted("content", "SMEMBERS"));
            Vec::new()
        }
        // The check of the kinds of keys names it.
        Functions::Replaced => Vec::new(),
    };
    checks.insert(0, kinds::keys(link, options, &functions).await?);
    checks.push(past::records(link, keys, &functions).await?);
    checks.push(past::losses(link, keys, clock.now()).await?);
    Ok(checks)
}

/// The checks of what functions have in streams and sets of legacy peers.
async fn of_functions(link: &Link, keys: &Keys, functions: &[FunctionKey], now: Timestamp) -> Result<[Check; 6], StoreError> {
    let mut seen = Seen { functions: functions.len(), ..Seen::default() };
    let names: BTreeSet<&FunctionName> = functions.iter().map(|function| &function.name).collect();
    for name in names {
        look_at_workers(link, name, now, &mut seen).await?;
    }
    for function in functions {
        look_at_stream(link, keys, function, &mut seen).await?;
    }
    Ok([registry(&seen), old_peers(&seen), streams(&seen), groups(&seen), pending(&seen), bodies(&seen)])
}

/// The set of all functions, as far as it can be read.
enum Functions {
    Known(Vec<FunctionKey>),
    NotPermitted,
    /// The key is not a set.
    Replaced,
}

async fn functions(link: &Link, keys: &Keys) -> Result<Functions, StoreError> {
    let mut ask = Cmd::new();
    ask.arg("SMEMBERS").arg(keys.functions());
    let reply = link.ask_all(&[ask]).await?.pop().unwrap_or(Value::Nil);
    match about::refusal(&reply) {
        Some(refused) if about::is_about_rights(&refused) => return Ok(Functions::NotPermitted),
        Some(refused) if refused.starts_with("WRONGTYPE") => return Ok(Functions::Replaced),
        Some(refused) => return Err(trouble(format!("the Redis server refused it ({refused})"))),
        None => {}
    }
    let members: Vec<Vec<u8>> = redis::from_redis_value(reply).unwrap_or_default();
    let members = members.iter().filter_map(|member| std::str::from_utf8(member).ok());
    let parsed = members.take(FUNCTIONS_MAX).filter_map(|member| {
        let (scope, name) = member.split_once('\n')?;
        Some(FunctionKey { scope: scope.parse().ok()?, name: name.parse().ok()? })
    });
    Ok(Functions::Known(parsed.collect()))
}

/// Workers that are listed for a name: those that have not said for long that they are alive, and old ones.
async fn look_at_workers(link: &Link, name: &FunctionName, now: Timestamp, seen: &mut Seen) -> Result<(), StoreError> {
    let listed = asked::<Vec<String>>(link, Cmd::new().arg("SMEMBERS").arg(keys::registry(name))).await?.unwrap_or_default();
    for worker in listed.iter().take(ENTRIES_MAX) {
        let Ok(id) = worker.parse::<WorkerId>() else { continue };
        let mut meta = Cmd::new();
        meta.arg("HMGET").arg(keys::meta(&id, name)).arg("lastHeartbeat").arg("proto");
        let (beat, proto) = asked::<(Option<String>, Option<String>)>(link, &meta).await?.unwrap_or_default();
        let beat = beat.and_then(|beat| beat.parse::<i64>().ok()).map(Timestamp::from_millis);
        if beat.is_none_or(|beat| now.since(beat) > SILENT) {
            seen.ghosts.push(format!("{worker} ({name})"));
        } else if proto.is_none() {
            seen.old.push(format!("{worker} ({name})"));
        }
    }
    Ok(())
}

async fn look_at_stream(link: &Link, keys: &Keys, function: &FunctionKey, seen: &mut Seen) -> Result<(), StoreError> {
    let of = keys.function(function);
    let length = asked::<u64>(link, Cmd::new().arg("XLEN").arg(&of.stream)).await?.unwrap_or(0);
    seen.entries += length;
    if length > seen.longest.as_ref().map_or(0, |(longest, _)| *longest) {
        seen.longest = Some((length, function.to_string()));
    }
    // An extended XPENDING gives id, consumer, idle time and deliveries, oldest id first.
    let mut command = Cmd::new();
    command.arg("XPENDING").arg(&of.stream).arg(&of.group).arg("-").arg("+").arg(ENTRIES_MAX);
    let reply = link.ask_all(&[command]).await?.pop().unwrap_or(Value::Nil);
    if about::refusal(&reply).is_some_and(|refused| refused.starts_with("NOGROUP")) {
        if length > 0 {
            seen.groupless.push(function.to_string());
        }
        return Ok(());
    }
    let entries: Vec<(String, String, u64, u64)> = redis::from_redis_value(reply).unwrap_or_default();
    let summary: Option<Value> = asked(link, Cmd::new().arg("XPENDING").arg(&of.stream).arg(&of.group)).await?;
    seen.pending += summary.and_then(first_number).unwrap_or(0);
    for (id, _, idle_ms, _) in entries {
        let idle = Duration::from_millis(idle_ms);
        if seen.oldest.as_ref().is_none_or(|(oldest, _)| idle > *oldest) {
            seen.oldest = Some((idle, function.to_string()));
        }
        let mut body = Cmd::new();
        body.arg("XRANGE").arg(&of.stream).arg(&id).arg(&id);
        let body: Option<Vec<Value>> = asked(link, &body).await?;
        if body.is_some_and(|body| body.is_empty()) {
            seen.bodiless.push(format!("{id} ({function})"));
        }
    }
    Ok(())
}

/// An answer that is understood; `None` when this user must not ask, or the key holds something else, which another check tells.
pub(super) async fn asked<T: FromRedisValue>(link: &Link, command: &Cmd) -> Result<Option<T>, StoreError> {
    let reply = link.ask_all(std::slice::from_ref(command)).await?.pop().unwrap_or(Value::Nil);
    match about::refusal(&reply) {
        None => Ok(redis::from_redis_value(reply).ok()),
        Some(refused) if about::is_about_rights(&refused) || refused.starts_with("WRONGTYPE") => Ok(None),
        Some(refused) => Err(trouble(format!("the Redis server refused it ({refused})"))),
    }
}

fn first_number(summary: Value) -> Option<u64> {
    match summary {
        Value::Array(parts) => redis::from_redis_value(parts.into_iter().next()?).ok(),
        _ => None,
    }
}

fn registry(seen: &Seen) -> Check {
    if seen.ghosts.is_empty() {
        return Check::ok("registry", format!("{} function(s), and every listed worker is alive", seen.functions));
    }
    let says = format!("{} worker(s) are listed and not alive: {}", seen.ghosts.len(), some_of(&seen.ghosts));
    Check::warn("registry", says, "old callers may wait for them: a running Towpath server removes them, or SREM function:NAME WORKER")
}

fn old_peers(seen: &Seen) -> Check {
    if seen.old.is_empty() {
        return Check::ok("old peers", "every worker that is alive knows Towpath");
    }
    let says = format!("{} worker(s) know nothing of Towpath: {}", seen.old.len(), some_of(&seen.old));
    let advice = "they work, but what they take is not renewed, retried or kept; replace them when you can (docs/redis.md, known limits)";
    Check::warn("old peers", says, advice)
}

fn streams(seen: &Seen) -> Check {
    const NAME: &str = "streams";
    let Some((longest, function)) = &seen.longest else { return Check::ok(NAME, "no entries of legacy peers") };
    let says = format!("{} entries of legacy peers, the most ({longest}) of '{function}'", seen.entries);
    if *longest <= LONG_STREAM {
        return Check::ok(NAME, says);
    }
    Check::warn(
        NAME,
        says,
        "Towpath removes entries that are finished: is a worker of that function alive, and does another group hold them?",
    )
}

fn groups(seen: &Seen) -> Check {
    if seen.groupless.is_empty() {
        return Check::ok("groups", "every stream with calls in it has its group");
    }
    let says = format!("streams without a consumer group, so that nobody gets their calls: {}", some_of(&seen.groupless));
    Check::warn("groups", says, "start a worker for them: it makes the group and gets what waits")
}

fn pending(seen: &Seen) -> Check {
    match &seen.oldest {
        None => Check::ok("deliveries", "none under way"),
        Some((idle, function)) if *idle > OLD => Check::warn(
            "deliveries",
            format!("{} under way, and one of '{function}' was last heard of {} s ago", seen.pending, idle.as_secs()),
            "is any worker of that function alive? The next one that starts takes it over",
        ),
        Some((idle, _)) => Check::ok("deliveries", format!("{} under way, the quietest heard of {} s ago", seen.pending, idle.as_secs())),
    }
}

fn bodies(seen: &Seen) -> Check {
    if seen.bodiless.is_empty() {
        return Check::ok("bodies", "every delivery under way still has its call");
    }
    let says = format!("{} delivered entries are gone from their streams: {}", seen.bodiless.len(), some_of(&seen.bodiless));
    let advice = "somebody trims these streams by MAXLEN or deletes entries; Towpath trims only what is finished, so look for old peers";
    Check::warn("bodies", says, advice)
}

pub(super) fn some_of(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMES_SHOWN { format!("{shown} and {} more", names.len() - NAMES_SHOWN) } else { shown }
}
