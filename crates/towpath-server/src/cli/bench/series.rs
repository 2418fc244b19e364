//! Readings over time while a load is measured: calls/s, memory and kept calls. Throughput that is paid for later shows here.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::load::{Load, gauge};
use super::meter::Watcher;
use super::place::Place;
use super::steady::Steady;
use super::{blocking, failed, mean};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, table};
use crate::cli::time;

/// How often is read.
const EVERY: Duration = Duration::from_secs(1);
/// How often is printed.
const SHOWN_EVERY_S: f64 = 5.0;
/// Memory is level when it grows by no more than this in the second half, in percent of its mean.
pub(super) const LEVEL_PERCENT: f64 = 2.0;

/// One reading.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Seconds since the measurement began.
    at_s: f64,
    /// Calls answered until then.
    calls: u64,
    /// Of the data of a Redis, or of the file of the embedded store.
    store_bytes: u64,
    /// Memory of this process, which has the embedded store in it. `None`: the store is a Redis.
    rss_bytes: Option<u64>,
    /// `None`: the store cannot count cheaply.
    kept: Option<u64>,
}

/// The readings of one round.
pub(super) struct Series {
    samples: Vec<Sample>,
    in_flight: u32,
    /// Seconds from one line to the next.
    step_s: f64,
    steady: Steady,
}

/// One line for people and programs.
struct Line<'a> {
    calls_per_second: f64,
    end: &'a Sample,
}

impl Series {
    /// Reads until the load ends.
    pub(super) async fn record(place: &Place, load: Load, mut watcher: Watcher, out: Output) -> Result<Self, Failure> {
        let steady = load.steady;
        // A short measurement has a line for each reading.
        let step_s = if load.length.as_secs_f64() >= 2.0 * SHOWN_EVERY_S { SHOWN_EVERY_S } else { EVERY.as_secs_f64() };
        let mut series = Self { samples: Vec::new(), in_flight: load.in_flight, step_s, steady };
        if !watcher.measuring().await {
            return Ok(series);
        }
        let begin = time::now();
        let (mut next, mut shown) = (begin, 0);
        loop {
            let over = watcher.is_over();
            let sample = Sample::read(place, &watcher, time::now() - begin).await?;
            series.samples.push(sample);
            let lines = series.lines();
            if let Some(line) = lines.get(shown) {
                out.note(&format!("  {}", line.text(steady)));
                shown = lines.len();
            }
            if over {
                return Ok(series);
            }
            next += EVERY;
            tokio::select! {
                () = watcher.over() => {}
                () = time::sleep_until(next) => {}
            }
        }
    }

    /// How many calls were kept in the second half, against those that the rate, the retention and the calls in flight explain. `None`:
    /// the store cannot count them.
    pub(super) fn kept_ratio(&self) -> Option<f64> {
        let lines = self.lines();
        let ratio =
            |line: &Line<'_>| Some(line.end.kept? as f64 / (self.steady.kept_at(line.calls_per_second) + f64::from(self.in_flight)));
        mean(lines[lines.len() / 2..].iter().filter_map(ratio))
    }

    /// By how much memory or the file grew in the second half, in percent of its mean. `None`: too few readings.
    pub(super) fn growth_percent(&self) -> Option<f64> {
        let half = &self.samples[self.samples.len() / 2..];
        let store = growth_percent(half, |sample| Some(sample.store_bytes))?;
        Some(growth_percent(half, |sample| sample.rss_bytes).map_or(store, |rss| rss.max(store)))
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let (mut lines, mut begin) = (Vec::new(), self.samples.first());
        for end in &self.samples {
            let Some(from) = begin else { break };
            let took = end.at_s - from.at_s;
            // A reading comes a little late or early.
            if took > self.step_s - EVERY.as_secs_f64() / 2.0 {
                let calls_per_second = end.calls.saturating_sub(from.calls) as f64 / took;
                lines.push(Line { calls_per_second, end });
                begin = Some(end);
            }
        }
        lines
    }

    pub(super) fn print(&self, out: Output) {
        let lines = self.lines();
        let Some(last) = lines.last() else { return };
        out.line("");
        let embedded = last.end.rss_bytes.is_some();
        let mut rows = table(["at", "calls/s", if embedded { "file" } else { "redis memory" }, "rss", "kept calls", "rate x retention"]);
        for line in &lines {
            rows.add_row(line.cells(self.steady));
        }
        out.table(&rows);
        if let Some(growth) = self.growth_percent() {
            let verdict = if growth <= LEVEL_PERCENT { "level" } else { "NOT level" };
            out.line(&format!("memory is {verdict}: {growth:+.1} % in the second half"));
        }
    }

    pub(super) fn json(&self) -> Value {
        let lines = self.lines();
        let samples = lines.iter().map(|line| {
            let end = line.end;
            json!({
                "at_s": end.at_s.round(),
                "calls_per_second": line.calls_per_second.round(),
                "store_bytes": end.store_bytes,
                "rss_bytes": end.rss_bytes,
                "kept": end.kept,
                "kept_computed": self.steady.kept_at(line.calls_per_second).round(),
            })
        });
        let growth = self.growth_percent();
        json!({
            "samples": samples.collect::<Vec<_>>(),
            "memory_growth_percent": growth.map(|percent| (percent * 10.0).round() / 10.0),
            "memory_is_level": growth.map(|percent| percent <= LEVEL_PERCENT),
        })
    }
}

impl Line<'_> {
    fn cells(&self, steady: Steady) -> [String; 6] {
        let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            format!("{:.0} s", self.end.at_s),
            format!("{:.0}", self.calls_per_second),
            mb(self.end.store_bytes),
            or_dash(self.end.rss_bytes.map(mb)),
            or_dash(self.end.kept.map(|kept| kept.to_string())),
            format!("{:.0}", steady.kept_at(self.calls_per_second)),
        ]
    }

    fn text(&self, steady: Steady) -> String {
        let [at, calls, store, rss, kept, computed] = self.cells(steady);
        format!("{at}: {calls} calls/s, store {store}, rss {rss}, kept {kept}, rate x retention {computed}")
    }
}

impl Sample {
    async fn read(place: &Place, watcher: &Watcher, at: Duration) -> Result<Self, Failure> {
        let (at_s, calls) = (at.as_secs_f64(), watcher.calls());
        if let Some(folder) = &place.folder {
            let path = folder.path().to_owned();
            let store_bytes = blocking(move || size(&path)).await.map_err(|cause| failed(&cause))?;
            let rss_bytes = super::idle::rss_of(std::process::id()).ok();
            return Ok(Self { at_s, calls, store_bytes, rss_bytes, kept: None });
        }
        let (store_bytes, kept) = (gauge(place).await?.memory_bytes, place.kept().await?);
        Ok(Self { at_s, calls, store_bytes, rss_bytes: None, kept })
    }
}

/// Bytes of all files in the folder of the store, its log included, and not those of the floor.
fn size(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder.join("data"))? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

/// How much a line through the readings rises from the first to the last, in percent of their mean.
fn growth_percent(samples: &[Sample], of: impl Fn(&Sample) -> Option<u64>) -> Option<f64> {
    let points: Vec<(f64, f64)> = samples.iter().filter_map(|sample| Some((sample.at_s, of(sample)? as f64))).collect();
    let (Some(first), Some(last), 3..) = (points.first(), points.last(), points.len()) else { return None };
    let (mean_x, mean_y) = (mean(points.iter().map(|point| point.0))?, mean(points.iter().map(|point| point.1))?);
    let rise: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    (spread > 0.0 && mean_y > 0.0).then(|| rise / spread * (last.0 - first.0) / mean_y * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(bytes: impl Fn(u64) -> u64, seconds: u64) -> Series {
        let sample = |at: u64| Sample { at_s: at as f64, calls: at * 100, store_bytes: bytes(at), rss_bytes: None, kept: Some(at) };
        Series { samples: (0..=seconds).map(sample).collect(), in_flight: 100, step_s: SHOWN_EVERY_S, steady: Steady::FULL }
    }

    #[test]
    fn memory_that_rises_at_first_and_then_stays_is_level() {
        let growth = series(|at| 1_000_000 + at.min(10) * 500_000, 30).growth_percent().expect("enough readings");
        assert!(growth.abs() < 0.1, "{growth}");
    }

    #[test]
    fn memory_that_rises_all_the_time_is_not_level() {
        let growth = series(|at| 1_000_000 + at * 100_000, 30).growth_percent().expect("enough readings");
        assert!(growth > 40.0, "{growth}");
    }

    #[test]
    fn a_line_is_five_seconds_and_its_rate_that_of_those_five() {
        let series = series(|_| 1, 30);
        let lines = series.lines();
        assert_eq!(lines.iter().map(|line| line.end.at_s).collect::<Vec<_>>(), [5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
        assert!(lines.iter().all(|line| (line.calls_per_second - 100.0).abs() < 1e-9));
    }

    #[test]
    fn kept_calls_are_compared_with_what_rate_and_calls_in_flight_explain() {
        // 100 calls/s kept for 2 s and 100 in flight explain 300; 20, 25 and 30 are kept.
        let ratio = series(|_| 1, 30).kept_ratio().expect("counted");
        assert!((ratio - 25.0 / 300.0).abs() < 1e-9, "{ratio}");
    }

    #[test]
    fn a_few_readings_say_nothing_of_growth() {
        assert!(series(|_| 1, 1).growth_percent().is_none());
    }
}
