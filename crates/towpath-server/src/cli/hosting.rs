//! Running a server in this process until a signal says stop: what `dev` and `serve` share.

use std::net::SocketAddr;

use towpath_server::logging::{self, LogFormat};
use towpath_server::serve::{self, ServeError};
use towpath_server::settings::Settings;

use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::signals::Signals;

/// Runs a server. `announce` is told where it listens as soon as it does.
pub(crate) async fn run(settings: Settings, out: Output, announce: impl FnOnce(SocketAddr)) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let running = tokio::select! {
        started = serve::start(settings) => started.map_err(|error| failure(&error))?,
        () = signals.next() => return Ok(Exit::Interrupted),
    };
    announce(running.addr());
    let signal = tokio::select! {
        signal = signals.next_named() => signal,
        cause = running.towpath().broken() => return Err(failure(&ServeError::Broken(cause))),
    };
    out.note(&format!("stopping because of {signal}: what is under way may finish first; once more to stop now"));
    tokio::select! {
        () = running.stop() => {}
        () = signals.next() => out.note("stopped at once; what was accepted is in the store"),
    }
    Ok(Exit::Done)
}

/// Begins to log to standard error. `TOWPATH_LOG` has the form of `RUST_LOG` and overrides the default.
pub(crate) fn begin_logging(format: LogFormat, default: &str) -> Result<(), Failure> {
    let filter = std::env::var("TOWPATH_LOG").unwrap_or_else(|_| default.to_owned());
    logging::begin(format, &filter).map_err(|error| {
        Failure::new(Exit::RefusedConfiguration, "invalid_log_filter", format!("TOWPATH_LOG is '{filter}', which cannot be read: {error}"))
            .hint("write for example TOWPATH_LOG=info or TOWPATH_LOG=warn,towpath_server=debug")
    })
}

fn failure(error: &ServeError) -> Failure {
    let (exit, code) = match error.exit_code() {
        78 => (Exit::RefusedConfiguration, "refused_configuration"),
        74 => (Exit::DiskFailed, "store_broken"),
        7 => (Exit::Unreachable, "store_unavailable"),
        _ => (Exit::Failed, "server_failed"),
    };
    let failure = Failure::not_opened(exit, code, &error.to_string());
    match exit {
        _ if failure.detail.hint.is_some() => failure,
        Exit::DiskFailed => failure.hint("check the disk and its log; what was accepted is kept, start again when it is well"),
        Exit::Unreachable => failure.hint("`towpath doctor` looks for the cause"),
        _ => failure,
    }
}
