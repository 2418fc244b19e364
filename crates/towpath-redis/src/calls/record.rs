//! A call's record: how it is written down. Scripts read and write the same text by `lua/calls/record.lua`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_core::call::{Call, CallRequest, CallState};
use towpath_core::names::{CallId, FunctionKey, IdempotencyKey, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::store::StoreError;
use towpath_core::time::{Timestamp, from_millis, millis};

use super::tail::{read_tail, write_tail};
use crate::legacy;
use crate::pieces::{Pieces, Writer};

/// The first character of every record of this format. `lua/calls/record.lua` has the same.
pub(crate) const FORMAT: u8 = b'3';
/// A request that is longer than this stands beside the record, so that a change of state does not move it about.
pub(crate) const INLINE_MAX: usize = 1_024;
/// The field beside a record that holds its request.
pub(crate) const REQUEST: &str = "\u{1}r";
/// The field beside a record that holds the latest progress report.
pub(crate) const PROGRESS: &str = "\u{1}p";
/// The letter of each state, in the order of [`CallState::ALL`].
const LETTERS: [u8; 10] = *b"QDRCFTXKZS";

/// A call as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Rises with every change. A change names the version that its decision was made on.
    pub(crate) version: u64,
    /// Its place in the order of submits: the microsecond in which it was submitted, or the next that was free in the caller's process.
    pub(crate) sequence: u64,
    /// The holder's calls are counted by the store.
    pub(crate) counted: bool,
    /// The idempotency key that leads to it.
    pub(crate) key: Option<IdempotencyKey>,
    /// Where its end is told: names of processes, and reply lists of legacy callers.
    pub(crate) replies: Arc<[Arc<str>]>,
    /// The entry of the stream in which it waits for a legacy worker, or which a legacy worker runs; else empty.
    pub(crate) exported: Arc<str>,
    /// A progress report stands beside the record.
    pub(crate) has_progress: bool,
    /// The request, as it is written down. `None`: it stands beside the record.
    pub(crate) request: Option<Bytes>,
    /// The call itself.
    pub(crate) call: Call,
}

impl Record {
    /// A call as it is when the store takes it.
    pub(crate) fn submitted(call: Call, sequence: u64, key: Option<IdempotencyKey>, replies: Arc<[Arc<str>]>, request: Bytes) -> Self {
        let request = Some(request).filter(|request| request.len() <= INLINE_MAX);
        Self { version: 1, sequence, counted: false, key, replies, exported: Arc::from(""), has_progress: false, request, call }
    }

    /// The same record after a change of its call.
    pub(crate) fn next(&self, call: Call) -> Self {
        let counted = self.counted && call.state == CallState::Running;
        // The end is told with the change that makes it, and to no process after it. Reply lists stay: a legacy caller may have to be
        // answered once more after a crash.
        let replies = if call.state.has_ended() {
            self.replies.iter().filter(|reply| legacy::is_reply_list(reply)).cloned().collect()
        } else {
            Arc::clone(&self.replies)
        };
        let waits = self.call.state == CallState::Queued && call.state == CallState::Queued;
        let is_run_by_legacy = call.state == CallState::Running && call.holder.as_ref().is_some_and(legacy::is_legacy_holder);
        let exported = if waits || is_run_by_legacy { Arc::clone(&self.exported) } else { Arc::from("") };
        Self { version: self.version + 1, counted, replies, exported, call, ..self.clone() }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let call = &self.call;
        let mut text = Vec::with_capacity(256);
        self.write_start(&mut text);
        field(&mut text, self.sequence);
        field(&mut text, call.deadline.as_millis());
        field(&mut text, u8::from(self.request.is_none()));
        field(&mut text, call.delivery);
        instant_field(&mut text, call.started_at);
        field(&mut text, millis(call.lease));
        instant_field(&mut text, call.lease_until);
        field(&mut text, u8::from(self.counted));
        text.extend_from_slice(call.holder.as_ref().map_or("", WorkerId::as_str).as_bytes());
        text.push(b'\n');
        field(&mut text, call.submitted_at.as_millis());
        field(&mut text, millis(call.retain));
        text.extend([call.parked, call.cancel_requested, self.has_progress].map(|flag| b'0' + u8::from(flag)));
        text.push(b'\t');
        field(&mut text, call.failures);
        field(&mut text, call.crashes);
        instant_field(&mut text, call.not_before);
        instant_field(&mut text, call.ended_at);
        text.extend_from_slice(self.exported.as_bytes());
        text.push(b'\n');
        text.extend_from_slice(self.key.as_ref().map_or("", IdempotencyKey::as_str).as_bytes());
        text.push(b'\n');
        for (place, reply) in self.replies.iter().enumerate() {
            if place > 0 {
                text.push(b'\t');
            }
            text.extend_from_slice(reply.as_bytes());
        }
        text.push(b'\n');
        let tail = write_tail(call);
        field(&mut text, tail.len());
        text.extend_from_slice(itoa::Buffer::new().format(self.request.as_ref().map_or(0, Bytes::len)).as_bytes());
        text.push(b'\n');
        text.extend_from_slice(&tail);
        text.extend_from_slice(self.request.as_deref().unwrap_or_default());
        text
    }

    /// The start of the record, behind which its sequence follows. Two records with the same start and sequence are the same version of the
    /// same call: an id that was used, forgotten and used again has another sequence.
    pub(crate) fn write_start(&self, text: &mut Vec<u8>) {
        text.extend([FORMAT, letter(self.call.state), b'\t']);
        field(text, self.version);
    }

    /// Reads what [`Record::write`] or a script wrote.
    pub(crate) fn read(call_id: &CallId, text: &Bytes) -> Result<Self, StoreError> {
        let broken = || {
            let start = String::from_utf8_lossy(&text[..text.len().min(80)]);
            StoreError::Corrupt(format!(
                "the record of call '{call_id}' cannot be read by this version: {start:?}; let all servers have the newest version, or remove it with \
                 `towpath dlq drop {call_id}`"
            ))
        };
        let (mut record, tail) = parse(call_id, text).ok_or_else(broken)?;
        read_tail(&mut record.call, &tail)?;
        Ok(record)
    }

    /// Whether an idle waiter of this process, or a legacy caller, is told on this channel.
    pub(crate) fn tells(&self, channel: &str) -> bool {
        self.replies.iter().any(|reply| **reply == *channel)
    }
}

fn letter(state: CallState) -> u8 {
    let place = CallState::ALL.iter().position(|known| *known == state).unwrap_or_default();
    LETTERS[place]
}

fn field(text: &mut Vec<u8>, number: impl itoa::Integer) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    text.push(b'\t');
}

fn instant_field(text: &mut Vec<u8>, instant: Option<Timestamp>) {
    match instant {
        Some(at) => field(text, at.as_millis()),
        None => text.push(b'\t'),
    }
}

/// The record, and its tail.
fn parse(call_id: &CallId, text: &Bytes) -> Option<(Record, Bytes)> {
    let mut lines = Lines { text, at: 0 };
    let mut first = lines.next()?.splitn(11, '\t');
    let mut next = || first.next();
    let mut head = next()?.bytes();
    (head.next()? == FORMAT).then_some(())?;
    let letter = head.next()?;
    let state = *CallState::ALL.get(LETTERS.iter().position(|known| *known == letter)?)?;
    let mut call = Call::submitted(call_id.clone(), Timestamp::default(), Duration::ZERO, Duration::ZERO);
    call.state = state;
    let version = next()?.parse().ok()?;
    let sequence = next()?.parse().ok()?;
    call.deadline = instant(next()?)??;
    let request_beside = next()? == "1";
    call.delivery = next()?.parse().ok()?;
    call.started_at = instant(next()?)?;
    call.lease = from_millis(next()?.parse().ok()?);
    call.lease_until = instant(next()?)?;
    let counted = next()? == "1";
    call.holder = filled(next()?).map(WorkerId::new).transpose().ok()?;
    let mut second = lines.next()?.split('\t');
    let mut next = || second.next();
    call.submitted_at = instant(next()?)??;
    call.retain = from_millis(next()?.parse().ok()?);
    let flags = next()?.as_bytes();
    let flag = |place: usize| flags.get(place).map(|flag| *flag == b'1');
    (call.parked, call.cancel_requested) = (flag(0)?, flag(1)?);
    let has_progress = flag(2)?;
    call.failures = next()?.parse().ok()?;
    call.crashes = next()?.parse().ok()?;
    call.not_before = instant(next()?)?;
    call.ended_at = instant(next()?)?;
    let exported = Arc::from(next()?);
    let key = filled(lines.next()?).map(IdempotencyKey::new).transpose().ok()?;
    let replies = lines.next()?;
    let replies = if replies.is_empty() { Arc::default() } else { replies.split('\t').map(Arc::from).collect() };
    let (tail, request) = lines.next()?.split_once('\t')?;
    let (tail, request): (usize, usize) = (tail.parse().ok()?, request.parse().ok()?);
    let from = lines.at;
    (text.len() == from.checked_add(tail)?.checked_add(request)?).then_some(())?;
    let tail_end = from + tail;
    let request = (!request_beside).then(|| text.slice(tail_end..));
    let record = Record { version, sequence, counted, key, replies, exported, has_progress, request, call };
    Some((record, text.slice(from..tail_end)))
}

struct Lines<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        self.at += end + 1;
        std::str::from_utf8(&rest[..end]).ok()
    }
}

fn filled(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// Outer `None`: not an instant. Inner `None`: there is none.
#[expect(clippy::option_option, reason = "an empty field is a value here, and a broken one is not")]
fn instant(text: &str) -> Option<Option<Timestamp>> {
    match filled(text) {
        None => Some(None),
        Some(digits) => digits.parse().ok().map(|ms| Some(Timestamp::from_millis(ms))),
    }
}

/// The letter behind which the params follow, whatever their length: nothing comes after them.
const PARAMS: u8 = b'=';

/// A request as it is written down.
pub(crate) fn write_request(request: &CallRequest) -> Bytes {
    let mut out = Writer::with_capacity(request.params.len() + 1);
    if let Some(item) = &request.input_item {
        out.put(b'i', item.as_bytes());
    }
    if let Some(key) = &request.idempotency_key {
        out.put(b'k', key.as_str().as_bytes());
    }
    if request.depth > 0 {
        out.put(b'd', request.depth.to_string().as_bytes());
    }
    if let Some(parent) = &request.parent {
        out.put(b'a', parent.as_str().as_bytes());
    }
    if let Some(trace) = &request.traceparent {
        out.put(b't', trace.as_bytes());
    }
    let mut text = out.done();
    text.push(PARAMS);
    text.extend_from_slice(request.params.as_bytes());
    Bytes::from(text)
}

/// Reads a request.
pub(crate) fn read_request(function: &FunctionKey, bytes: &Bytes) -> Result<CallRequest, StoreError> {
    let mut request = CallRequest {
        function: function.clone(),
        params: Payload::null(),
        input_item: None,
        idempotency_key: None,
        depth: 0,
        parent: None,
        traceparent: None,
    };
    let broken = || StoreError::Corrupt(format!("the request of a call of '{function}' cannot be read"));
    let mut pieces = Pieces::of(bytes);
    loop {
        if let Some((PARAMS, params)) = pieces.rest().split_first().map(|(letter, rest)| (*letter, rest)) {
            request.params = Payload::from_json(bytes.slice(bytes.len() - params.len()..));
            return Ok(request);
        }
        let (tag, value) = pieces.next().flatten().ok_or_else(broken)?;
        let text = || std::str::from_utf8(value).map_err(|_| broken());
        match tag {
            b'i' => request.input_item = Some(payload(value)),
            b'k' => request.idempotency_key = Some(IdempotencyKey::new(text()?).map_err(|_| broken())?),
            b'd' => request.depth = text()?.parse().map_err(|_| broken())?,
            b'a' => request.parent = Some(CallId::new(text()?).map_err(|_| broken())?),
            b't' => request.traceparent = Some(text()?.to_owned()),
            _from_a_newer_version => {}
        }
    }
}

pub(crate) fn payload(bytes: &[u8]) -> Payload {
    Payload::from_json(bytes.to_vec())
}

/// A progress report: its number and what it says.
pub(crate) fn write_progress(number: u32, report: &Payload) -> Vec<u8> {
    let mut text = number.to_string().into_bytes();
    text.push(b'\n');
    text.extend_from_slice(report.as_bytes());
    text
}

/// Reads what [`write_progress`] wrote.
pub(crate) fn read_progress(bytes: &[u8]) -> Option<(u32, Payload)> {
    let split = bytes.iter().position(|byte| *byte == b'\n')?;
    let number = std::str::from_utf8(&bytes[..split]).ok()?.parse().ok()?;
    Some((number, payload(&bytes[split + 1..])))
}

#[cfg(test)]
mod tests {
    use towpath_core::call::Outcome;

    use super::*;

    fn request() -> Bytes {
        Bytes::from_static(b"={\n\"}\n\t")
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let id = CallId::new("call-1").unwrap();
        let mut call = Call::submitted(id.clone(), Timestamp::from_millis(5), Duration::from_millis(7), Duration::from_millis(9));
        let fresh = Record::submitted(call.clone(), 3, None, Arc::default(), request());
        assert_eq!(Record::read(&id, &Bytes::from(fresh.write())).unwrap(), fresh);
        call.state = CallState::Running;
        call.holder = Some(WorkerId::new("w 1").unwrap());
        (call.started_at, call.lease_until) = (Some(Timestamp::from_millis(1)), Some(Timestamp::from_millis(2)));
        (call.parked, call.cancel_requested) = (false, true);
        (call.failures, call.crashes, call.delivery) = (1, 2, 4);
        (call.not_before, call.ended_at) = (Some(Timestamp::from_millis(3)), Some(Timestamp::from_millis(4)));
        call.outcome = Some(Outcome::Ok(payload(b"{\"a\":\n\t1}")));
        let key = Some(IdempotencyKey::new("k\\n").unwrap());
        let replies: Arc<[Arc<str>]> = Arc::from([Arc::from("a"), Arc::from("function:response:b")]);
        let exported = Arc::from("5-0");
        let busy =
            Record { version: 4, counted: true, has_progress: true, exported, ..Record::submitted(call, 3, key, replies, request()) };
        let mut start = Vec::new();
        busy.write_start(&mut start);
        let text = Bytes::from(busy.write());
        assert!(text.starts_with(&start));
        assert_eq!(Record::read(&id, &text).unwrap(), busy);
        assert!(busy.tells("function:response:b") && !busy.tells("b"));
    }

    #[test]
    fn a_large_request_stands_beside_the_record() {
        let id = CallId::new("call-1").unwrap();
        let call = Call::submitted(id.clone(), Timestamp::from_millis(5), Duration::from_millis(7), Duration::from_millis(9));
        let record = Record::submitted(call, 3, None, Arc::default(), Bytes::from(vec![b'='; INLINE_MAX + 1]));
        assert!(record.request.is_none() && record.write().len() < INLINE_MAX);
        assert_eq!(Record::read(&id, &Bytes::from(record.write())).unwrap(), record);
    }

    #[test]
    fn a_request_comes_back_as_it_was_written() {
        let function: FunctionKey = FunctionKey::global("add".parse().unwrap());
        let plain = CallRequest {
            function: function.clone(),
            params: payload(b"=1:\n"),
            input_item: None,
            idempotency_key: None,
            depth: 0,
            parent: None,
            traceparent: None,
        };
        let full = CallRequest {
            params: payload(b""),
            input_item: Some(payload(b"=")),
            idempotency_key: Some(IdempotencyKey::new("k").unwrap()),
            depth: 3,
            parent: Some(CallId::new("p").unwrap()),
            traceparent: Some("00-1".into()),
            ..plain.clone()
        };
        for request in [plain, full] {
            assert_eq!(read_request(&function, &write_request(&request)).unwrap(), request);
        }
        for broken in ["i1:", ""] {
            assert!(read_request(&function, &Bytes::from(broken)).is_err());
        }
    }

    #[test]
    fn text_that_is_not_a_record_is_corrupt_and_does_not_panic() {
        let id = CallId::new("call-1").unwrap();
        let rest = "\t1\t1\t2\t0\t0\t\t0\t\t0\t\n1\t9\t000\t0\t0\t\t\t\n\n\n0\t1\n=";
        assert!(Record::read(&id, &Bytes::from(format!("3Q{rest}"))).is_ok());
        let broken =
            ["", "3", "3Q", "1Q\t1", &format!("1Q{rest}"), &format!("3?{rest}"), &format!("3Q{rest}x"), &format!("3Q{rest}")[..40]];
        for text in broken {
            assert!(matches!(Record::read(&id, &Bytes::from(text.to_owned())), Err(StoreError::Corrupt(_))), "{text:?}");
        }
        assert!(matches!(Record::read(&id, &Bytes::from_static(&[0xff, 0xfe])), Err(StoreError::Corrupt(_))));
    }

    #[test]
    fn scripts_know_the_format_by_its_number() {
        let script = include_str!("../../lua/calls/record.lua");
        assert!(script.contains(&format!("local FORMAT = '{}'", char::from(FORMAT))));
        assert!(script.contains(&format!("'^{}Q", char::from(FORMAT))), "what waits");
        assert!(script.contains(r"local REQUEST = '\1r'") && REQUEST == "\u{1}r");
    }
}
