//! The documentation, followed as a reader would: every command block of README.md and docs/ is run, and its output compared.

#![expect(clippy::unwrap_used, reason = "a test whose ground is missing fails, and says where")]

mod lists;
mod page;
mod place;
mod samples;
mod shell;

use page::{Page, Step};
use place::{Place, Store};

/// Pages whose blocks are not run, and why.
const NOT_FOLLOWED: [(&str, &str); 1] =
    [("docs/benchmarks.md", "its blocks are measurements of one machine that take minutes; tests/cli/bench.rs runs `towpath bench`")];

/// Seconds between two commands. `bench/tour` sets it.
fn pause() -> u32 {
    std::env::var("TOWPATH_DOCS_PAUSE").map_or(0, |text| text.parse().expect("TOWPATH_DOCS_PAUSE is a number of seconds"))
}

/// Follows a page from its first line to its last. Returns what is wrong with it.
fn follow(name: &str, store: Store) -> Vec<String> {
    let page = Page::read(name);
    if !page.complaints.is_empty() {
        return page.complaints;
    }
    let (mut place, mut kind, mut wrong) = (None::<Place>, page::Place::Dev, Vec::new());
    let (mut run, mut not_run) = (0, Vec::new());
    for step in &page.steps {
        match step {
            Step::Place(next) => {
                wrong.extend(place.take().and_then(|place| place.leave().err()).map(|what| format!("{name}: {what}")));
                kind = *next;
            }
            Step::NotRun { line, reason } => not_run.push(format!("{name}:{line}: {reason}")),
            Step::Command(command) => {
                let on_redis = store == Store::Redis;
                if on_redis && kind == page::Place::Redis {
                    continue; // the same as on the other store
                }
                if let Some(reason) = command.embedded_only.as_ref().filter(|_| on_redis) {
                    not_run.push(format!("{name}:{}: on Redis: {reason}", command.line));
                    continue;
                }
                let followed = place.get_or_insert_with(|| Place::open(kind, store)).follow(command, pause());
                run += 1;
                if pause() > 0 {
                    println!("$ {}", command.text);
                    followed.iter().flatten().for_each(|line| println!("{line}"));
                }
                wrong.extend(followed.err().map(|what| format!("{name}:{}: $ {}\n{what}", command.line, command.text)));
            }
        }
    }
    wrong.extend(place.and_then(|place| place.leave().err()).map(|what| format!("{name}: {what}")));
    println!("{name}: {run} commands run on {store:?}, {} not run", not_run.len());
    not_run.iter().for_each(|line| println!("  not run: {line}"));
    wrong
}

#[track_caller]
fn nothing_is_wrong(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n\n"));
}

#[test]
fn the_readme_does_what_it_says() {
    nothing_is_wrong(&follow("README.md", Store::Embedded));
}

#[test]
fn the_tour_does_the_same_on_redis() {
    nothing_is_wrong(&follow("README.md", Store::Redis));
}

#[test]
fn every_other_page_does_what_it_says() {
    let mut wrong = Vec::new();
    for name in page::all_names().iter().filter(|name| *name != "README.md") {
        match NOT_FOLLOWED.iter().find(|(page, _)| page == name) {
            Some((page, reason)) => println!("{page}: not followed: {reason}"),
            None => wrong.extend(follow(name, Store::Embedded)),
        }
    }
    nothing_is_wrong(&wrong);
}

#[test]
fn every_page_with_rust_in_it_is_compiled() {
    let library = page::text_of("crates/towpath/src/lib.rs");
    for name in page::all_names().iter().filter(|name| page::text_of(name).contains("\n```rust")) {
        assert!(library.contains(&format!("include_str!(\"../../../{name}\")")), "{name} has Rust in it: include it in towpath/src/lib.rs");
    }
}

#[test]
fn a_block_that_is_not_run_says_why_and_nothing_passes_as_text() {
    let read = |text: &str| Page::parse("page", text);
    assert_eq!(
        read("<!-- docs-test: not run: needs a URL -->\n```console\n$ a\n```\n").steps,
        [Step::NotRun { line: 2, reason: "needs a URL".to_owned() }]
    );
    for bad in ["```\nx\n```\n", "```sh\nls\n```\n", "```text\ntowpath dev\n```\n", "```json\n{\n```\n", "```console\nx\n```\n"] {
        assert_eq!(read(bad).complaints.len(), 1, "{bad}");
    }
    assert_eq!(read("<!-- docs-test: skip -->\n").complaints.len(), 1, "a mark without a reason");
}
