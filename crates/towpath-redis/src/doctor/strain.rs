//! What a server does to clients that take much memory, how long it was busy with one command, and the machine it runs on.

use std::net::IpAddr;
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::check::Check;
use crate::about::{self, About};
use crate::link::Link;
use crate::options::{Place, RedisOptions};
use crate::value;

const MIB: u64 = 1024 * 1024;
/// A page of calls with large payloads is as large as this.
const REPLY_LEAST: u64 = 64 * MIB;
/// News are short, but a burst of them is not.
const NEWS_LEAST: u64 = MIB;
const SLOW: Duration = Duration::from_millis(100);
const SLOW_SINCE: Duration = Duration::from_secs(24 * 3_600);
const SLOWEST_LOOKED_AT: usize = 128;

/// `maxmemory-clients` and `client-output-buffer-limit`: whom the server hangs up on.
pub(crate) fn client_memory(about: &About) -> Check {
    const NAME: &str = "client memory";
    let Some(limits) = about.settings("client-output-buffer-limit") else { return Check::not_permitted(NAME, "CONFIG|GET") };
    // Redis before 7 does not know the other one.
    let evicts = about.settings("maxmemory-clients").unwrap_or_default().into_iter().any(|most| most != "0");
    if evicts {
        let says =
            "maxmemory-clients is set: when clients take much memory together, the server hangs up on some, also in the middle of a call";
        return Check::warn(NAME, says, "set `maxmemory-clients 0`, above all on servers that are not up to date");
    }
    for (kind, least) in [("normal", REPLY_LEAST), ("pubsub", NEWS_LEAST)] {
        let hard = limits.iter().filter_map(|limit| hard_limit(limit, kind)).filter(|hard| *hard > 0).min();
        if let Some(hard) = hard.filter(|hard| *hard < least) {
            let says = format!("client-output-buffer-limit {kind}: the server hangs up on whom it has {hard} bytes to send to");
            return Check::warn(NAME, says, format!("set `client-output-buffer-limit {kind} 0 0 0`, or at least {least} bytes"));
        }
    }
    Check::ok(NAME, "no client of ours is cut off for what it is sent")
}

/// The hard limit of a class in `normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60`.
fn hard_limit(limits: &str, kind: &str) -> Option<u64> {
    let words: Vec<&str> = limits.split_whitespace().collect();
    words.chunks(4).find(|class| class.first() == Some(&kind))?.get(1)?.parse().ok()
}

/// Whether a command kept everybody waiting lately.
pub(crate) async fn slow_commands(link: &Link, now: Timestamp) -> Result<Check, StoreError> {
    const NAME: &str = "slow commands";
    let log = about::permitted_each(link, Cmd::new().arg("SLOWLOG").arg("GET").arg(SLOWEST_LOOKED_AT)).await?;
    let events = about::permitted_each(link, Cmd::new().arg("LATENCY").arg("LATEST")).await?.unwrap_or_default();
    let Some(log) = log else { return Ok(Check::not_permitted(NAME, "SLOWLOG|GET")) };
    let commands = log.iter().flat_map(entries).filter_map(|entry| slow_command(entry, now));
    let slow = commands.chain(events.iter().flat_map(entries).filter_map(|entry| slow_event(entry, now)));
    Ok(match slow.max() {
        None => Check::ok(NAME, "none kept others waiting for 100 ms in the last day"),
        Some((length, what)) => {
            let says = format!("{what} took {} ms in the last day, and everybody waited", length.as_millis());
            Check::warn(NAME, says, "see SLOWLOG GET and LATENCY DOCTOR; large keys, KEYS, a slow disk and forks are the usual causes")
        }
    })
}

fn entries(reply: &Value) -> &[Value] {
    match reply {
        Value::Array(entries) => entries,
        _ => &[],
    }
}

/// An entry of the slow log: id, seconds since 1970, microseconds, words, client.
fn slow_command(entry: &Value, now: Timestamp) -> Option<(Duration, String)> {
    let [_, at, micros, words, ..] = entries(entry) else { return None };
    let length = Duration::from_micros(u64::try_from(value::number(micros)?).ok()?);
    let name = entries(words).first().and_then(value::text).unwrap_or("a command");
    (length >= SLOW && is_recent(at, now)).then(|| (length, name.to_uppercase()))
}

/// An entry of `LATENCY LATEST`: event, seconds since 1970, milliseconds of the latest one, of the longest.
fn slow_event(entry: &Value, now: Timestamp) -> Option<(Duration, String)> {
    let [event, at, latest, ..] = entries(entry) else { return None };
    let length = Duration::from_millis(u64::try_from(value::number(latest)?).ok()?);
    (length >= SLOW && is_recent(at, now)).then(|| (length, format!("event '{}'", value::text(event).unwrap_or_default())))
}

fn is_recent(seconds: &Value, now: Timestamp) -> bool {
    let at = value::number(seconds).unwrap_or_default().saturating_mul(1_000);
    now.since(Timestamp::from_millis(at)) < SLOW_SINCE
}

/// How this machine deals with memory, if the server runs on it; `None` if it does not, or nobody can tell.
pub(crate) fn machine(options: &RedisOptions) -> Option<Check> {
    if !is_here(options) {
        return None;
    }
    let read = |file| std::fs::read_to_string(file).ok();
    judge_machine(read("/proc/sys/vm/overcommit_memory")?.trim(), &read("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default())
}

fn is_here(options: &RedisOptions) -> bool {
    let addresses = match &options.place {
        Place::Standalone(address) => std::slice::from_ref(address),
        Place::Cluster(addresses) => addresses,
        // Where the Sentinels are, the master need not be.
        Place::Sentinel { .. } => &[],
    };
    let is_loopback = |host: &str| host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    !addresses.is_empty() && addresses.iter().all(|address| is_loopback(&address.host))
}

fn judge_machine(overcommit: &str, huge_pages: &str) -> Option<Check> {
    const NAME: &str = "machine";
    if overcommit != "1" {
        let says =
            format!("vm.overcommit_memory is {overcommit}: when memory is short, snapshots and rewrites of the append-only file fail");
        return Some(Check::warn(NAME, says, "set `vm.overcommit_memory = 1` in /etc/sysctl.conf, and `sysctl vm.overcommit_memory=1`"));
    }
    if huge_pages.contains("[always]") {
        let says = "transparent huge pages are always on: after each fork of the server, writes are slow and take much memory";
        return Some(Check::warn(NAME, says, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, at every boot"));
    }
    Some(Check::ok(NAME, "memory may be promised to forks, and huge pages are for who asks"))
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn verdict(check: Option<Check>) -> Option<Verdict> {
        check.map(|check| check.verdict)
    }

    #[test]
    fn a_machine_should_let_the_server_fork() {
        let off = "always [madvise] never";
        assert_eq!(verdict(judge_machine("1", off)), Some(Verdict::Ok));
        assert_eq!(verdict(judge_machine("1", "")), Some(Verdict::Ok), "where there are none");
        assert_eq!(verdict(judge_machine("0", off)), Some(Verdict::Warn));
        assert_eq!(verdict(judge_machine("2", off)), Some(Verdict::Warn));
        assert_eq!(verdict(judge_machine("1", "[always] madvise never")), Some(Verdict::Warn));
    }

    #[test]
    fn only_the_machine_that_the_server_runs_on_is_looked_at() {
        for (url, here) in [
            ("redis://127.0.0.1", true),
            ("redis://localhost:7000", true),
            ("redis://[::1]", true),
            ("redis://10.0.0.1", false),
            ("redis://redis.example", false),
            ("redis+cluster://127.0.0.1:7000,10.0.0.1:7000", false),
            ("redis+sentinel://127.0.0.1/master", false),
        ] {
            assert_eq!(is_here(&RedisOptions::parse(url).unwrap()), here, "{url}");
        }
    }

    #[test]
    fn what_was_slow_long_ago_is_forgotten() {
        let entry = |micros: i64| {
            let words = Value::Array(vec![Value::BulkString(b"keys".to_vec())]);
            Value::Array(vec![Value::Int(1), Value::Int(1_000), Value::Int(micros), words])
        };
        let (soon, later) = (Timestamp::from_millis(1_001_000), Timestamp::from_millis(1_000_000 + 25 * 3_600_000));
        assert_eq!(slow_command(&entry(150_000), soon), Some((Duration::from_millis(150), "KEYS".to_owned())));
        assert_eq!(slow_command(&entry(99_000), soon), None);
        assert_eq!(slow_command(&entry(150_000), later), None);
    }
}
