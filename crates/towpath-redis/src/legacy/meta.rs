//! What a worker says about itself and one function, in a hash of the seeds.

use serde::Deserialize;
use towpath_core::names::FunctionKey;
use towpath_core::payload::Payload;
use towpath_core::time::Timestamp;

/// A worker's meta hash.
pub(super) struct Meta([Option<String>; Self::FIELDS.len()]);

impl Meta {
    /// The fields that are read, in this order.
    pub(super) const FIELDS: [&str; 6] = ["streamKey", "scope", "executionId", "lastHeartbeat", "proto", "parameters"];

    pub(super) fn read(fields: Vec<Option<String>>) -> Self {
        let mut fields = fields.into_iter();
        Self(std::array::from_fn(|_| fields.next().flatten().filter(|text| !text.is_empty())))
    }

    pub(super) fn heartbeat(&self) -> Option<Timestamp> {
        self.0[3].as_ref()?.parse().ok().map(Timestamp::from_millis)
    }

    /// Whether it serves this function. The name is in the hash's key, the scope is not; and an hour after it came, a legacy worker's hash
    /// expires and its next heartbeat leaves one that has no other field. `None`: the hash does not tell.
    pub(super) fn serves(&self, function: &FunctionKey, stream: &str) -> Option<bool> {
        let by_scope = || self.scope().map(|scope| scope == function.scope.as_str());
        self.0[0].as_ref().map(|key| key == stream).or_else(by_scope)
    }

    /// The scope that it names, if it names one.
    pub(super) fn scope(&self) -> Option<&str> {
        let [_, scope, execution, ..] = &self.0;
        scope.as_deref().or(execution.as_deref())
    }

    pub(super) fn is_legacy(&self) -> bool {
        self.0[4].is_none()
    }

    /// Its parameters, if they are a list such as the seeds have. Anything else would refuse calls that the legacy worker takes.
    pub(super) fn parameters(&self) -> Option<Payload> {
        #[derive(Deserialize)]
        struct Parameter {
            name: String,
            #[serde(rename = "type")]
            kind: String,
        }
        const TYPES: [&str; 6] = ["string", "number", "boolean", "object", "array", "any"];
        let text = self.0[5].as_ref()?;
        let list: Vec<Parameter> = serde_json::from_str(text).ok()?;
        let mut names: Vec<&str> = list.iter().map(|parameter| parameter.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let sound = list.iter().all(|parameter| !parameter.name.is_empty() && TYPES.contains(&parameter.kind.as_str()));
        (sound && names.len() == list.len()).then(|| Payload::from_json(text.clone()))
    }
}
