//! The side that answers.

use redis::Value;

use super::wire::Wire;
use super::{Floor, FloorError, GROUP};

/// How many calls are read at once.
const READ: &[u8] = b"256";
/// How many replies or ids go into one command.
const TOGETHER: usize = 64;
/// The acknowledged head of the stream is cut off after so many calls.
const TRIM_EVERY: usize = 4_096;
/// A turn without a call ends after so many milliseconds, so that whoever runs it can stop.
const TURN_MS: &[u8] = b"200";

/// Which connection answers go through.
#[derive(Clone, Copy)]
enum Through {
    Reads,
    Answers,
}

/// Answers calls.
pub struct FloorWorker {
    reads: Wire,
    answers: Wire,
    stream: Vec<u8>,
    inbox: Vec<u8>,
    data: String,
    since_trim: usize,
}

impl FloorWorker {
    pub(super) fn new(reads: Wire, answers: Wire, floor: &Floor, data: &str) -> Self {
        let (stream, inbox) = (floor.stream.clone().into_bytes(), floor.inbox.clone().into_bytes());
        Self { reads, answers, stream, inbox, data: data.to_owned(), since_trim: 0 }
    }

    /// Answers until `stop` says so.
    pub fn run(&mut self, stop: impl Fn() -> bool) -> Result<(), FloorError> {
        self.read();
        self.reads.send()?;
        while !stop() {
            let calls = self.reads.receive()?.pop().map_or_else(Vec::new, entries);
            if calls.len() < TOGETHER {
                // Few calls: their answers go out with the next read, in one write.
                self.answer(&calls, Through::Reads);
                self.read();
                self.reads.send()?;
            } else {
                // Many: the server looks for the next ones while the answers are made.
                self.read();
                self.reads.send()?;
                self.answers.receive()?;
                self.answer(&calls, Through::Answers);
                self.answers.send()?;
            }
        }
        Ok(())
    }

    fn read(&mut self) {
        let (stream, group) = (&self.stream, GROUP.as_bytes());
        self.reads.add(&[b"XREADGROUP", b"GROUP", group, b"worker", b"COUNT", READ, b"BLOCK", TURN_MS, b"STREAMS", stream, b">"]);
    }

    /// Replies and acknowledges, in groups.
    fn answer(&mut self, calls: &[Value], through: Through) {
        let wire = match through {
            Through::Reads => &mut self.reads,
            Through::Answers => &mut self.answers,
        };
        for group in calls.chunks(TOGETHER) {
            wire.begin(2 + group.len());
            wire.word(b"LPUSH");
            wire.word(&self.inbox);
            for call in group {
                let reply = reply(call_id(call), &self.data);
                wire.word(&reply);
            }
            wire.begin(3 + group.len());
            for word in [b"XACK", self.stream.as_slice(), GROUP.as_bytes()] {
                wire.word(word);
            }
            for call in group {
                wire.word(entry_id(call));
            }
        }
        self.since_trim += calls.len();
        if let (Some(latest), true) = (calls.last(), self.since_trim >= TRIM_EVERY) {
            // Calls are answered in the order in which they came, so all before the latest are acknowledged.
            wire.add(&[b"XTRIM", &self.stream, b"MINID", b"~", entry_id(latest)]);
            self.since_trim = 0;
        }
    }
}

fn reply(call_id: &[u8], data: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(96 + data.len());
    text.extend_from_slice(br#"{"callId":""#);
    text.extend_from_slice(call_id);
    text.extend_from_slice(br#"","success":true,"data":"#);
    text.extend_from_slice(data.as_bytes());
    text.extend_from_slice(br#","timestamp":1800000000000}"#);
    text
}

/// `[[stream, [entry, ..]]]` as entries; nothing when the time was over.
fn entries(reply: Value) -> Vec<Value> {
    let Value::Array(mut streams) = reply else { return Vec::new() };
    let Some(Value::Array(mut stream)) = streams.pop() else { return Vec::new() };
    if let Some(Value::Array(entries)) = stream.pop() { entries } else { Vec::new() }
}

/// `[id, [callId, <id>, ..]]`
fn entry_id(entry: &Value) -> &[u8] {
    if let Value::Array(parts) = entry
        && let Some(Value::BulkString(id)) = parts.first()
    {
        return id;
    }
    b""
}

fn call_id(entry: &Value) -> &[u8] {
    if let Value::Array(parts) = entry
        && let Some(Value::Array(fields)) = parts.get(1)
        && let Some(Value::BulkString(call_id)) = fields.get(1)
    {
        return call_id;
    }
    b""
}
