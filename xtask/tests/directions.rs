//! Dependencies point down only: what each crate may use and must not know, held against `cargo metadata`.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// What a crate must not know, whether in its code or in its tests. What it may use of ours is in `MAY_USE`.
const MUST_NOT_KNOW: [(&str, &[&str]); 6] = [
    ("towpath-core", &["tokio", "redis", "rusqlite", "axum", "clap", "reqwest", "uuid", "tracing"]),
    ("towpath-sqlite", &["redis", "axum", "clap", "reqwest", "hyper"]),
    ("towpath-redis", &["rusqlite", "axum", "clap", "reqwest", "hyper"]),
    ("towpath-conformance", &["redis", "rusqlite", "axum", "clap", "reqwest"]),
    ("towpath", &["redis", "rusqlite", "axum", "clap", "reqwest", "hyper"]),
    ("towpath-server", &["redis", "rusqlite"]),
];

/// Crates of this repository that a crate may use outside its tests.
const MAY_USE: [(&str, &[&str]); 6] = [
    ("towpath-core", &[]),
    ("towpath-sqlite", &["towpath-core"]),
    ("towpath-redis", &["towpath-core"]),
    ("towpath-conformance", &["towpath-core"]),
    ("towpath", &["towpath-core", "towpath-sqlite", "towpath-redis"]),
    ("towpath-server", &["towpath-core", "towpath"]),
];

struct Dependency {
    of: String,
    on: String,
    only_in_tests: bool,
}

fn dependencies() -> Vec<Dependency> {
    let output = Command::new(env!("CARGO")).args(["metadata", "--no-deps", "--format-version", "1", "--locked"]).output();
    let metadata: Value = serde_json::from_slice(&output.expect("cargo runs").stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages").clone();
    let of_package = |package: &Value| -> Vec<Dependency> {
        let text = |value: &Value| value.as_str().expect("a name").to_owned();
        let list = package["dependencies"].as_array().expect("a list of dependencies");
        let one = |dependency: &Value| Dependency {
            of: text(&package["name"]),
            on: text(&dependency["name"]),
            only_in_tests: dependency["kind"].as_str() == Some("dev"),
        };
        list.iter().map(one).collect()
    };
    packages.iter().flat_map(of_package).collect()
}

#[test]
fn no_crate_knows_what_it_must_not() {
    let known = dependencies();
    assert!(known.iter().any(|dependency| dependency.of == "towpath-core"), "cargo metadata named no crate of ours");
    for dependency in known.iter().filter(|dependency| !dependency.only_in_tests) {
        let rule = MUST_NOT_KNOW.iter().find(|(name, _)| *name == dependency.of);
        let forbidden = rule.is_some_and(|(_, forbidden)| forbidden.contains(&dependency.on.as_str()));
        assert!(
            !forbidden,
            "{} must not know {}: see the table in ARCHITECTURE.md, and move the code to the room that may",
            dependency.of, dependency.on
        );
    }
}

#[test]
fn dependencies_between_our_crates_point_down() {
    let ours: BTreeSet<&str> = MAY_USE.iter().map(|(name, _)| *name).collect();
    for dependency in dependencies().iter().filter(|dependency| !dependency.only_in_tests && ours.contains(dependency.on.as_str())) {
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == dependency.of) else { continue };
        assert!(allowed.contains(&dependency.on.as_str()), "{} uses {}, which is not below it", dependency.of, dependency.on);
    }
}
