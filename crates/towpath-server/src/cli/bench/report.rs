//! What was measured, as a table or as JSON.

use comfy_table::{Cell, CellAlignment};
use serde_json::{Value, json};

use super::load::Measured;
use crate::cli::output::{Output, table};

pub(super) struct Report {
    pub(super) machine: String,
    pub(super) idle_rss_bytes: u64,
    pub(super) rows: Vec<Row>,
}

pub(super) struct Row {
    pub(super) in_flight: u32,
    pub(super) measured: Measured,
    pub(super) floor_calls_per_second: f64,
}

impl Row {
    pub(super) fn ratio(&self) -> f64 {
        self.measured.calls_per_second() / self.floor_calls_per_second
    }

    fn json(&self) -> Value {
        json!({
            "in_flight": self.in_flight,
            "calls": self.measured.calls,
            "calls_per_second": self.measured.calls_per_second().round(),
            "p50_us": u64::try_from(self.measured.p50.as_micros()).unwrap_or(u64::MAX),
            "p99_us": u64::try_from(self.measured.p99.as_micros()).unwrap_or(u64::MAX),
            "moves_per_commit": (self.measured.moves_per_commit * 10.0).round() / 10.0,
            "floor_calls_per_second": self.floor_calls_per_second.round(),
            "ratio_to_floor": (self.ratio() * 100.0).round() / 100.0,
        })
    }
}

impl Report {
    pub(super) fn print(&self, out: Output) {
        if out.is_json() {
            let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
            let store = json!({ "kind": "sqlite", "durability": "fsync" });
            out.json(&json!({ "machine": self.machine, "store": store, "idle_rss_bytes": self.idle_rss_bytes, "calls": rows }));
            return;
        }
        out.line(&format!("durable calls on the embedded store, fsync, {}\n", self.machine));
        let mut calls = table(["in flight", "calls/s", "p50", "p99", "moves/commit", "bare SQLite calls/s", "ratio"]);
        for row in &self.rows {
            let cells = [
                row.in_flight.to_string(),
                format!("{:.0}", row.measured.calls_per_second()),
                format!("{:.2} ms", row.measured.p50.as_secs_f64() * 1e3),
                format!("{:.2} ms", row.measured.p99.as_secs_f64() * 1e3),
                format!("{:.1}", row.measured.moves_per_commit),
                format!("{:.0}", row.floor_calls_per_second),
                format!("{:.2}", row.ratio()),
            ];
            calls.add_row(cells.map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
        }
        out.table(&calls);
        out.line(&format!("\nidle server: {:.1} MB of memory", self.idle_rss_bytes as f64 / 1e6));
    }
}

/// What the figures were measured on.
pub(super) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let build = if cfg!(debug_assertions) { ", debug build: figures mean nothing" } else { "" };
    format!("{cores} cores, {}-{}{build}", std::env::consts::OS, std::env::consts::ARCH)
}
