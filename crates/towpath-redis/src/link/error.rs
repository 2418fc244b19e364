//! What a failure means to whoever asked, and what to do about it: nothing happened, or nobody knows.

use redis::{RedisError, ServerError, Value};
use towpath_core::store::{StoreError, StoreTrouble};

use crate::options::Address;

/// Nothing was written.
pub(crate) fn trouble(cause: String) -> StoreError {
    StoreError::Unavailable(StoreTrouble::Other(cause))
}

/// The server could not be reached: nothing was written.
pub(super) fn not_reached(address: &Address, cause: &str) -> StoreError {
    trouble(format!("the Redis server at {address} cannot be reached ({cause}); work goes on by itself when it is back"))
}

/// The connection broke after something was sent: nobody knows.
pub(super) fn lost(address: &Address, failure: &RedisError) -> StoreError {
    StoreError::Unknown(match failure.is_timeout() {
        true => format!("the Redis server at {address} did not answer in time"),
        false => format!("the connection to the Redis server at {address} broke ({failure})"),
    })
}

/// An answer is overdue: nobody knows.
pub(super) fn silent(address: &Address) -> StoreError {
    StoreError::Unknown(format!("the Redis server at {address} did not answer in time"))
}

/// A reply, unless it is an error: then what the server refused, and what to do about it. Nothing was written.
pub(crate) fn checked(reply: Value) -> Result<Value, StoreError> {
    match reply {
        Value::ServerError(error) => Err(refused(&error)),
        reply => match first_error(&reply) {
            Some(error) => Err(refused(error)),
            None => Ok(reply),
        },
    }
}

/// An error that stands inside of a reply, as one of several that a transaction or a script brings.
fn first_error(reply: &Value) -> Option<&ServerError> {
    match reply {
        Value::ServerError(error) => Some(error),
        Value::Array(items) | Value::Set(items) => items.iter().find_map(first_error),
        Value::Map(pairs) => pairs.iter().find_map(|(key, value)| first_error(key).or_else(|| first_error(value))),
        Value::Attribute { data, .. } => first_error(data),
        _ => None,
    }
}

pub(super) fn refused(error: &ServerError) -> StoreError {
    refusal(code(error), error.details().unwrap_or_default())
}

/// By the first word of the server's answer.
pub(crate) fn refusal(code: &str, detail: &str) -> StoreError {
    let said = format!("the Redis server says {code} {detail}");
    StoreError::Unavailable(match code {
        // A transaction that is refused says so in a word of its own, and then why.
        "OOM" | "EXECABORT" if code == "OOM" || detail.contains("OOM ") => {
            StoreTrouble::Full(format!("{said}: raise its maxmemory, or let workers and retentions make room"))
        }
        "NOPERM" => StoreTrouble::NotAllowed(format!("{said}: {}", advice(code))),
        "WRONGTYPE" => StoreTrouble::WrongType(format!("{said}: {}", advice(code))),
        "READONLY" => StoreTrouble::ReadOnly(format!("{said}: it is a replica; the next attempt looks for the master")),
        "UNBLOCKED" if detail.contains("no longer exists") => {
            StoreTrouble::Other(format!("{said}: somebody has removed it, as a flush does; it is made again by itself"))
        }
        _ => StoreTrouble::Other(format!("{said}: {}", advice(code))),
    })
}

fn advice(code: &str) -> &'static str {
    match code {
        "LOADING" => "it reads its data after a start; work goes on by itself when it has finished",
        "MASTERDOWN" | "UNBLOCKED" => "it is no master any more; the next attempt looks for the master",
        "CLUSTERDOWN" => "some slots have no master; see `redis-cli cluster info`, work goes on by itself when the Cluster is whole",
        "TRYAGAIN" => "the slot is being moved to another node; try again",
        "MISCONF" => "it cannot save to its disk; look into its log for the reason (often a full disk), work goes on by itself",
        "NOREPLICAS" => "it has too few replicas in step (min-replicas-to-write); work goes on by itself when they are back",
        "BUSY" => "a script has been running for too long; see `redis-cli script kill`",
        "NOPERM" => "the user of the URL lacks a right; `towpath doctor --print-acl` prints the rules it needs",
        "NOAUTH" => "it wants a password; write it into the URL, as in redis://user:password@host",
        "WRONGPASS" => "user or password are wrong; check those in the URL (special characters are percent-encoded)",
        "WRONGTYPE" => "a key holds something else; rename or delete it, or choose another prefix in the store's URL",
        _ => "it refused the command",
    }
}

/// The server is not the one to write to: a connection to it is of no use.
pub(super) fn is_demoted(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if says_demoted(code(error)))
}

/// The same of the code of an error.
pub(super) fn says_demoted(code: &str) -> bool {
    matches!(code, "READONLY" | "MASTERDOWN" | "UNBLOCKED")
}

/// The same of an error as the server wrote it.
pub(super) fn is_said_by_demoted(said: &str) -> bool {
    said.split(' ').next().is_some_and(says_demoted)
}

/// The user lacks the right.
pub(super) fn is_not_permitted(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if code(error) == "NOPERM")
}

/// The server does not know the script (yet, or after a restart).
pub(super) fn is_no_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// The server's memory is full.
pub(super) fn is_full(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if code(error) == "OOM")
}

/// The server cannot read the script.
pub(super) fn is_not_compiled(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.details().is_some_and(|detail| detail.contains("compiling script")))
}

/// The code of an error. Before Redis 7 a script wraps that of its command: `ERR Error running script (...): @user_script:1: -OOM ...`.
fn code(error: &ServerError) -> &str {
    let detail = error.details().unwrap_or_default();
    match error.code() {
        "ERR" if detail.contains("Error running script") => {
            let inner = detail.rsplit_once(" -").and_then(|(_, inner)| inner.split_whitespace().next());
            inner.filter(|code| code.bytes().all(|byte| byte.is_ascii_uppercase())).unwrap_or("ERR")
        }
        "ERR" => raised_code(detail).unwrap_or("ERR"),
        code => code,
    }
}

/// The code of an error that a script has raised as a text, with the place in the script before it: `user_script:56: OOM command not ...`.
fn raised_code(detail: &str) -> Option<&str> {
    let (line, raised) = detail.trim_start_matches('@').strip_prefix("user_script:")?.split_once(": ")?;
    let (code, _) = raised.split_once(' ')?;
    let is_code = code.len() > 2 && code.bytes().all(|byte| byte.is_ascii_uppercase());
    (is_code && line.trim().bytes().all(|byte| byte.is_ascii_digit())).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(line: &str) -> Value {
        redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap()
    }

    fn said(line: &str) -> String {
        checked(reply(line)).unwrap_err().to_string()
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let advised = [
            ("OOM command not allowed", "raise its maxmemory"),
            ("READONLY You can't write against a read only replica.", "looks for the master"),
            ("MASTERDOWN Link with MASTER is down", "looks for the master"),
            ("UNBLOCKED force unblock from blocking operation, instance state changed", "looks for the master"),
            ("UNBLOCKED the stream key no longer exists", "somebody has removed it"),
            ("LOADING Redis is loading the dataset in memory", "goes on by itself"),
            ("CLUSTERDOWN Hash slot not served", "cluster info"),
            ("TRYAGAIN Multiple keys request during rehashing of slot", "try again"),
            ("MISCONF Redis is configured to save RDB snapshots", "its log"),
            ("NOREPLICAS Not enough good replicas to write.", "min-replicas-to-write"),
            ("BUSY Redis is busy running a script.", "script kill"),
            ("NOPERM this user has no permissions to run the 'get' command", "--print-acl"),
            ("NOAUTH Authentication required.", "redis://user:password@host"),
            ("WRONGPASS invalid username-password pair or user is disabled.", "check those in the URL"),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", "rename or delete it"),
            ("ERR syntax error", "refused the command"),
        ];
        for (line, advice) in advised {
            let said = said(line);
            assert!(said.contains(advice) && said.contains(line), "{said}");
            assert!(matches!(checked(reply(line)), Err(StoreError::Unavailable(_))));
        }
    }

    #[test]
    fn a_full_and_a_read_only_server_are_told_apart_also_inside_a_script() {
        let trouble = |line: &str| match checked(reply(line)) {
            Err(StoreError::Unavailable(trouble)) => trouble,
            other => panic!("{other:?}"),
        };
        let in_script = "ERR Error running script (call to f_a1b2): @user_script:1: @user_script: 1: -";
        assert!(matches!(trouble("OOM too much"), StoreTrouble::Full(_)));
        assert!(matches!(trouble("EXECABORT Transaction discarded because of: OOM too much"), StoreTrouble::Full(_)));
        assert!(!matches!(trouble("EXECABORT Transaction discarded because of previous errors."), StoreTrouble::Full(_)));
        assert!(matches!(trouble(&format!("{in_script}OOM command not allowed")), StoreTrouble::Full(_)));
        assert!(matches!(trouble(&format!("{in_script}READONLY You can't write")), StoreTrouble::ReadOnly(_)));
        assert!(matches!(trouble("ERR Error running script (call to f_a1b2): a - b"), StoreTrouble::Other(_)));
        let raised = |text: &str| trouble(&format!("ERR user_script:56: {text} script: a1b2, on @user_script:56."));
        assert!(matches!(raised("OOM command not allowed when used memory > 'maxmemory'."), StoreTrouble::Full(_)));
        assert!(matches!(raised("WRONGTYPE towpath:{batch:a:0}:o:k is no state of an open batch"), StoreTrouble::WrongType(_)));
        assert!(matches!(raised("attempt to index a nil value"), StoreTrouble::Other(_)));
        let inside = Value::Array(vec![Value::Int(1), Value::Array(vec![reply("OOM too much")])]);
        assert!(matches!(checked(inside), Err(StoreError::Unavailable(StoreTrouble::Full(_)))), "one reply of several");
        assert!(is_demoted(&reply(&format!("{in_script}READONLY You can't write"))));
        assert!(!is_demoted(&reply("LOADING Redis is loading")));
    }
}
