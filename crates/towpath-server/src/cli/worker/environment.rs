//! What a program learns from its environment, beside the parameters on its standard input.

use std::collections::BTreeMap;

use towpath_server::http::wire::Json;
use towpath_server::http::wire::workers::ClaimedCall;

/// A single variable longer than this is refused by the system; it is on standard input anyway.
const VARIABLE_BYTES_MAX: usize = 32 * 1024;
/// All parameters together; the system bounds the sum, too.
const PARAMETERS_BYTES_MAX: usize = 256 * 1024;

/// The `TOWPATH_` variables of a call.
pub(crate) fn of_call(call: &ClaimedCall, server: &str) -> Vec<(String, String)> {
    let key = call.idempotency_key.as_ref().unwrap_or(&call.call_id);
    let mut variables: Vec<(String, String)> = [
        ("TOWPATH_CALL_ID", call.call_id.clone()),
        ("TOWPATH_DELIVERY_ID", call.delivery_id.clone()),
        ("TOWPATH_ATTEMPT", call.attempt.to_string()),
        ("TOWPATH_FUNCTION", call.function_name.clone()),
        ("TOWPATH_SCOPE", call.scope.clone()),
        ("TOWPATH_DEADLINE_MS", call.deadline.to_string()),
        ("TOWPATH_REMAINING_MS", call.remaining_ms.to_string()),
        ("TOWPATH_IDEMPOTENCY_KEY", key.clone()),
        ("TOWPATH_TRACEPARENT", call.traceparent.clone().unwrap_or_default()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if server.starts_with("http") {
        variables.push(("TOWPATH_SERVER".to_owned(), server.to_owned())); // a store of the worker's own is no address for others
    }
    variables.extend(parameters(call.params.get()));
    variables
}

/// `TOWPATH_PARAM_<NAME>` for each top-level parameter that is text, a number, true, false or null.
fn parameters(params: &str) -> Vec<(String, String)> {
    let Ok(fields) = serde_json::from_str::<BTreeMap<String, Json>>(params) else { return Vec::new() };
    let mut room = PARAMETERS_BYTES_MAX;
    let mut variables = Vec::new();
    for (name, value) in fields {
        let Some(value) = scalar(value.get()) else { continue };
        let name = variable_name(&name);
        let bytes = name.len() + value.len();
        if bytes <= VARIABLE_BYTES_MAX && bytes <= room {
            room -= bytes;
            variables.push((name, value));
        }
    }
    variables
}

fn variable_name(parameter: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    "TOWPATH_PARAM_".chars().chain(parameter.chars().map(clean)).collect()
}

/// The value as a shell likes it. Objects and lists have none; nor has text with a NUL, which no variable can hold.
fn scalar(json: &str) -> Option<String> {
    match json.as_bytes().first()? {
        b'{' | b'[' => None,
        b'"' => serde_json::from_str::<String>(json).ok().filter(|text| !text.contains('\0')),
        b'n' => Some(String::new()),
        _number_or_bool => Some(json.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_become_variables_and_the_rest_does_not() {
        let params =
            r#"{"text":"hi \"you\"","order-id":17,"big":12345678901234567890123,"ok":true,"none":null,"list":[1],"nul":"a\u0000b"}"#;
        let expected = [
            ("TOWPATH_PARAM_BIG", "12345678901234567890123"),
            ("TOWPATH_PARAM_NONE", ""),
            ("TOWPATH_PARAM_OK", "true"),
            ("TOWPATH_PARAM_ORDER_ID", "17"),
            ("TOWPATH_PARAM_TEXT", "hi \"you\""),
        ];
        assert_eq!(parameters(params), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn what_the_system_would_refuse_is_left_out() {
        assert!(parameters(&format!(r#"{{"long":"{}"}}"#, "x".repeat(VARIABLE_BYTES_MAX))).is_empty());
        let many: Vec<String> = (0..100).map(|n| format!(r#""p{n}":"{}""#, "x".repeat(10_000))).collect();
        let kept: usize = parameters(&format!("{{{}}}", many.join(","))).iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(kept > PARAMETERS_BYTES_MAX / 2 && kept <= PARAMETERS_BYTES_MAX, "{kept}");
        assert!(parameters("[1,2]").is_empty());
    }
}
