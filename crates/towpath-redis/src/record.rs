//! How a call is written down: its life as a few lines of text that a script can read, and behind them tagged pieces: how it ended, and
//! what was asked. What is large stands apart.

use std::sync::Arc;
use std::time::Duration;

use towpath_core::call::{Call, CallRequest, CallState};
use towpath_core::names::{CallId, FunctionKey, IdempotencyKey, WorkerId};
use towpath_core::store::StoreError;
use towpath_core::time::{Timestamp, from_millis, millis};

use crate::pieces::{Pieces, Writer};

mod tail;

pub(crate) use tail::{read_outcome, read_tail, write_outcome, write_tail};

/// A call as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// Rises with every change; whoever changes a call says which version it has seen.
    pub(crate) version: u64,
    /// Where its entry stands in the stream; empty once it is out of there.
    pub(crate) entry: String,
    /// Its submit sequence.
    pub(crate) sequence: u64,
    /// The idempotency key that leads to it.
    pub(crate) key: Option<IdempotencyKey>,
    /// The lists on which somebody waits for it.
    pub(crate) channels: Arc<[String]>,
    /// It is listed on a page with others that came with it, and has no line of its own in the index and on the agenda.
    pub(crate) paged: bool,
    /// How many bytes at the end of its record say what was asked; 0 when that stands apart. A change leaves them as they are.
    pub(crate) kept: usize,
    /// How it ended stands apart.
    pub(crate) tail_apart: bool,
    /// The call itself. Outcome, latest failure and replay are kept apart, in the tail.
    pub(crate) call: Call,
}

/// What is longer than this stands apart, so that a change of state does not move it about.
pub(crate) const INLINE_MAX: usize = 1_024;
/// The letter that says that the tail stands apart.
const APART: u8 = b'B';

/// The letter of each state, in the order of [`CallState::ALL`].
const LETTERS: [u8; 10] = *b"QDRCFTXKZS";

pub(crate) fn letter(state: CallState) -> char {
    let place = CallState::ALL.iter().position(|known| *known == state).unwrap_or_default();
    char::from(LETTERS[place])
}

impl Life {
    /// A call as it is when the store takes it.
    pub(crate) fn submitted(call: Call, key: Option<IdempotencyKey>, channels: impl Into<Arc<[String]>>) -> Self {
        let channels = channels.into();
        let (entry, sequence, paged, kept, tail_apart) = (String::new(), 0, false, 0, false);
        Self { version: 1, entry, sequence, key, channels, paged, kept, tail_apart, call }
    }

    /// The whole text but what was asked, and the tail if that stands apart.
    pub(crate) fn write(&self, function: &str) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut text = Vec::with_capacity(256);
        self.write_head(&mut text);
        self.write_rest(function, &mut text);
        text.push(b'\n');
        number_line(&mut text, self.kept);
        let tail = write_tail(&self.call);
        if tail.len() <= INLINE_MAX {
            text.extend_from_slice(&tail);
            return (text, None);
        }
        let mut mark = Writer::default();
        mark.put(APART, b"");
        text.extend_from_slice(&mark.done());
        (text, Some(tail))
    }

    /// The same record with another call in it.
    pub(crate) fn with(&self, call: Call) -> Self {
        let next = self.next(self.entry.clone(), Arc::clone(&self.channels), call);
        Self { version: self.version, ..next }
    }

    /// The same call as it is after a change.
    pub(crate) fn next(&self, entry: String, channels: Arc<[String]>, call: Call) -> Self {
        let &Self { version, sequence, paged, kept, tail_apart, .. } = self;
        Self { version: version + 1, entry, sequence, key: self.key.clone(), channels, paged, kept, tail_apart, call }
    }

    /// The first lines, which say which call it is and how far it has come.
    pub(crate) fn write_head(&self, text: &mut Vec<u8>) {
        number_line(text, self.version);
        line(text, letter(self.call.state).encode_utf8(&mut [0; 4]));
        line(text, &self.entry);
        number_line(text, self.sequence);
    }

    /// All lines after the sequence but the last. At a submit the script knows those before it and the last, and nobody else.
    pub(crate) fn write_rest(&self, function: &str, text: &mut Vec<u8>) {
        let call = &self.call;
        number_line(text, call.delivery);
        line(text, call.holder.as_ref().map_or("", WorkerId::as_str));
        instant_line(text, call.started_at);
        number_line(text, millis(call.lease));
        instant_line(text, call.lease_until);
        text.extend([call.parked, call.cancel_requested, self.paged].map(|flag| u8::from(flag) + b'0'));
        text.push(b'\n');
        number_line(text, call.submitted_at.as_millis());
        number_line(text, call.deadline.as_millis());
        number_line(text, millis(call.retain));
        number_line(text, call.failures);
        number_line(text, call.crashes);
        instant_line(text, call.not_before);
        instant_line(text, call.ended_at);
        line(text, self.key.as_ref().map_or("", IdempotencyKey::as_str));
        line(text, &self.channels.join("\t"));
        text.extend_from_slice(function.as_bytes());
    }

    /// Reads a record: what [`Life::write`] or a script wrote, and what was asked behind it. A tail that stands apart is read apart.
    pub(crate) fn read(call_id: &CallId, record: &[u8]) -> Result<Self, StoreError> {
        let asked = |life: &Self| life.kept;
        Self::read_before(call_id, record, asked)
    }

    fn read_before(call_id: &CallId, text: &[u8], behind: impl Fn(&Self) -> usize) -> Result<Self, StoreError> {
        let parsed = parse(call_id, text).and_then(|(life, rest)| {
            let end = rest.len().checked_sub(behind(&life))?;
            Some((life, &rest[..end]))
        });
        let Some((mut life, pieces)) = parsed else {
            return Err(StoreError::Corrupt(format!(
                "the record of call '{call_id}' is not one: {:?}",
                String::from_utf8_lossy(&text[..text.len().min(80)])
            )));
        };
        life.tail_apart = pieces.first() == Some(&APART);
        read_tail(&mut life.call, pieces)?;
        Ok(life)
    }
}

/// What was asked, as it stands at the end of a record, if it does.
pub(crate) fn request_in(record: &[u8], kept: usize) -> Option<&[u8]> {
    record.len().checked_sub(kept).filter(|_| kept > 0).map(|from| &record[from..])
}

/// Which function a record is of, as it stands in its keys, and which of its streams.
pub(crate) fn function_in(record: &[u8]) -> Option<(FunctionKey, u16)> {
    let line = record.split(|byte| *byte == b'\n').nth(19)?;
    let mut words = std::str::from_utf8(line).ok()?.split('\t');
    let (scope, name) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let shard = words.next().map_or(Some(0), |shard| shard.parse().ok())?;
    Some((FunctionKey { scope, name }, shard))
}

/// The lines of a record, and what follows them.
fn parse<'a>(call_id: &CallId, text: &'a [u8]) -> Option<(Life, &'a [u8])> {
    let mut rest = text;
    let mut line = || {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (line, behind) = (&rest[..end], &rest[end + 1..]);
        rest = behind;
        std::str::from_utf8(line).ok()
    };
    let version = line()?.parse().ok()?;
    let state = state_of(line()?)?;
    let entry = line()?.to_owned();
    let sequence = line()?.parse().ok()?;
    let mut call = Call::submitted(call_id.clone(), Timestamp::default(), Duration::ZERO, Duration::ZERO);
    call.state = state;
    call.delivery = line()?.parse().ok()?;
    call.holder = filled(line()?).map(WorkerId::new).transpose().ok()?;
    call.started_at = instant(line()?)?;
    call.lease = length(line()?)?;
    call.lease_until = instant(line()?)?;
    let flags = line()?.as_bytes();
    (call.parked, call.cancel_requested) = (flags.first() == Some(&b'1'), flags.get(1) == Some(&b'1'));
    let paged = flags.get(2) == Some(&b'1');
    call.submitted_at = instant(line()?)??;
    call.deadline = instant(line()?)??;
    call.retain = length(line()?)?;
    call.failures = line()?.parse().ok()?;
    call.crashes = line()?.parse().ok()?;
    call.not_before = instant(line()?)?;
    call.ended_at = instant(line()?)?;
    let key = filled(line()?).map(IdempotencyKey::new).transpose().ok()?;
    let channels = line()?.split('\t').filter(|channel| !channel.is_empty()).map(str::to_owned).collect();
    let _function = line()?;
    let kept = line()?.parse().ok()?;
    Some((Life { version, entry, sequence, key, channels, paged, kept, tail_apart: false, call }, rest))
}

fn state_of(letter: &str) -> Option<CallState> {
    let place = LETTERS.iter().position(|known| letter.as_bytes() == [*known])?;
    CallState::ALL.get(place).copied()
}

fn filled(line: &str) -> Option<&str> {
    Some(line).filter(|line| !line.is_empty())
}

/// Outer `None`: not an instant. Inner `None`: there is none.
#[expect(clippy::option_option, reason = "an empty line is a value here, and a broken line is not")]
fn instant(line: &str) -> Option<Option<Timestamp>> {
    match filled(line) {
        None => Some(None),
        Some(digits) => digits.parse().ok().map(|ms| Some(Timestamp::from_millis(ms))),
    }
}

fn length(line: &str) -> Option<Duration> {
    line.parse().ok().map(from_millis)
}

fn line(text: &mut Vec<u8>, word: &str) {
    text.extend_from_slice(word.as_bytes());
    text.push(b'\n');
}

fn number_line(text: &mut Vec<u8>, number: impl itoa::Integer) {
    line(text, itoa::Buffer::new().format(number));
}

fn instant_line(text: &mut Vec<u8>, instant: Option<Timestamp>) {
    match instant {
        Some(at) => number_line(text, at.as_millis()),
        None => line(text, ""),
    }
}

/// When a call was submitted, without reading all of its life.
pub(crate) fn life_submitted_at(life: &[u8]) -> Option<Timestamp> {
    let line = life.split(|byte| *byte == b'\n').nth(10)?;
    std::str::from_utf8(line).ok()?.parse().ok().map(Timestamp::from_millis)
}

/// The letter behind which the params follow, whatever their length: nothing comes after them.
const PARAMS: u8 = b'=';

/// A request but for its params, which come behind this.
pub(crate) fn write_request_lead(request: &CallRequest) -> Vec<u8> {
    request_lead(request, Writer::default())
}

fn request_lead(request: &CallRequest, mut out: Writer) -> Vec<u8> {
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
    let mut lead = out.done();
    lead.push(PARAMS);
    lead
}

/// A whole request.
pub(crate) fn write_request(request: &CallRequest) -> Vec<u8> {
    let mut text = request_lead(request, Writer::with_capacity(request.params.len() + 1));
    text.extend_from_slice(request.params.as_bytes());
    text
}

/// Reads a request.
pub(crate) fn read_request(function: &FunctionKey, bytes: &[u8]) -> Result<CallRequest, StoreError> {
    let mut request = CallRequest {
        function: function.clone(),
        params: towpath_core::payload::Payload::null(),
        input_item: None,
        idempotency_key: None,
        depth: 0,
        parent: None,
        traceparent: None,
    };
    let broken = || StoreError::Corrupt(format!("the request of a call of '{function}' is not one"));
    let mut pieces = Pieces::of(bytes);
    loop {
        if let Some((PARAMS, params)) = pieces.rest().split_first().map(|(letter, rest)| (*letter, rest)) {
            request.params = payload(params);
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

pub(crate) fn payload(bytes: &[u8]) -> towpath_core::payload::Payload {
    towpath_core::payload::Payload::from_json(bytes.to_vec())
}

/// A progress report as the script wrote it: its number and what it says.
pub(crate) fn read_progress(bytes: &[u8]) -> Option<(u32, towpath_core::payload::Payload)> {
    let split = bytes.iter().position(|byte| *byte == b'\n')?;
    let number = std::str::from_utf8(&bytes[..split]).ok()?.parse().ok()?;
    Some((number, payload(&bytes[split + 1..])))
}

#[cfg(test)]
mod tests {
    use towpath_core::call::Outcome;

    use super::*;

    const LINE: &str = "__global__\tadd";

    fn life(call: Call) -> Life {
        Life { entry: "5-0".into(), sequence: 3, ..Life::submitted(call, None, vec![]) }
    }

    #[test]
    fn a_life_comes_back_as_it_was_written() {
        let id = CallId::new("call-1").unwrap();
        let mut call = Call::submitted(id.clone(), Timestamp::from_millis(5), Duration::from_millis(7), Duration::from_millis(9));
        let fresh = life(call.clone());
        assert_eq!(Life::read(&id, &fresh.write(LINE).0).unwrap(), fresh);
        call.state = CallState::Running;
        call.holder = Some(WorkerId::new("w 1").unwrap());
        (call.started_at, call.lease_until) = (Some(Timestamp::from_millis(1)), Some(Timestamp::from_millis(2)));
        (call.parked, call.cancel_requested) = (false, true);
        (call.failures, call.crashes, call.delivery) = (1, 2, 4);
        call.outcome = Some(Outcome::Ok(payload(b"{\"a\":\n1}")));
        let key = Some(IdempotencyKey::new("k\\n").unwrap());
        let busy = Life { version: 4, key, channels: Arc::from(["a".into(), "b".into()]), paged: true, kept: 6, ..life(call) };
        let mut record = busy.write(LINE).0;
        record.extend_from_slice(b"={\n\"}\n");
        assert_eq!(Life::read(&id, &record).unwrap(), busy);
        assert_eq!(function_in(&record), Some((FunctionKey::global("add".parse().unwrap()), 0)));
        assert_eq!(request_in(&record, busy.kept), Some(&b"={\n\"}\n"[..]));
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
        assert!(read_request(&function, b"i1:").is_err() && read_request(&function, b"").is_err());
    }

    #[test]
    fn a_large_outcome_stands_apart() {
        let id = CallId::new("call-1").unwrap();
        let mut call = Call::submitted(id.clone(), Timestamp::from_millis(5), Duration::from_millis(7), Duration::from_millis(9));
        call.outcome = Some(Outcome::Ok(payload(&[b'1'; INLINE_MAX])));
        let (record, tail) = life(call.clone()).write(LINE);
        let mut read = Life::read(&id, &record).unwrap();
        assert!(read.tail_apart && read.call.outcome.is_none() && record.len() < INLINE_MAX);
        read_tail(&mut read.call, &tail.unwrap()).unwrap();
        assert_eq!(read.call, call);
    }

    #[test]
    fn what_is_no_life_is_corrupt_and_no_panic() {
        let id = CallId::new("call-1").unwrap();
        let rest = "\n\n1\n0\n\n\n0\n\n000\n1\n1\n1\n0\n0\n\n\n\n\n__global__\tadd\n";
        assert!(Life::read(&id, format!("1\nQ{rest}0\n").as_bytes()).is_ok());
        for text in ["".to_owned(), "1".into(), "1\nQ".into(), format!("x\nQ{rest}0\n"), format!("1\n?{rest}0\n"), format!("1\nQ{rest}9\n")]
        {
            assert!(matches!(Life::read(&id, text.as_bytes()), Err(StoreError::Corrupt(_))), "{text:?}");
        }
        assert!(matches!(Life::read(&id, &[0xff, 0xfe]), Err(StoreError::Corrupt(_))));
    }
}
