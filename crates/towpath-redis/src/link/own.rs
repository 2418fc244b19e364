//! A connection of one's own: one question at a time, and nobody waits behind it. Its replies are read in place.

use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use redis::Cmd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use towpath_core::store::StoreError;

use super::dial::{Greeted, Stream};
use super::reply::{self, Reply, Text};
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
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Text, StoreError> {
        self.tell(std::slice::from_ref(command)).await?;
        self.hear_text().await
    }

    /// Says what is written all at once, and hears so many replies. They are read here and not by the client library: its parser takes a
    /// fifth of the time of a process under load.
    pub(super) async fn ask_many(&mut self, count: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<Reply>, StoreError> {
        let mut outgoing = std::mem::take(&mut self.outgoing);
        outgoing.clear();
        write(&mut outgoing);
        let written = self.write(&outgoing).await;
        if outgoing.capacity() <= KEPT_MAX {
            self.outgoing = outgoing;
        }
        written.map_err(|failure| self.broke(&failure))?;
        let mut replies = Vec::with_capacity(count);
        for _ in 0..count {
            replies.push(self.hear().await?);
        }
        Ok(replies)
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
        let text = self.hear_text().await?;
        self.understood(&text)
    }

    pub(super) fn understood(&self, text: &Text) -> Result<Reply, StoreError> {
        text.reply().map_err(|_| self.broke(&no_reply()))
    }

    async fn hear_text(&mut self) -> Result<Text, StoreError> {
        self.read().await.map(Text).map_err(|failure| self.broke(&failure))
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
pub(super) fn write_script(outgoing: &mut Vec<u8>, sha: &str, keys: &[&str], args: &Args) {
    let mut count = itoa::Buffer::new();
    let mut head = vec!["EVALSHA", sha, count.format(keys.len())];
    head.extend_from_slice(keys);
    write_command(outgoing, &head, args);
}

/// A command as it goes over the wire: its first words, and the others.
pub(super) fn write_command(outgoing: &mut Vec<u8>, head: &[&str], args: &Args) {
    let head_bytes: usize = head.iter().map(|word| word.len() + 16).sum();
    outgoing.reserve(16 + head_bytes + args.bytes() + args.len() * 16);
    write_number(outgoing, b'*', head.len() + args.len());
    for word in head.iter().map(|word| word.as_bytes()).chain(args.words()) {
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
