//! Connections for scripts that come one at a time: whoever runs one speaks with the server itself, instead of through the shared connection,
//! which costs two changes of tasks. When all are in use the shared one serves.

use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::Value;
use towpath_core::store::StoreError;

use super::error;
use super::line::{ANSWER_WITHIN, Line};
use super::own::{OwnWire, write_script};
use super::reply::Reply;
use crate::script::Args;

/// Calls are taken by one script at a time and moved by one; locks and limits come beside them.
const MOST: usize = 3;

#[derive(Default)]
pub(super) struct Spares {
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    idle: Vec<OwnWire>,
    lent: usize,
}

/// A connection in use. Given back only after it answered; dropped otherwise.
pub(super) struct Spare<'a> {
    home: &'a Spares,
    line: &'a Line,
    wire: Option<OwnWire>,
}

impl Spares {
    /// A connection to the server of this line. `None`: all are in use, or there is none to be had.
    pub(super) async fn lend<'a>(&'a self, line: &'a Line) -> Option<Spare<'a>> {
        let address = line.alive()?.address.clone();
        let idle = {
            let mut shelf = self.lock();
            if shelf.lent >= MOST {
                return None;
            }
            shelf.lent += 1;
            shelf.idle.pop()
        };
        // From here on a drop counts it back.
        let mut spare = Spare { home: self, line, wire: None };
        spare.wire = idle.filter(|wire| wire.address == address).and_then(OwnWire::if_alive);
        if spare.wire.is_none() {
            spare.wire = Some(line.exclusive().await.ok()?);
        }
        Some(spare)
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        // Nothing in here can panic half way.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spare<'_> {
    /// Runs a script that the server knows. An error reply is a reply.
    pub(super) async fn run(mut self, sha: &str, keys: &[&str], args: &Args) -> Result<Value, StoreError> {
        let mut replies = self.ask(1, |outgoing| write_script(outgoing, sha, keys, args)).await?;
        Ok(replies.pop().map_or(Value::Nil, Value::from))
    }

    /// Says something that is answered by so many replies. An error reply is a reply.
    pub(super) async fn ask(&mut self, replies: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<Reply>, StoreError> {
        let Some(mut wire) = self.wire.take() else { return Ok(Vec::new()) };
        let asked = tokio::time::timeout(ANSWER_WITHIN, wire.ask_many(replies, write)).await;
        let replies = asked.map_err(|_| error::silent(&wire.address))??;
        if replies.iter().any(|reply| matches!(reply, Reply::Error(said) if error::is_said_by_demoted(said))) {
            self.line.forget_server(&wire.address);
        } else {
            self.wire = Some(wire);
        }
        Ok(replies)
    }
}

impl Drop for Spare<'_> {
    fn drop(&mut self) {
        let mut shelf = self.home.lock();
        shelf.lent -= 1;
        shelf.idle.extend(self.wire.take());
    }
}
