//! What a server says about itself while it is measured.

use redis::Client;

use super::{FloorError, bare};

/// Reads the server's counters.
pub struct Gauge {
    connection: redis::Connection,
}

/// The server's counters at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Commands since it started, those inside of scripts counted too.
    pub commands: u64,
    /// How much CPU its process has used, in seconds.
    pub cpu_seconds: f64,
    /// What its data takes.
    pub memory_bytes: u64,
    /// Such as `7.0.15`.
    pub version: String,
}

impl Gauge {
    /// How many commands one [`read`](Self::read) adds to those that it reports.
    pub const OWN_COMMANDS: u64 = 1;

    /// Connects.
    pub fn open(url: &str) -> Result<Self, FloorError> {
        Ok(Self { connection: Client::open(bare(url))?.get_connection()? })
    }

    /// The counters now.
    pub fn read(&mut self) -> Result<Reading, FloorError> {
        let text: String = redis::cmd("INFO").arg("everything").query(&mut self.connection)?;
        let cpu_seconds = number::<f64>(&text, "used_cpu_user")? + number::<f64>(&text, "used_cpu_sys")?;
        Ok(Reading {
            commands: number(&text, "total_commands_processed")?,
            cpu_seconds,
            memory_bytes: number(&text, "used_memory")?,
            version: field(&text, "redis_version")?.to_owned(),
        })
    }

    /// How many keys the database has.
    pub fn keys(&mut self) -> Result<u64, FloorError> {
        Ok(redis::cmd("DBSIZE").query(&mut self.connection)?)
    }

    /// About how many records a store keeps under a prefix, and how many keys the database has.
    ///
    /// A store keeps its records as fields of a few hashes, or each in a key of its own. With up to so many keys beyond `keys_before` the
    /// fields of all hashes under the prefix are counted, else those keys. `None`: the database is too large to look for the hashes.
    pub fn records(&mut self, prefix: &str, keys_before: u64) -> Result<(Option<u64>, u64), FloorError> {
        const FEW: u64 = 20_000;
        const TOO_MANY: u64 = 100_000;
        let keys = self.keys()?;
        let more = keys.saturating_sub(keys_before);
        if more > FEW {
            return Ok((Some(more), keys));
        }
        if keys > TOO_MANY {
            return Ok((None, keys));
        }
        let mut fields = 0;
        for hash in self.scan(&format!("{prefix}:*"), Some("hash"))? {
            fields += redis::cmd("HLEN").arg(hash).query::<u64>(&mut self.connection)?;
        }
        Ok((Some(fields), keys))
    }

    /// The keys that match a pattern, of one type if that is given.
    fn scan(&mut self, pattern: &str, kind: Option<&str>) -> Result<Vec<Vec<u8>>, FloorError> {
        let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
            if let Some(kind) = kind {
                scan.arg("TYPE").arg(kind);
            }
            let (next, mut keys): (String, Vec<Vec<u8>>) = scan.query(&mut self.connection)?;
            found.append(&mut keys);
            if next == "0" {
                return Ok(found);
            }
            cursor = next;
        }
    }

    /// How many connections have exactly this name.
    pub fn connections(&mut self, name: &str) -> Result<u64, FloorError> {
        let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut self.connection)?;
        let wanted = format!("name={name}");
        Ok(clients.lines().filter(|client| client.split(' ').any(|field| field == wanted)).count() as u64)
    }

    /// Lets the server log commands that take longer than so many microseconds, and returns what it was set to before.
    pub fn log_slower_than(&mut self, micros: i64) -> Result<i64, FloorError> {
        const SETTING: &str = "slowlog-log-slower-than";
        let (_, before): (String, i64) = redis::cmd("CONFIG").arg("GET").arg(SETTING).query(&mut self.connection)?;
        redis::cmd("CONFIG").arg("SET").arg(SETTING).arg(micros).query::<()>(&mut self.connection)?;
        Ok(before)
    }

    /// The longest script among the slow commands logged after the entry `after` (`None`: among all), in microseconds, 0 if there is none;
    /// and the latest entry.
    pub fn longest_script(&mut self, after: Option<i64>) -> Result<(u64, Option<i64>), FloorError> {
        type Entry = (i64, i64, u64, Vec<Vec<u8>>);
        let logged: Vec<redis::Value> = redis::cmd("SLOWLOG").arg("GET").arg(128).query(&mut self.connection)?;
        let (mut longest, mut latest) = (0, after);
        for entry in logged {
            // Newer servers add the client's address and name behind these.
            let redis::Value::Array(mut fields) = entry else { continue };
            fields.truncate(4);
            let (id, _, micros, words): Entry = redis::from_redis_value(redis::Value::Array(fields)).map_err(redis::RedisError::from)?;
            if after.is_none_or(|after| id > after) && words.first().is_some_and(|word| is_script(word)) {
                longest = longest.max(micros);
            }
            latest = latest.max(Some(id));
        }
        Ok((longest, latest))
    }

    /// Removes the keys that match a pattern, such as `towpath:bench:*`. It walks over all keys of the database.
    pub fn remove_keys(&mut self, pattern: &str) -> Result<(), FloorError> {
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
            let (next, keys): (String, Vec<Vec<u8>>) = scan.query(&mut self.connection)?;
            if !keys.is_empty() {
                redis::cmd("UNLINK").arg(keys).query::<u64>(&mut self.connection)?;
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }
}

fn is_script(word: &[u8]) -> bool {
    [b"EVAL".as_slice(), b"EVALSHA", b"EVAL_RO", b"EVALSHA_RO", b"FCALL", b"FCALL_RO"].iter().any(|name| word.eq_ignore_ascii_case(name))
}

fn field<'a>(info: &'a str, name: &str) -> Result<&'a str, FloorError> {
    let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.map(str::trim).ok_or_else(|| FloorError(format!("the server's INFO has no '{name}'")))
}

fn number<T: std::str::FromStr>(info: &str, name: &str) -> Result<T, FloorError> {
    let text = field(info, name)?;
    text.parse().map_err(|_| FloorError(format!("the server's INFO has no number in '{name}:{text}'")))
}

#[cfg(test)]
mod tests {
    use towpath_redis_testing::RedisServer;

    use super::*;

    #[test]
    fn the_longest_script_is_found_among_new_entries_only() {
        let server = RedisServer::start();
        let mut gauge = Gauge::open(&server.url()).unwrap();
        let before = gauge.log_slower_than(0).unwrap();
        server.cli(&["EVAL", "return 1", "0"]);
        let (longest, latest) = gauge.longest_script(None).unwrap();
        assert!(longest > 0 && latest.is_some());
        server.cli(&["PING"]);
        assert_eq!(gauge.longest_script(latest).unwrap().0, 0, "a PING is not a script, and the script is not new");
        assert_eq!(gauge.log_slower_than(before).unwrap(), 0);
    }

    #[test]
    fn keys_records_and_connections_are_counted() {
        let server = RedisServer::start();
        let mut gauge = Gauge::open(&server.url()).unwrap();
        redis::cmd("CLIENT").arg("SETNAME").arg("one").query::<()>(&mut gauge.connection).unwrap();
        server.cli(&["SET", "key", "1"]);
        server.cli(&["HSET", "p:calls", "a", "1", "b", "2"]);
        server.cli(&["HSET", "other:calls", "a", "1"]);
        assert_eq!(gauge.keys().unwrap(), 3);
        assert_eq!(gauge.records("p", 0).unwrap(), (Some(2), 3));
        assert_eq!((gauge.connections("one").unwrap(), gauge.connections("on").unwrap()), (1, 0));
    }

    #[test]
    fn a_field_is_not_mistaken_for_a_longer_one() {
        let info = "# Memory\r\nused_memory_rss:9\r\nused_memory:7\r\n";
        assert_eq!(number::<u64>(info, "used_memory").unwrap(), 7);
        assert!(number::<u64>(info, "used").is_err());
    }
}
