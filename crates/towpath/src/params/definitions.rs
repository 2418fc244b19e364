//! Parameter definitions: a flat list of names and types. Checked by looking at the top level only, without building a tree.

use std::collections::HashSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use towpath_core::payload::Payload;

use super::{InvalidParameters, PROBLEMS_MAX, ParamProblem, describe, unreadable};

#[derive(Debug)]
pub(super) struct Definitions(Vec<Definition>);

/// One parameter. Fields that are not known here are somebody else's and stay unread.
#[derive(Debug, Deserialize)]
struct Definition {
    name: String,
    #[serde(default, rename = "type")]
    kind: Type,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    default: Option<Box<RawValue>>,
    /// The default as the seeds write it.
    #[serde(default, rename = "defaultValue")]
    seeds_default: Option<Box<RawValue>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Type {
    String,
    Number,
    Integer,
    Boolean,
    Object,
    Array,
    #[default]
    #[serde(alias = "json")]
    Any,
}

/// The members of params, each as it came.
type Members<'a> = BTreeMap<String, &'a RawValue>;

impl Definitions {
    pub(super) fn compile(definitions: Vec<Value>) -> Result<Self, InvalidParameters> {
        let mut seen = HashSet::new();
        let mut compiled = Vec::with_capacity(definitions.len());
        for (index, value) in definitions.into_iter().enumerate() {
            // Through text, because a raw value can only be cut out of text.
            let mut definition: Definition =
                serde_json::from_str(&value.to_string()).map_err(|error| InvalidParameters(format!("definition {index}: {error}")))?;
            definition.default = definition.default.take().or_else(|| definition.default_by_seeds());
            check_definition(&definition)?;
            if !seen.insert(definition.name.clone()) {
                return Err(InvalidParameters(format!("parameter '{}' is defined twice: remove one", definition.name)));
            }
            compiled.push(definition);
        }
        Ok(Self(compiled))
    }

    pub(super) fn check(&self, params: &Payload) -> Vec<ParamProblem> {
        match members(params) {
            Ok(members) => self.check_members(&members),
            Err(problem) => vec![problem],
        }
    }

    pub(super) fn fill(&self, params: &Payload) -> Result<Payload, Vec<ParamProblem>> {
        let mut members = members(params).map_err(|problem| vec![problem])?;
        let problems = self.check_members(&members);
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut filled = false;
        for definition in &self.0 {
            let Some(default) = &definition.default else { continue };
            if members.get(&definition.name).is_none_or(|value| is_null(value)) {
                members.insert(definition.name.clone(), default);
                filled = true;
            }
        }
        if !filled {
            return Ok(params.clone());
        }
        serde_json::to_vec(&members).map(Payload::from_json).map_err(|error| vec![unreadable(&error)])
    }

    fn check_members(&self, members: &Members<'_>) -> Vec<ParamProblem> {
        self.0.iter().filter_map(|definition| definition.problem(members.get(&definition.name).copied())).take(PROBLEMS_MAX).collect()
    }
}

impl Definition {
    /// The seeds have a text field for every default. Empty text is no default; neither is one that does not fit the type.
    fn default_by_seeds(&self) -> Option<Box<RawValue>> {
        let written = self.seeds_default.as_ref()?;
        let Ok(text) = serde_json::from_str::<String>(written.get()) else {
            return Some(written.clone()).filter(|written| self.kind.takes(written.get()));
        };
        if text.is_empty() || self.kind == Type::String {
            return Some(written.clone()).filter(|_| !text.is_empty());
        }
        let read = RawValue::from_string(text).ok().filter(|value| self.kind.takes(value.get()));
        read.or_else(|| Some(written.clone()).filter(|_| self.kind == Type::Any))
    }

    fn problem(&self, value: Option<&RawValue>) -> Option<ParamProblem> {
        let got = match value {
            None if self.required && self.default.is_none() => "nothing".to_owned(),
            None => return None,
            // An optional parameter that is null is an absent one: that is how many languages write it.
            Some(value) if is_null(value) && (!self.required || self.default.is_some()) => return None,
            Some(value) if self.kind.takes(value.get()) => return None,
            Some(value) => describe_raw(value),
        };
        Some(ParamProblem { parameter: self.name.clone(), expected: self.kind.in_words().to_owned(), got })
    }
}

impl Type {
    fn takes(self, json: &str) -> bool {
        let first = json.bytes().next();
        match self {
            Self::Any => true,
            Self::String => first == Some(b'"'),
            Self::Object => first == Some(b'{'),
            Self::Array => first == Some(b'['),
            Self::Boolean => matches!(first, Some(b't' | b'f')),
            Self::Number => is_number(first) && is_finite(json),
            Self::Integer => is_number(first) && is_whole(json),
        }
    }

    const fn in_words(self) -> &'static str {
        match self {
            Self::String => "a string",
            Self::Number => "a number",
            Self::Integer => "an integer",
            Self::Boolean => "a boolean",
            Self::Object => "an object",
            Self::Array => "an array",
            Self::Any => "a value",
        }
    }
}

fn is_number(first: Option<u8>) -> bool {
    first.is_some_and(|byte| byte == b'-' || byte.is_ascii_digit())
}

/// `1e400` is JSON, and no number for most readers of JSON.
fn is_finite(number: &str) -> bool {
    number.parse::<f64>().is_ok_and(f64::is_finite)
}

/// `1.0` and `1e3` are whole numbers, as in JSON Schema.
fn is_whole(number: &str) -> bool {
    if !number.contains(['.', 'e', 'E']) {
        return true; // however many digits it has
    }
    number.parse::<f64>().is_ok_and(|number| number.is_finite() && number.fract() == 0.0)
}

fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

fn members(params: &Payload) -> Result<Members<'_>, ParamProblem> {
    let raw: &RawValue = serde_json::from_slice(params.as_bytes()).map_err(|error| unreadable(&error))?;
    if is_null(raw) {
        return Ok(Members::new()); // a call without params
    }
    let read: Read<'_> = serde_json::from_str(raw.get()).map_err(|error| {
        if raw.get().starts_with('{') {
            return unreadable(&error);
        }
        ParamProblem { parameter: String::new(), expected: "an object".to_owned(), got: describe_raw(raw) }
    })?;
    match read.repeated {
        None => Ok(read.members),
        Some(parameter) => Err(ParamProblem { parameter, expected: "one value".to_owned(), got: "several".to_owned() }),
    }
}

/// Members as they are read. Readers of JSON disagree on which of two members of one name counts.
#[derive(Default)]
struct Read<'a> {
    members: Members<'a>,
    /// A name that stands there more than once.
    repeated: Option<String>,
}

impl<'a> Deserialize<'a> for Read<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfObject;
        impl<'a> Visitor<'a> for OfObject {
            type Value = Read<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'a>>(self, mut object: A) -> Result<Self::Value, A::Error> {
                let mut read = Read::default();
                while let Some((name, value)) = object.next_entry::<String, &'a RawValue>()? {
                    match read.members.entry(name) {
                        Entry::Vacant(place) => {
                            place.insert(value);
                        }
                        Entry::Occupied(there) => {
                            read.repeated.get_or_insert_with(|| there.key().clone());
                        }
                    }
                }
                Ok(read)
            }
        }
        deserializer.deserialize_map(OfObject)
    }
}

fn describe_raw(value: &RawValue) -> String {
    serde_json::from_str::<Value>(value.get()).map_or_else(|error| unreadable(&error).got, |value| describe(&value))
}

fn check_definition(definition: &Definition) -> Result<(), InvalidParameters> {
    let name = &definition.name;
    if name.is_empty() {
        return Err(InvalidParameters("a parameter has an empty name: name it".to_owned()));
    }
    let Some(default) = &definition.default else { return Ok(()) };
    if is_null(default) || definition.kind.takes(default.get()) {
        return Ok(());
    }
    let (expected, got) = (definition.kind.in_words(), describe_raw(default));
    Err(InvalidParameters(format!("the default of parameter '{name}' must be {expected}, not {got}")))
}

#[cfg(test)]
mod tests {
    use super::super::Parameters;
    use super::*;

    fn compile(definitions: &str) -> Result<Parameters, InvalidParameters> {
        Parameters::compile(&Payload::from_json(definitions.to_owned()))
    }

    /// What is wrong with these params, each problem as a sentence.
    fn check(definitions: &str, params: &str) -> Vec<String> {
        let problems = compile(definitions).unwrap().check(&Payload::from_json(params.to_owned()));
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_type_takes_its_own_values_and_refuses_the_others() {
        let samples = [
            ("string", vec![r#""x""#]),
            ("integer", vec!["1", "-0", "1.0", "1e3", "123456789012345678901234567890"]),
            ("number", vec!["1", "1.5", "-2e-3"]),
            ("boolean", vec!["true", "false"]),
            ("object", vec!["{}", r#"{"a":1}"#]),
            ("array", vec!["[]", "[1]"]),
        ];
        for (kind, own) in &samples {
            let definitions = format!(r#"[{{"name":"p","type":"{kind}","required":true}}]"#);
            for value in own {
                assert!(check(&definitions, &format!(r#"{{"p":{value}}}"#)).is_empty(), "{kind} takes {value}");
            }
            for (other, values) in samples.iter().filter(|(other, _)| other != kind && (*kind, *other) != ("number", "integer")) {
                let value = values.last().unwrap();
                if (*kind, *other) == ("integer", "number") {
                    assert_eq!(check(&definitions, r#"{"p":1.5}"#), ["parameter 'p': expected an integer, got the number 1.5"]);
                    continue;
                }
                assert_eq!(check(&definitions, &format!(r#"{{"p":{value}}}"#)).len(), 1, "{kind} refuses {value}");
            }
        }
    }

    #[test]
    fn problems_name_the_parameter_and_never_repeat_text() {
        let definitions = r#"[{"name":"a","type":"number","required":true},{"name":"b","type":"object"}]"#;
        let problems = check(definitions, r#"{"b":"secret"}"#);
        assert_eq!(
            problems,
            ["parameter 'a': expected a number, got nothing", "parameter 'b': expected an object, got a string of 6 characters"]
        );
        assert_eq!(check(definitions, "[1,2]"), ["expected an object, got an array of 2 items"]);
    }

    #[test]
    fn a_parameter_that_stands_there_twice_and_a_number_out_of_range_are_refused() {
        let definitions = r#"[{"name":"a","type":"number"},{"name":"b"}]"#;
        assert_eq!(check(definitions, r#"{"a":1,"b":2,"a":2}"#), ["parameter 'a': expected one value, got several"]);
        assert_eq!(check(definitions, r#"{"z":1,"z":2}"#), ["parameter 'z': expected one value, got several"]);
        let out_of_range = check(definitions, r#"{"a":-1e400}"#);
        assert!(out_of_range[0].starts_with("parameter 'a': expected a number, got") && out_of_range.len() == 1, "{out_of_range:?}");
        assert!(check(definitions, r#"{"a":1e300,"b":1e400}"#).is_empty(), "what takes anything stays as it came");
    }

    #[test]
    fn unknown_params_are_allowed_and_absent_optional_ones_too() {
        let definitions = r#"[{"name":"a","type":"string"},{"name":"b"}]"#;
        for params in ["{}", "null", r#"{"z":1}"#, r#"{"a":null}"#, " { \"a\" : \"x\" } "] {
            assert!(check(definitions, params).is_empty(), "{params}");
        }
    }

    #[test]
    fn defaults_are_filled_in_where_nothing_or_null_came_and_numbers_keep_their_digits() {
        let parameters = compile(r#"[{"name":"a","type":"integer","required":true,"default":7},{"name":"b","default":[1]}]"#).unwrap();
        let fill = |params: &str| parameters.fill(&Payload::from_json(params.to_owned())).unwrap().as_str().to_owned();
        assert_eq!(fill("null"), r#"{"a":7,"b":[1]}"#);
        assert_eq!(fill(r#"{"a":null,"z":1e400}"#), r#"{"a":7,"b":[1],"z":1e400}"#);
        assert_eq!(fill(r#"{"b": 2, "a": 1}"#), r#"{"b": 2, "a": 1}"#, "nothing to fill in: the text stays as it came");
    }

    #[test]
    fn the_text_in_which_the_seeds_write_a_default_is_read_by_the_type() {
        for (kind, written, filled) in [
            ("string", r#""40""#, r#"{"p":"40"}"#),
            ("number", r#""40.50""#, r#"{"p":40.50}"#),
            ("boolean", r#""true""#, r#"{"p":true}"#),
            ("array", r#""[1]""#, r#"{"p":[1]}"#),
            ("any", r#""40""#, r#"{"p":40}"#),
            ("any", r#""kg""#, r#"{"p":"kg"}"#),
            ("number", "7", r#"{"p":7}"#),
            ("number", r#""""#, "{}"),
            ("string", r#""""#, "{}"),
            ("number", r#""seven""#, "{}"),
            ("number", r#""7", "default": 8"#, r#"{"p":8}"#),
        ] {
            let definitions = format!(r#"[{{"name":"p","type":"{kind}","defaultValue":{written}}}]"#);
            let params = compile(&definitions).unwrap().fill(&Payload::from_json("{}")).unwrap();
            assert_eq!(params.as_str(), filled, "{definitions}");
        }
    }

    #[test]
    fn definitions_that_make_no_sense_are_refused_with_what_to_change() {
        for (definitions, says) in [
            (r#"[{"type":"string"}]"#, "missing field `name`"),
            (r#"[{"name":"a","type":"text"}]"#, "unknown variant `text`"),
            (r#"[{"name":"a"},{"name":"a"}]"#, "'a' is defined twice"),
            (r#"[{"name":""}]"#, "empty name"),
            (r#"[{"name":"a","type":"integer","default":"x"}]"#, "must be an integer, not a string"),
            ("3", "array of definitions or a JSON Schema"),
            ("{", "not JSON"),
        ] {
            let refused = compile(definitions).unwrap_err().to_string();
            assert!(refused.contains(says), "{definitions}: {refused}");
        }
    }
}
