//! The scripts of batches. What each is handed and what it replies stands at the top of its file.

use std::sync::LazyLock;

use crate::link::Script;

/// A script and, before it, what all scripts of a place share.
macro_rules! script {
    ($name:ident, $kind:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::$kind(concat!(
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/batches/place.lua")),
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/batches/", $file, ".lua"))
            ))
        });
    };
}

script!(INGEST, new, "ingest");
script!(CLAIM, even_if_full, "claim");
script!(RECLAIM, even_if_full, "reclaim");
script!(EXTEND, even_if_full, "extend");
script!(FINISH, even_if_full, "finish");
script!(SEAL, even_if_full, "seal");
script!(DEAD, even_if_full, "dead");
script!(DUE, new, "due");
script!(LOOK, new, "look");
script!(SWEEP, even_if_full, "sweep");

pub(super) static PUT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/batches/put.lua")));
pub(super) static DRAIN: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/batches/drain.lua")));
pub(super) static LEAD: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(include_str!("../../lua/batches/lead.lua")));
pub(super) static DRAINED: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(include_str!("../../lua/batches/drained.lua")));
