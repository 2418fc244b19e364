//! What a program's ending means for its call.

use std::os::unix::process::ExitStatusExt;

use nix::sys::signal::Signal;
use towpath_server::http::wire::workers::{ResultBody, ResultError};

use super::program::{Ending, Exited, Stop};
use super::streams::{STDOUT_BYTES_MAX, json_or_text};

/// The exit code that says "the input is wrong": the call is not tried again (`EX_DATAERR` of sysexits.h).
const EXIT_FINAL: i32 = 65;

/// The result to send, or `None` when the call is no longer ours to answer.
pub(crate) fn of_ending(delivery_id: &str, ending: Ending) -> Option<ResultBody> {
    let error = match ending {
        Ending::Exited(exited) if exited.status.success() => return Some(succeeded(delivery_id, &exited)),
        Ending::Exited(exited) => exit_error(&exited),
        Ending::NotStarted(error) => retryable("cannot_start", format!("the program cannot be started: {error}")),
        Ending::Stopped(Stop::Cancelled) => last("cancelled", "the program was stopped because the call was cancelled".to_owned()),
        Ending::Stopped(Stop::TooMuchOutput) => last(
            "output_too_large",
            format!("the program wrote more than {STDOUT_BYTES_MAX} bytes to standard output; write less, or a reference"),
        ),
        // At its deadline the store ends the call by itself; a lost call is another's; one that is handed back goes with the worker.
        Ending::Stopped(Stop::Deadline | Stop::Lost | Stop::HandBack) => return None,
    };
    Some(ResultBody { delivery_id: delivery_id.to_owned(), success: false, data: None, error: Some(error) })
}

fn succeeded(delivery_id: &str, exited: &Exited) -> ResultBody {
    let data = json_or_text(&exited.stdout);
    ResultBody { delivery_id: delivery_id.to_owned(), success: true, data: Some(data), error: None }
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
        let error = of_ending("1-x", ending).and_then(|result| result.error).expect("the ending is an error");
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
            assert!(of_ending("1-x", Ending::Stopped(stop)).is_none(), "{stop:?}");
        }
        let (code, _, retryable) = error_of(Ending::Stopped(Stop::Cancelled));
        assert_eq!((code.as_str(), retryable), ("cancelled", false));
        assert!(of_ending("1-x", ended(0, "")).is_some_and(|result| result.success));
    }
}
