//! The side that calls: keeps so many calls under way.

use redis::Value;

use super::wire::Wire;
use super::{Floor, FloorError};

/// Long enough for anything that still runs; in seconds, as the server wants it.
const ANSWER_WITHIN: &[u8] = b"10";

/// Keeps calls under way.
pub struct FloorCaller {
    wire: Wire,
    stream: Vec<u8>,
    inbox: Vec<u8>,
    params: Vec<u8>,
    /// Makes the next call's id.
    next: u64,
    under_way: usize,
    /// Replies that have arrived and are still in the list: a reply is removed only after it arrived.
    arrived: usize,
}

impl FloorCaller {
    pub(super) fn new(wire: Wire, floor: &Floor, params: &str) -> Self {
        let (stream, inbox) = (floor.stream.clone().into_bytes(), floor.inbox.clone().into_bytes());
        Self { wire, stream, inbox, params: params.as_bytes().to_vec(), next: 0, under_way: 0, arrived: 0 }
    }

    /// Fills up to `in_flight` calls, waits until at least one is answered, and takes all answers that are there. Returns how many.
    pub fn turn(&mut self, in_flight: usize) -> Result<usize, FloorError> {
        self.forget_arrived();
        while self.under_way < in_flight {
            self.submit();
        }
        self.receive()
    }

    /// Waits for all calls that are still under way.
    pub fn finish(&mut self) -> Result<(), FloorError> {
        while self.under_way > 0 {
            self.forget_arrived();
            self.receive()?;
        }
        Ok(())
    }

    fn forget_arrived(&mut self) {
        if self.arrived > 0 {
            let last = format!("-{}", self.arrived + 1);
            self.wire.add(&[b"LTRIM", &self.inbox, b"0", last.as_bytes()]);
            self.arrived = 0;
        }
    }

    fn submit(&mut self) {
        let call_id = format!("0198c0de-0000-7000-8000-{:012}", self.next);
        self.next += 1;
        self.under_way += 1;
        let fields = [
            b"callId".as_slice(),
            call_id.as_bytes(),
            b"params",
            &self.params,
            b"responseChannel",
            &self.inbox,
            b"timestamp",
            b"1800000000000",
        ];
        self.wire.begin(3 + fields.len());
        for word in [b"XADD".as_slice(), &self.stream, b"*"].iter().chain(&fields) {
            self.wire.word(word);
        }
    }

    fn receive(&mut self) -> Result<usize, FloorError> {
        self.wire.add(&[b"BLMOVE", &self.inbox, &self.inbox, b"RIGHT", b"RIGHT", ANSWER_WITHIN]);
        self.wire.add(&[b"LRANGE", &self.inbox, b"0", b"-1"]);
        let replies = self.wire.exchange()?;
        match replies.last() {
            Some(Value::Array(answers)) if !answers.is_empty() => {
                self.arrived = answers.len();
                self.under_way -= answers.len().min(self.under_way);
                Ok(answers.len())
            }
            _ => Err(FloorError("no call was answered for ten seconds: is the worker gone?".to_owned())),
        }
    }
}
