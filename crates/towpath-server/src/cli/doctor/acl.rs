//! The user of a Redis that has just the rights that are needed.

use serde_json::json;
use towpath::OpenError;

use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::Output;

/// What stands for the password, so that none is ever printed.
const PLACEHOLDER: &str = "PASSWORD";

/// Prints the rule that makes a user with just the rights that are needed.
pub(crate) fn print_acl(out: Output, store: &str, user: &str) -> Result<Exit, Failure> {
    if user.is_empty() || user.contains(|letter: char| letter.is_whitespace() || letter.is_control() || "\"'\\".contains(letter)) {
        return Err(Failure::usage("invalid_user", format!("'{user}' is no name of a user: leave out blanks and quotes")).field("user"));
    }
    let prefix = towpath::redis_prefix(store).map_err(|error| unknown(&error))?.unwrap_or_else(|| "towpath".to_owned());
    let rule = towpath::acl_rule(user, PLACEHOLDER, &prefix);
    let options = towpath::acl_options(user);
    if out.is_json() {
        let options: Vec<_> = options.iter().map(|(rule, gains)| json!({ "rule": rule, "gains": gains })).collect();
        out.json(&json!({ "user": user, "rule": rule, "options": options }));
        return Ok(Exit::Done);
    }
    out.line(&rule);
    let optional = options.iter().map(|(rule, gains)| format!("# optional: {rule}   {gains}")).collect::<Vec<_>>().join("\n");
    out.note(&format!(
        "{optional}\n\
         Put a password in place of {PLACEHOLDER}, send the line with redis-cli, and connect as redis://{user}:{PLACEHOLDER}@HOST.\n\
         For durability=replicated with appendfsync always on Redis or Valkey 7.2 and newer, add +waitaof."
    ));
    Ok(Exit::Done)
}

fn unknown(error: &OpenError) -> Failure {
    Failure::usage("unknown_store", error.to_string()).field("store")
}
