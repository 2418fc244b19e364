//! What was found, against what is aimed at. For information: nothing fails because of it.

use serde_json::{Value, json};

use super::batches::BatchRow;
use super::growth::Growth;
use super::keys::KeysRow;
use super::lateness::Lateness;
use super::limits::LimitRow;
use super::lists::ListsRow;
use super::report::{Report, Row};
use super::runs::Runs;
use super::series::{LEVEL_PERCENT, Series};
use super::slow::Longest;
use super::{MANY, functions};

/// How many times as many calls may be kept as the rate and the retention explain.
const KEPT_AIM: f64 = 1.5;

/// What the first version aims at.
#[derive(Clone, Copy)]
pub(super) enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

impl Aim {
    pub(super) fn met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Self::AtLeast(bound) => format!(">= {bound}"),
            Self::AtMost(bound) => format!("<= {bound}"),
        }
    }
}

/// One figure and its aim.
pub(super) struct Finding {
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) aim: Aim,
}

impl Finding {
    pub(super) fn new(what: impl Into<String>, value: f64, unit: &'static str, aim: Aim) -> Self {
        Self { what: what.into(), value, unit, aim }
    }

    pub(super) fn met(&self) -> bool {
        self.aim.met(self.value)
    }

    pub(super) fn json(&self) -> Value {
        let rounded = (self.value * 1000.0).round() / 1000.0;
        json!({ "what": self.what, "value": rounded, "unit": self.unit, "aim": self.aim.text(), "met": self.met() })
    }
}

/// All that can be said about what was measured.
pub(super) fn findings(report: &Report) -> Vec<Finding> {
    let mut found = Vec::new();
    for row in &report.rows {
        found.extend(throughput(row, report.store.aims()[0]));
        found.extend(latency(row));
        found.extend(memory(row));
        found.extend(kept(row));
        found.extend(row.lateness.as_ref().map(Lateness::findings).unwrap_or_default());
    }
    found.extend(report.limits.iter().filter_map(LimitRow::finding));
    found.extend(report.batches.iter().filter_map(BatchRow::finding));
    found.extend(report.keys.as_ref().map(KeysRow::findings).unwrap_or_default());
    found.extend(report.lists.as_ref().map(ListsRow::findings).unwrap_or_default());
    found.extend(report.runs.as_ref().map(Runs::findings).unwrap_or_default());
    if let Some(paced) = &report.paced {
        found.push(Finding::new("p99 / p50 at half of the most calls/s", paced.spread(), "x", Aim::AtMost(10.0)));
    }
    found.extend(functions::findings(&report.functions));
    let mut grown = |what: &str, growth: &Option<Growth>| {
        if let Some(growth) = growth {
            let what = format!("cost of a call, {} -> {} {what}", growth.from, growth.to);
            found.push(Finding::new(what, growth.ratio(), "x", Aim::AtMost(2.0)));
        }
    };
    grown("calls waiting", &report.backlog);
    if let Some(locks) = &report.locks {
        found.extend(locks.findings());
    }
    if let Some(idle) = &report.idle {
        found.push(Finding::new("memory of an idle server", idle.rss_bytes as f64 / 1e6, "MB", Aim::AtMost(40.0)));
        if let Some(commands) = idle.commands_per_second {
            found.push(Finding::new("store commands of an idle server", commands, "per s", Aim::AtMost(4.0)));
        }
    }
    found.extend(report.longest_script.as_ref().and_then(Longest::finding));
    if let Some(queued) = &report.queued {
        let what = format!("memory a server takes for {} calls waiting", queued.calls);
        found.push(Finding::new(what, queued.rss_growth_bytes as f64 / 1e6, "MB", Aim::AtMost(20.0)));
    }
    found
}

/// The aim is about many calls in flight; few show latency.
fn throughput(row: &Row, aim: f64) -> Option<Finding> {
    let what = format!("calls/s against the floor, {} in flight", row.in_flight);
    (row.in_flight >= MANY).then(|| Finding::new(what, row.ratio(), "x", Aim::AtLeast(aim)))
}

/// The round with the most growth counts.
fn memory(row: &Row) -> Option<Finding> {
    let growth = row.series.iter().filter_map(Series::growth_percent).reduce(f64::max)?;
    let what = format!("growth of memory in the second half, {} in flight", row.in_flight);
    Some(Finding::new(what, growth, "%", Aim::AtMost(LEVEL_PERCENT)))
}

/// Calls that are kept longer than they ask for are paid for later.
fn kept(row: &Row) -> Option<Finding> {
    let ratio = row.series.iter().filter_map(Series::kept_ratio).reduce(f64::max)?;
    let what = format!("kept calls against rate x retention, {} in flight", row.in_flight);
    Some(Finding::new(what, ratio, "x", Aim::AtMost(KEPT_AIM)))
}

fn latency(row: &Row) -> Option<Finding> {
    let floor = row.floor.latency?;
    let ratio = row.measured.p50.as_secs_f64() / floor.p50.as_secs_f64().max(1e-6);
    Some(Finding::new("p50 of one call against the floor", ratio, "x", Aim::AtMost(2.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_met_on_its_own_side_only() {
        assert!(Aim::AtLeast(0.4).met(0.4) && Aim::AtLeast(0.4).met(0.9) && !Aim::AtLeast(0.4).met(0.39));
        assert!(Aim::AtMost(2.0).met(2.0) && Aim::AtMost(2.0).met(0.1) && !Aim::AtMost(2.0).met(2.01));
    }
}
