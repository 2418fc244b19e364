//! What a function takes: parameter definitions or a JSON Schema, compiled once, with problems that name the parameter.
//!
//! ```
//! use towpath::Payload;
//! use towpath::params::Parameters;
//!
//! let definitions = Payload::from_json(r#"[{"name": "a", "type": "integer", "required": true}, {"name": "b", "default": 1}]"#);
//! let parameters = Parameters::compile(&definitions)?;
//!
//! let problems = parameters.check(&Payload::from_json(r#"{"a": "one"}"#));
//! assert_eq!(problems[0].to_string(), "parameter 'a': expected an integer, got a string of 3 characters");
//!
//! let filled = parameters.fill(&Payload::from_json(r#"{"a": 1}"#)).unwrap();
//! assert_eq!(filled.as_str(), r#"{"a":1,"b":1}"#);
//! # Ok::<(), towpath::params::InvalidParameters>(())
//! ```

mod compiled;
mod definitions;
mod schema;

use std::fmt;

use serde_json::{Value, json};
use thiserror::Error;
use towpath_core::call::Failure;
use towpath_core::names::FunctionKey;
use towpath_core::payload::Payload;
use towpath_core::worker::FunctionDefinition;

pub(crate) use compiled::CompiledParameters;
use definitions::Definitions;
use schema::Schema;

/// No error lists more problems than this.
const PROBLEMS_MAX: usize = 20;

/// What a function takes, ready to check calls with.
#[derive(Debug)]
pub struct Parameters(Kind);

#[derive(Debug)]
enum Kind {
    Anything,
    Definitions(Definitions),
    // Boxed because a compiled schema is large and most functions have none.
    Schema(Box<Schema>),
}

/// Parameter definitions or a JSON Schema that make no sense. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidParameters(pub(crate) String);

/// A parameter that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamProblem {
    /// Which: its name, or the path to the value inside of it (`/items/0/id`). Empty: the params as a whole.
    pub parameter: String,
    /// What the function takes.
    pub expected: String,
    /// What came. Text is not repeated, because it may be a secret.
    pub got: String,
}

impl fmt::Display for ParamProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.parameter.is_empty() {
            return write!(f, "expected {}, got {}", self.expected, self.got);
        }
        write!(f, "parameter '{}': expected {}, got {}", self.parameter, self.expected, self.got)
    }
}

impl Parameters {
    /// A function that takes anything.
    pub const fn anything() -> Self {
        Self(Kind::Anything)
    }

    /// Compiles parameter definitions (an array of `{name, type, required, default, description}`) or a JSON Schema (an object).
    /// `null` takes anything. `defaultValue`, the text in which n8n-nodes-function writes a default, is read by the parameter's type.
    pub fn compile(parameters: &Payload) -> Result<Self, InvalidParameters> {
        let value: Value =
            serde_json::from_slice(parameters.as_bytes()).map_err(|error| InvalidParameters(format!("they are not JSON: {error}")))?;
        match value {
            Value::Null => Ok(Self::anything()),
            Value::Array(definitions) => Ok(Self(Kind::Definitions(Definitions::compile(definitions)?))),
            Value::Object(_) | Value::Bool(_) => Ok(Self(Kind::Schema(Box::new(Schema::compile(&value)?)))),
            other => Err(InvalidParameters(format!("give an array of definitions or a JSON Schema, not {}", describe(&other)))),
        }
    }

    /// What a function takes by its definition. Definitions that cannot be compiled take anything, so that they block no call.
    pub(crate) fn of(definition: &FunctionDefinition) -> Self {
        let compiled = definition.parameters.as_ref().map_or_else(|| Ok(Self::anything()), Self::compile);
        compiled.unwrap_or_else(|error| {
            tracing::warn!(function = %definition.key, %error, "the function's parameters cannot be checked: workers get them as they came");
            Self::anything()
        })
    }

    /// What does not fit; empty when everything does.
    pub fn check(&self, params: &Payload) -> Vec<ParamProblem> {
        match &self.0 {
            Kind::Anything => Vec::new(),
            Kind::Definitions(definitions) => definitions.check(params),
            Kind::Schema(schema) => schema.check(params),
        }
    }

    /// The params with the defaults of absent parameters filled in, or what does not fit. A JSON Schema fills in nothing.
    pub fn fill(&self, params: &Payload) -> Result<Payload, Vec<ParamProblem>> {
        match &self.0 {
            Kind::Anything => Ok(params.clone()),
            Kind::Definitions(definitions) => definitions.fill(params),
            Kind::Schema(schema) => {
                let problems = schema.check(params);
                if problems.is_empty() { Ok(params.clone()) } else { Err(problems) }
            }
        }
    }

    /// The params as a worker of the function gets them, or the failure that ends the call.
    pub(crate) fn prepare(&self, function: &FunctionKey, params: &Payload) -> Result<Payload, Failure> {
        self.fill(params).map_err(|problems| invalid_params(function, &problems))
    }
}

fn invalid_params(function: &FunctionKey, problems: &[ParamProblem]) -> Failure {
    let listed: Vec<Value> =
        problems.iter().map(|problem| json!({"parameter": problem.parameter, "expected": problem.expected, "got": problem.got})).collect();
    let sentences: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let message = format!("the parameters do not fit '{function}': {}", sentences.join("; "));
    let details = Some(Payload::from_json(json!({ "problems": listed }).to_string()));
    Failure { details, ..Failure::new("invalid_params", message) }
}

/// A value in words: enough to see what is wrong, without repeating text that may be a secret.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => format!("the boolean {truth}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("a string of {}", counted(text.chars().count(), "character")),
        Value::Array(items) => format!("an array of {}", counted(items.len(), "item")),
        Value::Object(members) => format!("an object of {}", counted(members.len(), "member")),
    }
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Params that cannot even be read.
fn unreadable(error: &serde_json::Error) -> ParamProblem {
    ParamProblem { parameter: String::new(), expected: "JSON".to_owned(), got: format!("text that cannot be read ({error})") }
}
