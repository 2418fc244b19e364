//! How much our own keys take, by what they are for. Of each server a first look at its keys, not all of them.

use std::collections::BTreeMap;

use redis::{Cmd, Value};
use towpath_core::store::StoreError;

use super::check::Check;
use super::kinds::{command, some_keys};
use crate::about;
use crate::link::Link;
use crate::options::RedisOptions;
use crate::value;

/// Of so many keys the bytes are asked.
const WEIGHED_MAX: usize = 2_000;

/// Number and bytes of keys.
#[derive(Clone, Copy, Default)]
struct Size {
    keys: usize,
    bytes: u64,
}

/// Keys and bytes of calls, locks, limits, batches and the rest.
pub(crate) async fn own_keys(link: &Link, options: &RedisOptions) -> Result<Check, StoreError> {
    const NAME: &str = "size";
    let mut names = Vec::new();
    for pattern in [
        format!("{}:*", options.prefix),
        "function:*".to_owned(),
        "n8n-*".to_owned(),
        "queue:*".to_owned(),
        "batch:*".to_owned(),
        "dlq:*".to_owned(),
        "workflow/*".to_owned(),
    ] {
        match some_keys(link, &pattern).await? {
            Some(some) => names.extend(some),
            None => return Ok(Check::ok(NAME, "not looked at: this user must not go through all keys")),
        }
    }
    let found = names.len();
    names.truncate(WEIGHED_MAX);
    let weights = weigh(link, &names).await?;
    let may_weigh = weights.is_some();
    let mut sizes: BTreeMap<&str, Size> = BTreeMap::new();
    for (number, name) in names.iter().enumerate() {
        let size = sizes.entry(room_of(&options.prefix, name)).or_default();
        size.keys += 1;
        size.bytes += weights.as_ref().and_then(|weights| weights.get(number)).map_or(0, bytes);
    }
    let each = sizes.iter().map(|(room, size)| match may_weigh {
        true => format!("{room} {} in {} key(s)", in_words(size.bytes), size.keys),
        false => format!("{room} {} key(s)", size.keys),
    });
    let each = each.collect::<Vec<_>>().join(", ");
    let all: u64 = sizes.values().map(|size| size.bytes).sum();
    let of = if found > names.len() { format!(", of {found} found in a first look") } else { String::new() };
    let all = if may_weigh { format!("{} in ", in_words(all)) } else { String::new() };
    let says = if each.is_empty() { "no key yet".to_owned() } else { format!("{all}{} key(s){of}: {each}", names.len()) };
    Ok(Check::ok(NAME, says))
}

/// The bytes of each key; `None` when this user must not ask. One question finds that out: the server keeps a record of those who try.
async fn weigh(link: &Link, names: &[String]) -> Result<Option<Vec<Value>>, StoreError> {
    let ask: Vec<Cmd> = names.iter().map(|key| command(&["MEMORY", "USAGE", key])).collect();
    match ask.first() {
        Some(first) if about::permitted(link, first).await?.is_none() => Ok(None),
        _ => link.ask_all(&ask).await.map(Some),
    }
}

/// What a key is for.
fn room_of(prefix: &str, key: &str) -> &'static str {
    let Some(own) = key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(':')) else {
        return match key {
            _ if key.starts_with("n8n-lock-") => "locks",
            _ if key.starts_with("n8n-ratelimit-") => "limits",
            _ if key.starts_with("function:") => "legacy peers",
            _ if key.starts_with("workflow/") => "runs",
            _ => "batches",
        };
    };
    if own.starts_with("batch") || own.starts_with("{batch:") {
        "batches"
    } else if own.starts_with("limit:") || own.starts_with("{n8n-ratelimit-") {
        "limits"
    } else if ["{workflow/", "{ref/", "{registry}"].iter().any(|start| own.starts_with(start)) {
        "runs"
    } else if own.starts_with("lock:") || own.starts_with('{') {
        "locks"
    } else if own.starts_with("ended:") || own.starts_with("listed:") {
        "ended calls"
    } else if own.contains(":{") {
        "calls"
    } else {
        "other"
    }
}

fn bytes(weight: &Value) -> u64 {
    value::number(weight).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default()
}

fn in_words(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_counted_where_it_belongs() {
        for (key, room) in [
            ("t:calls:{function:stream:__global__:add}", "calls"),
            ("t:ended:{function:stream:__global__:add}:8.1", "ended calls"),
            ("t:{n8n-lock-excel}:s", "locks"),
            ("t:{semaphore:excel}:p", "locks"),
            ("t:lock:index", "locks"),
            ("n8n-lock-excel", "locks"),
            ("t:{batch:orders:0}:m:anna", "batches"),
            ("t:{batch:deadlines}:fly", "batches"),
            ("queue:batch:anna", "batches"),
            ("dlq:input_contour", "batches"),
            ("t:{n8n-ratelimit-mail}:x", "limits"),
            ("function:stream:__global__:add", "legacy peers"),
            ("t:pulse", "other"),
        ] {
            assert_eq!(room_of("t", key), room, "{key}");
        }
    }
}
