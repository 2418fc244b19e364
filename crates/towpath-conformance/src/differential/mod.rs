//! Seeded random operations, sent to the model and to a store: they must agree on every reply and on all that they show.
//!
//! A disagreement is reported with the seed, the operation, both replies, and a list of operations cut down to what still disagrees.

pub mod batches;
mod coverage;
mod generate;
pub mod locks;
mod op;
mod shrink;
mod side;

use std::collections::BTreeSet;
use std::fmt;

use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::store::Submitted;
use towpath_core::time::Timestamp;

pub use coverage::Coverage;

use crate::backend::{Backend, ModelBackend};
use crate::dump::Dump;
use generate::Generator;
use op::Op;
use side::{Reply, Side};

/// After so many operations, everything that the two stores show is compared.
const COMPARE_ALL_EVERY: usize = 20;

/// Two stores that disagree.
#[derive(Clone, Debug)]
pub struct Divergence {
    /// The seed that leads to it.
    pub seed: u64,
    /// Which operation of that seed they disagree on, counted from 0.
    pub index: usize,
    /// What was asked, and what each said.
    pub disagreement: String,
    /// The least that still disagrees.
    pub shrunk: Option<Shrunk>,
}

/// What is left of the operations when all that does not matter is taken away.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The operations.
    pub operations: Vec<String>,
    /// What was asked last, and what each said.
    pub disagreement: String,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, operation {}: {}", self.seed, self.index, self.disagreement)?;
        let Some(Shrunk { operations, disagreement }) = &self.shrunk else {
            return write!(f, "the same operations did not lead there again: look for a race");
        };
        writeln!(f, "{} operations are enough:", operations.len())?;
        for op in operations {
            writeln!(f, "  {op}")?;
        }
        write!(f, "which ends in: {disagreement}")
    }
}

/// Makes a test of random operations. It fails when the stores disagree, and when the operations did not reach everything.
///
/// ```
/// # mod tests {
/// use towpath_conformance::backend::ModelBackend;
///
/// towpath_conformance::differential!(ModelBackend, seeds = 20, operations = 300);
/// # }
/// ```
#[macro_export]
macro_rules! differential {
    ($backend:expr, seeds = $seeds:expr, operations = $operations:expr) => {
        #[test]
        fn random_operations_agree_with_the_model() {
            $crate::differential::check(&$backend, $seeds, $operations);
        }
    };
}

/// Runs all seeds and panics with a report at the first disagreement, or when something was never reached.
pub fn check(backend: &dyn Backend, seeds: u64, operations: usize) {
    let mut coverage = Coverage::default();
    for lane in side_by_side(|lane, lanes| explore_lane(backend, (lane..seeds).step_by(lanes), operations)) {
        match lane {
            Ok(reached) => coverage.add(reached),
            Err(divergence) => panic!("the store and the model disagree.\n{divergence}"),
        }
    }
    let missing = coverage.missing();
    assert!(missing.is_empty(), "the operations proved too little, for these never happened: {missing:#?}");
}

/// Seeds run side by side: what a store does most of the time is wait for its disk.
const LANES: usize = 4;

fn side_by_side<T: Send>(run: impl Fn(u64, usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES as u64)
            .map(|lane| {
                scope.spawn({
                    let run = &run;
                    move || run(lane, LANES)
                })
            })
            .collect();
        lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn explore_lane(backend: &dyn Backend, seeds: impl Iterator<Item = u64>, operations: usize) -> Result<Coverage, Box<Divergence>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime on one thread asks for nothing special").block_on(explore(backend, seeds, operations))
}

/// Runs some seeds, and says what they reached or where the stores part.
pub async fn explore(backend: &dyn Backend, seeds: impl Iterator<Item = u64>, operations: usize) -> Result<Coverage, Box<Divergence>> {
    let mut coverage = Coverage::default();
    for seed in seeds {
        let mut generator = Generator::new(seed);
        let mut pair = Pair::new(backend).await;
        let mut ops = Vec::with_capacity(operations);
        for index in 0..operations {
            let op = generator.next(index, pair.model.store(), pair.clock.now()).await;
            ops.push(op.clone());
            let outcome = pair.step(index, &op, &mut coverage).await;
            let outcome = if index + 1 == operations && outcome.is_ok() { pair.compare_all(&mut coverage).await } else { outcome };
            if let Err(disagreement) = outcome {
                let shrunk = shrink::shrink(backend, ops).await.map(|(ops, disagreement)| {
                    let operations = ops.iter().map(|op| format!("{op:?}")).collect();
                    Shrunk { operations, disagreement }
                });
                return Err(Box::new(Divergence { seed, index, disagreement, shrunk }));
            }
        }
    }
    Ok(coverage)
}

/// The model and a store, under one clock.
struct Pair {
    clock: VirtualClock,
    model: Side,
    store: Side,
    /// Ids of calls that were accepted.
    accepted: BTreeSet<String>,
}

impl Pair {
    async fn new(backend: &dyn Backend) -> Self {
        let clock = VirtualClock::new();
        let (model, store) = (Side::new(&ModelBackend, &clock).await, Side::new(backend, &clock).await);
        Self { clock, model, store, accepted: BTreeSet::new() }
    }

    async fn step(&mut self, index: usize, op: &Op, coverage: &mut Coverage) -> Result<(), String> {
        if let Op::Advance { ms } = op {
            self.clock.advance(std::time::Duration::from_millis(*ms));
        }
        let by_model = self.model.apply(op, None).await;
        let by_store = self.store.apply(op, Some(&by_model)).await;
        coverage.note(op, &by_model, self.clock.now());
        if let (Op::Submit { id, .. }, Reply::Submitted(Submitted::Accepted { .. })) = (op, &by_model)
            && !self.accepted.insert(id.clone())
        {
            coverage.note_freed_id();
        }
        if !agree(op, &by_model, &by_store, self.clock.now()) {
            return Err(disagreement(&format!("{op:?}"), &by_model, &by_store));
        }
        if (index + 1).is_multiple_of(COMPARE_ALL_EVERY) || *op == Op::Reopen { self.compare_all(coverage).await } else { Ok(()) }
    }

    async fn compare_all(&self, coverage: &mut Coverage) -> Result<(), String> {
        let (by_model, by_store) = (Dump::of(self.model.store()).await, Dump::of(self.store.store()).await);
        by_model.calls.iter().for_each(|view| coverage.note_state(view.call.state));
        if by_model == by_store {
            return Ok(());
        }
        for (one, other) in by_model.calls.iter().zip(&by_store.calls) {
            if one != other {
                return Err(disagreement("a call as it is shown", one, other));
            }
        }
        Err(disagreement("all that is shown", &by_model, &by_store))
    }
}

/// Equal replies agree. Two moves promise less: a wake-up for attention may be lost, and an instant that is due may be named too early
/// (and what is overdue is due now).
fn agree(op: &Op, by_model: &Reply, by_store: &Reply, now: Timestamp) -> bool {
    match (op, by_model, by_store) {
        (Op::Attention { .. }, Reply::Flag(true), Reply::Flag(_)) => true,
        (Op::DueBefore { .. }, Reply::Due(None), Reply::Due(_)) => true,
        (Op::DueBefore { .. }, Reply::Due(Some(by_model)), Reply::Due(Some(by_store))) => *by_store <= now.max(*by_model),
        _ => by_model == by_store,
    }
}

fn disagreement<T: fmt::Debug>(on: &str, by_model: &T, by_store: &T) -> String {
    let (by_model, by_store) = (format!("{by_model:?}"), format!("{by_store:?}"));
    let bytes = if by_model == by_store { " (they differ in the bytes of a payload)" } else { "" };
    format!("{on}{bytes}\n  model: {by_model}\n  store: {by_store}")
}
