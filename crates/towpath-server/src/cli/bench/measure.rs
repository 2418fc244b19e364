//! One measurement after the other, each in a place of its own.

use std::time::Duration;

use super::growth::{Backlog, Growth};
use super::idle::IdleServer;
use super::load::{self, Load};
use super::pace::{self, Paced};
use super::place::Target;
use super::report::{self, Idle, Queued, Report, Row, StoreFacts};
use super::slow::SlowScripts;
use super::{BenchArgs, MANY, Measurement, batches, calls, failed, functions, keys, limits, lists, locks, open, runs};
use crate::cli::failure::Failure;
use crate::cli::output::Output;

/// Long enough for a server that is not measured itself.
const BACKLOG_SETTLED: Duration = Duration::from_secs(2);
/// What a backlog is compared with.
const SHORT_BACKLOG: u64 = 1_000;

/// All that was asked for.
pub(super) async fn everything(target: &Target, out: Output, args: &BenchArgs) -> Result<Report, Failure> {
    let store = facts(target).await?;
    let mut report = Report {
        machine: report::machine(),
        store,
        rows: Vec::new(),
        paced: None,
        functions: Vec::new(),
        backlog: None,
        locks: None,
        idle: None,
        queued: None,
        limits: Vec::new(),
        batches: Vec::new(),
        keys: None,
        lists: None,
        runs: None,
        longest_script: None,
        hint: args.quick,
    };
    let slow = SlowScripts::watch(target);
    if args.wants(Measurement::Calls) {
        for in_flight in &args.in_flight {
            report.rows.push(calls::level(target, out, args, *in_flight).await?);
        }
    }
    if args.wants(Measurement::Pace) {
        out.note("measuring a steady pace …");
        report.paced = Some(pace(target, args, &report.rows).await?);
    }
    if args.wants(Measurement::Growth) {
        out.note("measuring many functions …");
        report.functions = functions::run(target, args.steady(), args.quick, args.short_length()).await?;
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
    if args.wants(Measurement::Keys) {
        let count = keys::keys(args.quick);
        out.note(&format!("measuring {count} keys of a limit …"));
        report.keys = Some(keys::run(target, count).await?);
    }
    if args.wants(Measurement::Lists) {
        let calls = lists::calls(args.quick, args.full);
        out.note(&format!("measuring lists of {calls} calls …"));
        report.lists = Some(lists::run(target, calls).await?);
    }
    if args.wants(Measurement::Runs) {
        out.note("measuring workflow runs …");
        report.runs = Some(runs::run(target, args.steady(), args.level_length(), args.short_length()).await?);
    }
    // Before the idle server is measured: reading the log is a command too.
    report.longest_script = slow.map(SlowScripts::finish);
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

/// Half of the most calls/s that any level reached.
async fn pace(target: &Target, args: &BenchArgs, rows: &[Row]) -> Result<Paced, Failure> {
    let reached = rows.iter().map(|row| row.measured.calls_per_second()).fold(0.0, f64::max);
    let most = if rows.iter().any(|row| row.in_flight >= MANY) {
        reached
    } else {
        let place = target.place()?;
        let measured =
            load::run(&place, Load { in_flight: MANY, functions: 1, length: args.short_length(), steady: args.steady() }).await?;
        place.clear().await?;
        measured.calls_per_second().max(reached)
    };
    let place = target.place()?;
    let paced = pace::run(&place, most / 2.0, args.level_length(), args.steady()).await?;
    place.clear().await?;
    Ok(paced)
}

async fn idle(target: &Target, args: &BenchArgs) -> Result<Idle, Failure> {
    let place = target.place()?;
    let server = IdleServer::start(&place, args.settle_length()).await?;
    let commands_per_second = match target {
        Target::Redis { .. } => Some(server.commands_per_second(&place, args.idle_length()).await?),
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
    let server = IdleServer::start(&place, BACKLOG_SETTLED).await?;
    let (rss_before, store_before) = (server.rss_bytes()?, load::gauge(&place).await?.memory_bytes);
    let backlog = Backlog::fill(&place, calls).await?;
    let (rss_after, store_after) = (server.rss_bytes()?, load::gauge(&place).await?.memory_bytes);
    let cost_us = backlog.cost_us(&place, length).await?;
    server.stop().await;
    place.clear().await?;
    let store_bytes_per_call = store_after.saturating_sub(store_before) as f64 / calls as f64;
    Ok((cost_us, Some(Queued { calls, rss_growth_bytes: rss_after.saturating_sub(rss_before), store_bytes_per_call })))
}
