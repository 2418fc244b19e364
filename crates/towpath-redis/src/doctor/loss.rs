//! Whatever makes a Redis lose what it has acknowledged: eviction, missing persistence, replicas that do not follow.

use towpath_core::store::Durability;

use super::check::Check;
use crate::about::{About, Info};
use crate::durability::{Keeping, Source, Wanted, settings_for};

const FULL_WARN_PERCENT: u64 = 90;
const FULL_FAIL_PERCENT: u64 = 97;
const LAG_S: u64 = 10;
const MIB: u64 = 1024 * 1024;

/// Whether the server throws data away when memory is short.
pub(crate) fn eviction(about: &About) -> Check {
    let worst = about.infos().iter().filter_map(|info| info.field("maxmemory_policy")).max_by_key(|policy| match *policy {
        "noeviction" => 0,
        policy if policy.starts_with("allkeys") => 2,
        _ => 1,
    });
    match worst {
        None => Check::not_permitted("eviction", "INFO"),
        Some("noeviction") => Check::ok("eviction", "noeviction: when memory is short, new work is refused and nothing is lost"),
        Some(policy) => {
            let what = match policy.starts_with("allkeys") {
                true => "accepted calls are thrown away without a word",
                false => "answers and worker records are thrown away before their time",
            };
            let says = format!("maxmemory-policy is {policy}: when memory is short, {what}");
            Check::fail("eviction", says, "set `maxmemory-policy noeviction` (CONFIG SET maxmemory-policy noeviction, and in redis.conf)")
        }
    }
}

/// Whether memory has a bound, and how near it is.
pub(crate) fn memory(about: &About) -> Check {
    let Some(fullest) = about.infos().iter().max_by_key(|info| used_percent(info).unwrap_or(0)) else {
        return Check::not_permitted("memory", "INFO");
    };
    let used = fullest.number("used_memory").unwrap_or(0);
    let Some(percent) = used_percent(fullest) else {
        let says = format!("{} MiB used, and nothing bounds it", used / MIB);
        return Check::warn("memory", says, "set `maxmemory` below what the machine has: otherwise the kernel may end the server one day");
    };
    let says = format!("{} MiB used, {percent} % of maxmemory", used / MIB);
    let advice = "raise `maxmemory`, or make room: when it is full, new calls are refused";
    match percent {
        full if full > FULL_FAIL_PERCENT => Check::fail("memory", says, advice),
        full if full > FULL_WARN_PERCENT => Check::warn("memory", says, advice),
        _ => Check::ok("memory", says),
    }
}

fn used_percent(info: &Info) -> Option<u64> {
    let most = info.number("maxmemory").filter(|most| *most > 0)?;
    Some(info.number("used_memory")?.saturating_mul(100) / most)
}

/// What an acknowledgement is worth, against what was asked for.
pub(crate) fn durability(keeping: Keeping, wanted: Wanted) -> Check {
    let granted = match keeping.grant(wanted) {
        Ok(granted) => granted,
        Err(refused) => return Check::fail("durability", refused.lacks, refused.advice),
    };
    if keeping.source == Source::Assumed {
        let why = if wanted.level.is_some() { "it was asked for and cannot be looked at" } else { "settings cannot be looked at" };
        let advice = "allow CONFIG|GET (`towpath doctor --print-acl` prints the rule), or make sure of it yourself";
        return Check::warn("durability", format!("'{granted}' is assumed: {why}"), advice);
    }
    match granted {
        Durability::Memory => {
            let says = "its level is 'memory': a restart of this Redis server loses every accepted call";
            let set = format!("set {} on it (in redis.conf, or with CONFIG SET and CONFIG REWRITE)", settings_for(Durability::Everysec));
            if wanted.level.is_some() {
                return Check::warn("durability", says, set);
            }
            Check::fail("durability", says, format!("{set}, or accept that with `--durability memory`"))
        }
        level => Check::ok("durability", format!("'{level}'")),
    }
}

/// Whether the last write of each kind to the disk went well.
pub(crate) fn last_writes(about: &About) -> Check {
    if about.info.is_none() {
        return Check::not_permitted("last writes", "INFO");
    }
    let kinds = [
        ("aof_last_write_status", "the last write to the append-only file failed"),
        ("aof_last_bgrewrite_status", "the last rewrite of the append-only file failed"),
        ("rdb_last_bgsave_status", "the last snapshot failed"),
    ];
    let failed = |(field, says): &(&str, &'static str)| {
        about.infos().iter().any(|info| info.field(field).is_some_and(|status| status != "ok")).then_some(*says)
    };
    let failed: Vec<&str> = kinds.iter().filter_map(failed).collect();
    if failed.is_empty() {
        return Check::ok("last writes", "append-only file and snapshots were written");
    }
    Check::fail("last writes", failed.join("; "), "look at the server's log and at its disk: is it full, may the server write there")
}

/// Whether replicas follow, and whether they would be emptied.
pub(crate) fn replicas(about: &About, keeping: Keeping, wanted: Wanted) -> Check {
    let Some(found) = keeping.replicas else { return Check::not_permitted("replicas", "INFO") };
    let needed = if wanted.level == Some(Durability::Replicated) { wanted.replicas } else { 0 };
    let all: Vec<_> = about.infos().iter().flat_map(Info::replicas).collect();
    if found < needed {
        let says = format!("{found} of {needed} that shall confirm each write");
        return Check::fail("replicas", says, "connect more with REPLICAOF, or ask for fewer with 'replicas=N' in the store's URL");
    }
    if !all.is_empty() && keeping.level == Durability::Memory && keeping.source == Source::Read {
        let says = "the server keeps nothing on disk: when it restarts empty, its replicas are emptied too";
        return Check::fail("replicas", says, format!("set {} on the server and its replicas", settings_for(Durability::Everysec)));
    }
    let behind = all.iter().filter(|replica| {
        let lag = replica.get("lag").and_then(|lag| lag.parse::<u64>().ok()).unwrap_or(0);
        lag > LAG_S || replica.get("state").is_some_and(|state| *state != "online")
    });
    match (behind.count(), all.len()) {
        (0, 0) => Check::ok("replicas", "none: when the server is lost, so is what only it has"),
        (0, many) => Check::ok("replicas", format!("{many} follow")),
        (behind, many) => {
            let says = format!("{behind} of {many} lag more than {LAG_S} s behind or are not in step yet");
            Check::warn("replicas", says, "look at the network and the load of the replicas: what they lack is lost in a failover")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn saying(info: &str) -> About {
        About { info: Some(vec![Info::parse(info)]), config: None }
    }

    fn kept(level: Durability, source: Source, replicas: Option<u32>) -> Keeping {
        Keeping { level, source, replicas, has_waitaof: false }
    }

    const NOTHING: Wanted = Wanted { level: None, replicas: 1, must_keep: false };

    #[test]
    fn only_noeviction_loses_nothing() {
        for (policy, verdict) in [("noeviction", Verdict::Ok), ("allkeys-lru", Verdict::Fail), ("volatile-ttl", Verdict::Fail)] {
            assert_eq!(eviction(&saying(&format!("maxmemory_policy:{policy}"))).verdict, verdict, "{policy}");
        }
        let of_cluster = ["maxmemory_policy:noeviction", "maxmemory_policy:allkeys-lfu"].map(Info::parse).to_vec();
        assert_eq!(eviction(&About { info: Some(of_cluster), config: None }).verdict, Verdict::Fail, "one bad server is enough");
        assert_eq!(eviction(&About::default()).verdict, Verdict::Unknown);
    }

    #[test]
    fn memory_is_judged_by_how_full_it_is() {
        for (used, most, verdict) in
            [(50, 0, Verdict::Warn), (90, 100, Verdict::Ok), (91, 100, Verdict::Warn), (97, 100, Verdict::Warn), (98, 100, Verdict::Fail)]
        {
            assert_eq!(memory(&saying(&format!("used_memory:{used}\nmaxmemory:{most}"))).verdict, verdict, "{used} of {most}");
        }
    }

    #[test]
    fn durability_is_judged_against_what_was_asked_for() {
        let always = Wanted { level: Some(Durability::Always), replicas: 1, must_keep: false };
        for (keeping, wanted, verdict) in [
            (kept(Durability::Everysec, Source::Read, Some(0)), NOTHING, Verdict::Ok),
            (kept(Durability::Memory, Source::Read, Some(0)), NOTHING, Verdict::Fail),
            (
                kept(Durability::Memory, Source::Read, Some(0)),
                Wanted { level: Some(Durability::Memory), replicas: 1, must_keep: false },
                Verdict::Warn,
            ),
            (kept(Durability::Everysec, Source::Assumed, Some(0)), NOTHING, Verdict::Warn),
            (kept(Durability::Everysec, Source::Read, Some(0)), always, Verdict::Fail),
            (kept(Durability::Always, Source::Read, Some(0)), always, Verdict::Ok),
        ] {
            assert_eq!(durability(keeping, wanted).verdict, verdict, "{keeping:?} {wanted:?}");
        }
    }

    #[test]
    fn a_failed_write_to_disk_is_a_failure() {
        assert_eq!(last_writes(&saying("rdb_last_bgsave_status:ok\naof_last_write_status:ok")).verdict, Verdict::Ok);
        let failed = last_writes(&saying("rdb_last_bgsave_status:err\naof_last_write_status:ok"));
        assert_eq!((failed.verdict, failed.says.as_str()), (Verdict::Fail, "the last snapshot failed"));
    }

    #[test]
    fn replicas_that_lag_or_lack_or_would_be_emptied_are_told() {
        const IN_STEP: &str = "slave0:ip=a,port=1,state=online,offset=1,lag=0";
        const BEHIND: &str = "slave0:ip=a,port=1,state=online,offset=1,lag=60";
        let two = Wanted { level: Some(Durability::Replicated), replicas: 2, must_keep: false };
        let everysec = |replicas| kept(Durability::Everysec, Source::Read, Some(replicas));
        for (info, keeping, wanted, verdict) in [
            ("", everysec(0), NOTHING, Verdict::Ok),
            (IN_STEP, everysec(1), NOTHING, Verdict::Ok),
            (BEHIND, everysec(1), NOTHING, Verdict::Warn),
            (IN_STEP, everysec(1), two, Verdict::Fail),
            (IN_STEP, kept(Durability::Memory, Source::Read, Some(1)), NOTHING, Verdict::Fail),
        ] {
            assert_eq!(replicas(&saying(info), keeping, wanted).verdict, verdict, "{info:?} {wanted:?}");
        }
    }
}
