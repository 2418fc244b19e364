//! The scripts of runs. What each is handed and what it replies stands at the top of its file.

use std::sync::LazyLock;

use crate::link::Script;

macro_rules! lua {
    ($($file:literal),*) => { concat!($(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $file, ".lua"))),*) };
}

const APPLIES: &str = lua!("runs/place", "calls/section", "runs/apply");

pub(super) static LOAD: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("runs/place", "calls/section", "runs/load")));
/// For what finishes accepted work.
pub(super) static APPLY: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(APPLIES));
/// For what takes something new.
pub(super) static TAKE: LazyLock<Script> = LazyLock::new(|| Script::new(APPLIES));
pub(super) static FETCH: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("runs/place", "runs/fetch")));
pub(super) static REQUEUE: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("runs/place", "runs/requeue")));
pub(super) static FACTS: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("runs/place", "calls/section", "runs/facts")));
pub(super) static JOURNAL: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("runs/place", "runs/journal")));
pub(super) static POSTS: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("runs/place", "runs/posts")));
pub(super) static LINES: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("runs/place", "runs/lines")));
pub(super) static RESERVE: LazyLock<Script> = LazyLock::new(|| Script::new(lua!("runs/reference")));
pub(super) static REFERENCE: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("runs/reference")));
