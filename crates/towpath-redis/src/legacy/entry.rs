//! The entries of a stream, as legacy peers write and read them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use towpath_core::call::{Call, CallRequest};
use towpath_core::names::{CallId, FunctionKey};
use towpath_core::payload::Payload;
use towpath_core::time::{Timestamp, millis};

use super::is_reply_list;
use crate::calls::record::{Record, write_request};
use crate::keys;
use crate::value;

/// A call of a legacy caller that names no timeout ends after this.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);
/// A longer timeout counts as this.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 86_400);
/// How long the outcome of a legacy caller's call is kept.
const RETAIN: Duration = Duration::from_secs(600);

/// The place of an entry in its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    ms: u64,
    number: u64,
}

impl Place {
    pub(super) fn read(text: &str) -> Option<Self> {
        let (ms, number) = text.split_once('-')?;
        Some(Self { ms: ms.parse().ok()?, number: number.parse().ok()? })
    }

    /// When the entry was added, by the server's clock.
    pub(super) fn at(self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.ms).unwrap_or(i64::MAX))
    }

    /// The place of its call in the order of submits.
    fn sequence(self) -> u64 {
        self.ms.saturating_mul(1_000) + self.number.min(999)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.number)
    }
}

/// What stands in an entry. Legacy callers leave out what they like; an entry without a call id is not a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) call_id: Option<CallId>,
    /// An id that Towpath refuses: too long, with control characters, or with a prefix that it needs itself.
    refused_id: Option<String>,
    params: Option<Bytes>,
    input_item: Option<Bytes>,
    response_channel: Option<String>,
    timeout: Option<Duration>,
    /// Towpath has exported it: the record knows everything else.
    pub(super) is_exported: bool,
}

impl Entry {
    /// The entries of a list, as `XRANGE` gives them. Anything else is left out.
    pub(super) fn read_all(reply: &Value) -> Vec<Self> {
        let Value::Array(entries) = reply else { return Vec::new() };
        entries.iter().filter_map(Self::read).collect()
    }

    /// The entries of the only stream that `XREADGROUP` was asked for.
    pub(super) fn read_stream(reply: &Value) -> Vec<Self> {
        let Value::Array(streams) = reply else { return Vec::new() };
        let Some(Value::Array(stream)) = streams.first() else { return Vec::new() };
        stream.get(1).map(Self::read_all).unwrap_or_default()
    }

    fn read(entry: &Value) -> Option<Self> {
        let Value::Array(parts) = entry else { return None };
        let mut read = Self { place: Place::read(value::text(parts.first()?)?)?, ..Self::default() };
        // An entry that was deleted while it was pending has no fields.
        if let Some(Value::Array(fields)) = parts.get(1) {
            for pair in fields.chunks_exact(2) {
                read.take(value::bytes(&pair[0])?, value::bytes(&pair[1])?);
            }
        }
        Some(read)
    }

    fn take(&mut self, name: &[u8], value: &[u8]) {
        let text = || std::str::from_utf8(value).ok();
        let bytes = || Some(Bytes::copy_from_slice(value)).filter(|bytes| !bytes.is_empty());
        match name {
            b"callId" => {
                self.call_id = text().and_then(|id| CallId::new(id).ok());
                let is_refused = self.call_id.is_none() && !value.is_empty();
                self.refused_id = is_refused.then(|| String::from_utf8_lossy(value).into_owned());
            }
            b"params" => self.params = Some(Bytes::copy_from_slice(value)),
            b"inputItem" => self.input_item = bytes(),
            b"responseChannel" => self.response_channel = text().map(str::to_owned),
            // A caller that waits forever writes 0.
            b"timeout" => self.timeout = text().and_then(|ms| ms.parse().ok()).filter(|ms| *ms > 0).map(Duration::from_millis),
            b"proto" => self.is_exported = true,
            _unknown => {}
        }
    }

    /// The size of its call, about.
    pub(super) fn bytes(&self) -> usize {
        [&self.params, &self.input_item].into_iter().flatten().map(Bytes::len).sum()
    }

    /// Whether the parameters can be given to a worker. Parameters that were left out are none.
    pub(super) fn has_sound_params(&self) -> bool {
        self.params.as_ref().is_none_or(|params| serde_json::from_slice::<serde::de::IgnoredAny>(params).is_ok())
    }

    /// The list on which its caller waits. `None`: the entry names a key that is not a reply list.
    pub(super) fn reply_list(&self) -> Option<String> {
        match &self.response_channel {
            // Where callers wait that name no list.
            None => self.call_id.as_ref().map(keys::response),
            Some(list) => Some(list).filter(|list| is_reply_list(list) && !list.contains(char::is_control)).cloned(),
        }
    }

    /// An id that Towpath refuses, and the list on which its caller waits, if the entry names one.
    pub(super) fn refused(&self) -> Option<(&str, String)> {
        let list = self.response_channel.as_ref().and_then(|_| self.reply_list())?;
        Some((self.refused_id.as_deref()?, list))
    }

    /// When its caller has waited as long as it wanted.
    pub(super) fn deadline(&self) -> Timestamp {
        self.place.at() + self.waits()
    }

    fn waits(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT_DEFAULT).min(TIMEOUT_MAX)
    }

    /// The call of a legacy caller, as if it had been submitted when the entry was added.
    pub(super) fn call(&self, call_id: &CallId, now: Timestamp) -> Call {
        Call::submitted(call_id.clone(), self.place.at().min(now), self.waits(), RETAIN)
    }

    /// The record of that call, and its request.
    pub(super) fn record(&self, function: &FunctionKey, call: Call) -> (Record, Bytes) {
        let asked = write_request(&CallRequest {
            function: function.clone(),
            params: Payload::from_json(self.params.clone().unwrap_or(Bytes::from_static(b"{}"))),
            input_item: self.input_item.clone().map(Payload::from_json),
            idempotency_key: None,
            depth: 0,
            parent: None,
            traceparent: None,
        });
        let replies: Arc<[Arc<str>]> = self.reply_list().map(Arc::from).into_iter().collect();
        (Record::submitted(call, self.place.sequence(), None, replies, asked.clone()), asked)
    }
}

/// The list on which a legacy worker answers an exported call. If the caller is a legacy caller, its own list is left to it.
pub(super) fn worker_list(record: &Record) -> String {
    let call_id = &record.call.call_id;
    if record.replies.iter().any(|reply| is_reply_list(reply)) {
        format!("function:response:back:{call_id}")
    } else {
        keys::response(call_id)
    }
}

/// The words of a complete entry: the seven fields of the seeds, always all of them, and what Towpath adds.
pub(super) fn write(record: &Record, request: &CallRequest) -> Vec<Vec<u8>> {
    let call = &record.call;
    let mut words: Vec<Vec<u8>> = Vec::with_capacity(24);
    let mut add = |name: &str, value: &[u8]| words.extend([name.as_bytes().to_vec(), value.to_vec()]);
    // Legacy workers parse both without looking whether they are there.
    let json = |payload: Option<&Payload>| payload.map(Payload::as_bytes).filter(|bytes| !bytes.is_empty()).unwrap_or(b"{}").to_vec();
    add("callId", call.call_id.as_str().as_bytes());
    add("functionName", request.function.name.as_str().as_bytes());
    add("params", &json(Some(&request.params)));
    add("inputItem", &json(request.input_item.as_ref()));
    add("responseChannel", worker_list(record).as_bytes());
    add("timeout", millis(call.deadline.since(call.submitted_at)).to_string().as_bytes());
    add("timestamp", call.submitted_at.as_millis().to_string().as_bytes());
    add("proto", b"2");
    if request.input_item.is_none() {
        add("noItem", b"1");
    }
    if let Some(key) = &request.idempotency_key {
        add("idempotencyKey", key.as_str().as_bytes());
    }
    if request.depth > 0 {
        add("depth", request.depth.to_string().as_bytes());
    }
    if let Some(parent) = &request.parent {
        add("parent", parent.as_str().as_bytes());
    }
    if let Some(trace) = &request.traceparent {
        add("traceparent", trace.as_bytes());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn entry(place: &str, fields: &[&str]) -> Value {
        Value::Array(vec![word(place), Value::Array(fields.iter().map(|field| word(field)).collect())])
    }

    fn read(fields: &[&str]) -> Entry {
        Entry::read_all(&Value::Array(vec![entry("5-7", fields)])).pop().expect("it is an entry")
    }

    #[test]
    fn an_entry_is_read_whatever_it_leaves_out() {
        let now = Timestamp::from_millis(1_000_000);
        let bare = read(&["callId", "a"]);
        let call = bare.call(&CallId::new("a").unwrap(), now);
        assert_eq!((call.submitted_at.as_millis(), call.deadline.as_millis()), (5, 300_005));
        assert_eq!(bare.reply_list().as_deref(), Some("function:response:a"));
        assert!(bare.has_sound_params() && !bare.is_exported);
        for (timeout, ms) in
            [("30000", 30_000), ("0", 300_000), ("soon", 300_000), ("-1", 300_000), ("18446744073709551615", 365 * 86_400_000)]
        {
            let call = read(&["callId", "a", "timeout", timeout]).call(&CallId::new("a").unwrap(), now);
            assert_eq!(millis(call.deadline.since(call.submitted_at)), ms, "{timeout}");
        }
        assert_eq!(read(&["init", "1"]).call_id, None);
        assert_eq!(read(&["callId", "two\nlines"]).call_id, None);
        assert_eq!(read(&["callId", "", "responseChannel", "function:response:a"]).refused(), None);
        assert_eq!(read(&["callId", "two\nlines"]).refused(), None, "its caller waits on no list");
        let refused = read(&["callId", "two\nlines", "responseChannel", "function:response:a"]);
        assert_eq!(refused.refused(), Some(("two\nlines", "function:response:a".to_owned())));
        assert_eq!(Entry::read_all(&Value::Array(vec![Value::Array(vec![word("5-7"), Value::Nil])])).len(), 1);
        assert!(Entry::read_all(&Value::Nil).is_empty() && Entry::read_stream(&Value::Int(1)).is_empty());
    }

    #[test]
    fn parameters_that_are_not_json_are_seen() {
        for (params, sound) in [("{}", true), ("null", true), ("", false), ("{", false), ("[object Object]", false)] {
            assert_eq!(read(&["callId", "a", "params", params]).has_sound_params(), sound, "{params:?}");
        }
    }

    #[test]
    fn a_reply_goes_to_reply_lists_only() {
        assert_eq!(read(&["callId", "a", "responseChannel", "bull:jobs:wait"]).reply_list(), None);
        assert_eq!(read(&["callId", "a", "responseChannel", "function:response:\n"]).reply_list(), None);
    }

    #[test]
    fn an_exported_entry_has_all_seven_fields() {
        let function = FunctionKey::global("add".parse().unwrap());
        let (record, _) =
            read(&["callId", "a", "params", "[1]"]).record(&function, read(&[]).call(&CallId::new("a").unwrap(), Timestamp::MAX));
        let request = CallRequest {
            function,
            params: Payload::from_json("[1]"),
            input_item: None,
            idempotency_key: None,
            depth: 0,
            parent: None,
            traceparent: None,
        };
        let words: Vec<String> = write(&record, &request).into_iter().map(|word| String::from_utf8(word).unwrap()).collect();
        let names: Vec<&str> = words.iter().step_by(2).map(String::as_str).collect();
        assert_eq!(names, ["callId", "functionName", "params", "inputItem", "responseChannel", "timeout", "timestamp", "proto", "noItem"]);
        assert_eq!(words[7], "{}");
        assert_eq!(words[9], "function:response:back:a", "a legacy caller's own list is left to it");
        let texts: Vec<&str> = words.iter().map(String::as_str).collect();
        assert!(read(&texts).is_exported);
    }

    #[test]
    fn places_are_in_the_order_of_the_stream() {
        let place = |text: &str| Place::read(text).expect("a place");
        assert!(place("9-0") < place("10-0") && place("10-9") < place("10-10"));
        assert_eq!(place("10-9").to_string(), "10-9");
        assert_eq!(Place::read("10"), None);
    }
}
