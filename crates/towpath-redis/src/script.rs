//! The Lua files, one transition each. A file's header is its contract.

use std::sync::LazyLock;

use crate::link::Script;

pub(crate) static SUBMIT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../lua/calls/submit.lua")));
pub(crate) static MOVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../lua/calls/move.lua")));
pub(crate) static TAKE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../lua/calls/take.lua")));
pub(crate) static ADOPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../lua/calls/adopt.lua")));
pub(crate) static PROGRESS: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../lua/calls/progress.lua")));
pub(crate) static TRIM: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../lua/calls/trim.lua")));
pub(crate) static BACK: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../lua/calls/back.lua")));
pub(crate) static REPLAY: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../lua/calls/replay.lua")));
pub(crate) static LIMITS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../lua/limits/clock.lua"),
        include_str!("../lua/limits/gcra.lua"),
        include_str!("../lua/limits/fixed_window.lua"),
        include_str!("../lua/limits/sliding_counter.lua"),
        include_str!("../lua/limits/sliding_log.lua"),
        include_str!("../lua/limits/take.lua"),
    ))
});

/// The words handed to a script, one after the other.
#[derive(Default)]
pub(crate) struct Args(Vec<Vec<u8>>);

impl Args {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    pub(crate) fn push(&mut self, word: impl Into<Vec<u8>>) {
        self.0.push(word.into());
    }

    pub(crate) fn number(&mut self, number: impl std::fmt::Display) {
        self.0.push(number.to_string().into_bytes());
    }

    pub(crate) fn flag(&mut self, set: bool) {
        self.0.push(if set { b"1".to_vec() } else { Vec::new() });
    }
}

impl std::ops::Deref for Args {
    type Target = [Vec<u8>];

    fn deref(&self) -> &[Vec<u8>] {
        &self.0
    }
}
