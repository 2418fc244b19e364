//! What was measured, as a table or as JSON.

use std::time::Duration;

use comfy_table::{Cell, CellAlignment, Color};
use serde_json::{Value, json};

use super::batches::{self, BatchRow};
use super::findings::{Finding, findings};
use super::floor::FloorMeasured;
use super::functions::{self, FunctionsRow};
use super::growth::Growth;
use super::keys::KeysRow;
use super::lateness::Lateness;
use super::limits::{self, LimitRow};
use super::lists::ListsRow;
use super::load::Measured;
use super::locks::Locks;
use super::micros;
use super::pace::Paced;
use super::runs::Runs;
use super::series::Series;
use super::slow::Longest;
use crate::cli::output::{Output, table};

/// What there is to tell. What was not asked for is `None`.
pub(super) struct Report {
    pub(super) machine: String,
    pub(super) store: StoreFacts,
    pub(super) rows: Vec<Row>,
    pub(super) paced: Option<Paced>,
    pub(super) functions: Vec<FunctionsRow>,
    pub(super) backlog: Option<Growth>,
    pub(super) locks: Option<Locks>,
    pub(super) idle: Option<Idle>,
    pub(super) queued: Option<Queued>,
    pub(super) limits: Vec<LimitRow>,
    pub(super) batches: Vec<BatchRow>,
    pub(super) keys: Option<KeysRow>,
    pub(super) lists: Option<ListsRow>,
    pub(super) runs: Option<Runs>,
    /// On a Redis only.
    pub(super) longest_script: Option<Longest>,
    /// Measured too briefly to be more than a hint.
    pub(super) hint: bool,
}

pub(super) struct StoreFacts {
    pub(super) kind: &'static str,
    pub(super) durability: &'static str,
    /// Of the server, if there is one.
    pub(super) version: Option<String>,
}

impl StoreFacts {
    /// For headings.
    pub(super) fn title(&self) -> String {
        let version = self.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
        let name = if self.is_redis() { "Redis" } else { "the embedded store" };
        format!("{name}{version}, {}", self.durability)
    }

    /// What the floor is made of.
    pub(super) fn bare(&self) -> &'static str {
        if self.is_redis() { "bare Redis" } else { "bare SQLite" }
    }

    /// What part of the calls/s of the floor is aimed at: first, and later.
    pub(super) fn aims(&self) -> [f64; 2] {
        if self.is_redis() { [0.35, 0.6] } else { [0.4, 0.7] }
    }

    fn is_redis(&self) -> bool {
        self.kind == "redis"
    }
}

pub(super) struct Idle {
    pub(super) rss_bytes: u64,
    /// On a server only.
    pub(super) commands_per_second: Option<f64>,
}

/// Calls that wait, while an idle server looks on.
pub(super) struct Queued {
    pub(super) calls: u64,
    pub(super) rss_growth_bytes: u64,
    pub(super) store_bytes_per_call: f64,
}

pub(super) struct Row {
    pub(super) in_flight: u32,
    pub(super) measured: Measured,
    pub(super) floor: FloorMeasured,
    /// Readings over time, for each round of the decisive level.
    pub(super) series: Vec<Series>,
    /// At the decisive level.
    pub(super) lateness: Option<Lateness>,
}

impl Row {
    pub(super) fn ratio(&self) -> f64 {
        self.measured.calls_per_second() / self.floor.calls_per_second
    }

    fn json(&self) -> Value {
        let (measured, floor) = (&self.measured, &self.floor);
        json!({
            "in_flight": self.in_flight,
            "calls": measured.calls,
            "unanswered": measured.unanswered,
            "calls_per_second": measured.calls_per_second().round(),
            "p50_us": micros(measured.p50),
            "p99_us": micros(measured.p99),
            "moves_per_commit": tenths(measured.moves_per_commit),
            "store_cpu_us": measured.store_cpu_us.map(tenths),
            "floor_calls_per_second": floor.calls_per_second.round(),
            "floor_p50_us": floor.latency.map(|latency| micros(latency.p50)),
            "floor_p99_us": floor.latency.map(|latency| micros(latency.p99)),
            "floor_store_cpu_us": floor.store_cpu_us.map(tenths),
            "ratio_to_floor": (self.ratio() * 100.0).round() / 100.0,
            "over_time": self.series.iter().map(Series::json).collect::<Vec<_>>(),
            "lateness": self.lateness.as_ref().map(Lateness::json),
        })
    }

    fn print_over_time(&self, out: Output) {
        self.series.iter().for_each(|series| series.print(out));
        if let Some(lateness) = &self.lateness {
            lateness.print(out);
        }
        if self.measured.unanswered > 0 {
            out.line(&format!("{} calls with {} in flight ended without an answer", self.measured.unanswered, self.in_flight));
        }
    }

    fn cells(&self) -> Vec<String> {
        let ms = |length: Duration| format!("{:.2} ms", length.as_secs_f64() * 1e3);
        let mut cells = vec![self.in_flight.to_string(), format!("{:.0}", self.measured.calls_per_second())];
        cells.extend([ms(self.measured.p50), ms(self.measured.p99)]);
        let bare_calls = format!("{:.0}", self.floor.calls_per_second);
        if let (Some(ours), Some(bare)) = (self.measured.store_cpu_us, self.floor.store_cpu_us) {
            let bare_p50 = self.floor.latency.map_or_else(|| "-".to_owned(), |latency| ms(latency.p50));
            cells.extend([format!("{ours:.1} us"), format!("{bare:.1} us"), bare_calls, bare_p50]);
        } else {
            cells.extend([format!("{:.1}", self.measured.moves_per_commit), bare_calls]);
        }
        cells.push(format!("{:.2}", self.ratio()));
        cells
    }
}

impl Report {
    pub(super) fn print(&self, out: Output) {
        if out.is_json() {
            out.json(&self.json());
            return;
        }
        out.line(&format!("durable calls on {}; {}", self.store.title(), self.machine));
        if self.hint {
            out.line("measured quickly: not in steady state, the figures are only a hint");
        }
        if !self.rows.is_empty() {
            out.line("");
            self.print_rows(out);
            self.rows.iter().for_each(|row| row.print_over_time(out));
        }
        self.print_sentences(out);
        functions::print(out, &self.functions);
        limits::print(out, &self.limits);
        batches::print(out, &self.batches);
        print_findings(out, &findings(self));
    }

    fn print_sentences(&self, out: Output) {
        if self.paced.is_some() || self.backlog.is_some() {
            out.line("");
        }
        if let Some(paced) = &self.paced {
            let (p50, p99) = (paced.p50.as_secs_f64() * 1e3, paced.p99.as_secs_f64() * 1e3);
            out.line(&format!("at a steady {:.0} calls/s: p50 {p50:.2} ms, p99 {p99:.2} ms", paced.calls_per_second));
        }
        if let Some(Growth { from, to, cost_us_from, cost_us_to }) = &self.backlog {
            out.line(&format!("cost of a call, {from} calls waiting: {cost_us_from:.1} us, {to}: {cost_us_to:.1} us"));
        }
        if let Some(Longest::Unknown(cause)) = &self.longest_script {
            out.line(&format!("the longest script is not known: {cause}"));
        }
        if let Some(locks) = &self.locks {
            locks.print(out);
        }
        if let Some(keys) = &self.keys {
            out.line(&keys.sentence());
        }
        if let Some(lists) = &self.lists {
            out.line(&lists.sentence());
        }
        if let Some(runs) = &self.runs {
            runs.print(out);
        }
        if let Some(queued) = &self.queued {
            out.line(&format!("a waiting call takes {:.0} bytes of the store's memory", queued.store_bytes_per_call));
        }
    }

    fn print_rows(&self, out: Output) {
        let mut rows = if self.store.is_redis() {
            table(["in flight", "calls/s", "p50", "p99", "redis cpu", "bare cpu", "bare calls/s", "bare p50", "ratio"])
        } else {
            table(["in flight", "calls/s", "p50", "p99", "moves/commit", "bare SQLite calls/s", "ratio"])
        };
        for row in &self.rows {
            rows.add_row(row.cells().into_iter().map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
        }
        out.table(&rows);
    }

    fn json(&self) -> Value {
        let backlog = self.backlog.as_ref().map(|growth| {
            let (from, to) = (tenths(growth.cost_us_from), tenths(growth.cost_us_to));
            json!({ "from": growth.from, "to": growth.to, "cost_us_from": from, "cost_us_to": to })
        });
        let longest_script_us = self.longest_script.as_ref().and_then(Longest::micros);
        let paced = self.paced.as_ref().map(
            |paced| json!({ "calls_per_second": paced.calls_per_second.round(), "p50_us": micros(paced.p50), "p99_us": micros(paced.p99) }),
        );
        let queued = self.queued.as_ref().map(|queued| {
            let per_call = queued.store_bytes_per_call.round();
            json!({ "calls": queued.calls, "rss_growth_bytes": queued.rss_growth_bytes, "store_bytes_per_call": per_call })
        });
        json!({
            "machine": self.machine,
            "hint": self.hint,
            "store": { "kind": self.store.kind, "durability": self.store.durability, "version": self.store.version },
            "calls": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
            "half_load": paced,
            "functions": self.functions.iter().map(FunctionsRow::json).collect::<Vec<_>>(),
            "backlog": backlog,
            "longest_script_us": longest_script_us,
            "locks": self.locks.as_ref().map(Locks::json),
            "idle_rss_bytes": self.idle.as_ref().map(|idle| idle.rss_bytes),
            "idle_commands_per_second": self.idle.as_ref().and_then(|idle| idle.commands_per_second).map(tenths),
            "queued": queued,
            "runs": self.runs.as_ref().map(Runs::json),
            "limits": self.limits.iter().map(LimitRow::json).collect::<Vec<_>>(),
            "batches": self.batches.iter().map(BatchRow::json).collect::<Vec<_>>(),
            "aims": findings(self).iter().map(Finding::json).collect::<Vec<_>>(),
        })
    }
}

fn print_findings(out: Output, found: &[Finding]) {
    if found.is_empty() {
        return;
    }
    out.line("");
    let mut aims = table(["what", "found", "aim", "met"]);
    for finding in found {
        let met = if finding.met() { Cell::new("yes").fg(Color::Green) } else { Cell::new("no").fg(Color::Yellow) };
        let value = Cell::new(format!("{:.2} {}", finding.value, finding.unit)).set_alignment(CellAlignment::Right);
        aims.add_row([Cell::new(&finding.what), value, Cell::new(finding.aim.text()), met]);
    }
    out.table(&aims);
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// What the figures were measured on.
pub(super) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let build = if cfg!(debug_assertions) { ", debug build: figures mean nothing" } else { "" };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.split(['-', '+']).next().map(str::trim).filter(|kernel| !kernel.is_empty());
    let kernel = kernel.map(|kernel| format!(" {kernel}")).unwrap_or_default();
    format!("{cores} cores, {}-{}{kernel}{build}", std::env::consts::OS, std::env::consts::ARCH)
}
