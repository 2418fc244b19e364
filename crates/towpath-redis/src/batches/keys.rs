//! The keys of batches. Those of the old worker are written exactly so; our own carry one of them, or the batcher, as their hash tag.

use towpath_core::batch::{NewMessage, SourceId};
use towpath_core::names::{BatchId, BatchKey, BatcherName};

use crate::keys::tagged;

const DEADLINES: &str = "batch:deadlines";
const FIRST_SEEN: &str = "batch:first_seen";
const OPEN_LISTS: &str = "queue:batch:";
const DEAD_LETTERS: &str = "dlq:input_contour";

/// The keys of one place.
#[derive(Clone, Debug)]
pub(crate) struct PlaceKeys {
    /// Sorted set: batch key by its deadline, in seconds.
    due: String,
    /// Sorted set: batch key by the time of its first message, in seconds.
    pub(super) first: String,
    /// Sorted set: batch id by the end of its lease or its next attempt, in milliseconds.
    pub(super) fly: String,
    /// List: dead letters, the oldest first.
    pub(super) dead: String,
    /// String: how many messages are open.
    pub(super) count: String,
    /// What stands before a batch key in the list of its messages.
    pub(super) lists: String,
    /// What our other keys begin with.
    pub(super) own: String,
}

impl PlaceKeys {
    /// The old worker's keys, and ours beside them.
    pub(crate) fn seed(prefix: &str) -> Self {
        let own = format!("{prefix}:{{{DEADLINES}}}:");
        Self {
            due: DEADLINES.to_owned(),
            first: FIRST_SEEN.to_owned(),
            fly: format!("{own}fly"),
            dead: DEAD_LETTERS.to_owned(),
            count: format!("{own}n"),
            lists: OPEN_LISTS.to_owned(),
            own,
        }
    }

    /// Our own keys of one part of a batcher. All have one hash tag: a batcher's name has no braces.
    pub(crate) fn own(prefix: &str, batcher: &BatcherName, part: u16) -> Self {
        let own = format!("{prefix}:{{batch:{batcher}:{part}}}:");
        Self {
            due: format!("{own}due"),
            first: format!("{own}first"),
            fly: format!("{own}fly"),
            dead: format!("{own}dlq"),
            count: format!("{own}n"),
            lists: format!("{own}m:"),
            own,
        }
    }

    /// In the order in which the scripts want them.
    pub(super) fn in_order(&self) -> [&str; 5] {
        [&self.due, &self.first, &self.fly, &self.dead, &self.count]
    }

    pub(super) fn deadlines(&self) -> &str {
        &self.due
    }

    /// What is kept of a batch key: its messages, the state of its open batch, the marker of its batch in flight.
    pub(super) fn of_key(&self, key: &BatchKey) -> [String; 3] {
        [format!("{}{key}", self.lists), format!("{}o:{key}", self.own), format!("{}fl:{key}", self.own)]
    }

    /// What is kept of a claimed batch: its state, its messages.
    pub(super) fn of_flight(&self, id: &BatchId) -> [String; 2] {
        [format!("{}ch:{id}", self.own), format!("{}c:{id}", self.own)]
    }

    /// What is remembered of a message.
    pub(super) fn of_ids(&self, message: &NewMessage) -> impl Iterator<Item = String> {
        let id = message.message_id.as_ref().map(|id| format!("{}i:{}:{}", self.own, message.key, id.as_str()));
        id.into_iter().chain(message.source.as_ref().map(|source| self.of_source(source)))
    }

    /// What is remembered of an element of an old producer's list.
    pub(super) fn of_source(&self, source: &SourceId) -> String {
        format!("{}s:{source}", self.own)
    }
}

/// The keys of an old producer's list.
pub(super) struct SourceKeys {
    /// List: what was taken aside.
    pub(super) aside: String,
    /// String: how many were ever dealt with.
    pub(super) counter: String,
    /// String: who drains it, and until when nobody else does.
    pub(super) drainer: String,
}

impl SourceKeys {
    pub(super) fn new(prefix: &str, list: &str) -> Self {
        let tagged = tagged(list);
        let key = |room: &str| format!("{prefix}:{tagged}:{room}");
        Self { aside: key("drain"), counter: key("drained"), drainer: key("drainer") }
    }
}

/// Hash: what is kept of batchers' settings.
pub(super) fn batchers(prefix: &str) -> String {
    format!("{prefix}:batchers")
}

/// List: who dropped dead letters, the latest first.
pub(crate) fn audit(prefix: &str) -> String {
    format!("{prefix}:batch:audit")
}

/// Channel: when something of a batcher is due. Channels are shared by all databases of a server.
pub(super) fn channel(prefix: &str, database: i64, batcher: &BatcherName) -> String {
    format!("{prefix}:wake:batch:{database}:{batcher}")
}

/// What a key of batches may hold, as `TYPE` says it. `rest` is what stands behind the prefix and its colon.
pub(crate) fn kind_of(rest: &str) -> Option<&'static [&'static str]> {
    if let Some(place) = rest.strip_prefix("{batch:") {
        let (_, room) = place.split_once("}:")?;
        return match room.split(':').next()? {
            "due" | "first" | "fly" => Some(&["zset"]),
            "ch" => Some(&["hash"]),
            "m" | "c" | "dlq" => Some(&["list"]),
            "o" | "fl" | "i" | "s" | "n" => Some(&["string"]),
            _ => None,
        };
    }
    match rest {
        "batchers" => Some(&["hash"]),
        "batch:audit" => Some(&["list"]),
        _ if rest.starts_with('{') && rest.ends_with(":drain") => Some(&["list"]),
        _ if rest.starts_with('{') && (rest.ends_with(":drained") || rest.ends_with(":drainer")) => Some(&["string"]),
        _ => None,
    }
}

/// The same of the old worker's keys.
pub(crate) fn kind_of_seeds(key: &str) -> Option<&'static [&'static str]> {
    match key {
        DEADLINES | FIRST_SEEN => Some(&["zset"]),
        DEAD_LETTERS | "queue:incoming" => Some(&["list"]),
        _ if key.starts_with(OPEN_LISTS) => Some(&["list"]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{hash_tag, kind_of as kind_of_any};

    fn all_of(keys: &PlaceKeys) -> Vec<(String, &'static str)> {
        let kinds = ["zset", "zset", "zset", "list", "string"];
        let mut all: Vec<_> = keys.in_order().into_iter().map(str::to_owned).zip(kinds).collect();
        let own = |room: &str, kind| (format!("{}{room}:a:{{w}}:s", keys.own), kind);
        all.extend([own("o", "string"), own("ch", "hash"), own("c", "list"), own("fl", "string"), own("i", "string"), own("s", "string")]);
        all.push((format!("{}a:w", keys.lists), "list"));
        all
    }

    #[test]
    fn of_every_key_of_batches_is_known_what_it_holds() {
        let orders = BatcherName::new("заказы").unwrap();
        let places = [PlaceKeys::seed("mine"), PlaceKeys::own("mine", &orders, 3)];
        let source = SourceKeys::new("mine", "queue:incoming");
        let others = [
            (source.aside, "list"),
            (source.counter, "string"),
            (source.drainer, "string"),
            (batchers("mine"), "hash"),
            (audit("mine"), "list"),
            ("queue:incoming".to_owned(), "list"),
        ];
        for (key, kind) in places.iter().flat_map(all_of).chain(others) {
            assert_eq!(kind_of_any("mine", &key).and_then(<[_]>::first), Some(&kind), "{key}");
        }
    }

    #[test]
    fn our_own_keys_of_a_part_share_a_slot_and_those_of_a_source_lie_beside_it() {
        let keys = PlaceKeys::own("towpath", &BatcherName::new("orders").unwrap(), 0);
        for (key, _) in all_of(&keys) {
            assert_eq!(hash_tag(&key), Some("batch:orders:0"), "{key}");
        }
        let source = SourceKeys::new("towpath", "queue:incoming");
        assert_eq!((source.aside.as_str(), hash_tag(&source.counter)), ("towpath:{queue:incoming}:drain", Some("queue:incoming")));
        assert_eq!(hash_tag(&source.drainer), Some("queue:incoming"));
        assert_eq!(hash_tag(&SourceKeys::new("towpath", "a{b}c").aside), Some("b"));
    }
}
