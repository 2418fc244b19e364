//! Which store: the one that was named, the Redis of an n8n in queue mode, or the embedded one.

use std::fmt;
use std::net::Ipv6Addr;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use thiserror::Error;

/// Where the embedded store is unless told otherwise.
pub const EMBEDDED_DEFAULT: &str = "sqlite:./.towpath";

/// A store, and why it is this one.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreChoice {
    /// Its URL, which may hold a password. Show [`StoreChoice::shown`] instead.
    pub url: String,
    /// What chose it.
    pub source: StoreSource,
}

/// What chose a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreSource {
    /// The command line.
    Argument,
    /// `TOWPATH_STORE`.
    Variable,
    /// `EXECUTIONS_MODE=queue` and `QUEUE_BULL_REDIS_*`, as n8n reads them.
    QueueMode,
    /// `QUEUE_BULL_REDIS_HOST` or `QUEUE_BULL_REDIS_CLUSTER_NODES`, without a mode.
    QueueRedis,
    /// `EXECUTIONS_MODE=regular`.
    RegularMode,
    /// Nothing was set.
    Default,
}

impl fmt::Display for StoreSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Argument => "named on the command line",
            Self::Variable => "named by TOWPATH_STORE",
            Self::QueueMode => "chosen by EXECUTIONS_MODE=queue and QUEUE_BULL_REDIS_*",
            Self::QueueRedis => "chosen by QUEUE_BULL_REDIS_*",
            Self::RegularMode => "chosen by EXECUTIONS_MODE=regular",
            Self::Default => "the default",
        })
    }
}

/// A variable of the environment that cannot be used. Nothing of a password is shown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{variable} is '{value}', which cannot be used: {hint}")]
pub struct InvalidVariable {
    /// Which.
    pub variable: &'static str,
    /// What it is.
    pub value: String,
    /// What to set it to.
    pub hint: &'static str,
}

impl StoreChoice {
    /// Chooses: what was named wins, then `TOWPATH_STORE`, then the mode that n8n is in, then the Redis of its queue. `variable` reads the environment.
    pub fn make(named: Option<&str>, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, InvalidVariable> {
        let set = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        if let Some(url) = named {
            return Ok(Self { url: url.to_owned(), source: StoreSource::Argument });
        }
        if let Some(url) = set("TOWPATH_STORE") {
            return Ok(Self { url, source: StoreSource::Variable });
        }
        let embedded = |source| Self { url: EMBEDDED_DEFAULT.to_owned(), source };
        match set("EXECUTIONS_MODE").as_deref() {
            // Who names the queue's Redis and no mode means that Redis. Without it the word `regular` asks for the embedded store.
            None if set("QUEUE_BULL_REDIS_HOST").or_else(|| set("QUEUE_BULL_REDIS_CLUSTER_NODES")).is_some() => {
                Ok(Self { url: redis_of_queue_mode(&set)?, source: StoreSource::QueueRedis })
            }
            None => Ok(embedded(StoreSource::Default)),
            Some("regular") => Ok(embedded(StoreSource::RegularMode)),
            Some("queue") => Ok(Self { url: redis_of_queue_mode(&set)?, source: StoreSource::QueueMode }),
            Some(mode) => Err(invalid("EXECUTIONS_MODE", mode, "set it to queue (a Redis) or regular (the embedded store)")),
        }
    }

    /// The URL without user and password.
    pub fn shown(&self) -> String {
        towpath::shown(&self.url)
    }
}

impl fmt::Debug for StoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreChoice").field("url", &self.shown()).field("source", &self.source).finish()
    }
}

type Set<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The Redis that an n8n with this environment uses.
fn redis_of_queue_mode(set: &Set<'_>) -> Result<String, InvalidVariable> {
    let encrypted = match flag(set, "QUEUE_BULL_REDIS_TLS")? {
        Some(encrypted) => encrypted,
        None => flag(set, "QUEUE_BULL_REDIS_SSL")?.unwrap_or(false),
    };
    let scheme = if encrypted { "rediss" } else { "redis" };
    let who = credentials(set);
    if let Some(nodes) = set("QUEUE_BULL_REDIS_CLUSTER_NODES") {
        return Ok(format!("{scheme}+cluster://{who}{}", cluster_nodes(&nodes)?));
    }
    let host = host(&set("QUEUE_BULL_REDIS_HOST").unwrap_or_else(|| "localhost".to_owned()), "QUEUE_BULL_REDIS_HOST")?;
    let port = match set("QUEUE_BULL_REDIS_PORT") {
        None => 6379,
        Some(port) => self::port(&port).ok_or_else(|| invalid("QUEUE_BULL_REDIS_PORT", &port, "set it to a number from 1 to 65535"))?,
    };
    let database = match set("QUEUE_BULL_REDIS_DB") {
        None => 0,
        Some(number) => number.parse::<u16>().map_err(|_| invalid("QUEUE_BULL_REDIS_DB", &number, "set it to the number of a database"))?,
    };
    Ok(format!("{scheme}://{who}{host}:{port}/{database}"))
}

/// `user:password@`, with whatever would end it encoded.
fn credentials(set: &Set<'_>) -> String {
    let encoded = |text: String| utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string();
    let user = set("QUEUE_BULL_REDIS_USERNAME").or_else(|| set("QUEUE_BULL_REDIS_USER")).map(encoded);
    match (user, set("QUEUE_BULL_REDIS_PASSWORD").map(encoded)) {
        (None, None) => String::new(),
        (user, None) => format!("{}@", user.unwrap_or_default()),
        (user, Some(password)) => format!("{}:{password}@", user.unwrap_or_default()),
    }
}

fn cluster_nodes(text: &str) -> Result<String, InvalidVariable> {
    const NAME: &str = "QUEUE_BULL_REDIS_CLUSTER_NODES";
    let wrong = || invalid(NAME, text, "set it to host:port pairs with commas, such as 10.0.0.1:6379,10.0.0.2:6379");
    let node = |node: &str| {
        let (name, number) = node.trim().rsplit_once(':').ok_or_else(wrong)?;
        Ok(format!("{}:{}", host(name.trim_matches(['[', ']']), NAME).map_err(|_| wrong())?, port(number).ok_or_else(wrong)?))
    };
    let nodes: Vec<String> = text.split(',').filter(|node| !node.trim().is_empty()).map(node).collect::<Result<_, _>>()?;
    if nodes.is_empty() { Err(wrong()) } else { Ok(nodes.join(",")) }
}

fn host(text: &str, variable: &'static str) -> Result<String, InvalidVariable> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok(format!("[{text}]"));
    }
    if text.is_empty() || text.contains(|letter: char| letter.is_whitespace() || "/:@?#,[]".contains(letter)) {
        return Err(invalid(variable, text, "set it to the name or address of a machine, without scheme and port"));
    }
    Ok(text.to_owned())
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

fn flag(set: &Set<'_>, variable: &'static str) -> Result<Option<bool>, InvalidVariable> {
    match set(variable).map(|value| value.to_ascii_lowercase()).as_deref() {
        None => Ok(None),
        Some("true" | "1") => Ok(Some(true)),
        Some("false" | "0") => Ok(Some(false)),
        Some(other) => Err(invalid(variable, other, "set it to true or false")),
    }
}

fn invalid(variable: &'static str, value: &str, hint: &'static str) -> InvalidVariable {
    // A URL where a host belongs may bring a password along.
    let value = if value.contains('@') { "…" } else { value };
    InvalidVariable { variable, value: value.to_owned(), hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(named: Option<&str>, environment: &[(&str, &str)]) -> Result<StoreChoice, InvalidVariable> {
        let variable = |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        StoreChoice::make(named, &variable)
    }

    #[test]
    fn what_was_named_wins_and_then_the_environment() {
        let queue = ("EXECUTIONS_MODE", "queue");
        type Case<'a> = (Option<&'a str>, &'a [(&'a str, &'a str)], &'a str, StoreSource);
        let cases: [Case<'_>; 7] = [
            (Some("memory:"), &[("TOWPATH_STORE", "redis://a"), queue], "memory:", StoreSource::Argument),
            (None, &[("TOWPATH_STORE", "redis://a"), queue], "redis://a", StoreSource::Variable),
            (None, &[("TOWPATH_STORE", " "), queue], "redis://localhost:6379/0", StoreSource::QueueMode),
            (None, &[("EXECUTIONS_MODE", "regular"), ("QUEUE_BULL_REDIS_HOST", "a")], EMBEDDED_DEFAULT, StoreSource::RegularMode),
            (None, &[("QUEUE_BULL_REDIS_HOST", "a")], "redis://a:6379/0", StoreSource::QueueRedis),
            (None, &[("EXECUTIONS_MODE", "")], EMBEDDED_DEFAULT, StoreSource::Default),
            (None, &[], EMBEDDED_DEFAULT, StoreSource::Default),
        ];
        for (named, environment, url, source) in cases {
            assert_eq!(choice(named, environment), Ok(StoreChoice { url: url.to_owned(), source }), "{named:?} {environment:?}");
        }
    }

    #[test]
    fn queue_mode_names_the_redis_that_n8n_uses() {
        let cases: [(&[(&str, &str)], &str); 10] = [
            (&[("HOST", "redis")], "redis://redis:6379/0"),
            (&[("HOST", "10.0.0.1"), ("PORT", "6380"), ("DB", "3")], "redis://10.0.0.1:6380/3"),
            (&[("HOST", "::1")], "redis://[::1]:6379/0"),
            (&[("PASSWORD", "p@ss/word#1")], "redis://:p%40ss%2Fword%231@localhost:6379/0"),
            (&[("USERNAME", "app"), ("PASSWORD", "x")], "redis://app:x@localhost:6379/0"),
            (&[("USER", "app"), ("PASSWORD", "x")], "redis://app:x@localhost:6379/0"),
            (&[("TLS", "true")], "rediss://localhost:6379/0"),
            (&[("SSL", "1")], "rediss://localhost:6379/0"),
            (&[("TLS", "False"), ("SSL", "true")], "redis://localhost:6379/0"),
            (&[("CLUSTER_NODES", "a:7000, b:7001"), ("PASSWORD", "x"), ("HOST", "c")], "redis+cluster://:x@a:7000,b:7001"),
        ];
        for (variables, url) in cases {
            let named: Vec<(String, &str)> = variables.iter().map(|(name, value)| (format!("QUEUE_BULL_REDIS_{name}"), *value)).collect();
            let mut environment: Vec<(&str, &str)> = named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            environment.push(("EXECUTIONS_MODE", "queue"));
            let chosen = choice(None, &environment).unwrap();
            assert_eq!(chosen.url, url, "{variables:?}");
            assert!(!chosen.shown().contains("names no"), "{}", chosen.shown());
            assert!(!format!("{chosen:?}").contains("p%40ss"), "{chosen:?}");
        }
    }

    #[test]
    fn a_wrong_value_is_refused_by_the_name_of_its_variable() {
        let cases = [
            ("QUEUE_BULL_REDIS_PORT", "abc"),
            ("QUEUE_BULL_REDIS_PORT", "0"),
            ("QUEUE_BULL_REDIS_PORT", "70000"),
            ("QUEUE_BULL_REDIS_DB", "one"),
            ("QUEUE_BULL_REDIS_DB", "-1"),
            ("QUEUE_BULL_REDIS_TLS", "maybe"),
            ("QUEUE_BULL_REDIS_SSL", "on"),
            ("QUEUE_BULL_REDIS_HOST", "redis://a"),
            ("QUEUE_BULL_REDIS_HOST", "a:6379"),
            ("QUEUE_BULL_REDIS_CLUSTER_NODES", "a"),
            ("QUEUE_BULL_REDIS_CLUSTER_NODES", "a:1,b:x"),
            ("QUEUE_BULL_REDIS_CLUSTER_NODES", " , "),
        ];
        for (name, value) in cases {
            let refused = choice(None, &[("EXECUTIONS_MODE", "queue"), (name, value)]);
            match refused {
                Err(refused) => assert_eq!(refused.variable, name, "{value}"),
                // What is blank was not set.
                Ok(chosen) => assert!(value.trim().is_empty(), "{name}={value} gave {chosen:?}"),
            }
        }
        assert_eq!(choice(None, &[("EXECUTIONS_MODE", "Queue")]).unwrap_err().variable, "EXECUTIONS_MODE");
    }

    #[test]
    fn a_password_in_a_wrong_variable_is_not_shown() {
        let refused = choice(None, &[("EXECUTIONS_MODE", "queue"), ("QUEUE_BULL_REDIS_HOST", "redis://:hunter2@a")]).unwrap_err();
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }
}
