//! The scripts of locks and permits. What each is handed and what it replies stands at the top of its file.

use std::sync::LazyLock;

use crate::link::Script;

/// A script and, before it, what all scripts of its room share.
macro_rules! script {
    ($name:ident, $room:literal, $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $room, "/scope.lua")),
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $room, "/", $file, ".lua"))
            ))
        });
    };
}

script!(ACQUIRE, "locks", "acquire");
script!(RENEW, "locks", "renew");
script!(RELEASE, "locks", "release");
script!(FINISH, "locks", "finish");
script!(CANCEL, "locks", "cancel");
script!(REAP, "locks", "reap");
script!(ACQUIRE_PERMIT, "permits", "acquire");
script!(RENEW_PERMIT, "permits", "renew");
script!(RELEASE_PERMIT, "permits", "release");

pub(super) static SWAP: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/locks/swap.lua")));
pub(super) static LOOK: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/locks/look.lua")));
pub(super) static LOOK_AT_PERMITS: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/permits/look.lua")));
