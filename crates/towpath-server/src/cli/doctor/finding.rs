//! What the doctor found, and what to do about it.

use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;

use crate::cli::exit::Exit;
use crate::cli::output::Output;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Info,
    /// Works, but something should be done.
    Warn,
    /// Does not work, or does not keep its promises.
    Fail,
}

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// Which check.
    pub(crate) check: &'static str,
    /// How bad it is.
    pub(crate) level: Level,
    /// What was seen.
    pub(crate) message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, message: message.into(), advice: None }
    }

    pub(crate) fn info(check: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Info, message: message.into(), advice: Some(advice.into()) }
    }

    pub(crate) fn warn(check: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Warn, message: message.into(), advice: Some(advice.into()) }
    }

    pub(crate) fn fail(check: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Fail, message: message.into(), advice: Some(advice.into()) }
    }
}

/// All findings, and first of all what a power cut would cost.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// `ok`, `warnings` or `failures`.
    status: &'static str,
    /// What is lost when the power goes, in words.
    power_cut: &'static str,
    checks: Vec<Finding>,
}

impl Report {
    pub(crate) fn new(power_cut: &'static str, checks: Vec<Finding>) -> Self {
        let status = match worst(&checks) {
            Level::Ok | Level::Info => "ok",
            Level::Warn => "warnings",
            Level::Fail => "failures",
        };
        Self { status, power_cut, checks }
    }

    /// 0 fine, 1 warnings, 2 failures.
    pub(crate) fn exit(&self) -> Exit {
        match worst(&self.checks) {
            Level::Ok | Level::Info => Exit::Done,
            Level::Warn => Exit::Failed,
            Level::Fail => Exit::Usage,
        }
    }

    pub(crate) fn show(&self, out: Output) {
        if out.is_json() {
            return out.json(self);
        }
        out.line(&format!("power cut: {}", self.power_cut));
        let width = self.checks.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
        for finding in &self.checks {
            let (word, style) = label(finding.level);
            out.line(&format!("{style}{word}{style:#}  {:width$}  {}", finding.check, finding.message));
            if let Some(advice) = &finding.advice {
                out.line(&format!("      {:width$}  → {advice}", ""));
            }
        }
    }
}

fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

fn label(level: Level) -> (&'static str, Style) {
    match level {
        Level::Ok => ("ok  ", AnsiColor::Green.on_default()),
        Level::Info => ("info", AnsiColor::Cyan.on_default()),
        Level::Warn => ("warn", AnsiColor::Yellow.on_default().bold()),
        Level::Fail => ("FAIL", AnsiColor::Red.on_default().bold()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides_the_exit_code() {
        let exit = |checks: Vec<Finding>| Report::new("", checks).exit() as u8;
        assert_eq!(exit(vec![Finding::ok("a", ""), Finding::info("b", "", "")]), 0);
        assert_eq!(exit(vec![Finding::warn("a", "", ""), Finding::ok("b", "")]), 1);
        assert_eq!(exit(vec![Finding::warn("a", "", ""), Finding::fail("b", "", "")]), 2);
    }
}
