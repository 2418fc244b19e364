//! Replies as the server writes them (RESP2), read in place: a reply of a thousand words is one piece of memory and not a thousand.

use bytes::Bytes;
use redis::Value;

/// What the server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    /// A word, or a status.
    Bytes(Bytes),
    /// It refused: a code and what it says.
    Error(String),
    Array(Vec<Reply>),
}

/// Words inside of words inside of words: no command that we send is answered deeper.
const DEPTH_MAX: usize = 8;

/// A reply as it was written.
pub(crate) struct Text(pub(super) Bytes);

impl Text {
    /// The same as a tree.
    pub(crate) fn reply(&self) -> Result<Reply, NoReply> {
        read(&self.0)
    }

    /// Whether the server refused.
    pub(super) fn is_error(&self) -> bool {
        self.0.first() == Some(&b'-')
    }
}

#[cfg(test)]
impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Bytes::from(text))
    }
}

/// What was read is no reply.
#[derive(Debug)]
pub(crate) struct NoReply;

/// Where the first reply ends, if it is all there.
pub(super) fn end_of_first(text: &[u8]) -> Result<Option<usize>, NoReply> {
    let (mut at, mut left) = (0, 1_usize);
    while left > 0 {
        let Some(line) = line(text, at) else { return Ok(None) };
        left -= 1;
        at = line.end;
        match line.kind {
            b'$' => {
                if let Some(length) = line.length()? {
                    at += length + 2;
                    if at > text.len() {
                        return Ok(None);
                    }
                }
            }
            b'*' => left += line.length()?.unwrap_or(0),
            b'+' | b'-' | b':' => {}
            _ => return Err(NoReply),
        }
    }
    Ok(Some(at))
}

/// Reads a reply that is all there.
pub(super) fn read(text: &Bytes) -> Result<Reply, NoReply> {
    read_at(text, &mut 0, 0)
}

fn read_at(text: &Bytes, at: &mut usize, depth: usize) -> Result<Reply, NoReply> {
    let line = line(text, *at).filter(|_| depth < DEPTH_MAX).ok_or(NoReply)?;
    *at = line.end;
    Ok(match line.kind {
        b'+' => Reply::Bytes(text.slice(line.from..line.end - 2)),
        b'-' => Reply::Error(String::from_utf8_lossy(line.rest).into_owned()),
        b':' => Reply::Int(line.number().ok_or(NoReply)?),
        b'$' => match line.length()? {
            None => Reply::Nil,
            Some(length) => {
                let from = *at;
                *at += length + 2;
                if *at > text.len() {
                    return Err(NoReply);
                }
                Reply::Bytes(text.slice(from..from + length))
            }
        },
        b'*' => match line.length()? {
            None => Reply::Nil,
            // No more than could be there: the number comes from outside.
            Some(count) => {
                let mut items = Vec::with_capacity(count.min(text.len() / 4 + 1));
                for _ in 0..count {
                    items.push(read_at(text, at, depth + 1)?);
                }
                Reply::Array(items)
            }
        },
        _ => return Err(NoReply),
    })
}

/// A line: what kind of thing it begins, and what else it says.
struct Line<'a> {
    kind: u8,
    rest: &'a [u8],
    from: usize,
    /// Where the next one begins.
    end: usize,
}

fn line(text: &[u8], at: usize) -> Option<Line<'_>> {
    let kind = *text.get(at)?;
    let from = at + 1;
    let length = text[from..].iter().position(|byte| *byte == b'\r')?;
    let end = from + length + 2;
    (end <= text.len()).then(|| Line { kind, rest: &text[from..from + length], from, end })
}

impl Line<'_> {
    fn number(&self) -> Option<i64> {
        let (negative, digits) = match self.rest.split_first()? {
            (b'-', digits) => (true, digits),
            _ => (false, self.rest),
        };
        let value = digits.iter().try_fold(0_i64, |value, digit| {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
            value.checked_mul(10)?.checked_add(i64::from(digit))
        })?;
        (!digits.is_empty()).then_some(if negative { -value } else { value })
    }

    /// `None`: there is nothing, not even an empty word.
    fn length(&self) -> Result<Option<usize>, NoReply> {
        match self.number() {
            Some(-1) => Ok(None),
            // Far beyond what a server accepts; so that adding to it is safe.
            Some(length) if length <= i64::from(u32::MAX) => usize::try_from(length).map(Some).map_err(|_| NoReply),
            _ => Err(NoReply),
        }
    }
}

impl Reply {
    pub(crate) fn items(&self) -> &[Self] {
        if let Self::Array(items) = self { items } else { &[] }
    }

    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        self.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }
}

impl From<Reply> for Value {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Nil => Self::Nil,
            Reply::Int(number) => Self::Int(number),
            Reply::Bytes(bytes) => Self::BulkString(bytes.to_vec()),
            Reply::Array(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            // Only the client library itself can make one of its errors.
            Reply::Error(said) => redis::parse_redis_value(format!("-{said}\r\n").as_bytes()).unwrap_or(Self::Nil),
        }
    }
}

impl From<&Value> for Reply {
    fn from(value: &Value) -> Self {
        match value {
            Value::Int(number) => Self::Int(*number),
            Value::BulkString(bytes) => Self::Bytes(Bytes::copy_from_slice(bytes)),
            Value::SimpleString(text) => Self::Bytes(Bytes::copy_from_slice(text.as_bytes())),
            Value::Okay => Self::Bytes(Bytes::from_static(b"OK")),
            Value::Array(items) => Self::Array(items.iter().map(Self::from).collect()),
            Value::ServerError(error) => Self::Error(format!("{} {}", error.code(), error.details().unwrap_or_default())),
            _ => Self::Nil,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &'static str) -> Reply {
        Reply::Bytes(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn every_kind_of_reply_is_read_when_its_last_byte_is_there_and_not_before() {
        let stream = Reply::Array(vec![word("5-0"), Reply::Array(vec![word("callId"), word("a\r\nb"), word("")])]);
        let replies = [
            ("+OK\r\n", word("OK")),
            ("-NOGROUP No such key\r\n", Reply::Error("NOGROUP No such key".into())),
            (":-42\r\n", Reply::Int(-42)),
            ("$-1\r\n", Reply::Nil),
            ("*-1\r\n", Reply::Nil),
            ("*0\r\n", Reply::Array(vec![])),
            ("*2\r\n$3\r\n5-0\r\n*3\r\n$6\r\ncallId\r\n$4\r\na\r\nb\r\n$0\r\n\r\n", stream),
        ];
        for (text, reply) in replies {
            for cut in 0..text.len() {
                assert_eq!(end_of_first(&text.as_bytes()[..cut]).unwrap(), None, "{cut} of {text:?}");
            }
            let and_more = format!("{text}+MORE\r\n");
            assert_eq!(end_of_first(and_more.as_bytes()).unwrap(), Some(text.len()), "{text:?}");
            assert_eq!(read(&Bytes::from_static(text.as_bytes())).unwrap(), reply);
        }
    }

    #[test]
    fn what_is_no_reply_is_refused_and_no_panic() {
        for text in ["hello\r\n", "$x\r\n", "$-2\r\n", "*99999999999999999999\r\n", "$9223372036854775807\r\n", ":\r\n", "*1\r\n?\r\n"] {
            let text = Bytes::from_static(text.as_bytes());
            assert!(end_of_first(&text).is_err() || read(&text).is_err(), "{text:?}");
        }
        let deep = Bytes::from(format!("{}:1\r\n", "*1\r\n".repeat(50_000)));
        assert!(read(&deep).is_err());
    }
}
