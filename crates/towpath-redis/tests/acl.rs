//! The printed rights are those that the code needs: every command that it names anywhere is among them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use towpath_redis::{acl_options, acl_rule};

/// Done without where it is refused or unknown; or sent to a Sentinel, which has users of its own.
const DONE_WITHOUT: [&str; 2] = ["waitaof", "sentinel"];
/// Commands whose second word is part of their name.
const WITH_SUBCOMMANDS: [&str; 11] =
    ["xgroup", "xinfo", "script", "client", "cluster", "config", "acl", "pubsub", "slowlog", "latency", "memory"];

fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let of_path = |path: PathBuf| match path.is_dir() {
        true => files(&path, end),
        false => Some(path).filter(|path| path.to_string_lossy().ends_with(end)).into_iter().collect(),
    };
    entries.flat_map(|entry| of_path(entry.expect("a folder that can be read").path())).collect()
}

/// The command whose first word begins where `text` does, and ends at the next quote.
fn command_at(text: &str, quote: char, between: &[&str]) -> Option<String> {
    let (first, rest) = text.split_once(quote)?;
    if first.is_empty() || !first.chars().all(|letter| letter.is_ascii_uppercase()) {
        return None;
    }
    let first = first.to_lowercase();
    let second = between.iter().find_map(|between| rest.strip_prefix(between)?.split_once(quote)).map(|(word, _)| word.to_lowercase());
    match second {
        Some(second) if WITH_SUBCOMMANDS.contains(&first.as_str()) => Some(format!("{first}|{second}")),
        _ => Some(first),
    }
}

fn commands_in_scripts(text: &str) -> Vec<String> {
    let calls = ["redis.call('", "redis.pcall('"];
    let behind = calls.iter().flat_map(|call| text.match_indices(call).map(|(at, call)| &text[at + call.len()..]));
    behind.filter_map(|rest| command_at(rest, '\'', &[", '"])).collect()
}

fn commands_in_rust(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    // A command begins at the first argument behind its making, or at the head of a list of words.
    let made = text.match_indices("Cmd::new()").filter_map(|(at, _)| text[at..].find(".arg(").map(|arg| &text[at + arg + ".arg(".len()..]));
    let listed = text.match_indices("command(&[").map(|(at, begin)| &text[at + begin.len()..]);
    made.chain(listed).filter_map(|rest| command_at(rest.strip_prefix('"')?, '"', &[").arg(\"", ", \""])).collect()
}

fn commands_in_code() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &PathBuf| fs::read_to_string(path).expect("a file that can be read");
    let is_for_tests = |path: &PathBuf| path.to_string_lossy().contains("tests");
    let scripts = files(&root.join("lua"), ".lua").iter().flat_map(|path| commands_in_scripts(&read(path))).collect::<Vec<_>>();
    let rust = files(&root.join("src"), ".rs");
    scripts.into_iter().chain(rust.iter().filter(|path| !is_for_tests(path)).flat_map(|path| commands_in_rust(&read(path)))).collect()
}

#[test]
fn every_command_that_the_code_sends_is_among_the_printed_rights_or_the_optional_ones() {
    let options = acl_options("towpath").into_iter().map(|(rule, _)| rule).collect::<Vec<_>>().join(" ");
    let rule = format!("{} {options}", acl_rule("towpath", "PASSWORD", "towpath"));
    let allowed: BTreeSet<&str> = rule.split(' ').filter_map(|word| word.strip_prefix('+')).chain(DONE_WITHOUT).collect();
    let used = commands_in_code();
    for known in ["evalsha", "xgroup|create", "client|setname", "config|get", "hincrby"] {
        assert!(used.contains(known), "the search does not find {known}: {used:?}");
    }
    let missing: Vec<&String> = used.iter().filter(|command| !allowed.contains(command.as_str())).collect();
    assert!(missing.is_empty(), "add these to acl.rs, each with why: {missing:?}");
}
