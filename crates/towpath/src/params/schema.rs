//! JSON Schemas: compiled once, with errors told in the words of parameter problems. References outside the schema are not followed.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;
use towpath_core::payload::Payload;

use super::{InvalidParameters, PROBLEMS_MAX, ParamProblem, describe, unreadable};

#[derive(Debug)]
pub(super) struct Schema(Validator);

impl Schema {
    pub(super) fn compile(schema: &Value) -> Result<Self, InvalidParameters> {
        jsonschema::validator_for(schema).map(Self).map_err(|error| InvalidParameters(format!("the JSON Schema cannot be used: {error}")))
    }

    pub(super) fn check(&self, params: &Payload) -> Vec<ParamProblem> {
        let value: Value = match serde_json::from_slice(params.as_bytes()) {
            Ok(value) => value,
            Err(error) => return vec![unreadable(&error)],
        };
        self.0.iter_errors(&value).flat_map(|error| problems(&error)).take(PROBLEMS_MAX).collect()
    }
}

/// One error may name several members that should not be there.
fn problems(error: &ValidationError<'_>) -> Vec<ParamProblem> {
    let path = error.instance_path().as_str();
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let member = property.as_str().unwrap_or_default();
            vec![problem(&format!("{path}/{member}"), "a value", "nothing")]
        }
        ValidationErrorKind::AdditionalProperties { unexpected } | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            unexpected.iter().map(|member| problem(&format!("{path}/{member}"), "no such parameter", "a value")).collect()
        }
        ValidationErrorKind::Type { kind } => vec![problem(path, &types_in_words(kind), &describe(error.instance()))],
        ValidationErrorKind::Enum { options } => vec![problem(path, &format!("one of {options}"), &describe(error.instance()))],
        ValidationErrorKind::Constant { expected_value } => vec![problem(path, &expected_value.to_string(), &describe(error.instance()))],
        ValidationErrorKind::Minimum { limit } => vec![problem(path, &format!("at least {limit}"), &describe(error.instance()))],
        ValidationErrorKind::Maximum { limit } => vec![problem(path, &format!("at most {limit}"), &describe(error.instance()))],
        other => {
            // The schema's own words, with the value left out: it may be a secret.
            let rule = format!("what '{}' allows ({})", other.keyword(), error.masked_with("it"));
            vec![problem(path, &rule, &describe(error.instance()))]
        }
    }
}

fn problem(path: &str, expected: &str, got: &str) -> ParamProblem {
    ParamProblem { parameter: name_of(path), expected: expected.to_owned(), got: got.to_owned() }
}

/// A parameter itself is called by its name; what is inside of one by its path.
fn name_of(path: &str) -> String {
    match path.strip_prefix('/') {
        None => String::new(),
        Some(name) if !name.contains('/') => name.replace("~1", "/").replace("~0", "~"),
        Some(_) => path.to_owned(),
    }
}

fn types_in_words(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => type_in_words(&one.to_string()),
        TypeKind::Multiple(several) => several.iter().map(|one| type_in_words(&one.to_string())).collect::<Vec<_>>().join(" or "),
    }
}

fn type_in_words(kind: &str) -> String {
    match kind {
        "null" => "null".to_owned(),
        "array" | "integer" | "object" => format!("an {kind}"),
        other => format!("a {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Parameters;
    use super::*;

    fn compile(schema: &str) -> Result<Parameters, InvalidParameters> {
        Parameters::compile(&Payload::from_json(schema.to_owned()))
    }

    fn check(schema: &str, params: &str) -> Vec<String> {
        let problems = compile(schema).unwrap().check(&Payload::from_json(params.to_owned()));
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn problems_name_the_parameter_or_the_path_inside_of_it() {
        let schema = r#"{
            "type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {
                "a": {"type": "integer", "minimum": 1},
                "items": {"type": "array", "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": ["string", "null"]}}}}
            }}"#;
        assert!(check(schema, r#"{"a": 1, "items": [{"id": "x"}]}"#).is_empty());
        for (params, says) in [
            ("{}", "parameter 'a': expected a value, got nothing"),
            (r#"{"a": "x"}"#, "parameter 'a': expected an integer, got a string of 1 character"),
            (r#"{"a": 0}"#, "parameter 'a': expected at least 1, got the number 0"),
            (r#"{"a": 1, "b": 2}"#, "parameter 'b': expected no such parameter, got a value"),
            (r#"{"a": 1, "items": [{"id": 5}]}"#, "parameter '/items/0/id': expected a string or null, got the number 5"),
            (r#"{"a": 1, "items": [{}]}"#, "parameter '/items/0/id': expected a value, got nothing"),
            ("[]", "expected an object, got an array of 0 items"),
        ] {
            let mut problems = check(schema, params);
            // The order in which a validator meets two types of one set is its own.
            problems.iter_mut().for_each(|text| *text = text.replace("null or a string", "a string or null"));
            assert_eq!(problems, [says], "{params}");
        }
    }

    #[test]
    fn other_rules_are_told_without_the_value() {
        let problems = check(r#"{"properties": {"pin": {"type": "string", "maxLength": 3}}}"#, r#"{"pin": "12345"}"#);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("parameter 'pin': expected what 'maxLength' allows"), "{problems:?}");
        assert!(!problems[0].contains("12345"), "{problems:?}");
    }

    #[test]
    fn a_schema_that_is_none_or_points_elsewhere_is_refused() {
        for schema in [r#"{"type": "strin"}"#, r#"{"$ref": "https://example.com/schema.json"}"#, r#"{"$ref": "file:///etc/passwd"}"#] {
            assert!(compile(schema).is_err(), "{schema}");
        }
    }
}
