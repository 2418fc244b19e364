//! Every command that is sent to the server, and why: the least that a user of ours must be allowed.

use std::fmt::Write;

/// A command of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AclCommand {
    /// As an ACL rule names it: `xadd`, `xgroup|create`.
    pub(crate) name: &'static str,
    /// What it is for.
    pub(crate) why: &'static str,
    /// A way to send it that changes nothing but the doctor's own key, which is a hash by then. `KEY` and `CHANNEL` stand for ours.
    /// `None`: it would change the connection, and whoever may connect may send it.
    pub(crate) trial: Option<&'static str>,
}

/// What lacks when it is not allowed, though all else works.
pub(crate) const OPTIONAL: [AclCommand; 5] = [
    of("config|get", "the doctor, and the durability that answers name", "CONFIG GET appendonly"),
    of("acl|whoami", "the doctor says whose rights it tried", "ACL WHOAMI"),
    of("cluster|info", "the doctor sees whether all slots are served", "CLUSTER INFO"),
    of("slowlog|get", "the doctor sees what kept others waiting", "SLOWLOG GET 1"),
    of("latency|latest", "the doctor sees what kept others waiting", "LATENCY LATEST"),
];

/// What is sent only when somebody asks for it, and not among the rights unless an administrator wants it.
pub(crate) const ON_WISH: [AclCommand; 2] = [
    of("scan", "`lock ls --scan` and `lock cleanup --scan` find locks of old workflows under any name", "SCAN 0 COUNT 1"),
    of("memory|usage", "together with +scan, the doctor says how many bytes calls, locks and batches take", "MEMORY USAGE KEY"),
];

const CALLS: &str = "calls and their lives";
const LIMITS: &str = "what is remembered of limits";
const STREAMS: &str = "calls as they come in";
const WATCH: &str = "how streams and groups are, for people and for the doctor";
const LOCKS: &str = "locks, semaphores and read/write locks";
const WAKING: &str = "processes tell each other to look again";
const BATCHES: &str = "messages that are gathered, and dead letters";
const ANSWERS: &str = "answers on their way to callers";
const SCRIPTS: &str = "one script per transition";
const CONNECTION: &str = "the connection itself";
const CLUSTER: &str = "finding the server that has a key";

const fn of(name: &'static str, why: &'static str, trial: &'static str) -> AclCommand {
    AclCommand { name, why, trial: Some(trial) }
}

const fn untried(name: &'static str, why: &'static str) -> AclCommand {
    AclCommand { name, why, trial: None }
}

/// Every command that must be allowed.
pub(crate) const COMMANDS: &[AclCommand] = &[
    // The first makes the doctor's key a hash, and the last removes it. In between, commands for other types are refused for the type,
    // which only happens to who may send them.
    of("hsetnx", CALLS, "HSETNX KEY a 1"),
    of("hset", CALLS, "HSET KEY a 1"),
    of("hget", CALLS, "HGET KEY a"),
    of("hmget", CALLS, "HMGET KEY a"),
    of("hdel", CALLS, "HDEL KEY b"),
    of("hincrby", CALLS, "HINCRBY KEY a 0"),
    of("hgetall", CALLS, "HGETALL KEY"),
    of("hexists", CALLS, "HEXISTS KEY a"),
    of("hlen", CALLS, "HLEN KEY"),
    of("hstrlen", "calls are exported for legacy workers in portions", "HSTRLEN KEY a"),
    of("hscan", "repair looks at some calls at a time", "HSCAN KEY 0"),
    of("zscan", "a worker's running calls are counted some at a time", "ZSCAN KEY 0"),
    of("type", "scripts and the doctor look whether keys hold what they should", "TYPE KEY"),
    of("persist", CALLS, "PERSIST KEY"),
    of("pexpire", CALLS, "PEXPIRE KEY 60000"),
    of("exists", CALLS, "EXISTS KEY"),
    of("get", CALLS, "GET KEY"),
    of("mget", CALLS, "MGET KEY"),
    of("set", CALLS, "SET KEY 1 NX"),
    of("incr", CALLS, "INCR KEY"),
    of("incrby", CALLS, "INCRBY KEY 0"),
    of("zadd", CALLS, "ZADD KEY 1 a"),
    of("zrem", CALLS, "ZREM KEY a"),
    of("zrange", CALLS, "ZRANGE KEY 0 0"),
    of("zrangebyscore", CALLS, "ZRANGEBYSCORE KEY 0 0"),
    of("zrevrangebyscore", CALLS, "ZREVRANGEBYSCORE KEY 0 0"),
    of("zscore", CALLS, "ZSCORE KEY a"),
    of("zmscore", CALLS, "ZMSCORE KEY a"),
    of("zcard", CALLS, "ZCARD KEY"),
    of("zcount", CALLS, "ZCOUNT KEY 0 0"),
    of("zrank", LOCKS, "ZRANK KEY a"),
    of("sadd", CALLS, "SADD KEY a"),
    of("srem", CALLS, "SREM KEY a"),
    of("scard", CALLS, "SCARD KEY"),
    of("sismember", ANSWERS, "SISMEMBER KEY a"),
    of("srandmember", "repair looks at some members of a set", "SRANDMEMBER KEY 1"),
    of("smembers", CALLS, "SMEMBERS KEY"),
    of("pttl", "what is remembered of limits, and how long old workflows hold locks", "PTTL KEY"),
    of("zpopmax", LIMITS, "ZPOPMAX KEY"),
    of("zremrangebyscore", CALLS, "ZREMRANGEBYSCORE KEY 0 0"),
    of("sunion", CALLS, "SUNION KEY"),
    of("lpush", ANSWERS, "LPUSH KEY a"),
    of("lrange", ANSWERS, "LRANGE KEY 0 0"),
    of("ltrim", ANSWERS, "LTRIM KEY 0 0"),
    of("blmove", ANSWERS, "BLMOVE KEY KEY LEFT LEFT 0.01"),
    of("blpop", ANSWERS, "BLPOP KEY 0.01"),
    of("rpush", BATCHES, "RPUSH KEY a"),
    of("lpop", BATCHES, "LPOP KEY"),
    of("llen", BATCHES, "LLEN KEY"),
    of("lindex", BATCHES, "LINDEX KEY 0"),
    of("lrem", BATCHES, "LREM KEY 1 a"),
    of("lmove", BATCHES, "LMOVE KEY KEY LEFT LEFT"),
    of("rename", BATCHES, "RENAME KEY KEY"),
    of("xadd", STREAMS, "XADD KEY NOMKSTREAM * a 1"),
    of("xread", STREAMS, "XREAD STREAMS KEY 0"),
    of("xreadgroup", STREAMS, "XREADGROUP GROUP g c STREAMS KEY >"),
    of("xack", STREAMS, "XACK KEY g 0-1"),
    of("xgroup|create", STREAMS, "XGROUP CREATE KEY g 0"),
    of("xgroup|createconsumer", STREAMS, "XGROUP CREATECONSUMER KEY g c"),
    of("xgroup|setid", STREAMS, "XGROUP SETID KEY g 0"),
    of("xgroup|delconsumer", STREAMS, "XGROUP DELCONSUMER KEY g c"),
    of("xpending", STREAMS, "XPENDING KEY g"),
    of("xclaim", STREAMS, "XCLAIM KEY g c 0 0-1"),
    of("xrange", STREAMS, "XRANGE KEY - +"),
    of("xrevrange", STREAMS, "XREVRANGE KEY + -"),
    of("xlen", STREAMS, "XLEN KEY"),
    of("xdel", STREAMS, "XDEL KEY 0-1"),
    of("xtrim", STREAMS, "XTRIM KEY MINID 0-1"),
    of("xinfo|groups", WATCH, "XINFO GROUPS KEY"),
    of("xinfo|stream", WATCH, "XINFO STREAM KEY"),
    of("xinfo|consumers", WATCH, "XINFO CONSUMERS KEY g"),
    of("evalsha", SCRIPTS, "EVALSHA 0000000000000000000000000000000000000000 1 KEY"),
    of("script|load", SCRIPTS, "SCRIPT LOAD return"),
    of("publish", WAKING, "PUBLISH CHANNEL doctor"),
    of("pubsub|numsub", WAKING, "PUBSUB NUMSUB CHANNEL"),
    untried("subscribe", WAKING),
    untried("unsubscribe", WAKING),
    of("client|id", CONNECTION, "CLIENT ID"),
    of("client|setname", CONNECTION, "CLIENT SETNAME towpath-doctor"),
    of("client|unblock", CONNECTION, "CLIENT UNBLOCK 0"),
    of("ping", CONNECTION, "PING"),
    of("time", "one clock for all", "TIME"),
    of("info", "version, role, memory, persistence", "INFO server"),
    of("wait", "replicas confirm a write", "WAIT 0 1"),
    of("role", CONNECTION, "ROLE"),
    untried("hello", CONNECTION),
    untried("auth", CONNECTION),
    untried("select", CONNECTION),
    of("cluster|slots", CLUSTER, "CLUSTER SLOTS"),
    untried("asking", CLUSTER),
    untried("readonly", CLUSTER),
    // It minds no type, so the key is no hash behind it.
    of("mset", BATCHES, "MSET KEY 1"),
    of("del", CALLS, "DEL KEY"),
];

/// The keys that a user of ours must reach, as patterns.
pub(crate) fn key_patterns(prefix: &str) -> Vec<String> {
    let shared = ["function:*", "n8n-lock-*", "n8n-ratelimit-*", "queue:*", "batch:*", "dlq:*", "workflow/*"];
    shared.into_iter().map(str::to_owned).chain([format!("{prefix}:*")]).collect()
}

/// The command that makes a user with just the rights that are needed. `password` is what stands for the password.
///
/// ```
/// let rule = towpath_redis::acl_rule("towpath", "PASSWORD", "towpath");
/// let keys = "~function:* ~n8n-lock-* ~n8n-ratelimit-* ~queue:* ~batch:* ~dlq:* ~workflow/* ~towpath:*";
/// assert!(rule.starts_with(&format!("ACL SETUSER towpath reset on >PASSWORD {keys} resetchannels &towpath:* +")));
/// ```
pub fn acl_rule(user: &str, password: &str, prefix: &str) -> String {
    let mut rule = format!("ACL SETUSER {user} reset on >{password}");
    for pattern in key_patterns(prefix) {
        let _to_a_string = write!(rule, " ~{pattern}");
    }
    let _to_a_string = write!(rule, " resetchannels &{prefix}:*");
    for command in COMMANDS.iter().chain(&OPTIONAL) {
        let _to_a_string = write!(rule, " +{}", command.name);
    }
    rule
}

/// Commands that give a user more than it needs, each with what it gains. For who wants them.
///
/// ```
/// let (command, gains) = &towpath_redis::acl_options("towpath")[0];
/// assert_eq!(command, "ACL SETUSER towpath +scan");
/// assert!(gains.contains("lock ls --scan"));
/// ```
pub fn acl_options(user: &str) -> Vec<(String, &'static str)> {
    ON_WISH.iter().map(|command| (format!("ACL SETUSER {user} +{}", command.name), command.why)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_is_listed_once_and_tried_under_its_own_name() {
        let all: Vec<&AclCommand> = COMMANDS.iter().chain(&OPTIONAL).chain(&ON_WISH).collect();
        assert_eq!(all.iter().map(|command| command.name).collect::<BTreeSet<_>>().len(), all.len());
        for command in all {
            let Some(trial) = command.trial else { continue };
            let words: Vec<&str> = command.name.split('|').collect();
            assert_eq!(trial.to_lowercase().split(' ').take(words.len()).collect::<Vec<_>>(), words, "{trial}");
        }
    }

    #[test]
    fn nothing_that_could_harm_others_is_allowed() {
        // To learn the names of keys is no harm, as long as it does not keep the server busy: SCAN goes step by step.
        let harmful = ["keys", "flush", "eval", "monitor", "config|set", "acl", "module", "debug", "destroy", "@", "shutdown"];
        for command in COMMANDS.iter().chain(&OPTIONAL).chain(&ON_WISH) {
            let allowed = |word: &&str| command.name == *word || (word.len() > 4 && command.name.contains(*word));
            assert!(!harmful.iter().any(allowed), "{}", command.name);
            assert!(!command.why.is_empty());
        }
    }
}
