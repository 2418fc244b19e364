//! Lists in the documentation against what they list: metrics, environment variables.

use std::collections::BTreeSet;

use crate::page::{self, text_of};
use crate::place::{Place, Store};

/// The names in backticks in the first column of a page's tables.
fn listed(page: &str) -> BTreeSet<String> {
    let text = text_of(page);
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let first_cells = rows.map(|row| row.split(" | ").next().unwrap_or_default());
    first_cells.flat_map(|cell| cell.split('`').step_by(2)).map(|name| name.split('{').next().unwrap_or_default().to_owned()).collect()
}

fn sources(folder: &str) -> String {
    let mut texts = Vec::new();
    collect(&page::root().join(folder), &mut texts);
    texts.join("\n")
}

/// Every Rust file below a folder, without its tests.
fn collect(folder: &std::path::Path, texts: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, texts);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            texts.push(text.split("#[cfg(test)]").next().unwrap_or_default().to_owned());
        }
    }
}

#[test]
fn the_page_about_metrics_lists_exactly_what_the_server_registers() {
    let code = ["src/metrics.rs", "src/metrics/batches.rs"].map(|file| text_of(&format!("crates/towpath-server/{file}"))).join("\n");
    let registered = code.split("registry.register(").skip(1).map(|rest| rest.trim_start());
    let names = registered.filter_map(|rest| rest.strip_prefix('"')).map(|rest| format!("towpath_{}", rest.split('"').next().unwrap()));
    let names: BTreeSet<String> = names.collect();
    assert!(names.len() > 20, "the sources are read as they are written today: {names:?}");
    let page: BTreeSet<String> = listed("docs/metrics.md");
    assert_eq!(
        page.difference(&names).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "docs/metrics.md lists what the server does not register"
    );
    assert_eq!(names.difference(&page).collect::<Vec<_>>(), Vec::<&String>::new(), "docs/metrics.md lacks what the server registers");
}

fn is_sample_of(line: &str, metric: &str) -> bool {
    let name = line.split(['{', ' ']).next().unwrap_or_default();
    ["", "_total", "_bucket", "_sum", "_count", "_info"].iter().any(|end| name.strip_suffix(end) == Some(metric))
}

#[test]
fn what_a_server_prints_as_metrics_is_on_the_page_with_its_kind() {
    let mut place = Place::open(page::Place::Dev, Store::Embedded);
    for command in [
        "towpath call add '{\"a\":1,\"b\":2}'",
        "towpath lock run nightly -- true",
        "towpath limit check mail --rule r=gcra:10/1s",
        "towpath batch push orders '{\"text\":\"hi\"}'",
        "towpath batch settings orders --set key='[\"customer\"]'",
        "towpath batch push orders '{\"customer\":\"anna\"}'",
    ] {
        place.run(command);
    }
    let printed = place.run("curl -s localhost:8690/metrics");
    let kinds: Vec<&str> = printed.iter().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    for kind in [
        "towpath_calls_ended counter",
        "towpath_lock_grants counter",
        "towpath_limit_checks counter",
        "towpath_batch_messages_ingested counter",
    ] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    let page = text_of("docs/metrics.md");
    for (name, kind) in kinds.iter().filter_map(|line| line.split_once(' ')) {
        let is_row = |line: &&str| line.strip_prefix(&format!("| `{name}")).is_some_and(|rest| rest.starts_with(['`', '{']));
        let row = page.lines().find(is_row).unwrap_or_else(|| panic!("docs/metrics.md lacks {name}"));
        assert_eq!(row.split(" | ").nth(1), Some(kind), "{name}");
        let labels = row.split('`').nth(1).unwrap().trim_start_matches(name).trim_matches(['{', '}']);
        for sample in printed.iter().filter(|line| is_sample_of(line, name)) {
            for label in labels.split(',').filter(|label| !label.is_empty()) {
                assert!(sample.contains(&format!("{label}=\"")), "docs/metrics.md gives {name} the label '{label}': {sample}");
            }
        }
    }
}

#[test]
fn the_page_about_the_environment_lists_exactly_what_the_binary_reads() {
    // `TOWPATH_PLANTED_BUG` and `TOWPATH_TEST_…` exist in debug builds and tests only.
    const FOR_TESTS: [&str; 1] = ["TOWPATH_PLANTED_BUG"];
    let code = ["towpath-server", "towpath", "towpath-core", "towpath-sqlite", "towpath-redis"]
        .map(|name| sources(&format!("crates/{name}/src")))
        .join("\n");
    let starts = ["env = \"", "env::var(\"", "env::var_os(\"", "listed(\"", "set(\"", "flag(set, \"", "const STORE: &str = \""];
    let names: BTreeSet<String> = starts
        .iter()
        .flat_map(|start| code.split(start).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()))
        .filter(|name| name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_') && name.len() > 3)
        .filter(|name| !FOR_TESTS.contains(&name.as_str()))
        .collect();
    for sure in ["TOWPATH_SERVER", "TOWPATH_STORE", "QUEUE_BULL_REDIS_TLS", "TOWPATH_API_KEYS", "TOWPATH_LOG"] {
        assert!(names.contains(sure), "the sources are read as they are written today: {names:?}");
    }
    let page: BTreeSet<String> = listed("docs/environment.md").into_iter().filter(|name| !name.starts_with("--")).collect();
    assert_eq!(
        page.difference(&names).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "docs/environment.md lists what the binary does not read"
    );
    assert_eq!(names.difference(&page).collect::<Vec<_>>(), Vec::<&String>::new(), "docs/environment.md lacks what the binary reads");
}
