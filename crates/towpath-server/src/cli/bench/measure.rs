//! One measurement after the other, each in a place of its own.

use std::time::Duration;

use super::batches;
use super::floor::{self, FloorMeasured};
use super::growth::{self, Backlog, Growth};
use super::idle::IdleServer;
use super::limits;
use super::load::{self, Load, Measured};
use super::locks;
use super::pace::{self, Paced};
use super::place::{Place, Target};
use super::report::{self, Idle, Queued, Report, Row, StoreFacts};
use super::{BenchArgs, Measurement, failed, open};
use crate::cli::failure::Failure;
use crate::cli::output::Output;

const FUNCTIONS: u32 = 100;
/// A server is measured in so many rounds, or in fewer that are long enough.
const ROUNDS: u32 = 5;
const SHORTEST_ROUND: Duration = Duration::from_secs(1);
/// A lone call takes a third longer or not by where the system happens to run the processes, which each round decides anew.
const ROUNDS_ALONE: u32 = 8;
const SHORTEST_ROUND_ALONE: Duration = Duration::from_millis(500);
/// What a backlog is compared with.
const SHORT_BACKLOG: u64 = 1_000;
/// Where the most calls/s are looked for when no level was measured.
const MANY: u32 = 1_024;

/// All that was asked for.
pub(super) async fn everything(target: &Target, out: Output, args: &BenchArgs) -> Result<Report, Failure> {
    let store = facts(target).await?;
    let mut report = Report {
        machine: report::machine(),
        store,
        rows: Vec::new(),
        paced: None,
        functions: None,
        backlog: None,
        locks: None,
        idle: None,
        queued: None,
        limits: Vec::new(),
        batches: Vec::new(),
    };
    if args.wants(Measurement::Calls) {
        for in_flight in &args.in_flight {
            out.note(&format!("measuring {in_flight} in flight for {} s …", args.length().as_secs()));
            report.rows.push(level(target, *in_flight, args.length()).await?);
        }
    }
    if args.wants(Measurement::Pace) {
        out.note("measuring a steady pace …");
        report.paced = Some(pace(target, args, &report.rows).await?);
    }
    if args.wants(Measurement::Growth) {
        out.note(&format!("measuring {FUNCTIONS} functions …"));
        report.functions = Some(growth::functions(target, FUNCTIONS, args.short_length()).await?);
    }
    if args.wants(Measurement::Growth) {
        out.note(&format!("measuring {} calls waiting …", args.backlog()));
        let (growth, queued) = backlogs(target, args).await?;
        (report.backlog, report.queued) = (Some(growth), queued);
    }
    if args.wants(Measurement::Locks) {
        out.note("measuring locks …");
        report.locks = Some(locks::run(target, args.short_length()).await?);
    }
    if args.wants(Measurement::Limits) {
        out.note("measuring checks of limits …");
        report.limits = limits::run(target, args.short_length()).await?;
    }
    if args.wants(Measurement::Batches) {
        out.note("measuring messages of batches …");
        report.batches = batches::run(target, args.short_length()).await?;
    }
    if args.wants(Measurement::Idle) {
        out.note("measuring an idle server …");
        report.idle = Some(idle(target, args).await?);
    }
    Ok(report)
}

async fn facts(target: &Target) -> Result<StoreFacts, Failure> {
    let place = target.place()?;
    let towpath = open(&place.url).await?;
    let status = towpath.store().probe().await.map_err(|error| failed(&error.to_string()))?;
    towpath.close().await;
    let version = if place.is_shared() { Some(load::gauge(&place).await?.version) } else { None };
    let kind = if target.is_redis() { "redis" } else { "sqlite" };
    place.clear().await?;
    Ok(StoreFacts { kind, durability: status.durability.as_str(), version })
}

async fn level(target: &Target, in_flight: u32, length: Duration) -> Result<Row, Failure> {
    let place = target.place()?;
    let load = Load { in_flight, functions: 1, length };
    let row = match &place.folder {
        Some(folder) => {
            let measured = load::run(&place, load).await?;
            let floor = floor::sqlite::run(folder.path(), &measured).await?;
            Row { in_flight, measured, floor }
        }
        None => in_turn(&place, load).await?,
    };
    place.clear().await?;
    Ok(row)
}

/// The floor and the load in turn, so that a machine that slows down meanwhile favours neither.
async fn in_turn(place: &Place, load: Load) -> Result<Row, Failure> {
    let Load { in_flight, length, .. } = load;
    let (most, shortest) = if in_flight == 1 { (ROUNDS_ALONE, SHORTEST_ROUND_ALONE) } else { (ROUNDS, SHORTEST_ROUND) };
    let rounds = u32::try_from(length.as_millis() / shortest.as_millis()).unwrap_or(most).clamp(1, most);
    let (round, of_floor) = (length / rounds, (length / (rounds + 1)).max(shortest));
    let (mut loads, mut floors) = (Vec::new(), vec![floor::redis::run(place, in_flight, of_floor).await?]);
    for _ in 0..rounds {
        loads.push(load::run(place, Load { length: round, ..load }).await?);
        floors.push(floor::redis::run(place, in_flight, of_floor).await?);
    }
    let nothing = || failed("nothing was measured");
    let measured = Measured::mean(&loads).ok_or_else(nothing)?;
    Ok(Row { in_flight, measured, floor: FloorMeasured::mean(&floors).ok_or_else(nothing)? })
}

/// Half of the most calls/s that any level reached.
async fn pace(target: &Target, args: &BenchArgs, rows: &[Row]) -> Result<Paced, Failure> {
    let reached = rows.iter().map(|row| row.measured.calls_per_second()).fold(0.0, f64::max);
    let most = if rows.iter().any(|row| row.in_flight >= MANY) {
        reached
    } else {
        let place = target.place()?;
        let measured = load::run(&place, Load { in_flight: MANY, functions: 1, length: args.short_length() }).await?;
        place.clear().await?;
        measured.calls_per_second().max(reached)
    };
    let place = target.place()?;
    let paced = pace::run(&place, most / 2.0, args.length()).await?;
    place.clear().await?;
    Ok(paced)
}

async fn idle(target: &Target, args: &BenchArgs) -> Result<Idle, Failure> {
    let place = target.place()?;
    let server = IdleServer::start(&place).await?;
    let commands_per_second = match target {
        Target::Redis(_) => Some(server.commands_per_second(&place, args.idle_length()).await?),
        Target::Folder(_) => None,
    };
    let rss_bytes = server.rss_bytes()?;
    server.stop().await;
    place.clear().await?;
    Ok(Idle { rss_bytes, commands_per_second })
}

async fn backlogs(target: &Target, args: &BenchArgs) -> Result<(Growth, Option<Queued>), Failure> {
    let (cost_us_from, _) = backlog(target, SHORT_BACKLOG, args.short_length()).await?;
    let (cost_us_to, queued) = backlog(target, args.backlog(), args.short_length()).await?;
    Ok((Growth { from: SHORT_BACKLOG, to: args.backlog(), cost_us_from, cost_us_to }, queued))
}

/// What a call costs while so many wait, and what they take in the memory of a server that has nothing to do with them.
async fn backlog(target: &Target, calls: u64, length: Duration) -> Result<(f64, Option<Queued>), Failure> {
    let place = target.place()?;
    if !target.is_redis() {
        let backlog = Backlog::fill(&place, calls).await?;
        return Ok((backlog.cost_us(&place, length).await?, None));
    }
    let server = IdleServer::start(&place).await?;
    let (rss_before, store_before) = (server.rss_bytes()?, load::gauge(&place).await?.memory_bytes);
    let backlog = Backlog::fill(&place, calls).await?;
    let (rss_after, store_after) = (server.rss_bytes()?, load::gauge(&place).await?.memory_bytes);
    let cost_us = backlog.cost_us(&place, length).await?;
    server.stop().await;
    place.clear().await?;
    let store_bytes_per_call = store_after.saturating_sub(store_before) as f64 / calls as f64;
    Ok((cost_us, Some(Queued { calls, rss_growth_bytes: rss_after.saturating_sub(rss_before), store_bytes_per_call })))
}
