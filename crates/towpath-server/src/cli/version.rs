//! `towpath version`.

use serde_json::json;

use super::exit::Exit;
use super::output::Output;

pub(crate) fn run(out: Output) -> Exit {
    let version = env!("CARGO_PKG_VERSION");
    if out.is_json() {
        out.json(&json!({ "name": "towpath", "version": version }));
    } else {
        out.line(&format!("towpath {version}"));
    }
    Exit::Done
}
