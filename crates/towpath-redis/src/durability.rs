//! What an acknowledgement is worth here: what the server does by itself, what was asked for, and whether the replicas have confirmed it.

mod follow;

use std::sync::atomic::AtomicBool;
use std::sync::{PoisonError, RwLock};

use redis::{Cmd, Value};
use thiserror::Error;
use towpath_core::store::{Durability, StoreError, StoreTrouble};

use crate::about::{self, About};
use crate::link::Link;
use crate::options::RedisOptions;

pub(crate) use follow::follow;

/// How long replicas have to confirm a write.
const CONFIRM_WITHIN_MS: u64 = 1_000;
/// The key that is written to have written something is gone so much later.
const MARK_KEPT_MS: u64 = 60_000;

/// Why a server is not used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unfit {
    /// The server answers, but does not do what is needed. The text says what to change.
    #[error("{0}")]
    Refused(String),
    /// The server could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Unfit> for StoreError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Refused(text) => Self::Unavailable(StoreTrouble::Other(text)),
            Unfit::Store(error) => error,
        }
    }
}

/// What the operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// At least this; the server's own level when nobody asks.
    pub(crate) level: Option<Durability>,
    /// How many replicas must confirm a write at `replicated`.
    pub(crate) replicas: u32,
    /// Without a level: whether new work is refused at `memory`.
    pub(crate) must_keep: bool,
}

impl From<&RedisOptions> for Wanted {
    fn from(options: &RedisOptions) -> Self {
        Self { level: options.durability, replicas: options.replicas, must_keep: options.must_keep }
    }
}

/// What the server does by itself, as far as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keeping {
    /// `memory`, `everysec` or `always`.
    pub(crate) level: Durability,
    /// How it is known.
    pub(crate) source: Source,
    /// Replicas that follow; the fewest of any server that we write to. `None`: not permitted to look.
    pub(crate) replicas: Option<u32>,
    /// Whether `WAITAOF` can be used.
    pub(crate) has_waitaof: bool,
}

/// How a level is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The server's settings say so.
    Read,
    /// Settings may not be looked at: the lowest level that fits what may be.
    Assumed,
}

impl Keeping {
    /// Reads it off what the server says about itself.
    pub(crate) fn of(about: &About, has_waitaof: bool) -> Self {
        let servers = about.infos().len().max(about.config.as_ref().map_or(0, Vec::len)).max(1);
        let level = |server: usize| level(about.infos().get(server), about.config.as_ref().and_then(|all| all.get(server)));
        // The weakest of them decides: nobody knows on which a call will lie.
        let (level, source) = (0..servers)
            .map(level)
            .min_by_key(|(level, source)| (*level, *source == Source::Read))
            .unwrap_or((Durability::Memory, Source::Assumed));
        let replicas = about.infos().iter().map(|info| u32::try_from(info.replicas_online()).unwrap_or(u32::MAX)).min();
        Self { level, source, replicas, has_waitaof }
    }

    /// What an acknowledgement is worth, or why that is not enough and what to change.
    pub(crate) fn grant(self, wanted: Wanted) -> Result<Durability, Refusal> {
        let Some(level) = wanted.level else { return Ok(self.level) };
        match level {
            Durability::Fsync => Err(Refusal {
                lacks: "durability 'fsync' is the level of the embedded store".to_owned(),
                advice: "on Redis ask for 'always', or for 'replicated' where there are replicas".to_owned(),
            }),
            Durability::Replicated => self.grant_replicated(wanted.replicas),
            _ if self.level >= level => Ok(self.level),
            // Nobody can look, so the operator's word counts; but not against what was seen.
            _ if self.source == Source::Assumed => Ok(level),
            _ => Err(Refusal {
                lacks: format!("durability '{level}' is asked for, and this Redis server gives '{}'", self.level),
                advice: format!(
                    "set {} on it (in redis.conf, or with CONFIG SET and CONFIG REWRITE), or ask for less",
                    settings_for(level)
                ),
            }),
        }
    }

    /// Why new work is refused, if it is: this server gives less than was asked for, or loses every call when it restarts and the operator
    /// has not accepted that.
    pub(crate) fn refuses_new_work(self, wanted: Wanted) -> Option<Refusal> {
        if let Err(refusal) = self.grant(wanted) {
            return Some(refusal);
        }
        let is_lost = wanted.must_keep && wanted.level.is_none() && self.level == Durability::Memory && self.source == Source::Read;
        is_lost.then(|| Refusal {
            lacks: "its level is 'memory': a restart of this Redis server loses every accepted call".to_owned(),
            advice: format!(
                "set {} on it (in redis.conf, or with CONFIG SET and CONFIG REWRITE), or accept that with `--durability memory`",
                settings_for(Durability::Everysec)
            ),
        })
    }

    fn grant_replicated(self, wanted: u32) -> Result<Durability, Refusal> {
        if self.level < Durability::Everysec && self.source == Source::Read {
            let settings = settings_for(Durability::Everysec);
            return Err(Refusal {
                lacks: "durability 'replicated' is asked for, and this Redis server keeps nothing on disk, so that its restart would \
                        empty the replicas too"
                    .to_owned(),
                advice: format!("set {settings} on it and on its replicas, or ask for less"),
            });
        }
        match self.replicas {
            Some(found) if found < wanted => Err(Refusal {
                lacks: format!("durability 'replicated' is asked for with {wanted} replica(s), and {found} follow(s) this Redis server"),
                advice: "connect more with REPLICAOF, ask for fewer with 'replicas=N' in the store's URL, or ask for another level"
                    .to_owned(),
            }),
            _ => Ok(Durability::Replicated),
        }
    }
}

/// What one server keeps.
fn level(info: Option<&about::Info>, settings: Option<&about::Settings>) -> (Durability, Source) {
    let log_on = info.is_some_and(|info| info.field("aof_enabled") != Some("0"));
    let setting = |name: &str| settings.and_then(|settings| settings.get(name)).map(String::as_str);
    match (setting("appendonly"), setting("appendfsync")) {
        (Some("no"), _) => (Durability::Memory, Source::Read),
        (Some(_), Some(_)) if info.is_some() && !log_on => (Durability::Memory, Source::Read),
        (Some(_), Some("always")) if setting("no-appendfsync-on-rewrite") == Some("yes") => (Durability::Everysec, Source::Read),
        (Some(_), Some("always")) => (Durability::Always, Source::Read),
        (Some(_), Some("everysec")) => (Durability::Everysec, Source::Read),
        (Some(_), Some(_)) => (Durability::Memory, Source::Read), // `no`: the kernel writes when it likes
        _ if log_on => (Durability::Everysec, Source::Assumed),
        _ if info.is_some() => (Durability::Memory, Source::Read),
        _ => (Durability::Memory, Source::Assumed),
    }
}

/// Why a server's level is not enough.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{lacks}: {advice}")]
pub(crate) struct Refusal {
    pub(crate) lacks: String,
    /// What to change.
    pub(crate) advice: String,
}

/// What to set for a level, as it stands in redis.conf.
pub(crate) fn settings_for(level: Durability) -> &'static str {
    match level {
        Durability::Always => "`appendonly yes`, `appendfsync always` and `no-appendfsync-on-rewrite no`",
        _ => "`appendonly yes` and `appendfsync everysec`",
    }
}

/// What the store promises with each acknowledgement.
#[derive(Debug)]
pub(crate) struct Guarantee {
    wanted: Wanted,
    /// Read every few seconds, and at every new connection: it may be another server, or one with other settings.
    keeping: RwLock<Keeping>,
    /// Whether this user may read settings. One who may not is not asked again: the server keeps a record of those who try.
    reads_settings: AtomicBool,
}

impl Guarantee {
    /// Asks the server, and refuses it when it gives less than was asked for.
    pub(crate) async fn read(link: &Link, wanted: Wanted) -> Result<Self, Unfit> {
        let about = About::ask(link).await?;
        let keeping = Keeping::of(&about, has_waitaof(link, wanted).await?);
        Self::new(wanted, keeping, about.config.is_some()).map_err(|refused| Unfit::Refused(refused.to_string()))
    }

    fn new(wanted: Wanted, keeping: Keeping, reads_settings: bool) -> Result<Self, Refusal> {
        let granted = keeping.grant(wanted)?;
        if keeping.source == Source::Assumed {
            let why = if wanted.level.is_some() { "because it was asked for" } else { "the least that it can be" };
            tracing::warn!("the Redis server's settings may not be looked at: durability '{granted}' is assumed, {why}");
        }
        Ok(Self { wanted, keeping: RwLock::new(keeping), reads_settings: AtomicBool::new(reads_settings) })
    }

    /// What an acknowledgement is worth. What was asked for and is not given any more does not count.
    pub(crate) fn level(&self) -> Durability {
        let keeping = self.keeping();
        keeping.grant(self.wanted).unwrap_or(keeping.level)
    }

    /// Whether a write counts only when replicas have it too.
    pub(crate) fn asks_replicas(&self) -> bool {
        self.wanted.level == Some(Durability::Replicated)
    }

    /// What to send behind a write, on the same connection and in the same flush: the last of it asks. Often nothing. `key` lies where the
    /// write does.
    pub(crate) fn commands_after_write(&self, key: &str) -> Vec<Cmd> {
        let keeping = self.keeping();
        if !self.asks_replicas() {
            return Vec::new();
        }
        let mut command = Cmd::new();
        // Waiting for disks that write once a second would make every call wait for a second.
        if keeping.has_waitaof && keeping.level == Durability::Always {
            command.arg("WAITAOF").arg(1);
        } else {
            command.arg("WAIT");
        }
        command.arg(self.wanted.replicas).arg(CONFIRM_WITHIN_MS);
        // A connection that has written nothing waits for nothing, on some servers: what it found may not be confirmed for that.
        let mut write = Cmd::new();
        write.arg("SET").arg(key).arg(1).arg("PX").arg(MARK_KEPT_MS);
        vec![write, command]
    }

    /// What the write was worth, by the replies to [`Guarantee::commands_after_write`].
    ///
    /// Less than was asked for is `Unknown`: the write happened, and nobody can say whether it will last. The caller names the call.
    pub(crate) fn judge(&self, replies: &[Value]) -> Result<Durability, StoreError> {
        let keeping = self.keeping();
        if self.asks_replicas() {
            return match confirmations(replies) {
                Ok(confirmed) if confirmed >= u64::from(self.wanted.replicas) => Ok(Durability::Replicated),
                Ok(confirmed) => Err(StoreError::Unknown(format!(
                    "{confirmed} of {} replica(s) confirmed it within {CONFIRM_WITHIN_MS} ms: it is kept at the lower level '{}'",
                    self.wanted.replicas, keeping.level
                ))),
                Err(refused) => Err(StoreError::Unknown(format!(
                    "the replicas could not be asked to confirm it ({refused}): it is kept at the lower level '{}'",
                    keeping.level
                ))),
            };
        }
        // New work is refused before it is written (`admit`). What is finished below the minimum is finished, and says its level.
        Ok(keeping.grant(self.wanted).unwrap_or(keeping.level))
    }

    fn keeping(&self) -> Keeping {
        *self.keeping.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the server knows `WAITAOF` and this user may use it. Asked to wait for nobody, it answers at once. Not asked where nobody would
/// use it: few users have the right, and the server keeps a record of those who try without.
pub(crate) async fn has_waitaof(link: &Link, wanted: Wanted) -> Result<bool, StoreError> {
    if wanted.level != Some(Durability::Replicated) {
        return Ok(false);
    }
    let mut command = Cmd::new();
    command.arg("WAITAOF").arg(0).arg(0).arg(0);
    let reply = link.ask_all(&[command]).await?;
    Ok(reply.first().is_some_and(|reply| about::refusal(reply).is_none()))
}

/// How many replicas have it: `WAIT` says a number, `WAITAOF` that of the own disk first. Of several servers the least.
fn confirmations(replies: &[Value]) -> Result<u64, String> {
    match replies.last() {
        Some(Value::Int(replicas)) => Ok(u64::try_from(*replicas).unwrap_or(0)),
        Some(Value::Array(parts)) => match parts.as_slice() {
            [Value::Int(own), Value::Int(replicas)] if *own >= 1 => Ok(u64::try_from(*replicas).unwrap_or(0)),
            [Value::Int(_), Value::Int(_)] => Err("its own disk has not".to_owned()),
            _ => Err("its answer cannot be read".to_owned()),
        },
        Some(other) => Err(about::refusal(other).unwrap_or_else(|| "its answer cannot be read".to_owned())),
        None => Err("it did not answer".to_owned()),
    }
}

#[cfg(test)]
mod tests;
