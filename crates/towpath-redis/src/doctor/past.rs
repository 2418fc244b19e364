//! What others left: records that this version cannot read, and losses that somebody noticed.

use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::names::{CallId, FunctionKey};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::check::Check;
use super::content::{asked, some_of};
use crate::definition::{WorkerRecord, read_definition};
use crate::incarnation::read_loss;
use crate::keys::{FunctionKeys, Keys};
use crate::link::Link;
use crate::pages::Listed;
use crate::record::Life;

/// Of each function the latest so many calls are read.
const CALLS_MAX: usize = 20;
const SHOWN_FOR: Duration = Duration::from_secs(24 * 3_600);

/// Whether what is written down can be read. A newer version may write what an older one does not understand.
pub(crate) async fn records(link: &Link, keys: &Keys, functions: &[FunctionKey]) -> Result<Check, StoreError> {
    const NAME: &str = "records";
    let (mut strange, mut read) = (Vec::new(), 0);
    let workers = asked::<Vec<(String, Vec<u8>)>>(link, Cmd::new().arg("HGETALL").arg(keys.workers())).await?.unwrap_or_default();
    for (worker, record) in workers {
        read += 1;
        if WorkerRecord::read(&record).is_err() {
            strange.push(format!("worker {worker}"));
        }
    }
    for function in functions {
        let of = keys.function(function);
        let mut definition = Cmd::new();
        definition.arg("HGET").arg(&of.definition).arg("definition");
        let definition = asked::<Option<Vec<u8>>>(link, &definition).await?.flatten();
        read += usize::from(definition.is_some());
        if definition.is_some_and(|text| read_definition(&text).is_err()) {
            strange.push(format!("function {function}"));
        }
        let mut latest = Cmd::new();
        latest.arg("ZRANGE").arg(&of.index).arg(-(CALLS_MAX as i64)).arg(-1);
        let listed = asked::<Vec<Value>>(link, &latest).await?.unwrap_or_default();
        let ids = spelled_out(link, &of, &listed).await?;
        if ids.is_empty() {
            continue;
        }
        let mut lives = Cmd::new();
        lives.arg("HMGET").arg(&of.calls).arg(&ids);
        let lives = asked::<Vec<Option<Vec<u8>>>>(link, &lives).await?.unwrap_or_default();
        for (id, life) in ids.into_iter().zip(lives) {
            let Some(life) = life else { continue };
            read += 1;
            if CallId::new(&*id).map_or(true, |call_id| Life::read(&call_id, &life).is_err()) {
                strange.push(format!("call {id} ({function})"));
            }
        }
    }
    if strange.is_empty() {
        return Ok(Check::ok(NAME, format!("{read} looked at, and each can be read")));
    }
    let says = format!("{} of {read} cannot be read by this version: {}", strange.len(), some_of(&strange));
    Ok(Check::fail(
        NAME,
        says,
        "a newer version has written them, or somebody by hand: let all servers and workers have the newest version",
    ))
}

/// The calls that are listed, those of a page in its place, and not more of them than of others.
async fn spelled_out(link: &Link, of: &FunctionKeys, listed: &[Value]) -> Result<Vec<String>, StoreError> {
    let mut ids = Vec::new();
    for one in listed.iter().rev().take(CALLS_MAX) {
        match Listed::read(one) {
            Ok(Listed::Call(call_id)) => ids.push(call_id.to_string()),
            Ok(Listed::Page(first)) => {
                let page = asked::<Option<String>>(link, Cmd::new().arg("HGET").arg(&of.pages).arg(first)).await?.flatten();
                ids.extend(page.unwrap_or_default().lines().map(str::to_owned));
            }
            Err(_) => {}
        }
        if ids.len() >= CALLS_MAX {
            break;
        }
    }
    ids.truncate(CALLS_MAX);
    Ok(ids)
}

/// What somebody noticed to be lost in the last day.
pub(crate) async fn losses(link: &Link, keys: &Keys, now: Timestamp) -> Result<Check, StoreError> {
    const NAME: &str = "losses";
    let known = asked::<Vec<(String, String)>>(link, Cmd::new().arg("HGETALL").arg(keys.losses())).await?.unwrap_or_default();
    let mut lost: Vec<(Timestamp, &str)> =
        known.iter().filter_map(|(_, text)| read_loss(text)).filter(|(at, _)| now.since(*at) < SHOWN_FOR).collect();
    lost.sort_unstable();
    let Some((at, latest)) = lost.last() else { return Ok(Check::ok(NAME, "nobody has noticed any in the last day")) };
    let says = format!("{} in the last day; {} min ago: {latest}", lost.len(), now.since(*at).as_secs() / 60);
    Ok(Check::fail(NAME, says, "see who flushed it or what it was restored from, and submit again what is missing"))
}
