//! Rows that cannot be read: a person has edited the file, or a later version has written it. A move about many rows leaves them out. The log
//! names each of them once an hour, and people see them among the problems of the store (decision 042).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towpath_core::time::Timestamp;

/// The log names a thing again after this.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(3_600);
/// A thing that was met within this time is one of the problems that people see.
const SHOWN_FOR: Duration = Duration::from_secs(120);
/// Number of things that are remembered.
const REMEMBERED_MAX: usize = 1_024;
/// Number of problems that people see.
const SHOWN_MAX: usize = 20;

/// What was met, and what was told of it.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(Mutex<BTreeMap<String, Met>>);

#[derive(Debug)]
struct Met {
    at: Timestamp,
    told_at: Timestamp,
    says: String,
}

impl Unreadable {
    /// Notes that a thing cannot be read. The log names it, unless it has lately.
    pub(crate) fn pass_over(&self, thing: &str, why: &str, now: Timestamp) {
        let mut met = self.lock();
        if let Some(known) = met.get_mut(thing) {
            known.at = now;
            if now >= known.told_at && now.since(known.told_at) < TOLD_AGAIN_AFTER {
                return;
            }
            known.told_at = now;
        } else if has_room(&mut met, now) {
            let says = format!("{thing} cannot be read and is left out, everything else goes on: {why}");
            met.insert(thing.to_owned(), Met { at: now, told_at: now, says });
        } else {
            return;
        }
        drop(met);
        tracing::warn!("{thing} cannot be read and is left out, everything else goes on: {why}");
    }

    /// What was met lately, for people.
    pub(crate) fn problems(&self, now: Timestamp) -> Vec<String> {
        let met = self.lock();
        met.values().filter(|met| now.since(met.at) < SHOWN_FOR).take(SHOWN_MAX).map(|met| met.says.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Met>> {
        // No code under this lock can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether one more thing can be remembered. Those that were not met for long are forgotten first.
fn has_room(met: &mut BTreeMap<String, Met>, now: Timestamp) -> bool {
    if met.len() >= REMEMBERED_MAX {
        met.retain(|_, met| now.since(met.at) < TOLD_AGAIN_AFTER);
    }
    met.len() < REMEMBERED_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn people_see_what_was_met_lately_and_memory_is_bounded() {
        let unreadable = Unreadable::default();
        unreadable.pass_over("run a", "it is not JSON", at(0));
        assert_eq!(unreadable.problems(at(1)), ["run a cannot be read and is left out, everything else goes on: it is not JSON"]);
        assert!(unreadable.problems(at(120)).is_empty());
        for number in 0..2_000 {
            unreadable.pass_over(&format!("run {number}"), "it is not JSON", at(10));
        }
        assert_eq!(unreadable.lock().len(), REMEMBERED_MAX);
        assert_eq!(unreadable.problems(at(11)).len(), SHOWN_MAX);
        unreadable.pass_over("run b", "it is not JSON", at(4_000));
        assert_eq!(unreadable.lock().len(), 1, "those of an hour ago are forgotten");
    }
}
