//! How functions and workers are written down.

use serde::{Deserialize, Serialize};
use towpath_core::call::RetryPolicy;
use towpath_core::names::{FunctionKey, FunctionName, Scope};
use towpath_core::payload::Payload;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, FunctionLimits, PushTarget};

use crate::link::trouble;

/// A function's full name as one text: in sets, in messages. No name has a line break, so it can be taken apart again.
pub(crate) fn function_member(function: &FunctionKey) -> String {
    format!("{}\n{}", function.scope, function.name)
}

/// The other way round. `None`: that is no function's name.
pub(crate) fn read_function_member(member: &str) -> Option<FunctionKey> {
    read_shard_member(member).filter(|(_, shard)| *shard == 0).map(|(function, _)| function)
}

/// The same of one of the streams that a function is spread over. The first, which all functions have, is 0.
pub(crate) fn shard_member(function: &FunctionKey, shard: u16) -> String {
    let member = function_member(function);
    if shard == 0 { member } else { format!("{member}\n{shard}") }
}

pub(crate) fn read_shard_member(member: &str) -> Option<(FunctionKey, u16)> {
    let (scope, name) = member.split_once('\n')?;
    let (name, shard) = match name.split_once('\n') {
        Some((name, shard)) => (name, shard.parse().ok().filter(|shard| *shard > 0)?),
        None => (name, 0),
    };
    Some((FunctionKey { scope: Scope::new(scope).ok()?, name: FunctionName::new(name).ok()? }, shard))
}

#[derive(Serialize, Deserialize)]
struct DefinitionRecord {
    scope: Scope,
    name: FunctionName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// JSON as text inside of JSON, because a nested value would lose the spaces around it, and this must come back byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parameters: Option<String>,
    retry: RetryPolicy,
    limits: FunctionLimits,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<PushTarget>,
}

/// The same definition is always the same text.
pub(crate) fn write_definition(function: &FunctionDefinition) -> Result<String, StoreError> {
    let text = |parameters: &Payload| String::from_utf8(parameters.as_bytes().to_vec());
    let parameters = function.parameters.as_ref().map(text).transpose();
    let parameters =
        parameters.map_err(|_| trouble(format!("the parameters of function '{}' are no UTF-8: define them in JSON", function.key)))?;
    let record = DefinitionRecord {
        scope: function.key.scope.clone(),
        name: function.key.name.clone(),
        description: function.description.clone(),
        parameters,
        retry: function.retry.clone(),
        limits: function.limits.clone(),
        target: function.target.clone(),
    };
    serde_json::to_string(&record).map_err(|error| trouble(format!("function '{}' cannot be written down: {error}", function.key)))
}

pub(crate) fn read_definition(text: &[u8]) -> Result<FunctionDefinition, StoreError> {
    let record: DefinitionRecord =
        serde_json::from_slice(text).map_err(|error| StoreError::Corrupt(format!("the definition of a function: {error}")))?;
    Ok(FunctionDefinition {
        key: FunctionKey { scope: record.scope, name: record.name },
        description: record.description,
        parameters: record.parameters.map(Payload::from_json),
        retry: record.retry,
        limits: record.limits,
        target: record.target,
    })
}

/// A worker as it introduced itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerRecord {
    pub(crate) kind: String,
    pub(crate) offers: Vec<OfferRecord>,
    pub(crate) registered_at: Timestamp,
}

/// One function that it serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OfferRecord {
    #[serde(flatten)]
    pub(crate) function: FunctionKey,
    /// How many of its calls at once by the store's count; the worker counts for itself when this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Option<u32>,
}

impl WorkerRecord {
    pub(crate) fn write(&self) -> Result<String, StoreError> {
        serde_json::to_string(self).map_err(|error| trouble(format!("a worker cannot be written down: {error}")))
    }

    pub(crate) fn read(text: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(text).map_err(|error| StoreError::Corrupt(format!("the record of a worker: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use towpath_core::call::Backoff;
    use towpath_core::names::{LimitScope, RuleName};
    use towpath_core::worker::FunctionRate;

    use super::*;

    fn function(scope: &str, name: &str) -> FunctionKey {
        FunctionKey { scope: Scope::new(scope).unwrap(), name: FunctionName::new(name).unwrap() }
    }

    #[test]
    fn a_definition_comes_back_as_it_was() {
        let rate = FunctionRate { policy: RuleName::new("mail").unwrap(), scope: Some(LimitScope::new("smtp").unwrap()) };
        let everything = FunctionDefinition {
            key: function("wf-7", "Process: Order 🚢"),
            description: Some("One \"sentence\".\n".to_owned()),
            parameters: Some(Payload::from_json(" [ {\"name\": \"a\", \"default\": 1e400} ]\n")),
            retry: RetryPolicy {
                max_attempts: 1,
                max_deliveries: 2,
                backoff: Backoff::Exponential { delay_ms: 3, delay_ms_max: u64::MAX },
            },
            limits: FunctionLimits {
                max_backlog: Some(u64::MAX),
                max_concurrent: Some(0),
                max_payload_bytes: 0,
                rate: Some(rate),
                shards: Some(7),
            },
            target: Some(PushTarget { url: "http://127.0.0.1/".to_owned(), concurrency: 9 }),
        };
        for definition in [everything, FunctionDefinition::new(function("__global__", "add"))] {
            let text = write_definition(&definition).unwrap();
            assert_eq!(read_definition(text.as_bytes()).unwrap(), definition, "{text}");
        }
    }

    #[test]
    fn a_function_is_taken_apart_where_it_was_put_together() {
        let key = function("wf-7", "a:b");
        assert_eq!(read_function_member(&function_member(&key)), Some(key.clone()));
        assert_eq!(read_function_member("wf-7"), None);
        let shard = shard_member(&key, 3);
        assert_eq!((read_function_member(&shard), read_shard_member(&shard)), (None, Some((key.clone(), 3))));
        assert_eq!(read_shard_member(&shard_member(&key, 0)), Some((key.clone(), 0)));
        assert_eq!((read_shard_member("wf-7\na\n0"), read_shard_member("wf-7\na\nb")), (None, None));
        assert_eq!(read_function_member("a:b\nadd"), None, "no scope is called so");
    }

    #[test]
    fn a_worker_comes_back_as_it_was() {
        let offer = |name, concurrency| OfferRecord { function: function("__global__", name), concurrency };
        let offers = vec![offer("add", None), offer("sub", Some(4))];
        let record = WorkerRecord { kind: "rust".to_owned(), offers, registered_at: Timestamp::from_millis(7) };
        assert_eq!(WorkerRecord::read(record.write().unwrap().as_bytes()).unwrap(), record);
    }

    #[test]
    fn what_cannot_be_read_is_corrupt() {
        assert!(matches!(read_definition(b"{}"), Err(StoreError::Corrupt(_))));
        assert!(matches!(WorkerRecord::read(b"\xff"), Err(StoreError::Corrupt(_))));
    }
}
