//! Numbers that are drawn: the same for every execution of a generation, because they come from its seed.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use towpath_core::run::StepId;

/// 128 bits for one draw.
pub(crate) fn bits(seed: &str, generation: u64, branch: &[Arc<str>], label: &str, ordinal: u64) -> [u8; 16] {
    let mut hash = Sha256::new();
    let mut add = |part: &str| {
        hash.update(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        hash.update(part.as_bytes());
    };
    add("towpath-draw-1");
    add(seed);
    add(&generation.to_string());
    branch.iter().for_each(|label| add(label));
    add("");
    add(label);
    add(&ordinal.to_string());
    first_half(&hash.finalize())
}

/// The seed of a child: it follows from the step, so that a repeated start is the same start.
pub(crate) fn child_seed(seed: &str, step: &StepId) -> Arc<str> {
    seed_of(&[seed, step.as_str()])
}

/// The seed of the next generation.
pub(crate) fn next_seed(seed: &str, generation: u64) -> Arc<str> {
    seed_of(&[seed, &generation.to_string()])
}

/// A seed that follows from these texts: 32 hex digits.
pub(crate) fn seed_of(parts: &[&str]) -> Arc<str> {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part.as_bytes()));
    let digits: String = first_half(&hash.finalize()).iter().map(|byte| format!("{byte:02x}")).collect();
    Arc::from(digits)
}

fn first_half(digest: &[u8]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&digest[..16]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_depends_on_all_of_its_parts() {
        let label: Arc<str> = Arc::from("a");
        let draws = [
            bits("s", 0, &[], "a", 0),
            bits("t", 0, &[], "a", 0),
            bits("s", 1, &[], "a", 0),
            bits("s", 0, &[label], "a", 0),
            bits("s", 0, &[], "b", 0),
            bits("s", 0, &[], "a", 1),
        ];
        let different: std::collections::BTreeSet<[u8; 16]> = draws.into_iter().collect();
        assert_eq!(different.len(), draws.len());
        assert_eq!(bits("s", 0, &[], "a", 0), draws[0]);
        assert_eq!(seed_of(&["a", "b"]).len(), 32);
    }
}
