//! What a worker says about itself in the seeds' keys, so that old callers find it.

use redis::Cmd;
use towpath_core::names::{FunctionKey, Scope, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::time::Timestamp;

use super::reply::command;
use crate::keys::{self, FunctionKeys};

/// How long a worker's meta hash stays when nobody is left to remove it, in the server's own time. It sweeps; what is healthy is for numbers
/// to say. It is prolonged when everything is said again, which must be more often.
const META_MS: u32 = 1_200_000;

/// A worker and one function it serves.
#[derive(Clone, Copy)]
pub(super) struct Served<'a> {
    pub(super) worker: &'a WorkerId,
    pub(super) function: &'a FunctionKey,
}

impl Served<'_> {
    fn meta(self) -> String {
        keys::meta(self.worker, &self.function.name)
    }

    /// Says everything. The meta hash comes before the set: an old caller that finds the worker in the set asks its hash.
    pub(super) fn announce(self, stream: &str, parameters: Option<&Payload>, since: Timestamp, now: Timestamp) -> [Cmd; 3] {
        let Self { worker, function } = self;
        let (since, now) = (since.as_millis().to_string(), now.as_millis().to_string());
        let workflow = if function.scope == Scope::global() { "" } else { function.scope.as_str() };
        let mut meta = command("HSET", &[self.meta()]);
        for (field, value) in [
            ("functionName", function.name.as_str()),
            ("parameters", seeds_parameters(parameters)),
            ("scope", function.scope.as_str()),
            ("workflowId", workflow),
            ("executionId", function.scope.as_str()),
            ("nodeId", ""),
            ("workerId", worker.as_str()),
            ("streamKey", stream),
            ("createdAt", &since),
            ("lastHeartbeat", &now),
            ("proto", "1"),
            ("caps", "inbox,lease,shards"),
        ] {
            meta.arg(field).arg(value);
        }
        [meta, self.keep(), self.list()]
    }

    /// Says that it lives. The reply is 1 when the hash was gone, and everything must be said again.
    pub(super) fn live(self, now: Timestamp) -> Cmd {
        command("HSET", &[self.meta(), "lastHeartbeat".to_owned(), now.as_millis().to_string()])
    }

    /// Takes everything back.
    pub(super) fn withdraw(self) -> [Cmd; 2] {
        [command("DEL", &[self.meta()]), command("SREM", &[keys::registry(&self.function.name).as_str(), self.worker.as_str()])]
    }

    fn keep(self) -> Cmd {
        command("PEXPIRE", &[self.meta(), META_MS.to_string()])
    }

    fn list(self) -> Cmd {
        command("SADD", &[keys::registry(&self.function.name).as_str(), self.worker.as_str()])
    }
}

/// A function's stream and group, from the first call on: whatever waits there already is work.
pub(super) fn make_group(keys: &FunctionKeys) -> Cmd {
    command("XGROUP", &["CREATE", &keys.stream, &keys.group, "0", "MKSTREAM"])
}

/// Old peers know lists of parameters only; a JSON Schema would make them stumble.
fn seeds_parameters(parameters: Option<&Payload>) -> &str {
    let text = parameters.map_or("", Payload::as_str);
    if text.trim_start().starts_with('[') { text } else { "[]" }
}
