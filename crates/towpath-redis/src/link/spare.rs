//! Connections for scripts that come one at a time: whoever runs one speaks with the server itself, instead of through the shared connection,
//! which costs two changes of tasks. When all are in use the shared one serves.

use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::Value;
use towpath_core::store::StoreError;

use super::error;
use super::line::{ANSWER_WITHIN, Line};
use super::own::OwnWire;
use crate::script::Args;

/// Calls are taken by one script at a time and moved by one; locks and limits come beside them.
const MOST: usize = 4;

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
        let Some(mut wire) = self.wire.take() else { return Ok(Value::Nil) };
        let asked = tokio::time::timeout(ANSWER_WITHIN, wire.run(sha, keys, args)).await;
        let reply = asked.map_err(|_| error::silent(&wire.address))??;
        if error::is_demoted(&reply) {
            self.line.forget_server(&wire.address);
        } else {
            self.wire = Some(wire);
        }
        Ok(reply)
    }
}

impl Drop for Spare<'_> {
    fn drop(&mut self) {
        let mut shelf = self.home.lock();
        shelf.lent -= 1;
        shelf.idle.extend(self.wire.take());
    }
}
