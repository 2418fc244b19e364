//! The guard of a worker's program. Its standard input is a socket to the worker: the worker sends the program's input and its input
//! item; the guard sends what it has to tell. The worker's side closes when the worker has ended, or wants the rest of the program ended;
//! the guard's side closes when the guard has ended, and with it all that the program started.
//!
//! The program is in the guard's process group, so that the worker knows the group before the program runs, and can end it when the guard
//! itself was killed.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::process::Stdio;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{dup2_stderr, dup2_stdout, getpgrp, getpid};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::signal::unix::SignalKind;

use super::below;
use super::item_file::ItemFile;
use super::program::{End, Guarded, outlive};

/// What a guard tells its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The program runs.
    Started,
    /// The system refused to start it, with this error.
    NotStarted(i32),
    /// It ended with this exit code.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

/// A kind and a number.
const TOLD_BYTES: usize = 5;

impl Told {
    fn bytes(self) -> [u8; TOLD_BYTES] {
        let (kind, number) = match self {
            Self::Started => (b'+', 0),
            Self::NotStarted(errno) => (b'!', errno),
            Self::Exited(code) => (b'=', code),
            Self::Signaled(signal) => (b'#', signal),
        };
        let [a, b, c, d] = number.to_be_bytes();
        [kind, a, b, c, d]
    }

    fn parse([kind, a, b, c, d]: [u8; TOLD_BYTES]) -> io::Result<Self> {
        let number = i32::from_be_bytes([a, b, c, d]);
        match kind {
            b'+' => Ok(Self::Started),
            b'!' => Ok(Self::NotStarted(number)),
            b'=' => Ok(Self::Exited(number)),
            b'#' => Ok(Self::Signaled(number)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The next that a guard tells. `read` keeps what came of it when this is dropped.
pub(crate) async fn read_told(stream: &mut UnixStream, read: &mut Vec<u8>) -> io::Result<Told> {
    while read.len() < TOLD_BYTES {
        let mut chunk = [0; TOLD_BYTES];
        let missing = TOLD_BYTES - read.len();
        match stream.read(&mut chunk[..missing]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            came => read.extend_from_slice(&chunk[..came]),
        }
    }
    let told = std::mem::take(read).try_into().map_err(|_| io::ErrorKind::InvalidData)?;
    Told::parse(told)
}

/// Stands for the length of an input item that there is not.
const NO_ITEM: u64 = u64::MAX;

/// Sends all that a guard waits for before it starts the program.
pub(crate) async fn send_input(guard: &mut UnixStream, input: &[u8], item: Option<&[u8]>) -> io::Result<()> {
    guard.write_u64(input.len() as u64).await?;
    guard.write_all(input).await?;
    guard.write_u64(item.map_or(NO_ITEM, |item| item.len() as u64)).await?;
    guard.write_all(item.unwrap_or_default()).await
}

async fn receive(worker: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
    let length = worker.read_u64().await?;
    if length == NO_ITEM {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    worker.read_exact(&mut bytes).await?;
    Ok(Some(bytes))
}

/// Guards one program.
pub(super) async fn guard(words: &[OsString]) -> io::Result<()> {
    below::adopt_orphans();
    // What is sent to the group is meant for the program, which may still have an answer.
    let _ignored = outlive(&[
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::quit(),
        SignalKind::alarm(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ])?;
    let socket = StdStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    let mut worker = UnixStream::from_std(socket)?;
    // All of it before the start: a worker that ends in the middle has started nothing.
    let (input, item) = (receive(&mut worker).await?.unwrap_or_default(), receive(&mut worker).await?);
    let started = item.map(|item| ItemFile::create(&item)).transpose().and_then(|file| {
        let variables = file.iter().map(|file| (ItemFile::VARIABLE, file.path())).collect();
        Guarded::start(words, false, Stdio::piped(), variables).map(|started| (started, file))
    });
    let ((mut program, stdin), item_file) = match started {
        Ok(started) => started,
        Err(error) => return worker.write_all(&Told::NotStarted(error.raw_os_error().unwrap_or(0)).bytes()).await,
    };
    let _harmless = let_go_of_output(); // else the worker waits a moment longer for the end of the output
    // A program that does not read its input closes the pipe, or keeps this thread to its end.
    std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
    let ((mut closed, mut telling), mut byte) = (worker.split(), [0]);
    tokio::select! {
        _told = tell(&mut program, &mut telling) => {}
        _closed = closed.read(&mut byte) => {}
    }
    below::end_all().await;
    drop(item_file);
    if getpgrp() == getpid() {
        let _myself_last = killpg(getpgrp(), Signal::SIGKILL); // where `end_all` finds nothing, this ends the group
    }
    Ok(())
}

/// Tells how the program ended; returns when nothing is left of it, or the worker has closed the socket.
async fn tell(program: &mut Guarded, worker: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    worker.write_all(&Told::Started.bytes()).await?;
    let told = match program.ended().await {
        End::Exited(code) => Told::Exited(code),
        End::Signaled(signal) => Told::Signaled(signal),
    };
    worker.write_all(&told.bytes()).await?;
    program.all_ended().await;
    Ok(())
}

/// The worker reads the program's output to its end, which only the program shall hold open.
fn let_go_of_output() -> io::Result<()> {
    let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
    dup2_stdout(&nowhere)?;
    dup2_stderr(&nowhere)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_guard_tells_arrives_even_in_pieces() {
        let (mut guard, mut worker) = UnixStream::pair().unwrap();
        let mut read = Vec::new();
        for told in [Told::Started, Told::NotStarted(2), Told::Exited(65), Told::Signaled(9)] {
            let bytes = told.bytes();
            guard.write_all(&bytes[..2]).await.unwrap();
            assert!(futures_util::poll!(std::pin::pin!(read_told(&mut worker, &mut read))).is_pending());
            guard.write_all(&bytes[2..]).await.unwrap();
            assert_eq!(read_told(&mut worker, &mut read).await.unwrap(), told);
        }
        guard.write_all(b"?1234").await.unwrap();
        assert!(read_told(&mut worker, &mut read).await.is_err());
        drop(guard);
        assert!(read_told(&mut worker, &mut read).await.is_err());
    }
}
