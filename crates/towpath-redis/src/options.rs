//! What a URL says: where the server is, who we are there, and what an acknowledgement shall be worth.

mod parse;

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use thiserror::Error;
use towpath_core::store::Durability;

use crate::timing::Timing;

/// What our own keys start with unless the URL says otherwise.
const DEFAULT_PREFIX: &str = "towpath";

/// What cannot stand as it is in a word of a URL.
const NOT_PLAIN: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'&').add(b'#').add(b'?').add(b'/').add(b'@').add(b'+');
/// The same for the name of a file, whose slashes people want to read.
const NOT_PLAIN_IN_FILE: &AsciiSet = &NOT_PLAIN.remove(b'/');

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Name or number.
    pub host: String,
    /// 6379 unless said otherwise, 26379 for a Sentinel.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Where the data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// One server.
    Standalone(Address),
    /// Whatever server the Sentinels call the master.
    Sentinel {
        /// The Sentinels to ask.
        sentinels: Vec<Address>,
        /// The name under which they know the master.
        master: String,
    },
    /// A Cluster, entered through any of these.
    Cluster(Vec<Address>),
}

/// How to trust the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Trust what this authority has signed, instead of what the machine trusts. A PEM file.
    pub ca_file: Option<String>,
    /// Trust anybody. For tests.
    pub insecure: bool,
}

/// How to reach a store.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisOptions {
    /// Where.
    pub place: Place,
    /// Which database; always 0 in a Cluster.
    pub database: i64,
    /// Who we are there.
    pub username: Option<String>,
    /// What proves it.
    pub password: Option<String>,
    /// Encrypted, and trusted so.
    pub tls: Option<Tls>,
    /// What our own keys start with. The keys of the seeds' wire format have no prefix.
    pub prefix: String,
    /// What an acknowledgement must be worth at least; the server's own level when nobody asks.
    pub durability: Option<Durability>,
    /// Without a `durability`: whether a server that keeps nothing on disk takes no new work. No URL says it.
    pub must_keep: bool,
    /// How many replicas must confirm a write at [`Durability::Replicated`].
    pub replicas: u32,
    /// Who opens it, for people who look at the server's client list.
    pub owner: String,
    /// How soon it is looked for what goes wrong without anybody being told. No URL says it.
    pub timing: Timing,
}

/// Why a URL names no Redis.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{url}' is no address of a Redis: {hint}")]
pub struct InvalidRedisUrl {
    /// What was given, without a password.
    pub url: String,
    /// What to write instead.
    pub hint: String,
}

impl RedisOptions {
    /// One server without a password, with all defaults.
    pub fn standalone(host: impl Into<String>, port: u16) -> Self {
        let place = Place::Standalone(Address { host: host.into(), port });
        Self {
            place,
            database: 0,
            username: None,
            password: None,
            tls: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            durability: None,
            must_keep: false,
            replicas: 1,
            owner: "towpath".to_owned(),
            timing: Timing::default(),
        }
    }
    /// Reads a URL, or says what is wrong with it.
    ///
    /// ```
    /// use towpath_redis::RedisOptions;
    ///
    /// let options = RedisOptions::parse("rediss://app:s%2Fecret@cache.example:6380/2?durability=always").unwrap();
    /// assert_eq!(options.password.as_deref(), Some("s/ecret"));
    /// assert_eq!(options.to_string(), "rediss://cache.example:6380/2?durability=always");
    /// ```
    pub fn parse(url: &str) -> Result<Self, InvalidRedisUrl> {
        parse::parse(url).map_err(|hint| InvalidRedisUrl { url: parse::without_credentials(url), hint })
    }

    fn scheme(&self) -> &'static str {
        match (&self.place, self.tls.is_some()) {
            (Place::Standalone(_), false) => "redis",
            (Place::Standalone(_), true) => "rediss",
            (Place::Sentinel { .. }, false) => "redis+sentinel",
            (Place::Sentinel { .. }, true) => "rediss+sentinel",
            (Place::Cluster(_), false) => "redis+cluster",
            (Place::Cluster(_), true) => "rediss+cluster",
        }
    }

    /// What stands behind the question mark.
    fn queries(&self) -> Vec<String> {
        let mut queries = Vec::new();
        if self.prefix != DEFAULT_PREFIX {
            queries.push(format!("prefix={}", utf8_percent_encode(&self.prefix, NOT_PLAIN)));
        }
        queries.extend(self.durability.map(|level| format!("durability={level}")));
        if self.replicas != 1 {
            queries.push(format!("replicas={}", self.replicas));
        }
        let tls = self.tls.as_ref();
        queries.extend(
            tls.and_then(|tls| tls.ca_file.as_deref()).map(|file| format!("tls_ca={}", utf8_percent_encode(file, NOT_PLAIN_IN_FILE))),
        );
        if tls.is_some_and(|tls| tls.insecure) {
            queries.push("tls_insecure=true".to_owned());
        }
        queries
    }
}

/// The canonical URL, without user and password: fit for logs and messages.
impl fmt::Display for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |addresses: &[Address]| addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
        write!(f, "{}://", self.scheme())?;
        match &self.place {
            Place::Standalone(address) => write!(f, "{address}")?,
            Place::Cluster(addresses) => f.write_str(&list(addresses))?,
            Place::Sentinel { sentinels, master } => write!(f, "{}/{}", list(sentinels), utf8_percent_encode(master, NOT_PLAIN))?,
        }
        if self.database != 0 {
            write!(f, "/{}", self.database)?;
        }
        let queries = self.queries();
        if !queries.is_empty() {
            write!(f, "?{}", queries.join("&"))?;
        }
        Ok(())
    }
}

/// Without the password.
impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = self.password.as_ref().map(|_| "hidden");
        let mut shown = f.debug_struct("RedisOptions");
        shown.field("url", &self.to_string()).field("username", &self.username).field("password", &hidden);
        shown.field("owner", &self.owner).finish()
    }
}

#[cfg(test)]
mod tests;
