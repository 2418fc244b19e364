//! Several commands in one write, all their replies in one read.

use std::io::Write;

use redis::{Connection, Value};

use super::FloorError;

/// A connection and what shall go out next.
pub(super) struct Wire {
    connection: Connection,
    out: Vec<u8>,
    /// How many commands are in `out`.
    commands: usize,
    /// How many were sent and not answered yet.
    awaited: usize,
}

impl Wire {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, out: Vec::new(), commands: 0, awaited: 0 }
    }

    /// Adds a command.
    pub(super) fn add(&mut self, words: &[&[u8]]) {
        self.begin(words.len());
        for word in words {
            self.word(word);
        }
    }

    /// Adds a command of so many words, which follow.
    pub(super) fn begin(&mut self, words: usize) {
        self.commands += 1;
        let _infallible = write!(self.out, "*{words}\r\n");
    }

    /// Adds a word to the latest command.
    pub(super) fn word(&mut self, word: &[u8]) {
        let _infallible = write!(self.out, "${}\r\n", word.len());
        self.out.extend_from_slice(word);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Sends all that was added and waits for all replies.
    pub(super) fn exchange(&mut self) -> Result<Vec<Value>, FloorError> {
        self.send()?;
        self.receive()
    }

    /// Sends all that was added.
    pub(super) fn send(&mut self) -> Result<(), FloorError> {
        self.connection.send_packed_command(&self.out)?;
        self.out.clear();
        self.awaited += std::mem::take(&mut self.commands);
        Ok(())
    }

    /// Waits for the replies to all that was sent. A refusal by the server is an error.
    pub(super) fn receive(&mut self) -> Result<Vec<Value>, FloorError> {
        (0..std::mem::take(&mut self.awaited)).map(|_| Ok(self.connection.recv_response()?)).collect()
    }
}
