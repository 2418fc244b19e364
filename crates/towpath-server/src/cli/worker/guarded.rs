//! A program and its guard, as the worker sees them.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use super::group::ProcessGroup;
use crate::cli::guard::{Told, read_told, send_input};

/// A program that runs. Dropping this ends what is left of it: the guard does that when the socket closes.
#[derive(Debug)]
pub(crate) struct Guarded {
    socket: UnixStream,
    read: Vec<u8>,
    group: ProcessGroup,
    ended: Option<ExitStatus>,
    /// Not waited for while the group may be signalled, so that no other process gets its number.
    _guard: Child,
}

/// How long a guard may take to end after the last process of its program.
const LEAVE: Duration = Duration::from_millis(50);
/// How long the group may take to clean up after SIGTERM.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// What a program writes.
pub(crate) struct Streams {
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
}

impl Guarded {
    /// Starts the program that `guard` was told, with `input` on its standard input, and `item` in a file of its own.
    pub(crate) async fn start(mut guard: Command, input: &[u8], item: Option<&[u8]>) -> io::Result<(Self, Streams)> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut socket = UnixStream::from_std(ours)?;
        // A group of its own: what is sent to the worker's group must not end the guard before the worker.
        let spawned =
            guard.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn();
        drop(guard); // with its copy of the guard's end of the socket
        let mut guard = spawned?;
        let streams = Streams { stdout: guard.stdout.take(), stderr: guard.stderr.take() };
        let group = ProcessGroup::led_by(&guard);
        let mut read = Vec::new();
        let told = match send_input(&mut socket, input, item).await {
            Ok(()) => read_told(&mut socket, &mut read).await,
            Err(error) => Err(error),
        };
        match told {
            Ok(Told::Started) => Ok((Self { socket, read, group, ended: None, _guard: guard }, streams)),
            Ok(Told::NotStarted(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Ok(Told::Exited(_) | Told::Signaled(_)) => Err(io::ErrorKind::InvalidData.into()),
            Err(error) => {
                group.signal(Signal::SIGKILL); // a guard that was killed may have started the program just before
                Err(error)
            }
        }
    }

    /// Waits for the program's end. An error means that its guard was killed.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let status = match read_told(&mut self.socket, &mut self.read).await? {
            Told::Exited(code) => ExitStatus::from_raw(code << 8),
            Told::Signaled(signal) => ExitStatus::from_raw(signal),
            Told::Started | Told::NotStarted(_) => return Err(io::ErrorKind::InvalidData.into()),
        };
        self.ended = Some(status);
        Ok(status)
    }

    /// Ends the program and all that it started: asked first, made to after two seconds.
    pub(crate) async fn end(mut self) {
        self.group.signal(Signal::SIGTERM);
        if tokio::time::timeout(GRACE, self.gone()).await.is_err() {
            let _guard_is_gone = self.socket.shutdown().await; // the guard kills what it finds
            let _given_up = tokio::time::timeout(GRACE, self.gone()).await;
        }
        // After a guard that did its work this finds no group.
        self.group.signal(Signal::SIGKILL);
    }

    /// Ends what a program that has ended left behind.
    pub(crate) async fn end_leftovers(mut self) {
        if tokio::time::timeout(LEAVE, self.gone()).await.is_err() {
            self.end().await;
        }
    }

    /// Waits until the guard has ended, and so all that the program started.
    async fn gone(&mut self) {
        let mut chunk = [0; 16];
        while matches!(self.socket.read(&mut chunk).await, Ok(1..)) {}
    }
}
