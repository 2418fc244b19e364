//! The scripts of batches. What each is handed and what it replies stands at the top of its file.

use std::sync::LazyLock;

use crate::link::Script;

/// A script and, before it, what all scripts of a place share.
macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/batches/place.lua")),
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/batches/", $file, ".lua"))
            ))
        });
    };
}

script!(INGEST, "ingest");
script!(CLAIM, "claim");
script!(RECLAIM, "reclaim");
script!(EXTEND, "extend");
script!(FINISH, "finish");
script!(SEAL, "seal");
script!(DEAD, "dead");
script!(DUE, "due");
script!(LOOK, "look");
script!(SWEEP, "sweep");

pub(super) static PUT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/batches/put.lua")));
pub(super) static DRAIN: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/batches/drain.lua")));
pub(super) static LEAD: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/batches/lead.lua")));
pub(super) static DRAINED: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/batches/drained.lua")));
