//! Exit codes: the same for every command, so that a script can tell what to do next. docs/exit-codes.md explains them to people.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// The work failed, or an error that is not listed.
    Failed = 1,
    /// The command line or the input is wrong.
    Usage = 2,
    /// Not found, or nothing matched.
    NotFound = 3,
    /// Not now: held, denied, overloaded, timed out.
    NotNow = 4,
    /// Lost: no longer ours, or another's.
    Lost = 5,
    /// A duplicate; nothing new was done.
    Duplicate = 6,
    /// The store or the server cannot be reached.
    Unreachable = 7,
    /// The server stopped because the disk failed.
    DiskFailed = 74,
    /// The server does not start with this configuration.
    RefusedConfiguration = 78,
    /// The person at the keyboard pressed Ctrl-C, as shells count it.
    Interrupted = 130,
}

/// The part of `towpath --help` that lists them.
pub(crate) const HELP: &str = "\
Exit codes, the same for every command:
  0  done
  1  the work failed, or an error not listed here
  2  wrong usage or invalid input
  3  not found, or nothing matched
  4  not now: held, denied, overloaded, timed out
  5  lost: no longer ours, or belongs to another
  6  duplicate: nothing new was done
  7  the store or the server cannot be reached
  130  Ctrl-C
lock run: the program's own code, 5 when the lock was lost
doctor: 0 fine, 1 warnings, 2 failures
serve, dev: 74 the disk failed, 78 refused configuration";

impl Exit {
    /// What an error of the API means for the exit code. The code decides where a status has two meanings.
    pub(crate) fn of_error(status: u16, code: &str) -> Self {
        match (status, code) {
            (_, "idempotency_conflict" | "reference_conflict") => Self::Usage, // the same key for something else: only another key helps
            (
                _,
                "no_workers" | "overloaded" | "overloaded_server" | "rate_limited" | "call_timed_out" | "lock_held" | "lock_queue_full",
            ) => Self::NotNow,
            (_, "store_unknown") => Self::Unreachable,
            (_, "call_failed" | "call_cancelled") => Self::Failed,
            (409, code) if code.contains("in_use") => Self::NotNow,
            (400 | 401 | 403 | 405 | 411 | 413 | 414 | 415 | 421 | 422 | 431, _) => Self::Usage,
            (404 | 410, _) => Self::NotFound,
            (409 | 412, _) => Self::Lost,
            (408 | 425 | 429 | 504, _) => Self::NotNow,
            (502 | 503 | 507, _) => Self::Unreachable,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_in_the_help_and_in_the_documentation() {
        let documentation = include_str!("../../../../docs/exit-codes.md");
        let all = [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::NotFound,
            Exit::NotNow,
            Exit::Lost,
            Exit::Duplicate,
            Exit::Unreachable,
            Exit::DiskFailed,
            Exit::RefusedConfiguration,
            Exit::Interrupted,
        ];
        for code in all.map(|exit| exit as u8) {
            assert!(documentation.contains(&format!("\n| {code} |")), "docs/exit-codes.md lacks {code}");
            assert!(HELP.contains(&format!(" {code} ")), "the help lacks {code}");
        }
    }

    #[test]
    fn every_kind_of_api_error_has_its_exit_code() {
        let cases = [
            (400, "invalid_json", Exit::Usage),
            (401, "unauthorized", Exit::Usage),
            (404, "function_not_found", Exit::NotFound),
            (422, "idempotency_conflict", Exit::Usage),
            (409, "reference_conflict", Exit::Usage),
            (409, "run_closed", Exit::Lost),
            (429, "mailbox_full", Exit::NotNow),
            (409, "config_conflict", Exit::Lost),
            (409, "function_in_use", Exit::NotNow),
            (409, "lock_held", Exit::NotNow),
            (409, "lock_lost", Exit::Lost),
            (413, "payload_too_large", Exit::Usage),
            (422, "invalid_params", Exit::Usage),
            (424, "call_failed", Exit::Failed),
            (429, "overloaded", Exit::NotNow),
            (500, "internal", Exit::Failed),
            (503, "no_workers", Exit::NotNow),
            (503, "store_unavailable", Exit::Unreachable),
            (503, "overloaded_server", Exit::NotNow),
            (504, "call_timed_out", Exit::NotNow),
            (504, "store_unknown", Exit::Unreachable),
            (507, "store_full", Exit::Unreachable),
        ];
        for (status, code, exit) in cases {
            assert_eq!(Exit::of_error(status, code), exit, "{status} {code}");
        }
    }
}
