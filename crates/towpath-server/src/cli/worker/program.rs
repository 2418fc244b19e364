//! The program that serves a function: started once per call, in a process group of its own, and stopped with everything it started.
//! A guard stands between it and the worker, so that it ends with the worker, too.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Instant;

use tokio::process::Command;
use tokio::sync::{mpsc, watch};
use towpath_server::http::wire::Json;

use super::guarded::{Guarded, Streams};
use super::streams::{self, Stderr, Stdout};
use crate::cli::failure::Failure;
use crate::cli::{guard, time};

/// What to start for each call.
#[derive(Debug)]
pub(crate) enum Program {
    /// One word, given to `sh -c`: it may hold pipes and quotes.
    Shell(String),
    /// Several words, started as they are.
    Words(String, Vec<String>),
}

/// Why a program is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its call's deadline has passed.
    Deadline,
    /// A caller cancelled its call.
    Cancelled,
    /// Its call is no longer this worker's.
    Lost,
    /// The worker leaves and hands the call back.
    HandBack,
    /// It wrote more than an answer may hold.
    TooMuchOutput,
}

/// One start of the program.
pub(crate) struct Start {
    /// What it reads on standard input.
    pub(crate) input: Vec<u8>,
    /// What it finds in a file.
    pub(crate) input_item: Option<Vec<u8>>,
    /// Its `TOWPATH_` variables.
    pub(crate) environment: Vec<(String, String)>,
    /// When it must be over.
    pub(crate) deadline: Instant,
    /// Says when it must be over sooner.
    pub(crate) stop: watch::Receiver<Option<Stop>>,
    /// Gets its progress reports.
    pub(crate) progress: watch::Sender<Option<Json>>,
    /// Gets the other lines of its standard error.
    pub(crate) lines: mpsc::Sender<String>,
}

/// How a start ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It ended by itself.
    Exited(Exited),
    /// It was stopped.
    Stopped(Stop),
    /// It could not be started.
    NotStarted(io::Error),
    /// Its guard was killed, so the program was stopped.
    Unguarded(io::Error),
}

/// What a program left behind.
#[derive(Debug)]
pub(crate) struct Exited {
    /// Its exit code or the signal that ended it.
    pub(crate) status: ExitStatus,
    /// All it wrote on standard output.
    pub(crate) stdout: Vec<u8>,
    /// The end of what it wrote on standard error.
    pub(crate) stderr_tail: String,
}

impl Program {
    /// The program that the words after `--exec` name.
    pub(crate) fn from_words(mut words: Vec<String>) -> Result<Self, Failure> {
        let example = "for example: towpath worker upper --exec 'tr a-z A-Z'";
        if words.is_empty() || words[0].trim().is_empty() {
            return Err(Failure::usage("missing_program", "--exec names no program").field("exec").hint(example));
        }
        if words.len() == 1 {
            return Ok(Self::Shell(words.remove(0)));
        }
        let name = words.remove(0);
        if !can_be_started(&name) {
            let message = format!("the program '{name}' is not there, or is not executable");
            let hint = "several words are started as they are; for a shell's pipes and quotes, give the whole command as one word";
            return Err(Failure::usage("program_not_found", message).field("exec").hint(hint));
        }
        Ok(Self::Words(name, words))
    }

    /// Its guard, with the program's words.
    fn guard(&self) -> io::Result<Command> {
        let mut guard = guard::of_worker()?;
        match self {
            Self::Shell(text) => guard.args(["sh", "-c", text]),
            Self::Words(name, arguments) => guard.arg(name).args(arguments),
        };
        Ok(guard)
    }

    /// Starts the program for one call and stays with it until nothing of it is left.
    pub(crate) async fn run(&self, start: Start) -> Ending {
        let started = async {
            let mut guard = self.guard()?;
            guard.envs(start.environment);
            Guarded::start(guard, &start.input, start.input_item.as_deref()).await
        };
        match started.await {
            Ok((guarded, streams)) => {
                Running::of(guarded, streams, start.progress, start.lines).until_over(start.deadline, start.stop).await
            }
            Err(error) => Ending::NotStarted(error),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shell(text) => f.write_str(text),
            Self::Words(name, arguments) => write!(f, "{name} {}", arguments.join(" ")),
        }
    }
}

/// Looks where the system would look. Only a hint for people: the start itself decides.
fn can_be_started(name: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let executable = |path: &Path| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    if name.contains('/') {
        return executable(Path::new(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| executable(&folder.join(name)))
}

/// A started program.
struct Running {
    guarded: Guarded,
    stdout: Stdout,
    stderr: Stderr,
}

impl Running {
    fn of(guarded: Guarded, streams: Streams, progress: watch::Sender<Option<Json>>, lines: mpsc::Sender<String>) -> Self {
        let stdout = streams::read_stdout(streams.stdout);
        let stderr = streams::read_stderr(streams.stderr, progress, lines);
        Self { guarded, stdout, stderr }
    }

    async fn until_over(mut self, deadline: Instant, mut stop: watch::Receiver<Option<Stop>>) -> Ending {
        let exited = tokio::select! {
            status = self.guarded.ended() => Ok(status),
            why = asked_to_stop(&mut stop) => Err(why),
            () = time::sleep_until(deadline) => Err(Stop::Deadline),
            () = self.stdout.overflowed() => Err(Stop::TooMuchOutput),
        };
        match exited {
            Ok(Ok(status)) => self.collect(status).await,
            Ok(Err(error)) => {
                self.guarded.end().await;
                Ending::Unguarded(error)
            }
            Err(why) => {
                self.guarded.end().await;
                Ending::Stopped(why)
            }
        }
    }

    /// Takes what the program wrote. What it left running ends with it: a call's processes do not outlive the call.
    async fn collect(mut self, status: ExitStatus) -> Ending {
        // A filter at the end of a pipe may need a moment to write out what it has.
        let both = async { tokio::join!(self.stdout.at_end(), self.stderr.at_end()) };
        let _timed_out = tokio::time::timeout(streams::LINGER, both).await;
        self.guarded.end_leftovers().await;
        if self.stdout.has_overflowed() {
            return Ending::Stopped(Stop::TooMuchOutput);
        }
        Ending::Exited(Exited { status, stdout: self.stdout.take(), stderr_tail: self.stderr.tail() })
    }
}

async fn asked_to_stop(stop: &mut watch::Receiver<Option<Stop>>) -> Stop {
    loop {
        if let Some(why) = *stop.borrow_and_update() {
            return why;
        }
        if stop.changed().await.is_err() {
            std::future::pending::<()>().await; // no sender is left
        }
    }
}
