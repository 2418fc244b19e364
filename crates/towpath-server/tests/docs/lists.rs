//! Lists in the documentation against what they list: metrics, environment variables.

use std::collections::BTreeSet;

use crate::page::{self, text_of};

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
