//! What a server is told when it starts.

pub mod store;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use thiserror::Error;
use towpath_core::store::{Durability, Retention};

use self::store::EMBEDDED_DEFAULT;
use crate::batches::ConfigFile;
use crate::http::auth::ApiKey;
use crate::logging::LogFormat;
use crate::push::{AllowedTarget, TargetPolicy, WebhookSecret};

/// Where the server listens unless told otherwise.
pub const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8690);

/// Everything a server can be told. Start from `Settings::default()` and change what differs.
#[derive(Clone)]
pub struct Settings {
    /// Which store: `sqlite:./.towpath` (a folder), `sqlite:orders.db` (a file), `redis://…` or `memory:`. May hold a password.
    pub store: String,
    /// What an acknowledgement must be worth at least. Without one: whatever the store gives, but see `refuse_lossy`.
    pub durability: Option<Durability>,
    /// Refuse a Redis that keeps nothing on disk or throws keys away, unless no more than `memory` is asked for, and one whose user may not do what a server
    /// does. Otherwise such things are warned of.
    pub refuse_lossy: bool,
    /// Where to listen. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Keys that open the API. Without any, everyone who reaches the server may ask.
    pub api_keys: Vec<ApiKey>,
    /// Listen on a public address although there is no key. Warned of each minute.
    pub insecure_no_auth: bool,
    /// Names that the server goes by besides localhost and its listen address.
    pub allowed_hosts: Vec<String>,
    /// Places inside that functions may be pushed to.
    pub allow_targets: Vec<AllowedTarget>,
    /// Functions may be pushed to this machine over plain http: for development.
    pub allow_loopback_targets: bool,
    /// What pushed calls are signed with, newest first. Without any, one is made and kept beside the store.
    pub webhook_secrets: Vec<WebhookSecret>,
    /// Batchers, and the routes that old clients know.
    pub config: ConfigFile,
    /// How long a stop waits for what is under way.
    pub drain_timeout: Duration,
    /// How long a stop goes on taking connections, so that a load balancer has time to notice that the server is not ready.
    pub drain_grace: Duration,
    /// How long dead letters and audits are kept, and how many outcomes.
    pub retention: Retention,
    /// Serve a few functions to play with.
    pub demo: bool,
    /// Requests open at once; more are refused as `overloaded_server`.
    pub max_requests: usize,
    /// Connections open at once; more are refused as `overloaded_server`.
    pub max_connections: usize,
    /// A request's head must arrive within this; a connection that sends nothing is closed after it.
    pub head_time_max: Duration,
    /// A request's body must arrive within this.
    pub body_time_max: Duration,
    /// How log lines look. The command line begins the logging; the server only logs.
    pub log_format: LogFormat,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            store: EMBEDDED_DEFAULT.to_owned(),
            durability: None,
            refuse_lossy: true,
            listen: LISTEN_DEFAULT,
            api_keys: Vec::new(),
            insecure_no_auth: false,
            allowed_hosts: Vec::new(),
            allow_targets: Vec::new(),
            allow_loopback_targets: false,
            webhook_secrets: Vec::new(),
            config: ConfigFile::default(),
            drain_timeout: Duration::from_secs(25),
            drain_grace: Duration::from_secs(2),
            retention: Retention::default(),
            demo: false,
            max_requests: 8_192,
            max_connections: 10_000,
            head_time_max: Duration::from_secs(10),
            body_time_max: Duration::from_secs(30),
            log_format: LogFormat::Text,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("store", &towpath::shown(&self.store)).field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// Settings that the server refuses to start with. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RefusedSettings {
    /// Everyone on the network could call functions.
    #[error(
        "listening on {0} without a key would let everyone on the network call and serve functions: \
         give a key with --api-key or TOWPATH_API_KEYS, listen on 127.0.0.1, or say --insecure-no-auth if that is meant"
    )]
    PublicWithoutKeys(SocketAddr),
    /// A batcher of the configuration file that could not be delivered.
    #[error("batcher '{batcher}' of the configuration file cannot be served: {why}")]
    Batcher {
        /// Which.
        batcher: String,
        /// What to change.
        why: String,
    },
    /// A name that no `Host` header can hold.
    #[error("'{0}' is no host name: give a name such as towpath.example, without scheme, port or path")]
    InvalidHost(String),
}

impl Settings {
    /// Whether a server may start with these.
    pub fn check(&self) -> Result<(), RefusedSettings> {
        if !self.listen.ip().is_loopback() && self.api_keys.is_empty() && !self.insecure_no_auth {
            return Err(RefusedSettings::PublicWithoutKeys(self.listen));
        }
        let is_name =
            |host: &&String| !host.is_empty() && !host.contains(['/', ' ', '@', '*']) && (!host.contains(':') || host.starts_with('['));
        if let Some(host) = self.allowed_hosts.iter().find(|host| !is_name(host)) {
            return Err(RefusedSettings::InvalidHost(host.clone()));
        }
        for batcher in &self.config.batchers {
            crate::batches::check(&self.target_policy(), batcher.settings())
                .map_err(|refused| RefusedSettings::Batcher { batcher: batcher.name().to_string(), why: refused.to_string() })?;
        }
        Ok(())
    }

    /// Where functions may be pushed to.
    pub(crate) fn target_policy(&self) -> TargetPolicy {
        TargetPolicy::new(self.allow_targets.clone(), self.allow_loopback_targets)
    }

    /// Whether everyone on the network may ask.
    pub(crate) fn is_open_to_all(&self) -> bool {
        !self.listen.ip().is_loopback() && self.api_keys.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening_on(listen: &str) -> Settings {
        Settings { listen: listen.parse().unwrap(), ..Settings::default() }
    }

    #[test]
    fn only_loopback_may_go_without_a_key() {
        for loopback in ["127.0.0.1:8690", "127.1.2.3:1", "[::1]:8690"] {
            assert_eq!(listening_on(loopback).check(), Ok(()), "{loopback}");
        }
        for public in ["0.0.0.0:8690", "[::]:8690", "192.168.1.5:8690", "[::ffff:127.0.0.1]:8690"] {
            let bare = listening_on(public);
            assert_eq!(bare.check(), Err(RefusedSettings::PublicWithoutKeys(bare.listen)), "{public}");
            let with_key = Settings { api_keys: vec!["a-key".parse().unwrap()], ..bare.clone() };
            assert_eq!(with_key.check(), Ok(()), "{public}");
            let insecure = Settings { insecure_no_auth: true, ..bare };
            assert_eq!(insecure.check(), Ok(()), "{public}");
            assert!(insecure.is_open_to_all() && !with_key.is_open_to_all());
        }
    }

    #[test]
    fn host_names_with_more_than_a_name_in_them_are_refused() {
        for bad in ["", "http://a", "a:80", "a/b", "*"] {
            let settings = Settings { allowed_hosts: vec![bad.to_owned()], ..Settings::default() };
            assert_eq!(settings.check(), Err(RefusedSettings::InvalidHost(bad.to_owned())));
        }
        let good = Settings { allowed_hosts: vec!["towpath.example".to_owned(), "[fd00::1]".to_owned()], ..Settings::default() };
        assert_eq!(good.check(), Ok(()));
    }
}
