//! A level of calls in steady state, against the floor. Both take turns, so that a machine that slows down meanwhile favours neither.

use std::time::Duration;

use super::floor::{self, FloorMeasured};
use super::lateness::Lateness;
use super::load::{self, Load, Measured};
use super::meter::Meter;
use super::place::{Place, Target};
use super::report::Row;
use super::series::Series;
use super::{BenchArgs, MANY, failed};
use crate::cli::failure::Failure;
use crate::cli::output::Output;

/// A lone call takes a third longer or not by where the system happens to run the processes, which each round decides anew.
const ROUNDS_ALONE: u32 = 4;
const ROUNDS: u32 = 2;
const SHORTEST: Duration = Duration::from_secs(1);
const FLOOR_LONGEST: Duration = Duration::from_secs(8);

/// How one level is measured.
#[derive(Clone, Copy)]
struct Plan {
    load: Load,
    rounds: u32,
    /// Each time the floor is measured.
    floor_length: Duration,
    /// Whether readings over time and lateness are taken.
    decisive: bool,
}

impl Plan {
    fn new(args: &BenchArgs, in_flight: u32) -> Self {
        let decisive = in_flight >= MANY;
        let length = if decisive { args.decisive_length() } else { args.level_length() };
        let most = match in_flight {
            _ if args.quick => 1,
            _ if decisive => args.rounds.unwrap_or(ROUNDS),
            1 => ROUNDS_ALONE,
            _ => ROUNDS,
        };
        let rounds = u32::try_from(length.as_millis() / SHORTEST.as_millis()).unwrap_or(most).clamp(1, most);
        let load = Load { in_flight, functions: 1, length: length / rounds, steady: args.steady() };
        Self { load, rounds, floor_length: (length / (rounds + 1)).clamp(SHORTEST, FLOOR_LONGEST), decisive }
    }
}

/// What one round of the load showed.
struct Round {
    measured: Measured,
    series: Option<Series>,
    lateness: Option<Lateness>,
}

pub(super) async fn level(target: &Target, out: Output, args: &BenchArgs, in_flight: u32) -> Result<Row, Failure> {
    let plan = Plan::new(args, in_flight);
    let (warm_up, seconds) = (plan.load.steady.warm_up.as_secs(), plan.load.length.as_secs_f64());
    out.note(&format!(
        "measuring {in_flight} in flight, {} round(s) of {seconds:.0} s after {warm_up} s or more of warm-up …",
        plan.rounds
    ));
    let mut place = target.place()?;
    place.count_from_here().await?;
    let (mut rounds, mut floors) = (Vec::new(), Vec::new());
    if place.is_shared() {
        floors.push(floor::redis::run(&place, in_flight, plan.floor_length).await?);
    }
    for number in 0..plan.rounds {
        let round = round(&place, plan, out).await?;
        let floor = match &place.folder {
            // As many calls as the load made in that time, with as many moves in a commit.
            Some(folder) => {
                let calls = (round.measured.calls_per_second() * plan.floor_length.as_secs_f64()) as u64;
                let folder = folder.path().join(format!("floor-{number}"));
                floor::sqlite::run(&folder, calls.max(1), round.measured.moves_per_commit).await?
            }
            None => floor::redis::run(&place, in_flight, plan.floor_length).await?,
        };
        rounds.push(round);
        floors.push(floor);
    }
    place.clear().await?;
    row(in_flight, rounds, &floors)
}

async fn round(place: &Place, plan: Plan, out: Output) -> Result<Round, Failure> {
    if !plan.decisive {
        return Ok(Round { measured: load::run(place, plan.load).await?, series: None, lateness: None });
    }
    let meter = Meter::new()?;
    let series = Series::record(place, plan.load, meter.watcher(), out);
    let lateness = Lateness::measure(place, plan.load.steady, meter.watcher());
    let (measured, series, lateness) = tokio::join!(load::run_watched(place, plan.load, meter), series, lateness);
    Ok(Round { measured: measured?, series: Some(series?), lateness: Some(lateness?) })
}

fn row(in_flight: u32, rounds: Vec<Round>, floors: &[FloorMeasured]) -> Result<Row, Failure> {
    let (mut loads, mut series, mut lateness) = (Vec::new(), Vec::new(), Vec::new());
    for round in rounds {
        loads.push(round.measured);
        series.extend(round.series);
        lateness.extend(round.lateness);
    }
    let nothing = || failed("nothing was measured");
    let measured = Measured::mean(&loads).ok_or_else(nothing)?;
    let floor = FloorMeasured::mean(floors).ok_or_else(nothing)?;
    Ok(Row { in_flight, measured, floor, series, lateness: Lateness::merged(lateness) })
}
