//! The paths of the API, each written once.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

/// Everything but what a path may hold unescaped: names may contain `/`, `%`, `?` and worse.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A key as one segment. URL libraries fold `.`, `..` and empty segments away, also percent-encoded: the server drops a leading `%7F`.
fn segment(name: &str) -> String {
    match name {
        "" | "." | ".." => format!("%7F{name}"),
        _ => utf8_percent_encode(name, SEGMENT).to_string(),
    }
}

pub(crate) const FUNCTIONS: &str = "/v1/functions";
pub(crate) const WORKERS: &str = "/v1/workers";
pub(crate) const CALLS: &str = "/v1/calls";
pub(crate) const RUNS: &str = "/v1/runs";
pub(crate) const CONFIG: &str = "/v1/config";
pub(crate) const LIMITS: &str = "/v1/limits";
pub(crate) const HEALTH: &str = "/v1/health";
pub(crate) const DOCTOR: &str = "/v1/doctor";
pub(crate) const DEAD_LETTERS: &str = "/v1/dead-letters";
pub(crate) const DEAD_LETTERS_REPLAY: &str = "/v1/dead-letters:replay";
pub(crate) const DEAD_LETTERS_DROP: &str = "/v1/dead-letters:drop";

pub(crate) const BATCHES: &str = "/v1/batches";
pub(crate) const BATCH_DEAD_LETTERS: &str = "/v1/batch-dead-letters";
pub(crate) const BATCH_DEAD_LETTERS_REPLAY: &str = "/v1/batch-dead-letters:replay";
pub(crate) const BATCH_DEAD_LETTERS_DROP: &str = "/v1/batch-dead-letters:drop";

pub(crate) fn batcher(name: &str) -> String {
    format!("{BATCHES}/{}", segment(name))
}

/// One of a batcher's verbs: `messages`, `settings`.
pub(crate) fn batch_verb(name: &str, verb: &str) -> String {
    format!("{}/{verb}", batcher(name))
}

pub(crate) fn batch_key(name: &str, key: &str) -> String {
    format!("{}/keys/{}", batcher(name), segment(key))
}

/// One of the verbs of an open batch: `flush`, `touch`.
pub(crate) fn batch_key_verb(name: &str, key: &str, verb: &str) -> String {
    format!("{}/{verb}", batch_key(name, key))
}

pub(crate) fn batch_dead_letter(id: &str) -> String {
    format!("{BATCH_DEAD_LETTERS}/{}", segment(id))
}

pub(crate) const LOCKS: &str = "/v1/locks";
pub(crate) const LOCKS_CLEANUP: &str = "/v1/locks:cleanup";

pub(crate) fn lock(scope: &str) -> String {
    format!("{LOCKS}/{}", segment(scope))
}

/// One of a lock's verbs: `acquire`, `renew`, `release`, `cancel`.
pub(crate) fn lock_verb(scope: &str, verb: &str) -> String {
    format!("{}/{verb}", lock(scope))
}

pub(crate) fn function(name: &str) -> String {
    format!("{FUNCTIONS}/{}", segment(name))
}

/// Where a call is submitted without waiting for its outcome.
pub(crate) fn detached_calls(function_name: &str) -> String {
    format!("{}/calls", function(function_name))
}

pub(crate) fn call(call_id: &str) -> String {
    format!("{CALLS}/{}", segment(call_id))
}

pub(crate) fn run(run_id: &str) -> String {
    format!("{RUNS}/{}", segment(run_id))
}

/// One of a run's verbs: `wait`, `journal`, `send`, `cancel`.
pub(crate) fn run_verb(run_id: &str, verb: &str) -> String {
    format!("{}/{verb}", run(run_id))
}

pub(crate) fn dead_letter(call_id: &str) -> String {
    format!("{DEAD_LETTERS}/{}", segment(call_id))
}

pub(crate) fn dead_letter_replay(call_id: &str) -> String {
    format!("{}/replay", dead_letter(call_id))
}

pub(crate) fn limit(scope: &str) -> String {
    format!("{LIMITS}/{}", segment(scope))
}

/// One of a limit's verbs: `check`, `refund`.
pub(crate) fn limit_verb(scope: &str, verb: &str) -> String {
    format!("{}/{verb}", limit(scope))
}

pub(crate) fn worker(worker_id: &str) -> String {
    format!("{WORKERS}/{}", segment(worker_id))
}

/// One of a worker's verbs: `claim`, `complete`, `heartbeat`, `progress`.
pub(crate) fn worker_verb(worker_id: &str, verb: &str) -> String {
    format!("{}/{verb}", worker(worker_id))
}

/// A path with the fields of a query, absent ones left out.
pub(crate) fn with_query<Q: Serialize>(path: &str, query: &Q) -> String {
    let mut pairs = url::form_urlencoded::Serializer::new(String::new());
    if let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(query) {
        for (name, value) in fields {
            match value {
                serde_json::Value::Null => {}
                serde_json::Value::String(text) => drop(pairs.append_pair(&name, &text)),
                other => drop(pairs.append_pair(&name, &other.to_string())),
            }
        }
    }
    match pairs.finish().as_str() {
        "" => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use towpath_server::http::wire::calls::CallQuery;

    use super::*;

    #[test]
    fn names_with_separators_stay_one_segment() {
        assert_eq!(lock_verb("..", "acquire"), "/v1/locks/%7F../acquire");
        assert_eq!(lock(""), "/v1/locks/%7F");
        assert_eq!(function("a/b?c%d e"), "/v1/functions/a%2Fb%3Fc%25d%20e");
        assert_eq!(detached_calls("заказ"), "/v1/functions/%D0%B7%D0%B0%D0%BA%D0%B0%D0%B7/calls");
    }

    #[test]
    fn a_query_holds_what_is_set_and_nothing_else() {
        assert_eq!(with_query(CALLS, &CallQuery::default()), "/v1/calls");
        let query = CallQuery { state: Some("dead,failed".to_owned()), limit: Some(5), ..CallQuery::default() };
        assert_eq!(with_query(CALLS, &query), "/v1/calls?limit=5&state=dead%2Cfailed");
    }
}
