//! The server itself: its version, its role, its clock, how fast it answers, how many may connect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Cmd;
use towpath_core::clock::Clock;
use towpath_core::store::StoreError;

use super::check::Check;
use crate::about::{self, About, Info};
use crate::clock::ServerClock;
use crate::link::Link;

/// Blocking reads wait so long; a server that hangs up on silent clients must be more patient.
const BLOCKING_READ_S: u64 = 5;
const PINGS: usize = 20;
const SLOW: Duration = Duration::from_millis(5);
const CLOCK_OFF_MS: u64 = 1_000;

/// What kind of server it is, and its version in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    kind: &'static str,
    text: String,
    numbers: (u32, u32),
    least: (u32, u32),
}

impl Version {
    fn of(info: &Info) -> Option<Self> {
        // Valkey says which Redis it stands in for, too.
        let (kind, text, least) = match info.field("valkey_version") {
            Some(version) => ("Valkey", version, (7, 2)),
            None => ("Redis", info.field("redis_version")?, (6, 2)),
        };
        let mut parts = text.split('.').map(|part| part.parse().ok());
        let numbers = (parts.next()??, parts.next()??);
        Some(Self { kind, text: text.to_owned(), numbers, least })
    }

    fn is_too_old(&self) -> bool {
        self.numbers < self.least
    }
}

pub(crate) fn version(about: &About) -> Check {
    if about.info.is_none() {
        return Check::not_permitted("version", "INFO");
    }
    let versions: Option<Vec<Version>> = about.infos().iter().map(Version::of).collect();
    let Some(versions) = versions else {
        return Check::warn("version", "it cannot be told", "make sure that it is Redis 6.2 or newer, or Valkey 7.2 or newer");
    };
    let oldest = versions.iter().min_by_key(|version| version.numbers);
    match oldest {
        Some(old) if old.is_too_old() => Check::fail(
            "version",
            format!("{} {} is too old", old.kind, old.text),
            format!("upgrade it to {}.{} or newer: commands that calls depend on do not exist before", old.least.0, old.least.1),
        ),
        Some(version) => Check::ok("version", format!("{} {}", version.kind, version.text)),
        None => Check::not_permitted("version", "INFO"),
    }
}

pub(crate) fn role(about: &About) -> Check {
    let mut roles = about.infos().iter().map(|info| info.field("role"));
    match roles.find(|role| *role != Some("master")) {
        Some(None) => Check::not_permitted("role", "INFO"),
        None if about.info.is_none() => Check::not_permitted("role", "INFO"),
        None => Check::ok("role", "primary"),
        Some(Some(_)) => Check::fail(
            "role",
            "this is a replica, which takes no writes",
            "name the primary, or the Sentinels that know it: redis+sentinel://host1,host2/mastername",
        ),
    }
}

/// The server's clock against this machine's; of several servers the one that is off the most.
pub(crate) async fn clock(link: &Link, local: &Arc<dyn Clock>) -> Result<Check, StoreError> {
    let begun = local.now();
    let times = about::permitted_each(link, Cmd::new().arg("TIME")).await?.unwrap_or_default();
    let round_trip = local.now().since(begun);
    let offset_ms = |reply| {
        let (seconds, micros): (i64, i64) = redis::from_redis_value(reply).ok()?;
        let clock = ServerClock::new(Arc::clone(local));
        clock.set_server_time(seconds.saturating_mul(1_000).saturating_add(micros / 1_000), round_trip);
        clock.offset_ms()
    };
    let worst = times.into_iter().filter_map(offset_ms).max_by_key(|offset| offset.abs());
    Ok(judge_clock(worst.unwrap_or(0)))
}

fn judge_clock(offset_ms: i64) -> Check {
    let (off, direction) = (offset_ms.unsigned_abs(), if offset_ms > 0 { "ahead of" } else { "behind" });
    if off > CLOCK_OFF_MS {
        let seconds = off as f64 / 1_000.0;
        let says = format!("the server's clock is {seconds:.1} s {direction} this machine's");
        let advice = "Towpath judges by the server's clock, old peers by their own: let both machines follow NTP";
        return Check::warn("clock", says, advice);
    }
    Check::ok("clock", format!("{off} ms {direction} this machine's"))
}

/// How long the server takes to answer, or the slowest master of a Cluster.
pub(crate) async fn latency(link: &Link) -> Result<Check, StoreError> {
    let mut lengths = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let begun = now();
        about::permitted_each(link, Cmd::new().arg("PING")).await?;
        lengths.push(now().saturating_duration_since(begun));
    }
    lengths.sort_unstable();
    Ok(judge_latency(lengths[PINGS / 2]))
}

fn judge_latency(median: Duration) -> Check {
    let says = format!("half of {PINGS} answers came within {:.2} ms", median.as_secs_f64() * 1_000.0);
    if median > SLOW {
        return Check::warn("latency", says, "each call waits for several answers: move Towpath nearer to the server, or take load off it");
    }
    Check::ok("latency", says)
}

#[expect(clippy::disallowed_methods, reason = "a round trip is measured in parts of a millisecond, which the injected clock does not have")]
fn now() -> Instant {
    Instant::now()
}

/// `timeout`: the server hangs up on clients that are silent for so long.
pub(crate) fn timeout(about: &About) -> Check {
    let shortest =
        |settings: Vec<&str>| settings.iter().filter_map(|setting| setting.parse::<u64>().ok()).filter(|seconds| *seconds > 0).min();
    match about.settings("timeout").map(shortest) {
        None => Check::not_permitted("timeout", "CONFIG|GET"),
        Some(Some(seconds)) if seconds <= BLOCKING_READ_S => Check::warn(
            "timeout",
            format!("the server hangs up after {seconds} s of silence, and waiting for work takes {BLOCKING_READ_S} s"),
            "set `timeout 0`, or more than 60",
        ),
        Some(_) => Check::ok("timeout", "waiting for work is not cut off"),
    }
}

/// `tcp-keepalive`: whether the server notices that a client is gone.
pub(crate) fn keepalive(about: &About) -> Check {
    match about.settings("tcp-keepalive") {
        None => Check::not_permitted("tcp-keepalive", "CONFIG|GET"),
        Some(all) if all.contains(&"0") => {
            Check::warn("tcp-keepalive", "off: connections of machines that vanished stay for ever", "set `tcp-keepalive 300`")
        }
        Some(all) => Check::ok("tcp-keepalive", format!("{} s", all.join(" s, "))),
    }
}

/// How many may still connect.
pub(crate) fn connections(about: &About) -> Check {
    let counts = about.infos().iter().filter_map(|info| Some((info.number("connected_clients")?, info.number("maxclients")?)));
    let Some((open, most)) = counts.max_by_key(|(open, most)| open.saturating_mul(1_000) / most.max(&1)) else {
        return Check::not_permitted("connections", "INFO");
    };
    let says = format!("{open} of {most}");
    if open.saturating_mul(10) > most.saturating_mul(9) {
        return Check::fail("connections", says, "raise `maxclients`: each function that is served needs a connection of its own");
    }
    Check::ok("connections", says)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn saying(info: &str, config: &[(&str, &str)]) -> About {
        let config = config.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        About { info: Some(vec![Info::parse(info)]), config: Some(vec![config]) }
    }

    #[test]
    fn versions_below_the_floor_fail_and_valkey_has_a_floor_of_its_own() {
        for (info, verdict) in [
            ("redis_version:6.2.0", Verdict::Ok),
            ("redis_version:7.0.15", Verdict::Ok),
            ("redis_version:10.0.0", Verdict::Ok),
            ("redis_version:6.0.16", Verdict::Fail),
            ("redis_version:5.0.9", Verdict::Fail),
            ("redis_version:7.2.4\nvalkey_version:7.2.5", Verdict::Ok),
            ("redis_version:7.2.4\nvalkey_version:8.0.1", Verdict::Ok),
            ("redis_version:unstable", Verdict::Warn),
        ] {
            assert_eq!(version(&saying(info, &[])).verdict, verdict, "{info}");
        }
        assert_eq!(version(&About::default()).verdict, Verdict::Unknown);
    }

    #[test]
    fn a_replica_is_no_place_to_write() {
        assert_eq!(role(&saying("role:master", &[])).verdict, Verdict::Ok);
        assert_eq!(role(&saying("role:slave", &[])).verdict, Verdict::Fail);
    }

    #[test]
    fn a_clock_that_is_more_than_a_second_off_is_worth_a_word() {
        assert_eq!(judge_clock(999).verdict, Verdict::Ok);
        assert_eq!(judge_clock(-1_001).verdict, Verdict::Warn);
        assert!(judge_clock(3_600_000).says.contains("3600.0 s ahead"));
        assert!(judge_clock(-2_000).says.contains("2.0 s behind"));
    }

    #[test]
    fn slow_answers_are_worth_a_word() {
        assert_eq!(judge_latency(Duration::from_millis(5)).verdict, Verdict::Ok);
        assert_eq!(judge_latency(Duration::from_millis(6)).verdict, Verdict::Warn);
    }

    #[test]
    fn settings_that_cut_connections_or_keep_dead_ones_are_worth_a_word() {
        for (seconds, verdict) in [("0", Verdict::Ok), ("5", Verdict::Warn), ("6", Verdict::Ok)] {
            assert_eq!(timeout(&saying("", &[("timeout", seconds)])).verdict, verdict, "{seconds}");
        }
        for (seconds, verdict) in [("0", Verdict::Warn), ("300", Verdict::Ok)] {
            assert_eq!(keepalive(&saying("", &[("tcp-keepalive", seconds)])).verdict, verdict, "{seconds}");
        }
        assert_eq!(connections(&saying("connected_clients:9\nmaxclients:10", &[])).verdict, Verdict::Ok);
        assert_eq!(connections(&saying("connected_clients:10\nmaxclients:10", &[])).verdict, Verdict::Fail);
    }
}
