//! The scripts of locks and permits. What each is handed and what it replies stands at the top of its file.

use std::sync::LazyLock;

use crate::link::Script;

/// A script and, before it, what all scripts of its room share.
macro_rules! script {
    ($name:ident, $kind:ident, $room:literal, $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::$kind(concat!(
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $room, "/scope.lua")),
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $room, "/", $file, ".lua"))
            ))
        });
    };
}

script!(ACQUIRE, new, "locks", "acquire");
script!(RENEW, even_if_full, "locks", "renew");
script!(RELEASE, even_if_full, "locks", "release");
script!(FINISH, even_if_full, "locks", "finish");
script!(CANCEL, even_if_full, "locks", "cancel");
script!(REAP, even_if_full, "locks", "reap");
script!(ACQUIRE_PERMIT, new, "permits", "acquire");
script!(RENEW_PERMIT, even_if_full, "permits", "renew");
script!(RELEASE_PERMIT, even_if_full, "permits", "release");

pub(super) static SWAP: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(include_str!("../../lua/locks/swap.lua")));
pub(super) static LOOK: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/locks/look.lua")));
pub(super) static LOOK_AT_PERMITS: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/permits/look.lua")));
