//! The stream's entries and the replies, as old peers write and read them.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use towpath_core::call::{Call, CallRequest, Failure, Outcome};
use towpath_core::names::{CallId, FunctionKey, WorkerId};
use towpath_core::time::Timestamp;

use crate::link::Reply;
use crate::record::{Life, payload};

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
    pub(crate) params: Option<Vec<u8>>,
    pub(crate) item: Option<Vec<u8>>,
    pub(crate) channel: Option<String>,
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

fn read_entry(item: &Reply) -> Option<Entry> {
    let parts = item.items();
    let mut entry = Entry { place: parts.first()?.text()?.to_owned(), ..Entry::default() };
    for pair in parts.get(1).map(Reply::items).unwrap_or_default().chunks_exact(2) {
        entry.take(pair[0].bytes()?, pair[1].bytes()?);
    }
    Some(entry)
}

impl Entry {
    fn take(&mut self, name: &[u8], bytes: &[u8]) {
        let plain = || std::str::from_utf8(bytes).ok();
        let text = || plain().map(str::to_owned);
        match name {
            b"callId" => self.call_id = plain().and_then(|text| CallId::new(text).ok()),
            b"params" => self.params = Some(bytes.to_vec()),
            b"inputItem" => self.item = Some(bytes.to_vec()),
            b"responseChannel" => self.channel = text(),
            // Who says 0 waits for ever, and means no timeout at all.
            b"timeout" => self.timeout_ms = plain().and_then(|text| text.parse().ok()).filter(|ms| *ms > 0),
            b"timestamp" => self.timestamp_ms = plain().and_then(|text| text.parse().ok()),
            b"proto" => (self.has_record, self.mark) = (true, Mark::read(bytes)),
            b"noItem" => self.no_item = true,
            b"idempotencyKey" => self.key = text(),
            b"depth" => self.depth = plain().and_then(|text| text.parse().ok()).unwrap_or(0),
            b"parent" => self.parent = text(),
            b"traceparent" => self.traceparent = text(),
            _unknown => {}
        }
    }

    /// What is asked. An old caller that leaves out params means none; what Towpath wrote is as it was written.
    pub(crate) fn request(&self, function: &FunctionKey) -> CallRequest {
        let said = |bytes: &&[u8]| self.has_record || !bytes.is_empty();
        CallRequest {
            function: function.clone(),
            params: payload(self.params.as_deref().filter(said).unwrap_or(b"{}")),
            input_item: self.item.as_deref().filter(said).filter(|_| !self.no_item).map(payload),
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
        let channels = if mark.told { vec![self.channel.clone()?] } else { Vec::new() };
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
