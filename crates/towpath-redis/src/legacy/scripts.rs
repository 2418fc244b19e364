//! The Lua files of this module. A file's header is its contract.

use std::sync::LazyLock;

use crate::link::Script;

macro_rules! with_group {
    ($file:literal) => {
        concat!(
            include_str!("../../lua/calls/record.lua"),
            include_str!("../../lua/calls/ended.lua"),
            include_str!("../../lua/calls/section.lua"),
            include_str!("../../lua/calls/all.lua"),
            include_str!("../../lua/legacy/group.lua"),
            include_str!(concat!("../../lua/legacy/", $file, ".lua"))
        )
    };
}

macro_rules! alone {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::even_if_full(include_str!(concat!("../../lua/legacy/", $file, ".lua"))));
    };
}

pub(super) static TEND: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(with_group!("tend")));
pub(super) static IMPORT: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(with_group!("import")));
/// An exported call stands in Redis twice. When memory is full, calls wait in the queue.
pub(super) static EXPORT: LazyLock<Script> = LazyLock::new(|| Script::new(with_group!("export")));
alone!(ANSWER, "answer");
alone!(LOOK, "look");
alone!(MISSED, "missed");
alone!(CONSUMERS, "consumers");
