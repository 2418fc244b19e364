//! What a program's ending means for its call.

use std::os::unix::process::ExitStatusExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use nix::sys::signal::Signal;
use towpath_server::http::wire::Json;
use towpath_server::http::wire::workers::{ResultBody, ResultError};

use super::program::{Ending, Exited, Stop};
use super::streams::{STDOUT_BYTES_MAX, json_or_text, json_string};

/// The exit code that says "the input is wrong": the call is not tried again (`EX_DATAERR` of sysexits.h).
const EXIT_FINAL: i32 = 65;

/// What a program's standard output becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputForm {
    /// JSON if it is JSON, a string otherwise; it must be UTF-8
    Text,
    /// A string in base64, of whatever bytes came
    Base64,
}

/// The result to send, or `None` when the call is no longer ours to answer.
pub(crate) fn of_ending(delivery_id: &str, ending: Ending, form: OutputForm) -> Option<ResultBody> {
    let error = match ending {
        Ending::Exited(exited) if exited.status.success() => match data_of(&exited.stdout, form) {
            Ok(data) => return Some(ResultBody { delivery_id: delivery_id.to_owned(), success: true, data: Some(data), error: None }),
            Err(error) => error,
        },
        Ending::Exited(exited) => exit_error(&exited),
        Ending::NotStarted(error) => retryable("cannot_start", format!("the program cannot be started: {error}")),
        Ending::Unguarded(error) => retryable("program_unwatched", format!("the program was stopped because its guard was gone: {error}")),
        Ending::Stopped(Stop::Cancelled) => last("cancelled", "the program was stopped because the call was cancelled".to_owned()),
        Ending::Stopped(Stop::TooMuchOutput) => too_large(),
        // At its deadline the store ends the call by itself; a lost call is another's; one that is handed back goes with the worker.
        Ending::Stopped(Stop::Deadline | Stop::Lost | Stop::HandBack) => return None,
    };
    Some(ResultBody { delivery_id: delivery_id.to_owned(), success: false, data: None, error: Some(error) })
}

fn data_of(stdout: &[u8], form: OutputForm) -> Result<Json, ResultError> {
    match form {
        OutputForm::Text => std::str::from_utf8(stdout).map(json_or_text).map_err(|error| not_text(error.valid_up_to())),
        OutputForm::Base64 => {
            let text = STANDARD.encode(stdout);
            if text.len() > STDOUT_BYTES_MAX { Err(too_large()) } else { Ok(json_string(&text)) }
        }
    }
}

/// The same output would come again, so the call is not tried again.
fn not_text(from_byte: usize) -> ResultError {
    let message = format!(
        "the program's standard output is not UTF-8 from byte {from_byte} on: start its worker with `--output base64` to get the bytes \
         as base64, or let the program write text or JSON"
    );
    last("output_not_utf8", message)
}

fn too_large() -> ResultError {
    last(
        "output_too_large",
        format!(
            "the program wrote more to standard output than a result may hold, {STDOUT_BYTES_MAX} bytes (of base64, if that was asked \
             for); write less, or a reference"
        ),
    )
}

/// A result for one that the server refused as such.
pub(crate) fn refused(delivery_id: &str, why: &str) -> ResultBody {
    let error = last("result_refused", format!("the server did not take the program's result: {why}"));
    ResultBody { delivery_id: delivery_id.to_owned(), success: false, data: None, error: Some(error) }
}

fn exit_error(exited: &Exited) -> ResultError {
    let said = |otherwise: String| if exited.stderr_tail.is_empty() { otherwise } else { exited.stderr_tail.clone() };
    match (exited.status.code(), exited.status.signal()) {
        (Some(EXIT_FINAL), _) => last("exit_65", said("the program ended with exit code 65, which means: do not try again".to_owned())),
        (Some(code), _) => {
            retryable(&format!("exit_{code}"), said(format!("the program ended with exit code {code} and wrote nothing to standard error")))
        }
        (None, signal) => {
            let number = signal.unwrap_or_default();
            let name = Signal::try_from(number).map_or("unknown", Signal::as_str);
            let tail = if exited.stderr_tail.is_empty() { String::new() } else { format!(": {}", exited.stderr_tail) };
            retryable("killed_by_signal", format!("the program was ended by signal {number} ({name}){tail}"))
        }
    }
}

fn retryable(code: &str, message: String) -> ResultError {
    ResultError { code: Some(code.to_owned()), message, details: None, retryable: None, retry_after_ms: None }
}

fn last(code: &str, message: String) -> ResultError {
    ResultError { retryable: Some(false), ..retryable(code, message) }
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    fn ended(raw_status: i32, stderr: &str) -> Ending {
        Ending::Exited(Exited { status: ExitStatus::from_raw(raw_status), stdout: b"out".to_vec(), stderr_tail: stderr.to_owned() })
    }

    fn error_of(ending: Ending) -> (String, String, bool) {
        let error = of_ending("1-x", ending, OutputForm::Text).and_then(|result| result.error).expect("the ending is an error");
        (error.code.unwrap_or_default(), error.message, error.retryable.unwrap_or(true))
    }

    #[test]
    fn exit_codes_and_signals_become_error_codes() {
        assert_eq!(error_of(ended(3 << 8, "no such order")), ("exit_3".to_owned(), "no such order".to_owned(), true));
        let (code, message, retryable) = error_of(ended(65 << 8, ""));
        assert_eq!((code.as_str(), retryable), ("exit_65", false));
        assert!(message.contains("do not try again"));
        let (code, message, retryable) = error_of(ended(11, "boom"));
        assert_eq!((code.as_str(), retryable), ("killed_by_signal", true));
        assert_eq!(message, "the program was ended by signal 11 (SIGSEGV): boom");
    }

    #[test]
    fn only_a_call_that_is_still_ours_is_answered() {
        for stop in [Stop::Deadline, Stop::Lost, Stop::HandBack] {
            assert!(of_ending("1-x", Ending::Stopped(stop), OutputForm::Text).is_none(), "{stop:?}");
        }
        let (code, _, retryable) = error_of(Ending::Stopped(Stop::Cancelled));
        assert_eq!((code.as_str(), retryable), ("cancelled", false));
        assert!(of_ending("1-x", ended(0, ""), OutputForm::Text).is_some_and(|result| result.success));
    }

    #[test]
    fn bytes_that_are_no_text_are_an_error_or_base64() {
        let of = |bytes: &[u8], form| data_of(bytes, form).map(|data| data.get().to_owned()).map_err(|error| (error.code, error.retryable));
        let refused = |code: &str| Err((Some(code.to_owned()), Some(false)));
        assert_eq!(of(b"\xFFx", OutputForm::Text), refused("output_not_utf8"));
        assert_eq!(of(b"{\"a\":\"\xC3\"}", OutputForm::Text), refused("output_not_utf8"));
        assert_eq!(of(b"\xFFx", OutputForm::Base64), Ok(r#""/3g=""#.to_owned()));
        assert_eq!(of(b"", OutputForm::Base64), Ok(r#""""#.to_owned()));
        assert_eq!(of(&vec![0; STDOUT_BYTES_MAX], OutputForm::Base64), refused("output_too_large"));
    }
}
