//! A store on Redis: what the library's doctor found there, and the user that has just the rights that are needed.

use serde_json::json;
use towpath::{Check, OpenError, Verdict};
use towpath_core::store::Durability;

use super::finding::{Finding, Level};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::Output;

/// What was found in a Redis.
pub(crate) struct Examined {
    pub(crate) findings: Vec<Finding>,
    /// What an acknowledgement is worth there; `None` when it cannot be asked, or gives less than was asked for.
    pub(crate) durability: Option<Durability>,
}

/// Looks at the Redis that a URL names; `None` for other kinds of store.
pub(crate) async fn check(store: &str, durability: Option<Durability>) -> Option<Examined> {
    match towpath::examine(store, durability).await {
        Ok(None) => None,
        Ok(Some(examination)) => {
            let findings = examination.checks.into_iter().map(finding).collect();
            Some(Examined { findings, durability: examination.durability })
        }
        Err(error) => {
            let findings = vec![Finding::fail("store", error.to_string(), "write the URL as the message says")];
            Some(Examined { findings, durability: None })
        }
    }
}

fn finding(check: Check) -> Finding {
    let level = match check.verdict {
        Verdict::Ok => Level::Ok,
        Verdict::Warn | Verdict::Unknown => Level::Warn,
        Verdict::Fail => Level::Fail,
    };
    Finding { check: check.name, level, message: check.says, advice: check.advice }
}

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
