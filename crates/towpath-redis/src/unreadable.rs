//! Keys and members under Towpath's names that cannot be read: another program has written them, or a later version. They are passed over. The
//! log names each of them once an hour, and people see them among the problems of the store.

use std::fmt::Display;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Cmd;
use towpath_core::store::{StoreError, StoreTrouble};
use towpath_core::time::Timestamp;

use crate::keys::kind_of;
use crate::quick::QuickMap;
use crate::registry::reply::command;
use crate::store::{RedisStore, Shared};
use crate::value;

/// The log names a thing again after this.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(3_600);
/// A thing that was met within this time is one of the problems that people see.
const SHOWN_FOR: Duration = A_MINUTE;
const A_MINUTE: Duration = Duration::from_secs(60);
/// Number of things that are remembered for people.
const REMEMBERED_MAX: usize = 1_024;
/// The log names no more things than these in a minute. The others are named in later minutes, if they are met again.
const TOLD_IN_A_MINUTE: usize = 60;
/// Number of problems that people see.
const SHOWN_MAX: usize = 20;
/// A longer name is shown by its start.
const NAME_MAX: usize = 120;

/// What was met, and what was told of it.
#[derive(Default)]
pub(crate) struct Unreadable(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    /// What was met lately.
    met: QuickMap<String, Met>,
    told: Told,
}

struct Met {
    at: Timestamp,
    says: String,
}

/// What the log has named in the latest hour. It is bounded by the number of lines in an hour.
#[derive(Default)]
struct Told {
    /// When each thing was named, by its hash.
    at: QuickMap<u64, Timestamp>,
    /// When the minute began in which lines are counted, and how many it has.
    minute: Timestamp,
    lines: usize,
}

impl Told {
    /// Notes that the log names a thing now. Returns `false` if it must not.
    fn note(&mut self, thing: &str, now: Timestamp) -> bool {
        let is_old = |at: Timestamp| now < at || now.since(at) >= TOLD_AGAIN_AFTER;
        let hash = self.at.hasher().hash_one(thing);
        if self.at.get(&hash).is_some_and(|at| !is_old(*at)) {
            return false;
        }
        if now < self.minute || now.since(self.minute) >= A_MINUTE {
            (self.minute, self.lines) = (now, 0);
            self.at.retain(|_, at| !is_old(*at));
        }
        let may_tell = self.lines < TOLD_IN_A_MINUTE;
        if may_tell {
            self.lines += 1;
            self.at.insert(hash, now);
        }
        may_tell
    }
}

impl Unreadable {
    /// Notes that a thing was met, and what is to be said of it. Returns whether the log is to say it now.
    fn note(&self, thing: &str, says: &str, now: Timestamp) -> bool {
        let Notes { met, told } = &mut *self.lock();
        if met.len() >= REMEMBERED_MAX {
            met.retain(|_, met| now.since(met.at) < SHOWN_FOR);
        }
        if let Some(known) = met.get_mut(thing) {
            known.at = now;
        } else if met.len() < REMEMBERED_MAX {
            met.insert(thing.to_owned(), Met { at: now, says: says.to_owned() });
        }
        told.note(thing, now)
    }

    /// What was met lately, for people.
    pub(crate) fn problems(&self, now: Timestamp) -> Vec<String> {
        let notes = self.lock();
        let mut lately: Vec<(&String, &Met)> = notes.met.iter().filter(|(_, met)| now.since(met.at) < SHOWN_FOR).collect();
        lately.sort_unstable_by_key(|(thing, _)| *thing);
        lately.into_iter().take(SHOWN_MAX).map(|(_, met)| met.says.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        // No code under this lock can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Passes over a member of a key, or the whole key if `member` is empty.
    pub(crate) fn pass_over(&self, key: &str, member: &[u8], why: impl Display) {
        let thing = if member.is_empty() { format!("the key {key}") } else { format!("'{}' in the key {key}", shown(member)) };
        self.tell_once(&thing, &format!("{thing} cannot be read and is left out, everything else goes on: {why}"));
    }

    /// Says something to the log, once an hour, and to people who look at the problems of the store, as long as it is said again and again.
    pub(crate) fn tell_once(&self, thing: &str, says: &str) {
        if self.unreadable.note(thing, says, self.now()) {
            tracing::warn!("{says}");
        }
    }

    /// The value, or what stands for it where its key holds something else or cannot be reached: that key is passed over.
    pub(crate) fn or_pass_over<T>(&self, key: &str, read: Result<T, StoreError>, instead: T) -> Result<T, StoreError> {
        match read {
            Err(error) if self.is_local(&error) => {
                self.pass_over(key, b"", of_key(error, key));
                Ok(instead)
            }
            read => read,
        }
    }

    /// Whether the trouble is that of one key alone: others can be read. In a Cluster a master that is away has some keys, and others have the rest.
    pub(crate) fn is_local(&self, error: &StoreError) -> bool {
        is_odd(error) || self.link.is_cluster() && matches!(error, StoreError::Unavailable(StoreTrouble::Other(_)) | StoreError::Unknown(_))
    }
}

impl RedisStore {
    /// Which of these keys holds something else than it should, and what to do. It is asked for only after a refusal.
    pub(crate) async fn odd_key(&self, keys: &[&str]) -> Option<String> {
        let asks: Vec<Cmd> = keys.iter().map(|key| command("TYPE", &[key])).collect();
        let types = self.shared.link.ask_all(&asks).await.ok()?;
        keys.iter().zip(types).find_map(|(key, found)| {
            let (found, wanted) = (value::text(&found)?, kind_of(self.shared.keys.prefix(), key)?);
            let is_odd = found != "none" && !wanted.contains(&found);
            is_odd.then(|| {
                format!("the key {key} is a {found} and should be a {}: {WHAT_TO_DO}", wanted.first().copied().unwrap_or_default())
            })
        })
    }
}

/// What a person does about a key that holds something else.
pub(crate) const WHAT_TO_DO: &str = "look at it, then rename or delete it (RENAME, DEL)";

/// Whether something cannot be read, and asking again does not help: it is of another type, or makes no sense.
pub(crate) fn is_odd(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(StoreTrouble::WrongType(_)) | StoreError::Corrupt(_))
}

/// The same error with the name of the one key that it is about.
pub(crate) fn of_key(error: StoreError, key: &str) -> StoreError {
    match error {
        StoreError::Unavailable(StoreTrouble::WrongType(why)) if !why.contains(key) => {
            StoreError::Unavailable(StoreTrouble::WrongType(format!("the key {key} holds something else: {WHAT_TO_DO}; {why}")))
        }
        StoreError::Corrupt(why) if !why.contains(key) => StoreError::Corrupt(format!("the key {key}: {why}")),
        error => error,
    }
}

/// A name as people see it.
fn shown(member: &[u8]) -> String {
    let start = String::from_utf8_lossy(&member[..member.len().min(NAME_MAX)]);
    let dots = if member.len() > NAME_MAX { "…" } else { "" };
    format!("{}{dots}", start.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_thing_is_told_once_an_hour_and_shown_while_it_is_met() {
        let unreadable = Unreadable::default();
        assert!(unreadable.note("the key a", "junk", at(0)));
        for second in 1..3_600 {
            assert!(!unreadable.note("the key a", "junk", at(second)), "{second}");
        }
        assert!(unreadable.note("the key a", "junk", at(3_600)));
        assert_eq!(unreadable.problems(at(3_659)), ["junk"]);
        assert_eq!(unreadable.problems(at(3_660)), Vec::<String>::new());
    }

    #[test]
    fn a_flood_of_things_is_told_in_part_and_remembered_in_part() {
        let unreadable = Unreadable::default();
        let meet_all = |second| (0..5_000).filter(|number| unreadable.note(&format!("the key {number}"), "junk", at(second))).count();
        assert_eq!(meet_all(0), TOLD_IN_A_MINUTE);
        assert_eq!((meet_all(15), meet_all(30), meet_all(59)), (0, 0, 0));
        assert_eq!(unreadable.lock().met.len(), REMEMBERED_MAX);
        assert_eq!(unreadable.problems(at(59)).len(), SHOWN_MAX);
        assert_eq!((meet_all(60), meet_all(120)), (TOLD_IN_A_MINUTE, TOLD_IN_A_MINUTE), "others in later minutes");
        (3..60).for_each(|minute| assert_eq!(meet_all(60 * minute), TOLD_IN_A_MINUTE, "none twice in an hour"));
        assert_eq!(unreadable.lock().told.at.len(), 60 * TOLD_IN_A_MINUTE);
        assert!(unreadable.note("the key a", "junk", at(2 * 3_600)), "room is made for what is met later");
        assert_eq!(unreadable.lock().told.at.len(), 1);
    }

    #[test]
    fn a_name_is_shown_as_text_and_not_longer_than_people_read() {
        assert_eq!(shown(b"a\n\xff"), "a\\n\u{fffd}");
        assert_eq!(shown(&[b'x'; 5_000]).chars().count(), NAME_MAX + 1);
    }
}
