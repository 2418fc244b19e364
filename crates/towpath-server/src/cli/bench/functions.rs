//! Growth by functions: what a call costs when one worker serves many functions, and how many connections that takes.

use std::time::Duration;

use comfy_table::{Cell, CellAlignment};
use serde_json::{Value, json};
use towpath::FloorGauge;

use super::findings::{Aim, Finding};
use super::load::{self, Load};
use super::meter::{Meter, Watcher};
use super::place::{Place, Target};
use super::steady::Steady;
use super::{blocking, worker};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, table};

/// The first one is what the others are compared with.
const FUNCTIONS: [u32; 4] = [1, 10, 100, 400];
const FUNCTIONS_QUICK: [u32; 2] = [1, 100];
const IN_FLIGHT: [u32; 2] = [1, 64];
/// With so many functions the connections of the worker are counted.
const CONNECTED: u32 = 100;
const CONNECTIONS_AIM: f64 = 8.0;

/// One number of functions at one load.
pub(super) struct FunctionsRow {
    functions: u32,
    in_flight: u32,
    calls_per_second: f64,
    /// How much longer a call takes than with one function.
    ratio: f64,
    /// Of the worker's process, on a Redis.
    connections: Option<u64>,
}

pub(super) async fn run(target: &Target, steady: Steady, quick: bool, length: Duration) -> Result<Vec<FunctionsRow>, Failure> {
    let numbers: &[u32] = if quick { &FUNCTIONS_QUICK } else { &FUNCTIONS };
    let mut rows = Vec::new();
    for in_flight in IN_FLIGHT {
        let mut alone = None;
        for &functions in numbers {
            let (calls_per_second, connections) = one(target, Load { in_flight, functions, length, steady: steady.brief() }).await?;
            let ratio = *alone.get_or_insert(calls_per_second) / calls_per_second;
            rows.push(FunctionsRow { functions, in_flight, calls_per_second, ratio, connections });
        }
    }
    Ok(rows)
}

async fn one(target: &Target, load: Load) -> Result<(f64, Option<u64>), Failure> {
    let (place, meter) = (target.place()?, Meter::new()?);
    let counting = connections(&place, meter.watcher());
    let (measured, connections) = tokio::join!(load::run_watched(&place, load, meter), counting);
    let calls_per_second = measured?.calls_per_second();
    place.clear().await?;
    Ok((calls_per_second, connections))
}

/// Connections of the worker's process at the end of the load. `None`: there is no such process, or the server does not tell.
async fn connections(place: &Place, mut watcher: Watcher) -> Option<u64> {
    watcher.over().await;
    if !place.is_shared() {
        return None;
    }
    let (url, name) = (place.url.clone(), worker::connection_name(&place.tag));
    blocking(move || FloorGauge::open(&url)?.connections(&name)).await.ok()
}

pub(super) fn print(out: Output, rows: &[FunctionsRow]) {
    if rows.is_empty() {
        return;
    }
    out.line("");
    let mut lines = table(["functions", "in flight", "calls/s", "cost", "connections of the worker"]);
    for row in rows {
        let connections = row.connections.map_or_else(|| "-".to_owned(), |connections| connections.to_string());
        let cells = [
            row.functions.to_string(),
            row.in_flight.to_string(),
            format!("{:.0}", row.calls_per_second),
            format!("{:.2} x", row.ratio),
            connections,
        ];
        lines.add_row(cells.map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
    }
    out.table(&lines);
}

pub(super) fn findings(rows: &[FunctionsRow]) -> impl Iterator<Item = Finding> {
    rows.iter().flat_map(|row| [row.growth(), row.connected()]).flatten()
}

impl FunctionsRow {
    fn growth(&self) -> Option<Finding> {
        let bound = match self.functions {
            100 => 1.5,
            400 => 2.0,
            _ => return None,
        };
        let what = format!("cost of a call, 1 -> {} functions, {} in flight", self.functions, self.in_flight);
        Some(Finding::new(what, self.ratio, "x", Aim::AtMost(bound)))
    }

    fn connected(&self) -> Option<Finding> {
        let connections = self.connections.filter(|_| self.functions == CONNECTED && self.in_flight > 1)?;
        let what = format!("connections of a worker with {CONNECTED} functions");
        Some(Finding::new(what, connections as f64, "", Aim::AtMost(CONNECTIONS_AIM)))
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "functions": self.functions,
            "in_flight": self.in_flight,
            "calls_per_second": self.calls_per_second.round(),
            "cost_us": (1e7 / self.calls_per_second).round() / 10.0,
            "ratio_to_one_function": (self.ratio * 100.0).round() / 100.0,
            "worker_connections": self.connections,
        })
    }
}
