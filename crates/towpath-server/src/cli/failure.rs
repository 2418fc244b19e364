//! Why a command did not do what it was asked: an exit code, and the one error body that the API has too.

use clap::builder::styling::{AnsiColor, Style};
use towpath_server::http::wire::error::{Effect, ErrorBody, ErrorDetail};

use super::exit::Exit;
use super::output::Output;

/// A command that did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the process exits with.
    pub(crate) exit: Exit,
    /// What is shown; boxed because results are passed around a lot and failures are rare.
    pub(crate) detail: Box<ErrorDetail>,
}

impl Failure {
    /// Something went wrong on this side: certainly nothing happened.
    pub(crate) fn new(exit: Exit, code: &str, message: impl Into<String>) -> Self {
        let (code, message) = (code.to_owned(), message.into());
        let detail = ErrorDetail { code, message, field: None, hint: None, details: None, effect: Effect::None, request_id: String::new() };
        Self { exit, detail: Box::new(detail) }
    }

    /// A store that could not be opened. What it says is meant for processes that run; one that could not start ends.
    pub(crate) fn not_opened(exit: Exit, code: &str, said: &str) -> Self {
        let cause = said.split("work goes on by itself").next().unwrap_or(said).trim_end_matches([' ', ';', ',']);
        let failure = Self::new(exit, code, cause);
        if cause.len() == said.len() {
            failure
        } else {
            failure.hint("start it again when the store is back; `towpath doctor` looks for the cause")
        }
    }

    /// The input is wrong.
    pub(crate) fn usage(code: &str, message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, code, message)
    }

    /// Adds what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.detail.hint = Some(hint.into());
        self
    }

    /// Names the argument that has to change.
    pub(crate) fn field(mut self, field: &str) -> Self {
        self.detail.field = Some(field.to_owned());
        self
    }

    /// Adds what a program may want to know.
    pub(crate) fn details(mut self, details: &serde_json::Value) -> Self {
        self.detail.details = serde_json::value::to_raw_value(details).ok();
        self
    }

    /// Says that something may have happened.
    pub(crate) fn effect_unknown(mut self) -> Self {
        self.detail.effect = Effect::Unknown;
        self
    }

    /// Shows it on standard error: the error body with `--json`, sentences otherwise.
    pub(crate) fn report(&self, out: &Output) {
        if out.is_json() {
            let body = ErrorBody { error: (*self.detail).clone() };
            out.error_line(&serde_json::to_string(&body).unwrap_or_else(|_| self.detail.message.clone()));
            return;
        }
        let red: Style = AnsiColor::Red.on_default().bold();
        out.error_line(&format!("{red}error:{red:#} {}", self.detail.message));
        if let Some(hint) = &self.detail.hint {
            let cyan: Style = AnsiColor::Cyan.on_default().bold();
            for (line, label) in hint.lines().zip(std::iter::once("hint:").chain(std::iter::repeat("     "))) {
                out.error_line(&format!("{cyan}{label}{cyan:#}  {line}"));
            }
        }
    }
}
