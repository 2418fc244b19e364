//! The doctor's report: all findings, as people or programs read them.

use std::collections::HashSet;

use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;
use towpath_server::doctor::{Finding, Level};

use crate::cli::exit::Exit;
use crate::cli::output::Output;

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
    /// One verdict per check: where something is wrong, that part of it is fine is left out.
    pub(crate) fn new(power_cut: &'static str, mut checks: Vec<Finding>) -> Self {
        let is_wrong = |finding: &&Finding| matches!(finding.level, Level::Warn | Level::Fail);
        let wrong: HashSet<String> = checks.iter().filter(is_wrong).map(|finding| finding.check.clone()).collect();
        checks.retain(|finding| finding.level != Level::Ok || !wrong.contains(&finding.check));
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
    fn a_check_that_found_something_wrong_is_not_also_fine() {
        let findings = vec![Finding::ok("a", ""), Finding::fail("a", "", ""), Finding::info("a", "", ""), Finding::ok("b", "")];
        let levels: Vec<Level> = Report::new("", findings).checks.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Fail, Level::Info, Level::Ok]);
    }

    #[test]
    fn the_worst_finding_decides_the_exit_code() {
        let exit = |checks: Vec<Finding>| Report::new("", checks).exit() as u8;
        assert_eq!(exit(vec![Finding::ok("a", ""), Finding::info("b", "", "")]), 0);
        assert_eq!(exit(vec![Finding::warn("a", "", ""), Finding::ok("b", "")]), 1);
        assert_eq!(exit(vec![Finding::warn("a", "", ""), Finding::fail("b", "", "")]), 2);
    }
}
