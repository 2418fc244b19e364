//! What a Towpath worker says about itself in the seeds' keys, so that legacy callers find it.

use redis::Cmd;
use serde_json::{Map, Value, json};
use towpath_core::names::{FunctionKey, Scope, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::time::Timestamp;

use crate::keys;
use crate::registry::reply::command;

/// How long the meta hash of a worker that has died stays. Whether a worker is healthy is told by its heartbeat. The time starts again whenever
/// everything is said again, which must be more often.
const META_MS: u32 = 1_200_000;

/// A worker and one function it serves.
#[derive(Clone, Copy)]
pub(crate) struct Served<'a> {
    pub(crate) worker: &'a WorkerId,
    pub(crate) function: &'a FunctionKey,
}

impl Served<'_> {
    fn meta(self) -> String {
        keys::meta(self.worker, &self.function.name)
    }

    /// Says everything. The meta hash comes before the set: a legacy caller that finds the worker in the set asks its hash.
    pub(crate) fn announce(self, stream: &str, parameters: Option<&Payload>, since: Timestamp, now: Timestamp) -> [Cmd; 3] {
        let Self { worker, function } = self;
        let (since, now) = (since.as_millis().to_string(), now.as_millis().to_string());
        let workflow = if function.scope == Scope::global() { "" } else { function.scope.as_str() };
        let parameters = seeds_parameters(parameters);
        let mut meta = command("HSET", &[self.meta()]);
        for (field, value) in [
            ("functionName", function.name.as_str()),
            ("parameters", &parameters),
            ("scope", function.scope.as_str()),
            ("workflowId", workflow),
            ("executionId", function.scope.as_str()),
            ("nodeId", ""),
            ("workerId", worker.as_str()),
            ("streamKey", stream),
            ("createdAt", &since),
            ("lastHeartbeat", &now),
            ("proto", "1"),
            ("caps", "lease"),
        ] {
            meta.arg(field).arg(value);
        }
        [meta, self.keep(), self.list()]
    }

    /// Says that it lives. The reply is 1 when the hash was gone, and everything must be said again.
    pub(crate) fn live(self, now: Timestamp) -> Cmd {
        command("HSET", &[self.meta(), "lastHeartbeat".to_owned(), now.as_millis().to_string()])
    }

    /// Takes everything back.
    pub(crate) fn withdraw(self) -> [Cmd; 2] {
        [command("DEL", &[self.meta()]), command("SREM", &[keys::registry(&self.function.name).as_str(), self.worker.as_str()])]
    }

    fn keep(self) -> Cmd {
        command("PEXPIRE", &[self.meta(), META_MS.to_string()])
    }

    fn list(self) -> Cmd {
        command("SADD", &[keys::registry(&self.function.name).as_str(), self.worker.as_str()])
    }
}

/// The parameters as legacy peers know them: a list, each with a name and one of six types. A JSON Schema is shown by its properties.
fn seeds_parameters(parameters: Option<&Payload>) -> String {
    let parameters = parameters.and_then(|parameters| serde_json::from_slice(parameters.as_bytes()).ok());
    let list: Vec<Value> = match parameters {
        Some(Value::Array(list)) => list.into_iter().map(|one| if let Value::Object(about) = one { listed(about) } else { one }).collect(),
        Some(Value::Object(schema)) => of_schema(&schema),
        _ => Vec::new(),
    };
    Value::Array(list).to_string()
}

/// A parameter of a list, with what legacy peers expect of one.
fn listed(mut about: Map<String, Value>) -> Value {
    let kind = seeds_type(about.get("type"));
    about.insert("type".to_owned(), kind.into());
    let default = about.get("default").cloned();
    about.entry("defaultValue").or_insert(default.unwrap_or_else(|| "".into()));
    about.entry("required").or_insert(false.into());
    about.entry("description").or_insert("".into());
    Value::Object(about)
}

fn of_schema(schema: &Map<String, Value>) -> Vec<Value> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Vec::new() };
    let required: Vec<&str> = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let parameter = |(name, about): (&String, &Value)| {
        json!({
            "name": name,
            "type": seeds_type(about.get("type")),
            "required": required.contains(&name.as_str()),
            "defaultValue": about.get("default").cloned().unwrap_or_else(|| "".into()),
            "description": about.get("description").and_then(Value::as_str).unwrap_or_default(),
        })
    };
    properties.iter().map(parameter).collect()
}

/// The nearest of the seeds' types. Of several types, `null` does not count.
fn seeds_type(kind: Option<&Value>) -> &'static str {
    let several = kind.and_then(Value::as_array).map(|kinds| kinds.iter().filter(|kind| *kind != "null").collect::<Vec<_>>());
    let one = match several.as_deref() {
        Some([one]) => one.as_str(),
        Some(_) => None,
        None => kind.and_then(Value::as_str),
    };
    match one {
        Some("string") => "string",
        Some("number" | "integer") => "number",
        Some("boolean") => "boolean",
        Some("object") => "object",
        Some("array") => "array",
        _ => "any",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(parameters: &str) -> Value {
        serde_json::from_str(&seeds_parameters(Some(&Payload::from_json(parameters.to_owned())))).unwrap()
    }

    #[test]
    fn a_json_schema_is_shown_as_a_list_of_parameters() {
        let schema = r#"{"type":"object","required":["a"],"properties":{
            "a":{"type":"integer","description":"first"},"b":{"type":["string","null"],"default":"x"},"c":{"anyOf":[]}}}"#;
        assert_eq!(
            shown(schema),
            json!([
                {"name":"a","type":"number","required":true,"defaultValue":"","description":"first"},
                {"name":"b","type":"string","required":false,"defaultValue":"x","description":""},
                {"name":"c","type":"any","required":false,"defaultValue":"","description":""},
            ])
        );
    }

    #[test]
    fn a_list_keeps_what_it_has() {
        let list = r#"[{"name":"a","type":"integer","required":true,"default":7},{"name":"b","defaultValue":"y","x":1}]"#;
        assert_eq!(
            shown(list),
            json!([
                {"name":"a","type":"number","required":true,"default":7,"defaultValue":7,"description":""},
                {"name":"b","type":"any","required":false,"defaultValue":"y","description":"","x":1},
            ])
        );
    }

    #[test]
    fn anything_else_has_no_parameters() {
        assert_eq!(seeds_parameters(None), "[]");
        assert_eq!((shown("true"), shown("not JSON"), shown("{}")), (json!([]), json!([]), json!([])));
    }
}
