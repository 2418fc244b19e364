//! A guard: a process of its own between a program and the process that started it, its owner. It ends the program and all that the
//! program started when its owner is gone, whatever ended the owner. Decision 037.
//!
//! The binary starts itself as a guard, with a word that no person types.

mod below;
mod item_file;
mod of_lock;
mod of_worker;
mod program;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use tokio::process::Command;

use super::exit::Exit;

pub(crate) use self::below::{adopt_orphans, end_all};
pub(crate) use self::of_lock::GRACE as GRACE_OF_LOCK;
pub(crate) use self::of_worker::{Told, read_told, send_input};

/// Stands in the place of a command.
const WORD: &str = "__guard";
/// What a list of processes shows. Without the word "towpath", so that `pkill -f towpath` ends the owner and not its guard.
const SHOWN_AS: &str = "program-guard";

const OF_WORKER: &str = "worker";
const OF_LOCK: &str = "lock";

/// A guard for a program of a worker. Its standard input is a socket, see `of_worker`.
pub(crate) fn of_worker() -> std::io::Result<Command> {
    let mut command = this_program()?;
    // A worker may be a program of another worker, whose input item is not this call's.
    command.arg(OF_WORKER).env_remove(item_file::ItemFile::VARIABLE);
    Ok(command)
}

/// A guard for a program of `towpath lock run`, see `of_lock`.
pub(crate) fn of_lock(own_group: bool, json: bool) -> std::io::Result<Command> {
    let mut command = this_program()?;
    let flag = |flag: bool| if flag { "yes" } else { "no" };
    command.arg(OF_LOCK).arg(nix::unistd::getpid().to_string()).arg(flag(own_group)).arg(flag(json));
    Ok(command)
}

/// This program again. On Linux by a name that stays right when the file is replaced while the owner runs.
fn this_program() -> std::io::Result<Command> {
    let mine = PathBuf::from("/proc/self/exe");
    let mut command = Command::new(if mine.exists() { mine } else { std::env::current_exe()? });
    command.arg0(SHOWN_AS).arg(WORD);
    Ok(command)
}

/// Guards, if that is what this process was started for.
pub(crate) fn main() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != WORD {
        return None;
    }
    let role = words.next().unwrap_or_default();
    let words: Vec<OsString> = words.collect();
    let guarded = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        runtime.block_on(async {
            match role.to_str() {
                Some(OF_WORKER) => of_worker::guard(&words).await.map(|()| ExitCode::SUCCESS),
                Some(OF_LOCK) => of_lock::guard(&words).await,
                _ => Ok(Exit::Usage.into()),
            }
        })
    });
    Some(guarded.unwrap_or(Exit::Failed.into()))
}
