//! The stream's entries and the replies, as old peers write and read them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use towpath_core::call::{Call, CallRequest, Failure, Outcome};
use towpath_core::names::{CallId, FunctionKey, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::time::Timestamp;

use crate::link::{Reply, Text, Word, Words};
use crate::record::{Life, payload, write_request};

/// A call of an old caller that names no timeout ends after this.
pub(crate) const TIMEOUT_UNSAID: Duration = Duration::from_secs(300);

/// Whether a reply list is the inbox of a Towpath process, which is told more than old peers are.
pub(crate) fn is_inbox(channel: &str) -> bool {
    channel.starts_with("function:response:inbox:")
}

/// The key that says that a call was answered on its list.
pub(crate) fn sent_mark(call_id: &CallId) -> String {
    format!("function:response:sent:{call_id}")
}

/// What stands in an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its place in the stream.
    pub(crate) place: String,
    /// `None` if it has none, or none that can be.
    pub(crate) call_id: Option<CallId>,
    /// Together with the item it keeps all that was read with it: whoever keeps a call for long copies them.
    pub(crate) params: Option<Bytes>,
    pub(crate) item: Option<Bytes>,
    /// The list on which it is answered, as a record lists it.
    pub(crate) channel: Channel,
    pub(crate) timeout_ms: Option<u64>,
    /// Written by a Towpath process, which has written a record too.
    pub(crate) has_record: bool,
    /// What the record has beside what an entry says anyway.
    pub(crate) mark: Option<Mark>,
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) key: Option<String>,
    pub(crate) depth: u32,
    pub(crate) parent: Option<String>,
    pub(crate) traceparent: Option<String>,
    /// Its item stands there for old workers only.
    pub(crate) no_item: bool,
}

/// One list, or none. Shared by entries that name the same.
type Channel = Option<Arc<[String]>>;

/// With an entry's other fields it tells a call's whole life as it was when the stream took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) sequence: u64,
    /// How many bytes of the record say what was asked.
    pub(crate) kept: u64,
    pub(crate) retain_ms: u64,
    /// Somebody waits on the list that the entry names.
    pub(crate) told: bool,
    /// It is listed on a page.
    pub(crate) paged: bool,
}

impl Mark {
    /// All but the sequence and what is kept, which the script puts before it.
    pub(crate) fn write(retain_ms: i64, told: bool, paged: bool) -> String {
        format!(":{retain_ms}:{}:{}", u8::from(told), u8::from(paged))
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(bytes).ok()?.splitn(5, ':');
        let mut number = || parts.next()?.parse::<u64>().ok();
        Some(Self { sequence: number()?, kept: number()?, retain_ms: number()?, told: number()? == 1, paged: number()? == 1 })
    }
}

/// The entries of one stream, as XREADGROUP, XRANGE and XCLAIM list them. What is no entry is left out.
pub(crate) fn read_entries(reply: &Reply) -> Vec<Entry> {
    reply.items().iter().filter_map(read_entry).collect()
}

/// The entries of the only stream that was asked for.
pub(crate) fn read_streams(reply: &Reply) -> Vec<Entry> {
    let stream = reply.items().first().map(Reply::items).unwrap_or_default();
    stream.get(1).map(read_entries).unwrap_or_default()
}

/// The same without making a tree of the reply.
pub(crate) fn read_streams_in(text: &Text) -> Vec<Entry> {
    let mut words = text.words();
    let count = first_stream(&mut words).unwrap_or(0);
    // Calls that came together mostly have one caller.
    let mut latest = None;
    (0..count).map_while(|_| read_entry_in(&mut words, &mut latest)).collect()
}

/// How many entries of the first stream follow.
fn first_stream(words: &mut Words<'_>) -> Option<usize> {
    words.list()?;
    words.list()?;
    words.word()?;
    words.list()
}

fn read_entry_in(words: &mut Words<'_>, latest: &mut Channel) -> Option<Entry> {
    words.list()?;
    let mut entry = Entry::at(&words.word()?)?;
    for _ in 0..words.list().unwrap_or(0) / 2 {
        entry.take(&words.word()?, &words.word()?, latest);
    }
    Some(entry)
}

fn read_entry(item: &Reply) -> Option<Entry> {
    let parts = item.items();
    let mut entry = Entry::at(parts.first()?.bytes()?)?;
    for pair in parts.get(1).map(Reply::items).unwrap_or_default().chunks_exact(2) {
        entry.take(pair[0].bytes()?, &Word::from(pair[1].bytes()?), &mut None);
    }
    Some(entry)
}

impl Entry {
    fn at(place: &[u8]) -> Option<Self> {
        Some(Self { place: std::str::from_utf8(place).ok()?.to_owned(), ..Self::default() })
    }

    /// `latest` is the channel that was read last: mostly the same.
    fn take(&mut self, name: &[u8], word: &Word<'_>, latest: &mut Channel) {
        let plain = || std::str::from_utf8(word).ok();
        let text = || plain().map(str::to_owned);
        match name {
            b"callId" => self.call_id = plain().and_then(|text| CallId::new(text).ok()),
            b"params" => self.params = Some(word.kept()),
            b"inputItem" => self.item = Some(word.kept()),
            b"responseChannel" => {
                if latest.as_ref().is_none_or(|latest| latest[0].as_bytes() != &**word) {
                    *latest = text().map(|text| Arc::from([text]));
                }
                self.channel.clone_from(latest);
            }
            // Who says 0 waits for ever, and means no timeout at all.
            b"timeout" => self.timeout_ms = plain().and_then(|text| text.parse().ok()).filter(|ms| *ms > 0),
            b"timestamp" => self.timestamp_ms = plain().and_then(|text| text.parse().ok()),
            b"proto" => (self.has_record, self.mark) = (true, Mark::read(word)),
            b"noItem" => self.no_item = true,
            b"idempotencyKey" => self.key = text(),
            b"depth" => self.depth = plain().and_then(|text| text.parse().ok()).unwrap_or(0),
            b"parent" => self.parent = text(),
            b"traceparent" => self.traceparent = text(),
            _unknown => {}
        }
    }

    /// What is asked, and how a record says it.
    pub(crate) fn asked(&self, function: &FunctionKey) -> (CallRequest, Bytes) {
        let mut request = self.request_in_place(function);
        let text = Bytes::from(write_request(&request));
        request.params = Payload::from_json(text.slice(text.len() - request.params.len()..));
        request.input_item = request.input_item.map(|item| payload(item.as_bytes()));
        (request, text)
    }

    /// What is asked. An old caller that leaves out params means none; what Towpath wrote is as it was written. It keeps all that was read
    /// with it, as the entry does.
    fn request_in_place(&self, function: &FunctionKey) -> CallRequest {
        let said = |bytes: &&Bytes| self.has_record || !bytes.is_empty();
        CallRequest {
            function: function.clone(),
            params: Payload::from_json(self.params.as_ref().filter(said).cloned().unwrap_or(Bytes::from_static(b"{}"))),
            input_item: self.item.as_ref().filter(said).filter(|_| !self.no_item).cloned().map(Payload::from_json),
            idempotency_key: self.key.as_ref().and_then(|key| key.parse().ok()),
            depth: self.depth,
            parent: self.parent.as_ref().and_then(|parent| CallId::new(parent).ok()),
            traceparent: self.traceparent.clone(),
        }
    }

    /// The call as it was when the stream took it, if the entry says enough. Whether it still is so, only its record knows.
    pub(crate) fn life(&self) -> Option<Life> {
        let (call_id, mark) = (self.call_id.clone()?, self.mark?);
        let (submitted_at, timeout) = (Timestamp::from_millis(self.timestamp_ms?), Duration::from_millis(self.timeout_ms?));
        let call = Call::submitted(call_id, submitted_at, timeout, Duration::from_millis(mark.retain_ms));
        let channels = if mark.told { self.channel.clone()? } else { Arc::default() };
        let key = self.key.as_ref().map(|key| key.parse()).transpose().ok()?;
        let (entry, kept) = (self.place.clone(), usize::try_from(mark.kept).ok()?);
        Some(Life { entry, sequence: mark.sequence, paged: mark.paged, kept, ..Life::submitted(call, key, channels) })
    }

    /// When the stream took it, by the server's clock.
    pub(crate) fn taken_ms(&self) -> Option<i64> {
        self.place.split('-').next()?.parse().ok()
    }
}

/// The fields that Towpath adds to an entry, name and value in turn.
pub(crate) fn added_fields(request: &CallRequest) -> Vec<Vec<u8>> {
    let mut fields: Vec<Vec<u8>> = Vec::new();
    let mut add = |name: &str, value: &str| fields.extend([name.as_bytes().to_vec(), value.as_bytes().to_vec()]);
    if request.input_item.as_ref().is_some_and(|item| item.is_empty()) {
        add("inputItem", ""); // the script takes an empty item for none
    }
    if let Some(key) = &request.idempotency_key {
        add("idempotencyKey", key.as_str());
    }
    if request.depth > 0 {
        add("depth", &request.depth.to_string());
    }
    if let Some(parent) = &request.parent {
        add("parent", parent.as_str());
    }
    if let Some(trace) = &request.traceparent {
        add("traceparent", trace);
    }
    fields
}

/// What is added to an entry without an item that an old worker may read, which takes it for granted. The mark says that there is none.
pub(crate) fn empty_item(request: &CallRequest) -> &'static [&'static str] {
    if request.input_item.is_none() { &["inputItem", "{}", "noItem", "1"] } else { &[] }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SeedReply<'a> {
    call_id: &'a str,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a RawValue>,
    timestamp: i64,
}

/// The reply that the seeds' callers understand: `error` is plain text; code and details are added.
pub(crate) fn reply(call: &Call) -> Vec<u8> {
    let timestamp = call.ended_at.unwrap_or(call.submitted_at).as_millis();
    let mut reply =
        SeedReply { call_id: call.call_id.as_str(), success: false, data: None, error: None, code: None, details: None, timestamp };
    let data;
    match &call.outcome {
        Some(Outcome::Ok(result)) => {
            data = raw(result.as_bytes());
            (reply.success, reply.data) = (true, data.as_deref());
        }
        Some(Outcome::Failed(failure) | Outcome::Dead { failure, .. }) => {
            data = failure.details.as_ref().and_then(|details| raw(details.as_bytes()));
            let Failure { code, message, .. } = failure;
            (reply.error, reply.code, reply.details) = (Some(message.as_str()), Some(code.as_str()), data.as_deref());
        }
        Some(Outcome::TimedOut) => (reply.error, reply.code) = (Some("Function call timed out while it ran"), Some("call_timed_out")),
        Some(Outcome::Expired) => {
            (reply.error, reply.code) = (Some("Function call timed out before a worker took it"), Some("call_timed_out"));
        }
        Some(Outcome::Cancelled) => (reply.error, reply.code) = (Some("Function call was cancelled"), Some("call_cancelled")),
        None => {}
    }
    // Plain structs of texts always have a JSON form.
    serde_json::to_vec(&reply).unwrap_or_default()
}

/// JSON as it is; what is none goes as `null`, because a reply must be readable.
fn raw(bytes: &[u8]) -> Option<Box<RawValue>> {
    let text = String::from_utf8(bytes.to_vec()).ok()?;
    RawValue::from_string(text).ok().or_else(|| RawValue::from_string("null".to_owned()).ok())
}

/// A worker's name, as it stands in the stream's group. Old peers use names that are no worker ids.
pub(crate) fn consumer(worker: &WorkerId) -> &str {
    worker.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list as the server writes it.
    fn list(items: &[String]) -> String {
        format!("*{}\r\n{}", items.len(), items.concat())
    }

    fn word(text: &str) -> String {
        format!("${}\r\n{text}\r\n", text.len())
    }

    fn entry(place: &str, fields: &[&str]) -> String {
        let fields: Vec<String> = fields.iter().map(|field| word(field)).collect();
        list(&[word(place), list(&fields)])
    }

    fn read_both_ways(reply: String) -> Vec<Entry> {
        let text = Text::from(reply);
        let read = read_streams_in(&text);
        assert_eq!(read, read_streams(&text.reply().expect("it is a reply")), "both ways say the same");
        read
    }

    #[test]
    fn entries_are_read_in_place_as_they_are_from_a_tree() {
        let entries = [
            entry("1-0", &["callId", "a", "params", "{\"b\":\r\n1}", "responseChannel", "l-1", "proto", "7:4:600000:1:1", "timeout", "5"]),
            entry("1-1", &["callId", "b", "responseChannel", "l-1", "inputItem", "{}", "strange", "", "timestamp", "12"]),
            entry("2-0", &["params", "", "responseChannel", "l-2", "noItem", "1"]),
            entry("3-0", &["callId", "no channel", "depth", "3"]),
            entry("4-0", &["callId", "odd", "depth"]),
        ];
        let read = read_both_ways(list(&[list(&[word("function:stream:s"), list(&entries)])]));
        let places: Vec<&str> = read.iter().map(|entry| &*entry.place).collect();
        assert_eq!(places, ["1-0", "1-1", "2-0", "3-0", "4-0"]);
        assert_eq!(read[0].params.as_deref(), Some(&b"{\"b\":\r\n1}"[..]));
        assert!(read[0].mark.is_some_and(|mark| (mark.sequence, mark.kept, mark.told) == (7, 4, true)));
        let channels: Vec<Option<&str>> = read.iter().map(|entry| entry.channel.as_ref().map(|named| &*named[0])).collect();
        assert_eq!(channels, [Some("l-1"), Some("l-1"), Some("l-2"), None, None]);
        assert!(read[0].channel.as_ref().zip(read[1].channel.as_ref()).is_some_and(|(one, other)| Arc::ptr_eq(one, other)));
    }

    #[test]
    fn nothing_is_read_from_nothing() {
        for nothing in
            ["*-1\r\n", "*0\r\n", "$-1\r\n", "+OK\r\n", ":1\r\n", "*1\r\n*2\r\n$1\r\ns\r\n*0\r\n", "*1\r\n*2\r\n$1\r\ns\r\n*-1\r\n"]
        {
            assert_eq!(read_both_ways(nothing.to_owned()), []);
        }
        // An entry that was deleted meanwhile has no fields.
        let gone = read_both_ways("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*-1\r\n".to_owned());
        assert_eq!(gone, [Entry { place: "1-0".to_owned(), ..Entry::default() }]);
    }

    #[test]
    fn what_was_asked_is_its_own_and_does_not_keep_what_was_read() {
        let fields = ["callId", "a", "params", "[1]", "inputItem", "{}", "proto", "1:4:0:0:0"];
        let text = Text::from(list(&[list(&[word("s"), list(&[entry("1-0", &fields)])])]));
        let entry = read_streams_in(&text).pop().expect("there is one");
        let function = FunctionKey::global("f".parse().expect("a name"));
        let (request, asked) = entry.asked(&function);
        assert_eq!((&asked[..], request.params.as_bytes()), (&b"i2:{}=[1]"[..], &b"[1]"[..]));
        assert!(asked.as_ptr_range().contains(&request.params.as_bytes().as_ptr()), "the params are a part of it");
        assert_eq!(crate::record::read_request(&function, &asked).expect("it can be read"), request);
    }
}
