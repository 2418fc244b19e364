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

/// So much is read at once, if so much is there.
const READ_AHEAD: usize = 64 * 1024;
/// A buffer that grew larger than this for one reply is not kept.
const KEPT_MAX: usize = 1024 * 1024;

pub(super) struct OwnWire {
    pub(super) address: Address,
    pub(super) client_id: i64,
    stream: Box<dyn Stream>,
    buffer: BytesMut,
}

impl OwnWire {
    pub(super) fn new(address: &Address, greeted: Greeted) -> Self {
        let Greeted { stream, client_id } = greeted;
        Self { address: address.clone(), client_id, stream, buffer: BytesMut::new() }
    }

    /// Asks. After an error nobody knows what became of it, and the connection is of no use any more.
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Reply, StoreError> {
        self.tell(std::slice::from_ref(command)).await?;
        self.hear().await
    }

    /// Asks several things at once. An error reply stands in its place.
    pub(super) async fn ask_all(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, StoreError> {
        self.tell(commands).await?;
        let mut replies = Vec::with_capacity(commands.len());
        for _ in commands {
            let text = self.read().await.map_err(|failure| self.broke(&failure))?;
            replies.push(redis::parse_redis_value(&text).map_err(|_| self.broke(&no_reply()))?);
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

fn no_reply() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what it sent is no reply")
}
