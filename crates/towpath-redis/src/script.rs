//! The Lua files, one transition each. A file's header is its contract.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::link::Script;

macro_rules! lua {
    ($($file:literal),*) => { concat!($(include_str!(concat!("../lua/calls/", $file, ".lua"))),*) };
}

pub(crate) static SUBMIT: LazyLock<Script> = LazyLock::new(|| Script::new(lua!("record", "running", "ended", "section", "submit")));
pub(crate) static CLAIM: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("record", "running", "section", "all", "claim")));
pub(crate) static APPLY: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("record", "section", "apply")));
pub(crate) static DUE: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("record", "all", "due")));
pub(crate) static MEND: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("record", "all", "mend")));
pub(crate) static BRIEF: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("record", "brief")));
pub(crate) static FIND: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(lua!("record", "ended", "find")));
pub(crate) static REMOVE: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(include_str!("../lua/calls/remove.lua")));
pub(crate) static RESERVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../lua/calls/reserve.lua")));
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

pub(crate) static LIMITS_NOTE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../lua/limits/note.lua")));

/// Pieces of memory for the words of large batches, which are used again: to ask the system for a hundred kilobytes costs more than to fill
/// them.
#[derive(Default)]
pub(crate) struct ArgsPool(Mutex<Vec<Args>>);

impl ArgsPool {
    /// So many are kept, none larger than this.
    const MOST: usize = 16;
    const BYTES_MAX: usize = 1024 * 1024;

    pub(crate) fn take(&self) -> Args {
        self.lock().pop().unwrap_or_default()
    }

    pub(crate) fn put(&self, mut args: Args) {
        let mut pool = self.lock();
        if pool.len() < Self::MOST && args.text.capacity() <= Self::BYTES_MAX {
            args.text.clear();
            args.ends.clear();
            pool.push(args);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Args>> {
        // Nothing in here can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The words handed to a script, one after the other, in one piece of memory.
#[derive(Default)]
pub(crate) struct Args {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Args {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { text: Vec::with_capacity(count * 16), ends: Vec::with_capacity(count) }
    }

    pub(crate) fn push(&mut self, word: impl AsRef<[u8]>) {
        self.text.extend_from_slice(word.as_ref());
        self.ends.push(self.text.len());
    }

    pub(crate) fn number(&mut self, number: impl itoa::Integer) {
        self.text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.ends.push(self.text.len());
    }

    /// Whatever has a text of its own.
    pub(crate) fn shown(&mut self, thing: impl std::fmt::Display) {
        use std::io::Write as _;
        // Writing to memory does not fail.
        self.written(|text| drop(write!(text, "{thing}")));
    }

    pub(crate) fn flag(&mut self, set: bool) {
        self.push(if set { "1" } else { "" });
    }

    /// A word that is written piece by piece.
    pub(crate) fn written(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.text);
        self.ends.push(self.text.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Words behind their number.
    pub(crate) fn counted(&mut self, write: impl FnOnce(&mut Self)) {
        let (at, from) = (self.ends.len(), self.text.len());
        self.ends.push(from);
        write(self);
        let count = self.ends.len() - at - 1;
        let text = itoa::Buffer::new().format(count).as_bytes().to_vec();
        let shift = text.len();
        self.text.splice(from..from, text);
        self.ends[at..].iter_mut().for_each(|end| *end += shift);
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.text[begin..*end])
    }

    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }
}
