//! A load that comes at its own pace, whether the store keeps up or not: how late are the latest answers at half of what it can do?

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use towpath::{NewCall, Towpath};

use super::place::Place;
use super::steady::Steady;
use super::worker::Worker;
use super::{blocking, failed, micros};
use crate::cli::failure::Failure;
use crate::cli::time;

/// Calls come in bursts this far apart: short against any answer, long against a wake-up of a thread.
const TICK: Duration = Duration::from_micros(250);
/// More calls than this under way at once: the store does not keep up, and what is measured is only the length of the queue.
const CONCURRENCY: u32 = 4_096;

/// So many rounds, of which the middle one counts: the latest answers say more of what else the machine does than any other figure.
const ROUNDS: usize = 3;

/// What the pace showed.
pub(super) struct Paced {
    pub(super) calls_per_second: f64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

impl Paced {
    /// How much later the latest are than the usual ones.
    pub(super) fn spread(&self) -> f64 {
        self.p99.as_secs_f64() / self.p50.as_secs_f64().max(1e-6)
    }
}

/// `rate` calls per second for a while, each counted from the moment at which it should have been made.
pub(super) async fn run(place: &Place, rate: f64, length: Duration, steady: Steady) -> Result<Paced, Failure> {
    let towpath = super::open(&place.url).await?;
    let worker = Worker::start(place, &towpath, 1, CONCURRENCY).await?;
    let call = steady.call(place, 0)?;
    paced(&towpath, &call, rate, steady.warm_up).await?;
    let (mut rounds, length) = (Vec::with_capacity(ROUNDS), length / ROUNDS as u32);
    for _ in 0..ROUNDS {
        let latencies = paced(&towpath, &call, rate, length).await?;
        let at = |quantile| Duration::from_micros(latencies.value_at_quantile(quantile));
        rounds.push(Paced { calls_per_second: latencies.len() as f64 / length.as_secs_f64(), p50: at(0.5), p99: at(0.99) });
    }
    worker.stop().await;
    towpath.close().await;
    middle(rounds).ok_or_else(|| failed("nothing was measured"))
}

/// The one whose latest answers are neither the soonest nor the latest.
fn middle(mut rounds: Vec<Paced>) -> Option<Paced> {
    rounds.sort_by(|one, other| one.spread().total_cmp(&other.spread()));
    let middle = rounds.len() / 2;
    (middle < rounds.len()).then(|| rounds.swap_remove(middle))
}

async fn paced(towpath: &Towpath, call: &NewCall, rate: f64, length: Duration) -> Result<Histogram<u64>, Failure> {
    let (done, mut all_done) = unbounded_channel();
    // Dropped when this future is, for whatever reason: then the pacemaker stops.
    let (_alive, alive) = channel::<()>();
    let pacemaker = Pacemaker { towpath: towpath.clone(), call: call.clone(), rate, length, done };
    let runtime = Handle::current();
    let pacemaker = blocking(move || {
        pacemaker.run(&runtime, &alive);
        Ok::<_, std::convert::Infallible>(())
    });
    let collect = async {
        let mut latencies = Histogram::<u64>::new(3).map_err(|error| failed(&error.to_string()))?;
        while let Some(latency) = all_done.recv().await {
            let latency = latency.map_err(|cause: String| failed(&cause))?;
            latencies.record(latency).map_err(|error| failed(&error.to_string()))?;
        }
        Ok(latencies)
    };
    let (made, latencies) = tokio::join!(pacemaker, collect);
    made.map_err(|cause| failed(&cause))?;
    latencies
}

/// Makes calls by the clock, from a thread of its own: the runtime's timers are a millisecond apart.
struct Pacemaker {
    towpath: Towpath,
    call: NewCall,
    rate: f64,
    length: Duration,
    done: UnboundedSender<Result<u64, String>>,
}

impl Pacemaker {
    fn run(self, runtime: &Handle, alive: &Receiver<()>) {
        let (begin, mut made, mut tick) = (time::now(), 0, Duration::ZERO);
        while tick < self.length {
            let wait = (begin + tick).saturating_duration_since(time::now());
            if alive.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let due = (tick.as_secs_f64() * self.rate) as u64;
            for _ in made..due {
                runtime.spawn(one(self.towpath.clone(), self.call.clone(), begin + tick, self.done.clone()));
            }
            made = due;
            tick += TICK;
        }
    }
}

async fn one(towpath: Towpath, call: NewCall, due: Instant, done: UnboundedSender<Result<u64, String>>) {
    let answered = towpath.call_raw(call).await;
    let latency = answered.map(|_| micros(time::now() - due)).map_err(|error| error.to_string());
    let _measurement_is_over = done.send(latency);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_round_counts() {
        let round = |p99| Paced { calls_per_second: 1.0, p50: Duration::from_millis(2), p99: Duration::from_millis(p99) };
        assert_eq!(middle(vec![round(90), round(4), round(6)]).map(|found| found.p99), Some(Duration::from_millis(6)));
        assert!(middle(Vec::new()).is_none());
    }
}
