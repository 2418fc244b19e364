//! The registry's scripts. What each is handed and what it replies stands at the top of its file. They are few words each, and without workers
//! nothing would make room in a memory that is full: they run then, too.

use std::sync::LazyLock;

use crate::link::Script;

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::even_if_full(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/registry/", $file, ".lua"))));
    };
}

pub(super) static OFFER: LazyLock<Script> = LazyLock::new(|| {
    Script::even_if_full(concat!(
        include_str!("../../lua/calls/record.lua"),
        include_str!("../../lua/calls/section.lua"),
        include_str!("../../lua/calls/all.lua"),
        include_str!("../../lua/legacy/group.lua"),
        include_str!("../../lua/registry/offer.lua")
    ))
});
script!(WITHDRAW, "withdraw");
script!(LEAVE, "leave");
script!(FORGET, "forget");
script!(VIEW, "view");
script!(GONE, "gone");
script!(CONFIG_SET, "config_set");
script!(CONFIG_NOTE, "config_note");
