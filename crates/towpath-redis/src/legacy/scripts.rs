//! The Lua files of this module. A file's header is its contract.

use std::sync::LazyLock;

use crate::link::Script;

macro_rules! with_group {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::even_if_full(concat!(
                include_str!("../../lua/calls/record.lua"),
                include_str!("../../lua/legacy/group.lua"),
                include_str!(concat!("../../lua/legacy/", $file, ".lua"))
            ))
        });
    };
}

macro_rules! alone {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::even_if_full(include_str!(concat!("../../lua/legacy/", $file, ".lua"))));
    };
}

with_group!(TEND, "tend");
with_group!(IMPORT, "import");
with_group!(EXPORT, "export");
alone!(ANSWER, "answer");
alone!(LOOK, "look");
alone!(BACKLOG, "backlog");
