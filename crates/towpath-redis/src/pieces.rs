//! Tagged pieces of bytes in a row: a letter, a length, a colon, the bytes. Lua can make them by putting strings together.

/// Puts pieces in a row.
#[derive(Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
}

impl Writer {
    pub(crate) fn put(&mut self, tag: u8, value: &[u8]) {
        self.out.push(tag);
        self.out.extend_from_slice(itoa::Buffer::new().format(value.len()).as_bytes());
        self.out.push(b':');
        self.out.extend_from_slice(value);
    }

    /// One that has room for so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { out: Vec::with_capacity(bytes) }
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.out
    }
}

/// Takes pieces apart. An item is `None` when the bytes are no pieces; nothing follows it.
pub(crate) struct Pieces<'a> {
    rest: &'a [u8],
}

impl<'a> Pieces<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn piece(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.rest.split_first()?;
        let colon = rest.iter().take(20).position(|byte| *byte == b':')?;
        let length: usize = std::str::from_utf8(&rest[..colon]).ok()?.parse().ok()?;
        let (value, rest) = rest[colon + 1..].split_at_checked(length)?;
        self.rest = rest;
        Some((*tag, value))
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Option<(u8, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let piece = self.piece();
        if piece.is_none() {
            self.rest = &[];
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_whatever_is_in_them() {
        let mut out = Writer::default();
        out.put(b'a', b"");
        out.put(b'b', b"12:34\n\0");
        let bytes = out.done();
        let found: Vec<_> = Pieces::of(&bytes).collect();
        assert_eq!(found, [Some((b'a', &b""[..])), Some((b'b', &b"12:34\n\0"[..]))]);
    }

    #[test]
    fn broken_pieces_end_with_nothing() {
        for bytes in [&b"a"[..], b"a5", b"a5:x", b"ax:", b"a99999999999999999999:", b"a-1:x"] {
            assert_eq!(Pieces::of(bytes).collect::<Vec<_>>(), [None], "{bytes:?}");
        }
    }
}
