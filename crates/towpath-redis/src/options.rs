//! What a URL says: where the server is, who we are there, and what an acknowledgement shall be worth.

use thiserror::Error;
use towpath_core::store::Durability;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or number.
    pub host: String,
    /// 6379 unless said otherwise, 26379 for a Sentinel.
    pub port: u16,
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
    /// Who opens it, for people who look at the server's client list.
    pub owner: String,
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
            prefix: "towpath".to_owned(),
            durability: None,
            owner: "towpath".to_owned(),
        }
    }
}
