//! A connection of one's own: one question at a time, and nobody waits behind it. Its replies are read in place.

use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use redis::{Cmd, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use towpath_core::store::StoreError;

use super::dial::{Greeted, Stream};
use super::reply::{self, Reply};
use crate::options::Address;
use crate::script::Args;

/// So much is read at once, if so much is there.
const READ_AHEAD: usize = 64 * 1024;
/// A buffer that grew larger than this for one reply is not kept.
const KEPT_MAX: usize = 1024 * 1024;

pub(super) struct OwnWire {
    pub(super) address: Address,
    pub(super) client_id: i64,
    stream: Box<dyn Stream>,
    buffer: BytesMut,
    /// What is about to be sent. It is kept: scripts take a hundred kilobytes at a time.
    outgoing: Vec<u8>,
}

impl OwnWire {
    pub(super) fn new(address: &Address, greeted: Greeted) -> Self {
        let Greeted { stream, client_id } = greeted;
        Self { address: address.clone(), client_id, stream, buffer: BytesMut::new(), outgoing: Vec::new() }
    }

    /// Asks. After an error nobody knows what became of it, and the connection is of no use any more.
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Reply, StoreError> {
        self.tell(std::slice::from_ref(command)).await?;
        self.hear().await
    }

    /// Runs a script that the server knows. An error reply is a reply.
    pub(super) async fn run(&mut self, sha: &str, keys: &[&str], args: &Args) -> Result<Value, StoreError> {
        let mut outgoing = std::mem::take(&mut self.outgoing);
        outgoing.clear();
        write_script(&mut outgoing, sha, keys, args);
        let written = self.write(&outgoing).await;
        if outgoing.capacity() <= KEPT_MAX {
            self.outgoing = outgoing;
        }
        written.map_err(|failure| self.broke(&failure))?;
        // Read here and not by the client library: its parser takes a fifth of the time of a process under load.
        self.hear().await.map(Value::from)
    }

    /// Sends what will be answered one after the other.
    pub(super) async fn tell(&mut self, commands: &[Cmd]) -> Result<(), StoreError> {
        let packed: Vec<Vec<u8>> = commands.iter().map(Cmd::get_packed_command).collect();
        let written = match &packed[..] {
            [one] => self.write(one).await,
            many => self.write(&many.concat()).await,
        };
        written.map_err(|failure| self.broke(&failure))
    }

    /// The next answer.
    pub(super) async fn hear(&mut self) -> Result<Reply, StoreError> {
        let text = self.read().await.map_err(|failure| self.broke(&failure))?;
        reply::read(&text).map_err(|_| self.broke(&no_reply()))
    }

    /// Itself, unless the other side has closed it, or has said something that nobody asked for.
    pub(super) fn if_alive(mut self) -> Option<Self> {
        self.stream.read_buf(&mut self.buffer).now_or_never().is_none().then_some(self)
    }

    fn broke(&self, failure: &io::Error) -> StoreError {
        let address = &self.address;
        StoreError::Unknown(format!("the connection to the Redis server at {address} broke ({failure})"))
    }

    async fn write(&mut self, packed: &[u8]) -> io::Result<()> {
        self.stream.write_all(packed).await?;
        self.stream.flush().await
    }

    /// The next reply, as it was written.
    async fn read(&mut self) -> io::Result<Bytes> {
        loop {
            if let Some(end) = reply::end_of_first(&self.buffer).map_err(|_| no_reply())? {
                let text: Bytes = self.buffer.split_to(end).freeze();
                if self.buffer.capacity() > KEPT_MAX {
                    self.buffer = BytesMut::from(&self.buffer[..]);
                }
                return Ok(text);
            }
            self.buffer.reserve(READ_AHEAD);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"));
            }
        }
    }
}

/// `EVALSHA` as it goes over the wire.
fn write_script(outgoing: &mut Vec<u8>, sha: &str, keys: &[&str], args: &Args) {
    let key_bytes: usize = keys.iter().map(|key| key.len() + 16).sum();
    outgoing.reserve(128 + key_bytes + args.bytes() + args.len() * 16);
    write_number(outgoing, b'*', 3 + keys.len() + args.len());
    let mut count = itoa::Buffer::new();
    let head = ["EVALSHA", sha, count.format(keys.len())].map(str::as_bytes);
    for word in head.into_iter().chain(keys.iter().map(|key| key.as_bytes())).chain(args.words()) {
        write_number(outgoing, b'$', word.len());
        outgoing.extend_from_slice(word);
        outgoing.extend_from_slice(b"\r\n");
    }
}

fn write_number(outgoing: &mut Vec<u8>, kind: u8, number: usize) {
    outgoing.push(kind);
    outgoing.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    outgoing.extend_from_slice(b"\r\n");
}

fn no_reply() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what it sent is no reply")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_goes_over_the_wire_as_the_client_library_would_write_it() {
        let mut args = Args::default();
        args.push("a\r\nb");
        args.push("");
        args.number(1_234_567_890);
        let mut written = Vec::new();
        write_script(&mut written, "0123", &["k1", "k2"], &args);
        let mut same = Cmd::new();
        same.arg("EVALSHA").arg("0123").arg(2).arg("k1").arg("k2").arg("a\r\nb").arg("").arg(1_234_567_890);
        assert_eq!(String::from_utf8(written).unwrap(), String::from_utf8(same.get_packed_command()).unwrap());
    }
}
