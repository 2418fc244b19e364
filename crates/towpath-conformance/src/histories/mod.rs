//! Random histories of clients that contend, crash and come back, judged without the model: nobody holds what another holds, fences only
//! rise, and nobody is overtaken.

mod batches;
mod locks;
mod mixed_fleet;
mod permits;

use std::ops::Range;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::backend::Backend;
use crate::bench::Bench;

/// Makes the tests of random histories: of exclusive locks, of a semaphore, of a read/write lock.
///
/// ```
/// # mod tests {
/// use towpath_conformance::backend::ModelBackend;
///
/// towpath_conformance::histories!(ModelBackend, locks = 2 of 500, permits = 2 of 500);
/// # }
/// ```
#[macro_export]
macro_rules! histories {
    ($backend:expr, locks = $locks:literal of $lock_steps:literal, permits = $permits:literal of $permit_steps:literal) => {
        #[tokio::test]
        async fn no_history_has_two_holders_a_fence_that_falls_or_an_overtaken_waiter() {
            $crate::histories::check_locks(&$backend, 0..$locks, $lock_steps).await;
        }

        #[tokio::test]
        async fn no_history_of_a_semaphore_passes_its_limit_or_a_waiter() {
            $crate::histories::check_permits(&$backend, $crate::histories::Units::Semaphore, 0..$permits, $permit_steps).await;
        }

        #[tokio::test]
        async fn no_history_has_a_reader_with_a_writer_or_passes_a_writer_that_waits() {
            $crate::histories::check_permits(&$backend, $crate::histories::Units::ReadWrite, 0..$permits, $permit_steps).await;
        }
    };
}

/// Makes the test of random histories of batches, in which dispatchers, drainers and the store itself die.
///
/// ```
/// # mod tests {
/// use towpath_conformance::backend::ModelBackend;
///
/// towpath_conformance::batch_histories!(ModelBackend, 25 of 700);
/// # }
/// ```
#[macro_export]
macro_rules! batch_histories {
    ($backend:expr, $histories:literal of $steps:literal) => {
        #[tokio::test]
        async fn no_history_loses_a_message_or_settles_a_batch_twice_or_out_of_order() {
            let tally = $crate::histories::check_batches(&$backend, 0..$histories, $steps).await;
            println!("{tally:?}");
        }
    };
}

pub use batches::BatchTally;
pub use permits::Units;

/// Histories of four keys and three dispatchers that die. Panics with the seed of the first that is wrong.
pub async fn check_batches(backend: &dyn Backend, seeds: Range<u64>, steps: usize) -> BatchTally {
    let (histories, mut tally) = (seeds.end - seeds.start, BatchTally::default());
    for seed in seeds {
        let mut bench = Bench::new(backend).await;
        tally = tally.plus(batches::run(&mut bench, &mut Dice::new(seed), steps).await);
    }
    let BatchTally { messages, duplicates, reclaimed, zombies_refused, repeated, dead, replayed } = tally;
    let enough = messages > histories * steps as u64 / 5;
    let eventful = [duplicates, reclaimed, zombies_refused, repeated, dead, replayed].iter().all(|count| *count >= histories);
    assert!(enough && eventful, "histories in which nothing happens prove nothing: {tally:?}");
    tally
}

/// Histories of six clients that contend for one lock. Panics with the seed of the first that is wrong.
pub async fn check_locks(backend: &dyn Backend, seeds: Range<u64>, steps: usize) {
    let mut grants = 0;
    for seed in seeds {
        let bench = Bench::new(backend).await;
        grants += locks::run(&bench, &mut Dice::new(seed), steps).await;
    }
    assert!(grants > steps / 20, "a history in which nobody gets anything proves nothing: {grants} grants");
}

/// Makes the test of random histories of exclusive locks among old workflows, for stores that those can reach.
#[macro_export]
macro_rules! mixed_fleet_histories {
    ($backend:expr, $histories:literal of $steps:literal) => {
        #[tokio::test]
        async fn no_history_among_old_workflows_has_two_tenures_or_one_beside_an_old_holder() {
            $crate::histories::check_mixed_fleet(&$backend, 0..$histories, $steps).await;
        }
    };
}

/// Histories of six clients of ours and three old workflows. A thousand counters lapse in all, cut short by old callers that failed.
pub async fn check_mixed_fleet(backend: &dyn Backend, seeds: Range<u64>, steps: usize) {
    let mut seen = mixed_fleet::Seen::default();
    for seed in seeds {
        let bench = Bench::new(backend).await;
        mixed_fleet::run(&bench, &mut Dice::new(seed), steps, &mut seen).await;
    }
    let mixed_fleet::Seen { grants, old_grants, lapses } = seen;
    assert!(grants > steps / 20 && old_grants > steps / 20, "a history in which nobody gets anything proves nothing: {seen:?}");
    assert!(lapses >= 1_000, "too few counters lapsed to prove anything: {lapses}");
}

/// Histories of six clients that contend for units.
pub async fn check_permits(backend: &dyn Backend, units: Units, seeds: Range<u64>, steps: usize) {
    let mut grants = 0;
    for seed in seeds {
        let bench = Bench::new(backend).await;
        grants += permits::run(&bench, units, &mut Dice::new(seed), steps).await;
    }
    assert!(grants > steps / 20, "a history in which nobody gets anything proves nothing: {grants} grants");
}

/// Chance, the same for the same seed.
struct Dice {
    random: StdRng,
    seed: u64,
}

impl Dice {
    fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), seed }
    }

    fn below(&mut self, count: usize) -> usize {
        self.random.random_range(0..count)
    }

    fn percent(&mut self) -> u32 {
        self.random.random_range(0..100)
    }
}

/// Six clients contend.
const CLIENTS: usize = 6;
