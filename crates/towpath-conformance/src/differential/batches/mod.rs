//! Random operations on batches, sent to the model and to a store.

mod coverage;
mod generate;
mod op;
mod side;

use std::time::Duration;

use towpath_core::batch::BatcherId;
use towpath_core::clock::VirtualClock;

pub use coverage::BatchCoverage;

use super::{Divergence, Shrunk, disagreement, side_by_side};
use crate::backend::{Backend, ModelBackend};
use crate::words::batcher;
use generate::Generator;
use op::Op;
use side::{Reply, Side, has_all};

/// Runs of a shorter list while the least that disagrees is looked for.
const SHRINKS_MAX: usize = 300;

/// Makes a test of random operations on batches. It fails when the stores disagree, and when the operations did not reach everything.
///
/// ```
/// # mod tests {
/// use towpath_conformance::backend::ModelBackend;
///
/// towpath_conformance::batches_differential!(ModelBackend, seeds = 100, operations = 200);
/// # }
/// ```
#[macro_export]
macro_rules! batches_differential {
    ($backend:expr, seeds = $seeds:expr, operations = $operations:expr) => {
        #[test]
        fn random_operations_on_batches_agree_with_the_model() {
            $crate::differential::batches::check(&$backend, $seeds, $operations);
        }
    };
}

/// Runs all seeds and panics with a report at the first disagreement, or when something was never reached.
pub fn check(backend: &dyn Backend, seeds: u64, operations: usize) {
    let mut coverage = BatchCoverage::default();
    let lanes = side_by_side(|lane, lanes| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let seeds = (lane..seeds).step_by(lanes);
        runtime.expect("a runtime on one thread asks for nothing special").block_on(explore(backend, seeds, operations))
    });
    for lane in lanes {
        match lane {
            Ok(reached) => coverage.add(reached),
            Err(divergence) => panic!("the store and the model disagree.\n{divergence}"),
        }
    }
    let missing = coverage.missing();
    assert!(missing.is_empty(), "the operations proved too little, for these never happened: {missing:#?}");
}

/// Runs some seeds, and says what they reached or where the stores part.
pub async fn explore(backend: &dyn Backend, seeds: impl Iterator<Item = u64>, operations: usize) -> Result<BatchCoverage, Box<Divergence>> {
    let mut coverage = BatchCoverage::default();
    let batchers = batchers(backend);
    for seed in seeds {
        let mut generator = Generator::new(seed, &batchers);
        let mut pair = Pair::new(backend).await;
        let mut ops = Vec::with_capacity(operations);
        for index in 0..operations {
            let op = generator.next(pair.model.store()).await;
            ops.push(op.clone());
            if let Err(disagreement) = pair.step(&op, &mut coverage).await {
                let shrunk = shrink(backend, ops).await;
                return Err(Box::new(Divergence { seed, index, disagreement, shrunk }));
            }
        }
    }
    Ok(coverage)
}

/// Two batchers, so that one could get into the other's way.
fn batchers(backend: &dyn Backend) -> [BatcherId; 2] {
    [BatcherId { layout: backend.layout(), ..batcher("orders") }, batcher("other")]
}

/// The model and a store, under one clock.
struct Pair {
    clock: VirtualClock,
    model: Side,
    store: Side,
    hears_exactly: bool,
}

impl Pair {
    async fn new(backend: &dyn Backend) -> Self {
        let (clock, [listened, _]) = (VirtualClock::new(), batchers(backend));
        let model = Side::new(&ModelBackend, &listened, &clock).await;
        let store = Side::new(backend, &listened, &clock).await;
        Self { clock, model, store, hears_exactly: backend.hears_exactly() }
    }

    async fn step(&mut self, op: &Op, coverage: &mut BatchCoverage) -> Result<(), String> {
        if let Op::Advance { ms } = op {
            self.clock.advance(Duration::from_millis(*ms));
        }
        let by_model = self.model.apply(op, None).await;
        let mut by_store = self.store.apply(op, Some(&by_model)).await;
        if let (Reply::Heard(meant), Reply::Heard(heard), false) = (&by_model, &mut by_store, self.hears_exactly)
            && has_all(heard, meant)
        {
            heard.clone_from(meant);
        }
        coverage.note(op, &by_model);
        if by_model == by_store { Ok(()) } else { Err(disagreement(&format!("{op:?}"), &by_model, &by_store)) }
    }
}

/// Takes operations away, chunk by chunk, for as long as the stores still disagree.
async fn shrink(backend: &dyn Backend, mut ops: Vec<Op>) -> Option<Shrunk> {
    let (index, mut last) = first_disagreement(backend, &ops).await?;
    ops.truncate(index + 1);
    let (mut chunk, mut runs) = (ops.len() / 2, 0);
    while chunk > 0 {
        let mut start = 0;
        while start < ops.len() && runs < SHRINKS_MAX {
            runs += 1;
            let mut shorter = ops.clone();
            shorter.drain(start..(start + chunk).min(shorter.len()));
            match first_disagreement(backend, &shorter).await {
                Some((index, disagreement)) => {
                    shorter.truncate(index + 1);
                    (ops, last) = (shorter, disagreement);
                }
                None => start += chunk,
            }
        }
        chunk /= 2;
    }
    Some(Shrunk { operations: ops.iter().map(|op| format!("{op:?}")).collect(), disagreement: last })
}

async fn first_disagreement(backend: &dyn Backend, ops: &[Op]) -> Option<(usize, String)> {
    let mut pair = Pair::new(backend).await;
    let mut coverage = BatchCoverage::default();
    for (index, op) in ops.iter().enumerate() {
        if let Err(disagreement) = pair.step(op, &mut coverage).await {
            return Some((index, disagreement));
        }
    }
    None
}
