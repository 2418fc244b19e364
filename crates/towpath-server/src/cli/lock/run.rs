//! `towpath lock run`: a program runs while the lock is held, and does not outlive it unless it may.

use std::cell::Cell;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;
use towpath_core::lock::AcquireLock;
use towpath_server::http::wire::locks::{AcquireAnswer, ReleaseLockAnswer, ReleaseLockBody, RenewLockAnswer, RenewLockBody};

use super::asking::{self, AskArgs};
use crate::cli::client::{Ask, Client, RequestError, routes};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::signals::Signals;
use crate::cli::{guard, ids, time, words};

/// A renewal that failed is tried again so soon.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub(super) struct RunArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// How long we may be silent before others get it; renewed at a third of it [default: 30s, or --ttl if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    lease: Option<Duration>,
    /// What happens to the program when the lock is lost
    #[arg(long, value_enum, default_value_t = OnLoss::Kill)]
    on_loss: OnLoss,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    program: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnLoss {
    /// SIGTERM, and SIGKILL ten seconds later
    Kill,
    /// It goes on, and we say so
    Warn,
}

impl RunArgs {
    fn lease(&self) -> Duration {
        self.lease.unwrap_or_else(|| AcquireLock::LEASE.min(self.ask.ttl))
    }
}

/// A lock in our hands.
struct Held<'a> {
    client: &'a Client,
    scope: &'a str,
    kind: &'a str,
    lock_id: String,
    fence: u64,
    lease: Duration,
    /// Beyond this instant of our clock the program must not act on the lock.
    trusted_until: Instant,
}

pub(super) async fn run(client: &Client, out: Output, args: RunArgs, program_code: &Cell<Option<u8>>) -> Result<Exit, Failure> {
    let out = out.without_readers();
    let mut signals = Signals::listen()?;
    let request_id = ids::call_id();
    let granted = tokio::select! {
        granted = asking::ask(client, &args.ask, Some(args.lease()), &request_id) => granted?,
        () = signals.next() => {
            asking::take_back(client, &args.ask, &request_id).await?;
            return Ok(Exit::Interrupted);
        }
    };
    let mut held = Held::new(client, &args, &granted);
    if let Err(error) = held.confirm().await {
        out.error_line(&format!("the lock on '{}' is lost: {}", args.ask.scope, error.brief()));
        return Ok(Exit::Lost);
    }
    let mut program = match start(&args.program, &held, out) {
        Ok(program) => program,
        Err(failure) => {
            let _released_either_way = held.release().await;
            return Err(failure);
        }
    };
    let mut lost = None;
    let ended = loop {
        tokio::select! {
            ended = program.guard.wait() => break ended,
            () = signals.next() => program.signal(Signal::SIGTERM),
            why = held.keep(), if lost.is_none() => {
                out.error_line(&format!("the lock on '{}' is lost: {why}", args.ask.scope));
                lost = Some(why);
                if args.on_loss == OnLoss::Kill {
                    break program.end().await;
                }
            }
        }
    };
    let status =
        ended.map_err(|error| Failure::new(Exit::Failed, "program_unwatched", format!("the program cannot be watched: {error}")))?;
    if status.code().is_none() {
        guard::end_all().await; // the guard was killed and cannot end the program any more
    }
    let still_ours = lost.is_none() && held.release().await?;
    if !still_ours {
        return Ok(Exit::Lost);
    }
    program_code.set(Some(code_of(status)));
    Ok(Exit::Done)
}

/// What a shell would say.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

impl<'a> Held<'a> {
    fn new(client: &'a Client, args: &'a RunArgs, granted: &AcquireAnswer) -> Self {
        Self {
            client,
            scope: &args.ask.scope,
            kind: &args.ask.kind,
            lock_id: granted.lock_id.clone(),
            fence: granted.fence.unwrap_or_default(),
            lease: args.lease(),
            trusted_until: time::now() + trusted(granted.lease_remaining_ms.unwrap_or_default()),
        }
    }

    /// Renews once before the program starts: how long ago a question that waited was granted, its answer does not say exactly.
    async fn confirm(&mut self) -> Result<(), RequestError> {
        let sent_at = time::now();
        match self.renew().await {
            Ok(renewed) => {
                self.trusted_until = sent_at + trusted(renewed.lease_remaining_ms);
                Ok(())
            }
            Err(error) if error.may_pass() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Renews until the lock is lost, and says why.
    async fn keep(&mut self) -> String {
        let mut next = time::now() + self.lease / 3;
        loop {
            time::sleep_until(next.min(self.trusted_until)).await;
            let sent_at = time::now();
            if sent_at >= self.trusted_until {
                return "its lease is over, and it could not be renewed".to_owned();
            }
            match self.renew().await {
                Ok(renewed) => {
                    self.trusted_until = sent_at + trusted(renewed.lease_remaining_ms);
                    next = sent_at + self.lease / 3;
                }
                Err(error) if error.may_pass() => next = sent_at + AGAIN_AFTER,
                Err(error) => return error.brief(),
            }
        }
    }

    async fn renew(&self) -> Result<RenewLockAnswer, RequestError> {
        let body = RenewLockBody {
            fence: self.fence,
            lease_ms: Some(asking::decimal_ms(self.lease)),
            kind: Some(self.kind.to_owned()),
            lock_id: Some(self.lock_id.clone()),
        };
        self.client.ask(Ask::post(&routes::lock_verb(self.scope, "renew"), &body).within(self.lease)).await
    }

    /// Whether it was ours until now.
    async fn release(&self) -> Result<bool, Failure> {
        let lock_id = (self.kind != "exclusive").then(|| self.lock_id.clone());
        let body = ReleaseLockBody { fence: Some(self.fence), lock_id, kind: Some(self.kind.to_owned()) };
        let released: Result<ReleaseLockAnswer, RequestError> =
            self.client.ask(Ask::post(&routes::lock_verb(self.scope, "release"), &body)).await;
        match released {
            Ok(answer) => Ok(matches!(answer.outcome.as_str(), "released" | "still_held")),
            Err(RequestError::Refused { status: 409, .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// A little less than the store's own, because clocks do not run alike.
fn trusted(lease_remaining_ms: u64) -> Duration {
    let lease = Duration::from_millis(lease_remaining_ms);
    lease.saturating_sub((lease / 100).max(Duration::from_millis(5)))
}

/// The program behind its guard: when we end, however that comes, the lock can be another's soon, so the program must end, too.
struct Program {
    guard: Child,
    pid: Option<Pid>,
}

/// Starts the program. Where no terminal is shared, in a group of its own, so that all it starts gets our signals.
fn start(words: &[String], held: &Held<'_>, out: Output) -> Result<Program, Failure> {
    let own_group = !std::io::stdin().is_terminal();
    guard::adopt_orphans();
    let guard = guard::of_lock(own_group, out.is_json())
        .and_then(|mut guard| guard.args(words).env("TOWPATH_FENCE", held.fence.to_string()).env("TOWPATH_LOCK_ID", &held.lock_id).spawn());
    let guard = guard.map_err(|error| {
        Failure::usage("program_not_started", format!("the program '{}' cannot be started: {error}", words[0])).field("cmd")
    })?;
    let pid = guard.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    Ok(Program { guard, pid })
}

impl Program {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            let _already_gone = kill(pid, signal);
        }
    }

    /// Ends the program and all that it started: asked first, made to after ten seconds.
    async fn end(&mut self) -> std::io::Result<ExitStatus> {
        self.signal(Signal::SIGTERM);
        match tokio::time::timeout(guard::GRACE_OF_LOCK, self.guard.wait()).await {
            Ok(ended) => ended,
            Err(_too_slow) => {
                self.signal(Signal::SIGUSR1);
                self.guard.wait().await
            }
        }
    }
}
