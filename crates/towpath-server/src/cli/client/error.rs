//! Why a request got no good answer, named by what the caller can do next.

use std::time::Duration;

use towpath_server::http::wire::error::{Effect, ErrorBody, ErrorDetail};

use crate::cli::exit::Exit;
use crate::cli::failure::Failure;

/// A request without a good answer.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// There was no connection, so certainly nothing happened.
    Unreachable {
        /// Whom we wanted to reach.
        server: String,
        /// What the system said.
        cause: String,
    },
    /// The connection ended, or took too long, before the answer came. It may have happened.
    Cut {
        /// Who did not answer.
        server: String,
        /// What the system said.
        cause: String,
    },
    /// The server said no, and why.
    Refused {
        /// The status of the answer.
        status: u16,
        /// The error body.
        detail: Box<ErrorDetail>,
        /// How long to wait before trying again, if the server said so.
        retry_after: Option<Duration>,
    },
    /// Something answered that does not speak as a Towpath server.
    Garbled {
        /// Who answered.
        server: String,
        /// The status of the answer.
        status: u16,
        /// What was wrong with it.
        cause: String,
    },
}

impl RequestError {
    /// The error in an answer's body, or a complaint about it.
    pub(super) fn from_answer(server: &str, status: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        match serde_json::from_slice::<ErrorBody>(body) {
            Ok(body) => Self::Refused { status, detail: Box::new(body.error), retry_after },
            Err(_) => Self::Garbled { server: server.to_owned(), status, cause: "it has no error body".to_owned() },
        }
    }

    /// Whether the same request may work later: the trouble is the network's or the server's, not the request's.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Cut { .. } => true,
            Self::Refused { status, .. } | Self::Garbled { status, .. } => matches!(status, 408 | 425 | 429) || *status >= 500,
        }
    }

    /// The code with which the server refused it; `None` when no server answered.
    pub(crate) fn refused_with(&self) -> Option<&str> {
        match self {
            Self::Refused { detail, .. } => Some(&detail.code),
            Self::Unreachable { .. } | Self::Cut { .. } | Self::Garbled { .. } => None,
        }
    }

    /// Whether the server's user of the store lacks a right.
    pub(crate) fn is_not_allowed_by_store(&self) -> bool {
        matches!(self, Self::Refused { detail, .. } if detail.code == "store_not_allowed")
    }

    /// Whether it may have happened although no good answer came.
    pub(crate) fn may_have_happened(&self) -> bool {
        match self {
            Self::Unreachable { .. } => false,
            Self::Cut { .. } | Self::Garbled { .. } => true,
            Self::Refused { detail, .. } => detail.effect == Effect::Unknown,
        }
    }

    /// Whether the thing asked for does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }

    /// How long the server wants to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// One sentence, for lines that say why something is tried again.
    pub(crate) fn brief(&self) -> String {
        match self {
            Self::Unreachable { server, cause } => format!("no server answers at {server} ({cause})"),
            Self::Cut { server, cause } => format!("the connection to {server} was cut ({cause})"),
            Self::Refused { detail, .. } => format!("{} ({})", detail.message, detail.code),
            Self::Garbled { server, status, cause } => {
                format!("what answers at {server} is no Towpath server: status {status}, {cause}")
            }
        }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let brief = error.brief();
        match error {
            RequestError::Unreachable { .. } => Self::new(Exit::Unreachable, "server_unreachable", brief)
                .hint("start one with `towpath dev` or `towpath serve`,\nor name another with --server URL or TOWPATH_SERVER"),
            RequestError::Cut { .. } => Self::new(Exit::Unreachable, "connection_cut", brief)
                .hint("look whether it happened, or repeat it with the same id")
                .effect_unknown(),
            RequestError::Garbled { .. } => Self::new(Exit::Unreachable, "not_a_towpath_server", brief)
                .hint("check the address in --server or TOWPATH_SERVER, and proxies in between")
                .effect_unknown(),
            RequestError::Refused { status, mut detail, .. } => {
                detail.hint = command_line_hint(&detail).or(detail.hint);
                Self { exit: Exit::of_error(status, &detail.code), detail }
            }
        }
    }
}

/// The next step in commands, where the server's own hint speaks of paths and headers.
fn command_line_hint(detail: &ErrorDetail) -> Option<String> {
    let details = |name: &str| {
        let details: serde_json::Value = serde_json::from_str(detail.details.as_ref()?.get()).ok()?;
        details.get(name).cloned()
    };
    let closest_is_known = || details("closest").is_some_and(|closest| closest.as_array().is_some_and(|names| !names.is_empty()));
    match detail.code.as_str() {
        "run_not_found" => Some("`towpath run ls` lists what there is".to_owned()),
        "workflow_not_found" => Some("write the version behind an @: `towpath run start NAME@VERSION`".to_owned()),
        "reference_conflict" => {
            let id = details("run_id").and_then(|id| id.as_str().map(str::to_owned)).unwrap_or_else(|| "ID".to_owned());
            Some(format!("see it with `towpath run show {id}`; use another --reference, or --return-existing"))
        }
        "unauthorized" => Some("give the server's key with --api-key or TOWPATH_API_KEY".to_owned()),
        "function_not_found" if !closest_is_known() => {
            Some("`towpath functions` lists what is known; serve it yourself with `towpath worker NAME --exec CMD`".to_owned())
        }
        "call_failed" if details("dead").is_some() => {
            let id = details("call_id").and_then(|id| id.as_str().map(str::to_owned)).unwrap_or_else(|| "ID".to_owned());
            Some(format!("it is kept as a dead letter: `towpath dlq show {id}`, and once the cause is gone `towpath dlq replay {id}`"))
        }
        "batcher_not_found" => {
            let name = details("batcher").and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_else(|| "NAME".to_owned());
            Some(format!(
                "make it with `towpath batch settings '{name}' --set debounce_seconds=5`; `towpath batch ls` lists the known ones"
            ))
        }
        "no_workers" => Some("start a worker, or leave out --no-wait-for-workers to wait for one".to_owned()),
        _ => None,
    }
}
