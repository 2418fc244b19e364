//! Tests of the tests: a bug is planted in a script of the store, and the test that guards the rule must turn red.
//!
//! The test runs in a process of its own, with the bug in its environment (`with_planted_bug` in `link/scripts.rs`). Debug builds only.

use std::path::Path;
use std::process::Command;

/// A piece of a script's text, and the text that makes a bug of it.
pub(crate) struct Bug {
    /// The script, below `lua/`.
    pub(crate) script: &'static str,
    pub(crate) piece: &'static str,
    pub(crate) replacement: &'static str,
}

/// Runs a test of this program with the bug, and panics if the test is green.
pub(crate) fn check_noticed(bug: &Bug, test: &str) {
    let Bug { script, piece, replacement } = bug;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua").join(script);
    let text = std::fs::read_to_string(&file).expect("the script is there");
    assert_eq!(text.matches(piece).count(), 1, "the piece must be in {script} once, so that there is a bug: {piece}");
    let program = std::env::current_exe().expect("a test is a program");
    let mut run = Command::new(program);
    run.args([test, "--exact", "--nocapture"]).env("TOWPATH_PLANTED_BUG", format!("{piece} => {replacement}"));
    let output = run.output().expect("a test can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("running 1 test"), "there is no test '{test}' in this program:\n{said}");
    assert!(!output.status.success(), "'{test}' is green although {script} has '{replacement}' instead of '{piece}'");
    assert!(said.contains("1 failed"), "it did not run to its end:\n{said}");
}

/// One test per bug, in the form `name: script, piece => replacement, test;`.
macro_rules! planted {
    ($($name:ident: $script:literal, $piece:literal => $replacement:literal, $test:literal;)*) => {
        $(
            #[test]
            fn $name() {
                $crate::planted::check_noticed(
                    &$crate::planted::Bug { script: $script, piece: $piece, replacement: $replacement },
                    $test,
                );
            }
        )*
    };
}
pub(crate) use planted;
