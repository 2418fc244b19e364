//! What the server says about itself: `INFO` and `CONFIG GET`, or that we may not look.

use std::collections::BTreeMap;

use redis::{Cmd, Value};
use towpath_core::store::StoreError;

use crate::link::{Link, trouble};

/// What was learnt, and what we were not allowed to learn.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    /// The fields of `INFO`, of each server that we write to: one, or all masters of a Cluster. `None`: not permitted to look.
    pub(crate) info: Option<Vec<Info>>,
    /// The settings we asked for, of each of these servers. `None`: not permitted to look.
    pub(crate) config: Option<Vec<Settings>>,
}

/// The fields of one server's `INFO`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Info {
    fields: BTreeMap<String, String>,
}

/// Settings by name.
pub(crate) type Settings = BTreeMap<String, String>;

/// The settings that somebody here has an opinion on.
const SETTINGS: [&str; 7] = [
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "timeout",
    "tcp-keepalive",
    "maxmemory-clients",
    "client-output-buffer-limit",
];

impl About {
    /// Asks the server, or each master of a Cluster that answers.
    pub(crate) async fn ask(link: &Link) -> Result<Self, StoreError> {
        let info = infos(link, Cmd::new().arg("INFO")).await?;
        let mut config: Option<Vec<Settings>> = None;
        for name in SETTINGS {
            // One by one: Redis before 7 takes only one name.
            let Some(replies) = permitted_each(link, Cmd::new().arg("CONFIG").arg("GET").arg(name)).await? else {
                config = None;
                break;
            };
            let all = config.get_or_insert_with(|| vec![Settings::new(); replies.len()]);
            for (of_server, reply) in all.iter_mut().zip(replies) {
                let found: Settings =
                    redis::from_redis_value(reply).map_err(|error| trouble(format!("CONFIG GET {name} cannot be read: {error}")))?;
                of_server.extend(found);
            }
        }
        Ok(Self { info, config })
    }

    /// Each server's fields; none when we may not look.
    pub(crate) fn infos(&self) -> &[Info] {
        self.info.as_deref().unwrap_or_default()
    }

    /// A setting of each server; `None` when we may not look, or a server does not know it.
    pub(crate) fn settings(&self, name: &str) -> Option<Vec<&str>> {
        self.config.as_ref()?.iter().map(|of_server| of_server.get(name).map(String::as_str)).collect()
    }
}

impl Info {
    /// Reads `name:value` lines.
    pub(crate) fn parse(text: &str) -> Self {
        let fields = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.trim_end().split_once(':'));
        Self { fields: fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect() }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// The replicas, as the server lists them: `ip=…,port=…,state=online,offset=…,lag=0`.
    pub(crate) fn replicas(&self) -> Vec<BTreeMap<&str, &str>> {
        let listed = self.fields.iter().filter(|(name, _)| {
            let number = name.strip_prefix("slave").or_else(|| name.strip_prefix("replica"));
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        });
        listed.map(|(_, value)| value.split(',').filter_map(|pair| pair.split_once('=')).collect()).collect()
    }

    /// How many replicas follow.
    pub(crate) fn replicas_online(&self) -> usize {
        self.replicas().iter().filter(|replica| replica.get("state").is_none_or(|state| *state == "online")).count()
    }
}

/// What each server answers to this `INFO`. `None`: not permitted to look.
pub(crate) async fn infos(link: &Link, command: &Cmd) -> Result<Option<Vec<Info>>, StoreError> {
    let texts = permitted_each(link, command).await?;
    let infos = texts.map(|texts| texts.into_iter().filter_map(text).map(|text| Info::parse(&text)).collect());
    Ok(infos.filter(|all: &Vec<Info>| !all.is_empty()))
}

/// The settings of each server whose names fit a pattern. `None`: not permitted to look.
pub(crate) async fn settings_like(link: &Link, pattern: &str) -> Result<Option<Vec<Settings>>, StoreError> {
    let Some(replies) = permitted_each(link, Cmd::new().arg("CONFIG").arg("GET").arg(pattern)).await? else { return Ok(None) };
    let read = |reply| redis::from_redis_value(reply).map_err(|error| trouble(format!("CONFIG GET {pattern} cannot be read: {error}")));
    replies.into_iter().map(read).collect::<Result<_, _>>().map(Some)
}

/// Asks one thing. `None` when this user must not, or the server has no such command; providers take `CONFIG` away.
pub(crate) async fn permitted(link: &Link, command: &Cmd) -> Result<Option<Value>, StoreError> {
    let reply = link.ask_all(std::slice::from_ref(command)).await?.pop().unwrap_or(Value::Nil);
    match refusal(&reply) {
        None => Ok(Some(reply)),
        Some(refused) if is_about_rights(&refused) => Ok(None),
        Some(refused) => Err(trouble(format!("the Redis server refused it ({refused})"))),
    }
}

/// Asks each server that is written to and brings the answers of those that can be reached. `None` when this user must not ask one of them.
pub(crate) async fn permitted_each(link: &Link, command: &Cmd) -> Result<Option<Vec<Value>>, StoreError> {
    let (mut answers, mut failure) = (Vec::new(), None);
    for answer in link.ask_each(command).await {
        match answer {
            Ok(reply) => answers.push(reply),
            Err(error) => failure = Some(error),
        }
    }
    if let Some(error) = failure.filter(|_| answers.is_empty()) {
        return Err(error);
    }
    match answers.iter().find_map(refusal) {
        None => Ok(Some(answers)),
        Some(refused) if is_about_rights(&refused) => Ok(None),
        Some(refused) => Err(trouble(format!("the Redis server refused it ({refused})"))),
    }
}

/// What the server objected to, if it did.
pub(crate) fn refusal(reply: &Value) -> Option<String> {
    match reply {
        Value::ServerError(error) => Some(format!("{} {}", error.code(), error.details().unwrap_or_default()).trim().to_owned()),
        _ => None,
    }
}

/// Whether a refusal says that this user, or anybody, must not.
pub(crate) fn is_about_rights(refused: &str) -> bool {
    refused.starts_with("NOPERM") || refused.contains("unknown command") || refused.contains("unknown subcommand")
}

fn text(reply: Value) -> Option<String> {
    redis::from_redis_value(reply).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_read_field_by_field_and_its_replicas_one_by_one() {
        let info = Info::parse(
            "# Server\r\nredis_version:7.0.15\r\n\r\n# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
             slave0:ip=10.0.0.2,port=6379,state=online,offset=5,lag=0\r\nslave1:ip=10.0.0.3,port=6379,state=wait_bgsave,offset=0,lag=9\r\n\
             slave_read_only:1\r\n",
        );
        assert_eq!(info.field("redis_version"), Some("7.0.15"));
        assert_eq!(info.number("connected_slaves"), Some(2));
        assert_eq!(info.replicas().len(), 2, "slave_read_only is no replica");
        assert_eq!(info.replicas_online(), 1);
        assert_eq!(info.replicas()[1]["lag"], "9");
    }

    #[test]
    fn what_a_user_must_not_do_is_told_from_what_went_wrong() {
        for refused in ["NOPERM this user has no permissions to run the 'config|get' command", "ERR unknown command 'CONFIG'"] {
            assert!(is_about_rights(refused), "{refused}");
        }
        for refused in ["ERR no such key", "LOADING Redis is loading", "WRONGTYPE Operation against a key"] {
            assert!(!is_about_rights(refused), "{refused}");
        }
    }
}
