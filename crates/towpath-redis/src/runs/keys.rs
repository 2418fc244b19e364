//! The keys of runs. Streams are named as the seed names them; all other keys of a place have its stream as their hash tag.

use towpath_core::names::{Reference, WorkerId, WorkflowName};
use towpath_core::run::{RunId, RunPlace, RunQueue, RunState};

/// What a run that is ready and paused counts as: it is in no queue.
pub(super) const PAUSED: &str = "paused";
/// What a run that is ready and was begun before counts as.
pub(super) const BEGUN: &str = "begun";
/// The two queues.
pub(super) const QUEUES: [RunQueue; 2] = [RunQueue::New, RunQueue::First];
/// All keys of one run, as they follow its name.
const OF_RUN: [&str; 7] = ["", ":j", ":in", ":er", ":et", ":kids", ":pub"];
/// Keys of a place, but for those of its runs and the sets by standing.
const OF_PLACE: [&str; 10] = ["first", "claims", "timers", "runs", "unfit", "out", "posts", "held", "seq", "refs"];
/// Characters that a key's hash tag has as `%XX`, so that no two references share a key.
const ENCODED: [char; 5] = [':', '/', '{', '}', '%'];

/// The keys of one place.
#[derive(Clone, Debug)]
pub(super) struct PlaceKeys {
    /// Stream, of the seed: new runs.
    pub(super) stream: String,
    /// What all other keys begin with.
    pub(super) own: String,
    /// Channel: a run came into a queue.
    pub(super) channel: String,
}

impl PlaceKeys {
    pub(super) fn new(prefix: &str, database: i64, place: &RunPlace) -> Self {
        let stream = place.stream();
        Self { own: format!("{prefix}:{{{stream}}}:"), channel: format!("{prefix}:runs:{database}:{stream}"), stream }
    }

    /// A key of the place.
    pub(super) fn of(&self, name: &str) -> String {
        format!("{}{name}", self.own)
    }

    /// The stream of a queue.
    pub(super) fn queue(&self, queue: RunQueue) -> String {
        match queue {
            RunQueue::New => self.stream.clone(),
            RunQueue::First => self.of("first"),
        }
    }

    /// Sorted set: the ready runs of a queue, in order.
    pub(super) fn ready(&self, queue: RunQueue) -> String {
        self.standing(if queue == RunQueue::New { RunState::Ready.as_str() } else { BEGUN })
    }

    /// Sorted set: the runs of one standing.
    pub(super) fn standing(&self, word: &str) -> String {
        format!("{}st:{word}", self.own)
    }

    /// Hash: what decides about a run.
    pub(super) fn run(&self, run_id: &RunId) -> String {
        format!("{}run:{run_id}", self.own)
    }

    /// All keys that a script about these runs may touch. The stream is the first.
    pub(super) fn declared<'a>(&self, runs: impl Iterator<Item = &'a RunId>) -> Vec<String> {
        let mut keys = vec![self.stream.clone()];
        keys.extend(OF_PLACE.iter().map(|name| self.of(name)));
        keys.extend(RunState::ALL.iter().map(|state| self.standing(state.as_str())).chain([self.standing(PAUSED), self.standing(BEGUN)]));
        for run_id in runs {
            let run = self.run(run_id);
            keys.extend(OF_RUN.iter().map(|name| format!("{run}{name}")));
        }
        keys
    }
}

/// The letter of a queue in scripts.
pub(super) const fn letter(queue: RunQueue) -> &'static str {
    match queue {
        RunQueue::New => "n",
        RunQueue::First => "f",
    }
}

/// Hash: the run that a reference of a workflow leads to, its input hash, and the start until the run exists.
pub(super) fn reference(prefix: &str, workflow: &WorkflowName, reference: &Reference) -> String {
    format!("{prefix}:{{ref/{}/{}}}", encode(workflow.as_str()), encode(reference.as_str()))
}

/// Hash: the code of a place -> the name of its stream.
pub(super) fn partitions(prefix: &str) -> String {
    format!("{prefix}:{{registry}}:partitions")
}

/// Channel: a run has closed. Channels are shared by all databases of a server.
pub(super) fn closed(prefix: &str, database: i64, run_id: &RunId) -> String {
    format!("{prefix}:closed:{database}:{run_id}")
}

/// Channel: something has come for a run that this owner executes.
pub(super) fn notified(prefix: &str, database: i64, owner: &WorkerId) -> String {
    format!("{prefix}:owner:{database}:{owner}")
}

fn encode(part: &str) -> String {
    let mut encoded = String::with_capacity(part.len());
    for character in part.chars() {
        if ENCODED.contains(&character) {
            encoded += &format!("%{:02X}", u32::from(character));
        } else {
            encoded.push(character);
        }
    }
    encoded
}

/// What a key of runs may hold, as `TYPE` says it. `rest` is what stands behind the prefix and its colon.
pub(crate) fn kind_of(rest: &str) -> Option<&'static [&'static str]> {
    if rest.starts_with("{ref/") || rest == "{registry}:partitions" {
        return Some(&["hash"]);
    }
    let (_, room) = rest.strip_prefix("{workflow/")?.split_once("}:")?;
    if let Some(run) = room.strip_prefix("run:") {
        return match run.split_once(':').map(|(_, name)| name) {
            None | Some("er" | "kids" | "pub") => Some(&["hash"]),
            Some("in" | "et") => Some(&["zset"]),
            Some("j") => Some(&["list"]),
            _ => None,
        };
    }
    match room {
        "first" => Some(&["stream"]),
        "claims" | "timers" | "runs" | "unfit" | "posts" => Some(&["zset"]),
        "out" | "held" | "refs" => Some(&["hash"]),
        "seq" => Some(&["string"]),
        _ if room.starts_with("st:") => Some(&["zset"]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use towpath_core::run::place;

    use super::*;
    use crate::keys::{hash_tag, kind_of as kind_of_any};

    #[test]
    fn all_keys_of_a_place_share_the_slot_of_its_stream() {
        let place = place("a{b}:c", "1.0.0", Some("us/east")).unwrap();
        let keys = PlaceKeys::new("towpath", 0, &place);
        let run = RunId::new(&place, 7);
        let declared = keys.declared([&run].into_iter());
        assert!(declared[1..].iter().all(|key| hash_tag(key) == Some(keys.stream.as_str())), "{declared:?}");
        assert_eq!(hash_tag(&keys.stream), None, "the whole name is hashed");
        assert_eq!(declared.iter().collect::<BTreeSet<_>>().len(), declared.len());
    }

    #[test]
    fn of_every_key_of_runs_is_known_what_it_holds() {
        let place = place("order", "1", None).unwrap();
        let keys = PlaceKeys::new("mine", 0, &place);
        for key in keys.declared([&RunId::new(&place, 1)].into_iter()) {
            assert!(kind_of_any("mine", &key).is_some(), "{key}");
        }
        assert_eq!(kind_of_any("mine", &keys.stream), Some(&["stream"][..]));
        let (workflow, known_as) = (WorkflowName::new("a/b").unwrap(), Reference::new("{x}:1").unwrap());
        let reference = reference("mine", &workflow, &known_as);
        assert_eq!(reference, "mine:{ref/a%2Fb/%7Bx%7D%3A1}");
        assert_eq!(kind_of_any("mine", &reference), Some(&["hash"][..]));
        assert_eq!(kind_of_any("mine", &partitions("mine")), Some(&["hash"][..]));
    }
}
