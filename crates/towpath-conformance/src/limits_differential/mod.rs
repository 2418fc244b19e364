//! Seeded random operations on limits, sent to the model and to a store: they must agree on every reply, to the microsecond.
//!
//! A list of its own beside [`differential`](mod@crate::differential), because limits live in microseconds and calls in milliseconds.

mod coverage;
mod generate;

use std::fmt;
use std::time::Duration;

use towpath_core::clock::VirtualClock;
use towpath_core::inspect::{LimitPage, LimitQuery};
use towpath_core::limit::{Check, LimitReply, Rules};
use towpath_core::names::LimitScope;
use towpath_core::store::Store;

use crate::backend::{Backend, ModelBackend, UnderTest};
use coverage::Coverage;
use generate::Generator;

/// Runs of a shorter list while the least that disagrees is looked for.
const SHRINKS_MAX: usize = 300;
/// Operations on one store; then a fresh one is taken.
const ON_ONE_STORE: usize = 400;

/// Something done to a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Op {
    Take(Check),
    Reset(LimitScope, Rules),
    List(LimitQuery),
    Advance { us: u64 },
    Reopen,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    Done,
    Said(LimitReply),
    InUse(u64),
    Listed(LimitPage),
    Trouble(String),
}

/// Makes a test of random operations on limits. It fails when the stores disagree, and when the operations did not reach everything.
///
/// ```
/// # mod tests {
/// use towpath_conformance::backend::ModelBackend;
///
/// towpath_conformance::limits_differential!(ModelBackend, operations = 12_000);
/// # }
/// ```
#[macro_export]
macro_rules! limits_differential {
    ($backend:expr, operations = $operations:expr) => {
        #[tokio::test]
        async fn random_limits_agree_with_the_model() {
            if let Err(why) = $crate::limits_differential::check(&$backend, $operations).await {
                panic!("{why}");
            }
        }
    };
}

/// Runs so many operations and says where the stores part, or what was never reached.
pub async fn check(backend: &dyn Backend, operations: usize) -> Result<(), String> {
    let mut coverage = Coverage::default();
    for seed in 0..operations.div_ceil(ON_ONE_STORE) {
        explore(backend, seed as u64, &mut coverage).await?;
    }
    let missing = coverage.missing();
    if missing.is_empty() { Ok(()) } else { Err(format!("the operations proved too little, for these never happened: {missing:#?}")) }
}

async fn explore(backend: &dyn Backend, seed: u64, coverage: &mut Coverage) -> Result<(), String> {
    let mut generator = Generator::new(seed);
    let mut pair = Pair::new(backend).await;
    let mut ops = Vec::with_capacity(ON_ONE_STORE);
    for _ in 0..ON_ONE_STORE {
        let op = generator.next();
        ops.push(op.clone());
        let reply = pair.put(&op).await;
        if let Err(disagreement) = reply {
            let (ops, disagreement) = shrink(backend, ops).await.unwrap_or((Vec::new(), disagreement));
            let list: Vec<String> = ops.iter().map(|op| format!("  {op:?}")).collect();
            return Err(format!("seed {seed}: {disagreement}\n{} operations are enough:\n{}", ops.len(), list.join("\n")));
        }
        let reply = reply?;
        generator.heard(&reply);
        coverage.note(&op, &reply);
    }
    Ok(())
}

/// Takes operations away for as long as the stores still disagree.
async fn shrink(backend: &dyn Backend, ops: Vec<Op>) -> Option<(Vec<Op>, String)> {
    let mut shortest = (ops.clone(), first_disagreement(backend, &ops).await?);
    let (mut chunk, mut runs) = (shortest.0.len() / 2, 0);
    while chunk > 0 {
        let mut start = 0;
        while start < shortest.0.len() && runs < SHRINKS_MAX {
            runs += 1;
            let mut shorter = shortest.0.clone();
            shorter.drain(start..(start + chunk).min(shorter.len()));
            match first_disagreement(backend, &shorter).await {
                Some(disagreement) => shortest = (shorter, disagreement),
                None => start += chunk,
            }
        }
        chunk /= 2;
    }
    Some(shortest)
}

async fn first_disagreement(backend: &dyn Backend, ops: &[Op]) -> Option<String> {
    let mut pair = Pair::new(backend).await;
    for op in ops {
        if let Err(disagreement) = pair.put(op).await {
            return Some(disagreement);
        }
    }
    None
}

/// The model and a store, under one clock.
struct Pair {
    clock: VirtualClock,
    model: Box<dyn UnderTest>,
    store: Box<dyn UnderTest>,
}

impl Pair {
    async fn new(backend: &dyn Backend) -> Self {
        let clock = VirtualClock::new();
        let model = ModelBackend.fresh(std::sync::Arc::new(clock.clone())).await;
        let store = backend.fresh(std::sync::Arc::new(clock.clone())).await;
        Self { clock, model, store }
    }

    async fn put(&mut self, op: &Op) -> Result<Reply, String> {
        match op {
            Op::Advance { us } => self.clock.advance(Duration::from_micros(*us)),
            Op::Reopen => {
                self.model.reopen().await;
                self.store.reopen().await;
            }
            _ => {}
        }
        let by_model = ask(&*self.model.store(), op).await;
        let by_store = ask(&*self.store.store(), op).await;
        if by_model == by_store { Ok(by_model) } else { Err(disagreement(op, &by_model, &by_store)) }
    }
}

async fn ask(store: &dyn Store, op: &Op) -> Reply {
    let trouble = |error: towpath_core::store::StoreError| Reply::Trouble(error.to_string());
    match op {
        Op::Take(check) => store.take(check).await.map_or_else(trouble, Reply::Said),
        Op::Reset(scope, rules) => store.reset(scope, rules).await.map_or_else(trouble, Reply::InUse),
        Op::List(query) => store.limits(query).await.map_or_else(trouble, Reply::Listed),
        Op::Advance { .. } | Op::Reopen => Reply::Done,
    }
}

fn disagreement(op: &Op, by_model: &impl fmt::Debug, by_store: &impl fmt::Debug) -> String {
    format!("{op:?}\n  model: {by_model:?}\n  store: {by_store:?}")
}
