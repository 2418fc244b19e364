//! One to eight rules that are checked together.

use std::ops::Deref;
use std::sync::Arc;

use super::{Algorithm, InvalidLimit, Rule};

/// The most rules of one check.
pub const RULES_MAX: usize = 8;

/// Before this instant (2023) nobody asks, in milliseconds. Two windows whose numbers differ then differ ever after.
const EARLIEST_MS: u128 = 1_700_000_000_000;

/// Rules that can be checked together: no two of them count in the same place. Clones share them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rules(Arc<[Rule]>);

impl Rules {
    /// Checks that these rules go together.
    pub fn new(rules: Vec<Rule>) -> Result<Self, InvalidLimit> {
        if rules.is_empty() || rules.len() > RULES_MAX {
            return Err(InvalidLimit::TooMany { given: rules.len(), max: RULES_MAX });
        }
        if rules.len() > 1
            && let Some(rule) = rules.iter().find(|rule| rule.counts_denied())
        {
            let name = rule.name();
            return Err(InvalidLimit::bad(format!("rule '{name}' counts denied calls: such a rule must be the only one of its check")));
        }
        for (place, one) in rules.iter().enumerate() {
            for other in &rules[..place] {
                refuse_same_place(other, one)?;
            }
        }
        Ok(Self(rules.into()))
    }

    /// A single rule.
    pub fn one(rule: Rule) -> Self {
        Self(Arc::new([rule]))
    }
}

impl Deref for Rules {
    type Target = [Rule];

    fn deref(&self) -> &[Rule] {
        &self.0
    }
}

fn refuse_same_place(one: &Rule, other: &Rule) -> Result<(), InvalidLimit> {
    if one.counted_for() != other.counted_for() {
        return Ok(());
    }
    let (name, second) = (one.name(), other.name());
    if name == second {
        return Err(InvalidLimit::bad(format!("two rules are called '{name}' and have the same key: give one another name or key")));
    }
    if one.algorithm() == Algorithm::FixedWindow && other.algorithm() == Algorithm::FixedWindow && may_share_a_bucket(one, other) {
        return Err(InvalidLimit::bad(format!(
            "rules '{name}' and '{second}' would count in the same bucket, for a fixed window is known by its number alone: \
             give one a key or a window that differs more"
        )));
    }
    Ok(())
}

/// Buckets have no name but the number of their window, as old callers count them. Two windows of nearly the same length can have the
/// same number at the same time.
fn may_share_a_bucket(one: &Rule, other: &Rule) -> bool {
    let (a, b) = (one.window().as_millis(), other.window().as_millis());
    EARLIEST_MS * a.abs_diff(b) < a * b
}
