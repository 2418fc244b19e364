//! A script that decides, and beside it a write that need not go through it.
//!
//! A word costs the server several times as much in a script as in a command, because Lua reads every byte of it. So what is long and needs
//! no look goes beside the script, in one transaction: the script, which does nothing if somebody was faster; the write, whatever the
//! script said; and a second script, which puts back what was there before if the first did nothing. Nobody sees what is in between.
//!
//! A server that has forgotten the scripts would write all the same, so the transaction brings them along.

use std::sync::atomic::{AtomicU8, Ordering};

use redis::Value;
use towpath_core::store::StoreError;

use super::own::{write_command, write_script};
use super::reply::Reply;
use super::spare::Spare;
use super::{Link, Script, Way, checked};
use crate::script::Args;

/// What is written beside a script: a command, and the script that takes it back.
pub(crate) struct Beside<'a> {
    /// The command and its key.
    pub(crate) command: [&'a str; 2],
    pub(crate) words: &'a Args,
    pub(crate) restore: &'a Script,
    pub(crate) restore_keys: &'a [&'a str],
}

/// A connection on which nobody else speaks.
pub(crate) struct Transaction<'a> {
    spare: Spare<'a>,
    permission: &'a Permission,
}

/// Whether the user may have transactions. Rules that were made for an older version do not allow them.
#[derive(Default)]
pub(super) struct Permission(AtomicU8);

impl Permission {
    const GIVEN: u8 = 1;
    const REFUSED: u8 = 2;

    fn is(&self, what: u8) -> bool {
        self.0.load(Ordering::Relaxed) == what
    }

    fn note(&self, given: bool) {
        self.0.store(if given { Self::GIVEN } else { Self::REFUSED }, Ordering::Relaxed);
    }
}

impl Link {
    /// A connection for a transaction. `None`: the user may have none, all connections are in use, or it is a Cluster.
    pub(crate) async fn transaction(&self) -> Option<Transaction<'_>> {
        let Way::Single(line) = &*self.way else { return None };
        if self.permission.is(Permission::REFUSED) {
            return None;
        }
        let mut spare = self.spares.lend(line).await?;
        if !self.permission.is(Permission::GIVEN) {
            let both =
                |outgoing: &mut Vec<u8>| ["MULTI", "EXEC"].iter().for_each(|word| write_command(outgoing, &[word], &Args::default()));
            let refused = spare.ask(2, both).await.ok()?.iter().any(is_error);
            self.permission.note(!refused);
            if refused {
                spare.give_up(); // it may have begun one
            }
        }
        self.permission.is(Permission::GIVEN).then_some(Transaction { spare, permission: &self.permission })
    }
}

impl Transaction<'_> {
    /// Runs a script with something beside it, and brings what the script gave.
    pub(crate) async fn run(mut self, script: &Script, keys: &[&str], args: &Args, beside: &Beside<'_>) -> Result<Value, StoreError> {
        const RAN: usize = 1;
        let nothing = Args::default();
        let replies = self.spare.ask(7, |outgoing| {
            write_command(outgoing, &["MULTI"], &nothing);
            write_command(outgoing, &["SCRIPT", "LOAD", &script.plain.code], &nothing);
            write_script(outgoing, &script.plain.sha, keys, args);
            write_command(outgoing, &beside.command, beside.words);
            write_command(outgoing, &["SCRIPT", "LOAD", &beside.restore.plain.code], &nothing);
            write_script(outgoing, &beside.restore.plain.sha, beside.restore_keys, &nothing);
            write_command(outgoing, &["EXEC"], &nothing);
        });
        let mut replies = replies.await?;
        let done = replies.pop().unwrap_or(Reply::Nil);
        if is_error(&done) {
            self.spare.give_up(); // it may not have ended
        }
        if let Some(Reply::Error(said)) = replies.first() {
            // All that followed was done, but not together: whoever asked shall look.
            self.permission.note(false);
            return Err(StoreError::Unknown(format!("the Redis server allows no transactions any more ({said})")));
        }
        // If one of them was refused, none was done.
        if let Some(refused) = replies.into_iter().find(is_error) {
            return checked(Value::from(refused));
        }
        let Reply::Array(mut results) = done else { return checked(Value::from(done)) };
        if let Some(failed) = results.iter().position(is_error) {
            return checked(Value::from(results.swap_remove(failed)));
        }
        Ok(if results.len() > RAN { Value::from(results.swap_remove(RAN)) } else { Value::Nil })
    }
}

fn is_error(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(_))
}
