//! The guarded program, as its guard sees it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use crate::cli::signals::is_ignored;

/// A program that runs, and every orphan of it that became the guard's child.
pub(super) struct Guarded {
    pid: Pid,
    own_group: bool,
    children_changed: Signals,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

impl Guarded {
    /// Starts the program, with these variables beside the guard's own.
    pub(super) fn start(
        words: &[OsString],
        own_group: bool,
        stdin: Stdio,
        variables: Vec<(&str, &Path)>,
    ) -> io::Result<(Self, Option<ChildStdin>)> {
        let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let children_changed = signal(SignalKind::child())?;
        let mut command = Command::new(name);
        command.args(arguments).envs(variables).stdin(stdin);
        if own_group {
            command.process_group(0);
        }
        let mut child = command.spawn()?;
        let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        Ok((Self { pid, own_group, children_changed }, child.stdin.take()))
    }

    /// Sends a signal to the program, and to its group if it has one of its own.
    pub(super) fn signal(&self, signal: Signal) {
        let number = self.pid.as_raw();
        let _already_gone = kill(Pid::from_raw(if self.own_group { -number } else { number }), signal);
    }

    /// Waits for the program's end, and buries orphans meanwhile. Does not return again after that.
    pub(super) async fn ended(&mut self) -> End {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == self.pid => return End::Exited(code),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.pid => return End::Signaled(signal as i32),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => drop(self.children_changed.recv().await),
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Waits until the program has ended and all that it started, too.
    pub(super) async fn all_ended(&mut self) {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Err(Errno::ECHILD) => return,
                Ok(WaitStatus::StillAlive) => drop(self.children_changed.recv().await),
                Ok(_) | Err(_) => {}
            }
        }
    }
}

/// From now on these signals no longer end the guard: it ends after its program. A program starts with the signals' usual meaning, or
/// ignores those that were ignored before (`nohup`, a shell's `trap '' HUP`).
pub(super) fn outlive(kinds: &[SignalKind]) -> io::Result<Vec<Signals>> {
    kinds.iter().filter(|kind| !is_ignored(**kind)).map(|kind| signal(*kind)).collect()
}
