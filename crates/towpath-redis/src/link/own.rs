//! A connection of one's own: one question at a time, and nobody waits behind it. Its replies are read in place.

use std::io;
use std::time::Duration;

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
    answer_within: Duration,
}

impl OwnWire {
    pub(super) fn new(address: &Address, greeted: Greeted, answer_within: Duration) -> Self {
        let Greeted { stream, client_id } = greeted;
        Self { address: address.clone(), client_id, stream, buffer: BytesMut::new(), answer_within }
    }

    /// Asks. After an error nobody knows what became of it, and the connection is of no use any more.
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Reply, StoreError> {
        let packed = command.get_packed_command();
        let asked = tokio::time::timeout(self.answer_within, async {
            self.stream.write_all(&packed).await?;
            self.stream.flush().await?;
            self.read().await
        });
        match asked.await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(failure)) => {
                let address = &self.address;
                Err(StoreError::Unknown(format!("the connection to the Redis server at {address} broke ({failure})")))
            }
            Err(_) => Err(StoreError::Unknown(format!("the Redis server at {} did not answer in time", self.address))),
        }
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
