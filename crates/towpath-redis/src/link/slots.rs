//! Which slot of a Cluster a command belongs to, and which node has it.

use std::collections::BTreeMap;

use redis::{Arg, Cmd, FromRedisValue, Value};

use crate::options::Address;

const SLOTS: u16 = 16384;

/// Who has which slots.
#[derive(Debug, Default)]
pub(super) struct SlotMap {
    /// By the first slot of a range: its last slot and the master that has it.
    ranges: BTreeMap<u16, (u16, Address)>,
}

impl SlotMap {
    /// Reads the answer to `CLUSTER SLOTS`. A node that does not know its own name is where we asked.
    pub(super) fn read(reply: Value, asked: &Address) -> Option<Self> {
        type Range = (u16, u16, Vec<Value>);
        let Value::Array(ranges) = reply else { return None };
        let mut map = Self::default();
        for range in ranges {
            // Behind the master come its replicas, in varying number.
            let Value::Array(mut parts) = range else { return None };
            parts.truncate(3);
            let (first, last, master) = Range::from_redis_value(Value::Array(parts)).ok()?;
            let [host, port, ..] = master.as_slice() else { return None };
            let host = Option::<String>::from_redis_value_ref(host).ok()?.filter(|host| !host.is_empty() && host != "?");
            let address = Address { host: host.unwrap_or_else(|| asked.host.clone()), port: u16::from_redis_value_ref(port).ok()? };
            map.ranges.insert(first, (last, address));
        }
        Some(map).filter(|map| !map.ranges.is_empty())
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Address> {
        let (_, (last, address)) = self.ranges.range(..=slot).next_back()?;
        (slot <= *last).then_some(address)
    }

    /// Every node that has a slot; some more than once.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Address> {
        self.ranges.values().map(|(_, address)| address)
    }
}

/// The slot of a command's first key; none if it has no key.
pub(super) fn slot_of(command: &Cmd) -> Option<u16> {
    key_of(command).map(slot_of_key)
}

pub(crate) fn slot_of_key(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

/// A command's first key; none if it has no key.
pub(super) fn key_of(command: &Cmd) -> Option<&[u8]> {
    let words: Vec<&[u8]> = command
        .args_iter()
        .map_while(|word| match word {
            Arg::Simple(word) => Some(word),
            _ => None,
        })
        .collect();
    let name = String::from_utf8_lossy(words.first()?).to_ascii_uppercase();
    let at = match name.as_str() {
        "EVAL" | "EVALSHA" | "EVAL_RO" | "EVALSHA_RO" | "FCALL" | "FCALL_RO" => (*words.get(2)? != b"0").then_some(3)?,
        "XREAD" | "XREADGROUP" => words.iter().position(|word| word.eq_ignore_ascii_case(b"STREAMS"))? + 1,
        "XGROUP" | "XINFO" | "OBJECT" | "MEMORY" => 2,
        "PING" | "ECHO" | "TIME" | "INFO" | "ROLE" | "CLIENT" | "CONFIG" | "COMMAND" | "CLUSTER" | "ACL" | "SCRIPT" | "FUNCTION"
        | "PUBLISH" | "PUBSUB" | "WAIT" | "WAITAOF" | "MULTI" | "EXEC" | "DISCARD" | "DBSIZE" | "SCAN" | "KEYS" | "RANDOMKEY"
        | "FLUSHALL" | "FLUSHDB" | "LASTSAVE" | "SLOWLOG" | "LATENCY" | "DEBUG" => return None,
        _ => 1,
    };
    words.get(at).copied()
}

/// What decides the slot: that between the first braces, if there is something, or all.
fn tag(key: &[u8]) -> &[u8] {
    let inside = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').map(|close| &rest[..close])
    });
    inside.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// CRC16 in the form called XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ (u16::from(*byte) << 8), |sum, _| if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Cmd {
        let mut command = Cmd::new();
        command.arg(line.split(' ').collect::<Vec<_>>());
        command
    }

    #[test]
    fn a_slot_is_that_which_a_server_names() {
        // As `CLUSTER KEYSLOT` answers.
        for (key, slot) in [
            ("123456789", 12739),
            ("foo", 12182),
            ("{foo}.bar", 12182),
            ("a{}b", 13694),
            ("a{b", 13340),
            ("}{c}", 7365),
            ("x{a}{b}", 15495),
            ("a", 15495),
        ] {
            assert_eq!(slot_of_key(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn the_key_of_a_command_is_found() {
        let keys = [
            ("GET k", Some("k")),
            ("evalsha 1234 2 k l arg", Some("k")),
            ("EVALSHA 1234 0 k", None),
            ("XREADGROUP GROUP g c COUNT 1 BLOCK 0 streams k >", Some("k")),
            ("XGROUP CREATE k g 0 MKSTREAM", Some("k")),
            ("XINFO STREAM k", Some("k")),
            ("XADD k * a b", Some("k")),
            ("BLPOP k 1", Some("k")),
            ("SCRIPT LOAD return", None),
            ("PUBLISH channel text", None),
            ("WAIT 1 100", None),
            ("TIME", None),
        ];
        for (line, key) in keys {
            assert_eq!(key_of(&command(line)), key.map(str::as_bytes), "{line}");
        }
    }

    #[test]
    fn slots_are_found_in_what_a_node_says() {
        let said = b"*2\r\n*4\r\n:0\r\n:100\r\n*3\r\n$2\r\nh1\r\n:1\r\n$1\r\na\r\n*3\r\n$2\r\nh9\r\n:9\r\n$1\r\nb\r\n\
                     *3\r\n:200\r\n:16383\r\n*3\r\n$0\r\n\r\n:2\r\n$1\r\nc\r\n";
        let asked = Address { host: "here".to_owned(), port: 7 };
        let map = SlotMap::read(redis::parse_redis_value(said).unwrap(), &asked).unwrap();
        let owner = |slot| map.owner(slot).map(Address::to_string);
        assert_eq!(owner(0).as_deref(), Some("h1:1"));
        assert_eq!(owner(100).as_deref(), Some("h1:1"));
        assert_eq!(owner(101), None);
        assert_eq!(owner(16383).as_deref(), Some("here:2"));
        assert!(SlotMap::read(Value::Array(Vec::new()), &asked).is_none(), "a node that has not joined knows nothing");
    }
}
