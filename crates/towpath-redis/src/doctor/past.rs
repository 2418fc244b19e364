//! What others left: records that this version cannot read, and losses that somebody noticed.

use std::time::Duration;

use redis::Cmd;
use towpath_core::names::{CallId, FunctionKey};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::check::Check;
use super::content::{asked, some_of};
use crate::calls::record::Record;
use crate::definition::{WorkerRecord, read_definition};
use crate::incarnation::read_loss;
use crate::keys::Keys;
use crate::link::Link;

/// Of each function about so many calls are read.
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
        let mut some = Cmd::new();
        some.arg("HSCAN").arg(&of.calls).arg(0).arg("COUNT").arg(CALLS_MAX);
        let (_, fields) = asked::<(u64, Vec<Vec<u8>>)>(link, &some).await?.unwrap_or_default();
        for pair in fields.chunks_exact(2) {
            // A field beside a record begins with a control character.
            let Some(id) = std::str::from_utf8(&pair[0]).ok().filter(|id| !id.starts_with('\u{1}')) else { continue };
            read += 1;
            if CallId::new(id).map_or(true, |call_id| Record::read(&call_id, &pair[1].clone().into()).is_err()) {
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
