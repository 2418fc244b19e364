//! A connection of one's own: one question at a time, and nobody waits behind it. Its replies are read in place.

use std::io;

use bytes::{Bytes, BytesMut};
use redis::Cmd;
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
        self.write_and_read(&command.get_packed_command()).await.map_err(|failure| {
            let address = &self.address;
            StoreError::Unknown(format!("the connection to the Redis server at {address} broke ({failure})"))
        })
    }

    async fn write_and_read(&mut self, packed: &[u8]) -> io::Result<Reply> {
        self.stream.write_all(packed).await?;
        self.stream.flush().await?;
        self.read().await
    }

    async fn read(&mut self) -> io::Result<Reply> {
        loop {
            let broken = |_| io::Error::new(io::ErrorKind::InvalidData, "what it sent is no reply");
            if let Some(end) = reply::end_of_first(&self.buffer).map_err(broken)? {
                let text: Bytes = self.buffer.split_to(end).freeze();
                if self.buffer.capacity() > KEPT_MAX {
                    self.buffer = BytesMut::from(&self.buffer[..]);
                }
                return reply::read(&text).map_err(broken);
            }
            self.buffer.reserve(READ_AHEAD);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"));
            }
        }
    }
}
