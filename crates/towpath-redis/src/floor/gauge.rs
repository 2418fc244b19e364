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
    use super::*;

    #[test]
    fn a_field_is_not_mistaken_for_a_longer_one() {
        let info = "# Memory\r\nused_memory_rss:9\r\nused_memory:7\r\n";
        assert_eq!(number::<u64>(info, "used_memory").unwrap(), 7);
        assert!(number::<u64>(info, "used").is_err());
    }
}
