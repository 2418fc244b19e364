//! Keys that are not what they should be, and locks that would be held for ever. Of each server a first look at its keys, not all of them.

use std::collections::BTreeSet;

use redis::{Cmd, Value};
use towpath_core::names::FunctionKey;
use towpath_core::store::StoreError;

use super::check::Check;
use super::content::some_of;
use crate::about;
use crate::keys::{Keys, kind_of};
use crate::link::Link;
use crate::options::RedisOptions;
use crate::value;

/// About so many keys are gone through on each server, of which those that match are looked at.
const GONE_THROUGH: usize = 10_000;
const LOCKS: &str = "n8n-lock-*";

/// Whether each key that is ours or shared holds what it should. Who must not go through all keys looks at those of known functions.
pub(crate) async fn keys(link: &Link, options: &RedisOptions, functions: &[FunctionKey]) -> Result<Check, StoreError> {
    const NAME: &str = "kinds of keys";
    let (keys, mut looked_at) = (&Keys::of(options), Vec::new());
    for pattern in [format!("{}:*", keys.prefix()), "function:*".to_owned(), LOCKS.to_owned()] {
        match some_keys(link, &pattern).await? {
            Some(some) => looked_at.extend(some),
            None => {
                looked_at = of_functions(keys, functions);
                break;
            }
        }
    }
    // A look at some keys may miss those that all functions need.
    looked_at.extend(of_all(keys));
    let looked_at: BTreeSet<String> = looked_at.into_iter().collect();
    let expected = looked_at.into_iter().filter_map(|key| kind_of(keys.prefix(), &key).map(|kind| (key, kind)));
    let expected: Vec<(String, &[&str])> = expected.collect();
    let ask: Vec<Cmd> = expected.iter().map(|(key, _)| command(&["TYPE", key])).collect();
    let (mut found, mut looked_at) = (Vec::new(), 0);
    for ((key, expected), reply) in expected.iter().zip(link.ask_all(&ask).await?) {
        if about::refusal(&reply).is_some_and(|refused| about::is_about_rights(&refused)) {
            return Ok(Check::not_permitted(NAME, "TYPE"));
        }
        let kind = value::text(&reply).unwrap_or("none");
        looked_at += usize::from(kind != "none");
        if kind != "none" && !expected.contains(&kind) {
            found.push(format!("{key} is a {kind} and should be a {}", expected[0]));
        }
    }
    if found.is_empty() {
        return Ok(Check::ok(NAME, format!("{looked_at} looked at, and each holds what it should")));
    }
    let advice = "somebody else uses these names: choose another prefix (`prefix=WORD` in the store's URL), or rename what is not ours";
    Ok(Check::fail(NAME, some_of(&found), advice))
}

/// Whether locks of the seeds would end if their holder died.
pub(crate) async fn locks(link: &Link) -> Result<Check, StoreError> {
    const NAME: &str = "locks";
    let Some(keys) = some_keys(link, LOCKS).await? else {
        return Ok(Check::ok(NAME, "not looked at: this user must not go through all keys"));
    };
    let ask: Vec<Cmd> = keys.iter().map(|key| command(&["PTTL", key])).collect();
    // One that this user must not reach is somebody else's.
    let endless = |reply: Value| value::number(&reply) == Some(-1);
    let held: Vec<String> =
        keys.into_iter().zip(link.ask_all(&ask).await?).filter(|(_, ttl)| endless(ttl.clone())).map(|(key, _)| key).collect();
    if held.is_empty() {
        return Ok(Check::ok(NAME, "none without an end"));
    }
    let says = format!("{} lock(s) never end by themselves: {}", held.len(), some_of(&held));
    Ok(Check::warn(NAME, says, "if nobody holds them, delete them; whoever made them died between two commands"))
}

fn of_functions(keys: &Keys, functions: &[FunctionKey]) -> Vec<String> {
    let of_each = functions.iter().flat_map(|function| {
        let of = keys.function(function);
        [of.stream, of.calls, of.queue, of.running, of.delayed, of.deadlines, of.dead, of.parked, of.exported, of.buckets, of.workers]
    });
    of_each.collect()
}

fn of_all(keys: &Keys) -> [String; 5] {
    [keys.functions(), keys.workers(), keys.heartbeats(), keys.format(), keys.config()]
}

/// Some keys that match; `None` when this user must not look.
pub(super) async fn some_keys(link: &Link, pattern: &str) -> Result<Option<Vec<String>>, StoreError> {
    let scan = command(&["SCAN", "0", "MATCH", pattern, "COUNT", &GONE_THROUGH.to_string()]);
    let Some(pages) = about::permitted_each(link, &scan).await? else { return Ok(None) };
    let keys = |page| redis::from_redis_value::<(String, Vec<String>)>(page).map(|(_, keys)| keys).unwrap_or_default();
    Ok(Some(pages.into_iter().flat_map(keys).collect()))
}

pub(super) fn command(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}
