//! Cutting a list of operations down to what still makes two stores disagree.

use super::op::Op;
use super::{Coverage, Pair};
use crate::backend::Backend;

/// Runs are cheap but not free; a list that is not minimal is still a help.
const RUNS_MAX: usize = 400;

/// Takes away chunks, large ones first, for as long as the stores still disagree. Returns what is left, and the disagreement; nothing
/// when the same operations do not lead to any disagreement again.
pub(super) async fn shrink(backend: &dyn Backend, mut ops: Vec<Op>) -> Option<(Vec<Op>, String)> {
    let (index, disagreement) = first_disagreement(backend, &ops).await?;
    ops.truncate(index + 1);
    let mut shortest = (ops, disagreement);
    let (mut chunk, mut runs) = (shortest.0.len() / 2, 0);
    while chunk > 0 {
        let mut start = 0;
        while start < shortest.0.len() && runs < RUNS_MAX {
            runs += 1;
            let mut shorter = shortest.0.clone();
            shorter.drain(start..(start + chunk).min(shorter.len()));
            match first_disagreement(backend, &shorter).await {
                Some((index, disagreement)) => {
                    shorter.truncate(index + 1);
                    shortest = (shorter, disagreement);
                }
                None => start += chunk,
            }
        }
        chunk /= 2;
    }
    Some(shortest)
}

/// Everything is compared after each operation, so that a list never needs more than its last one to show the disagreement.
async fn first_disagreement(backend: &dyn Backend, ops: &[Op]) -> Option<(usize, String)> {
    let mut pair = Pair::new(backend).await;
    let mut coverage = Coverage::default();
    for (index, op) in ops.iter().enumerate() {
        let mut outcome = pair.step(index, op, &mut coverage).await;
        if outcome.is_ok() {
            outcome = pair.compare_all(&mut coverage).await;
        }
        if let Err(disagreement) = outcome {
            return Some((index, disagreement));
        }
    }
    None
}
