//! The guard of a program of `towpath lock run`. The program has the owner's standard streams, so signals are all they speak with:
//! SIGTERM is passed on to the program, SIGUSR1 ends everything. The system sends SIGUSR1 when the owner ends.
//!
//! After a SIGTERM the guard stays until all that the program started has ended: the owner releases the lock when the guard has ended.

use std::ffi::OsString;
use std::io;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::below;
use super::program::{End, Guarded, outlive};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::time;

/// How long the system may take from the end of a terminal to the signal that its owner has ended.
const NEWS_OF_THE_OWNER: Duration = Duration::from_millis(100);
/// How long a program may clean up after SIGTERM when its lock is lost, and what it leaves running after its own end.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// Guards one program, and exits as it does: with its code, or 128 and the signal's number.
pub(super) async fn guard(words: &[OsString]) -> io::Result<ExitCode> {
    let [owner, own_group, json, program @ ..] = words else { return Ok(Exit::Usage.into()) };
    below::adopt_orphans();
    let mut end_everything = signal(SignalKind::user_defined1())?;
    let mut asked_to_end = signal(SignalKind::terminate())?;
    // A terminal sends these to the program, too.
    let _ignored = outlive(&[SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()])?;
    if !owner_lives(owner) {
        return Ok(Exit::Failed.into());
    }
    let mut guarded = match Guarded::start(program, own_group == "yes", Stdio::inherit(), Vec::new()) {
        Ok((guarded, _stdin)) => guarded,
        Err(error) => return Ok(not_started(program, &error, json == "yes")),
    };
    let (in_terminal, mut asked) = (own_group != "yes", false);
    let end = loop {
        tokio::select! {
            end = guarded.ended() => break end,
            _ = asked_to_end.recv() => {
                asked = true;
                guarded.signal(Signal::SIGTERM);
            }
            _ = end_everything.recv() => {
                guarded.signal(Signal::SIGKILL);
                below::end_all().await;
                break End::Signaled(Signal::SIGKILL as i32);
            }
        }
    };
    // A terminal that closes, or Ctrl-C in it, ends the program a moment before the guard hears of it.
    if in_terminal && !asked {
        tokio::select! {
            _ = end_everything.recv() => below::end_all().await,
            _ = asked_to_end.recv() => asked = true,
            () = time::sleep(NEWS_OF_THE_OWNER) => {}
        }
    }
    if asked {
        if in_terminal {
            below::signal_all(Signal::SIGTERM); // there the program alone was told
        }
        tokio::select! {
            () = guarded.all_ended() => {}
            _ = end_everything.recv() => below::end_all().await,
            () = time::sleep(GRACE) => below::end_all().await,
        }
    }
    Ok(ExitCode::from(code_of(end)))
}

/// Asks the system for SIGUSR1 at the owner's end, and looks whether it had ended before.
fn owner_lives(owner: &OsString) -> bool {
    #[cfg(target_os = "linux")]
    if nix::sys::prctl::set_pdeathsig(Signal::SIGUSR1).is_err() {
        return false;
    }
    owner.to_str() == Some(nix::unistd::getppid().to_string().as_str())
}

fn not_started(program: &[OsString], error: &io::Error, json: bool) -> ExitCode {
    let name = program.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let failure = Failure::usage("program_not_started", format!("the program '{name}' cannot be started: {error}")).field("cmd");
    failure.report(&Output::new(json));
    failure.exit.into()
}

/// What a shell would say.
fn code_of(end: End) -> u8 {
    let code = match end {
        End::Exited(code) => code,
        End::Signaled(signal) => 128 + signal,
    };
    u8::try_from(code).unwrap_or(1)
}
