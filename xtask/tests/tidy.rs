//! Style as a test. Every message says how to fix what it found, or how to record the exception.

use std::collections::BTreeMap;
use std::fs;

use xtask::{SourceFile, check_generated, root, source_files};

/// Longer files are looked at again: do two ideas live there?
const LINES_TO_LOOK_AGAIN: usize = 500;

fn complain(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

fn lines_without_tests(file: &SourceFile) -> usize {
    file.text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count()
}

#[test]
fn every_file_says_in_its_first_line_what_it_is_for() {
    let silent = source_files(".rs").into_iter().filter(|file| !file.text.starts_with("//! "));
    complain(&silent.map(|file| format!("{}: begin with one sentence behind //!", file.path)).collect::<Vec<_>>());
}

#[test]
fn long_files_are_known_and_do_not_grow() {
    let ratchet = fs::read_to_string(root().join("xtask/tests/tidy.ratchet")).expect("the ratchet is there");
    let entries = ratchet.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let known: BTreeMap<&str, usize> = entries
        .map(|line| {
            let mut words = line.split_whitespace();
            let path = words.next().expect("a path");
            (path, words.next().and_then(|word| word.parse().ok()).expect("a number of lines after the path"))
        })
        .collect();
    let mut complaints = Vec::new();
    for file in source_files(".rs") {
        let (lines, limit) = (lines_without_tests(&file), known.get(file.path.as_str()).copied().unwrap_or(LINES_TO_LOOK_AGAIN));
        if lines > limit {
            complaints
                .push(format!("{}: {lines} lines, at most {limit}: split it, or write in tidy.ratchet why it is better whole", file.path));
        }
    }
    complain(&complaints);
}

#[test]
fn nothing_is_left_unfinished_or_silenced() {
    // Put together here, so that this file does not find itself.
    let words: Vec<String> = [("TO", "DO"), ("FIX", "ME"), ("XX", "X"), ("#[ig", "nore"), ("allow(dead", "_code")]
        .iter()
        .map(|(a, b)| format!("{a}{b}"))
        .collect();
    let mut complaints = Vec::new();
    for file in source_files(".rs") {
        for (number, line) in file.text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                complaints.push(format!("{}:{}: '{word}': finish it, or open an issue and take the mark away", file.path, number + 1));
            }
        }
    }
    complain(&complaints);
}

#[test]
fn every_file_has_been_named() {
    let unnamed = ["util", "utils", "common", "helper", "helpers", "manager", "misc", "v2"];
    let stem = |path: &str| path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).unwrap_or_default().to_owned();
    let found = source_files(".rs").into_iter().filter(|file| unnamed.contains(&stem(&file.path).as_str()));
    complain(&found.map(|file| format!("{}: name it by what is in it", file.path)).collect::<Vec<_>>());
}

#[test]
fn sql_stands_only_in_the_embedded_store() {
    let mut complaints = Vec::new();
    for file in
        source_files(".rs").iter().filter(|file| !file.path.starts_with("crates/towpath-sqlite/") && !file.path.starts_with("xtask/"))
    {
        for (number, line) in file.text.lines().enumerate() {
            if ["SELECT ", "INSERT INTO ", "DELETE FROM ", "PRAGMA "].iter().any(|word| line.contains(word)) {
                complaints.push(format!("{}:{}: SQL belongs in towpath-sqlite", file.path, number + 1));
            }
        }
    }
    complain(&complaints);
}

#[test]
fn every_test_that_the_page_about_soundness_names_is_there() {
    const PAGE: &str = "docs/soundness-tests.md";
    let page = fs::read_to_string(root().join(PAGE)).expect("the page is there");
    let mut complaints = Vec::new();
    for row in page.lines().filter(|line| line.starts_with('|')) {
        let tests = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
        let mut text = None;
        for name in tests.split('`').skip(1).step_by(2) {
            if name.ends_with(".rs") {
                text = Some(fs::read_to_string(root().join("crates/towpath-redis").join(name)).unwrap_or_default());
            } else if !text
                .as_ref()
                .is_some_and(|text| [format!("fn {name}("), format!("    {name}:")].iter().any(|test| text.contains(test)))
            {
                complaints.push(format!("{PAGE}: there is no test '{name}' in the file before it: correct the name, or write the test"));
            }
        }
    }
    complain(&complaints);
}

#[test]
fn the_table_of_states_in_the_architecture_is_the_one_in_the_code() {
    check_generated("ARCHITECTURE.md", "states of a call", &towpath_core::call::state::table()).expect("ARCHITECTURE.md is up to date");
}
