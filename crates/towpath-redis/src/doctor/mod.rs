//! The doctor of a Redis: what is right and wrong with it, and what to do. It changes nothing but a probe key of its own.

mod check;
mod content;
mod kinds;
mod loss;
mod past;
mod rights;
mod server;
mod size;
mod strain;
mod topology;

use std::sync::Arc;

use towpath_core::clock::Clock;
use towpath_core::store::{Durability, StoreError};

pub use check::{Check, Verdict};

use crate::about::About;
use crate::durability::{self, Keeping, Unfit, Wanted};
use crate::link::Link;
use crate::options::RedisOptions;

/// What was found.
#[derive(Clone, Debug)]
pub struct Examination {
    /// What an acknowledgement is worth; `None` when the server cannot be asked or gives less than was asked for.
    pub durability: Option<Durability>,
    /// Everything that was looked at.
    pub checks: Vec<Check>,
}

/// Looks at everything. `clock` is this machine's.
pub async fn examine(options: &RedisOptions, clock: Arc<dyn Clock>) -> Examination {
    let link = match Link::open(options).await {
        Ok(link) => link,
        Err(error) => return Examination { durability: None, checks: vec![unreachable(options, &error)] },
    };
    let mut checks = vec![connection(options)];
    let durability = match look(&link, options, &clock, &mut checks).await {
        Ok(durability) => durability,
        Err(error) => {
            checks.push(unreachable(options, &error));
            None
        }
    };
    Examination { durability, checks }
}

async fn look(
    link: &Link,
    options: &RedisOptions,
    clock: &Arc<dyn Clock>,
    checks: &mut Vec<Check>,
) -> Result<Option<Durability>, StoreError> {
    let about = About::ask(link).await?;
    let wanted = Wanted::from(options);
    let keeping = Keeping::of(&about, durability::has_waitaof(link, wanted).await?);
    checks.extend([server::version(&about), server::role(&about)]);
    checks.extend(topology::sentinels(options).await?);
    checks.extend(topology::cluster(link, &about).await?);
    checks.extend([loss::durability(keeping, wanted), loss::replicas(&about, keeping, wanted), loss::last_writes(&about)]);
    checks.extend([loss::eviction(&about), loss::memory(&about)]);
    checks.push(server::clock(link, clock).await?);
    checks.push(server::latency(link).await?);
    checks.extend([server::timeout(&about), server::keepalive(&about), server::connections(&about)]);
    checks.push(strain::client_memory(&about));
    checks.push(strain::slow_commands(link, clock.now()).await?);
    checks.extend(strain::machine(options));
    checks.push(rights::commands(link, options).await?);
    checks.push(rights::keys(link, options).await?);
    checks.push(rights::keys_of_locks_and_batches(link, options).await?);
    checks.push(rights::scripts(link).await?);
    checks.push(kinds::locks(link).await?);
    checks.push(size::own_keys(link, options).await?);
    checks.extend(content::checks(link, options, clock).await?);
    Ok(keeping.grant(wanted).ok())
}

/// What must be right before a Redis is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// That it can work at all, and keeps what was asked for. Whatever else is wrong is only told.
    #[default]
    Works,
    /// Also that it loses nothing it has acknowledged, and that this user may do whatever a server does.
    Keeps,
}

impl Demand {
    /// The checks that must not fail. What passes by itself (full memory, a failed write) is none of them: a server that does not start
    /// cannot make room either.
    fn must_not_fail(self, wanted: Wanted) -> &'static [&'static str] {
        match (self, wanted.level) {
            (Self::Works, _) => &["version", "role"],
            // Whoever asks for no more than memory has been told what that means.
            (Self::Keeps, Some(Durability::Memory)) => &["version", "role", "rights", "keys", "scripts"],
            (Self::Keeps, _) => &["version", "role", "durability", "replicas", "eviction", "rights", "keys", "scripts"],
        }
    }
}

/// Refuses a Redis that is not what is demanded, and returns what should be warned of.
pub async fn admit(options: &RedisOptions, demand: Demand) -> Result<Vec<Check>, Unfit> {
    let link = Link::open(options).await?;
    let about = About::ask(&link).await?;
    let wanted = Wanted::from(options);
    let keeping = Keeping::of(&about, false);
    keeping.grant(wanted).map_err(|refused| Unfit::Refused(refused.to_string()))?;
    let mut checks = vec![
        server::version(&about),
        server::role(&about),
        loss::durability(keeping, wanted),
        loss::replicas(&about, keeping, wanted),
        loss::eviction(&about),
        loss::last_writes(&about),
    ];
    if demand == Demand::Keeps {
        checks.push(loss::memory(&about));
        checks.extend([rights::commands(&link, options).await?, rights::keys(&link, options).await?, rights::scripts(&link).await?]);
        checks.push(rights::keys_of_locks_and_batches(&link, options).await?);
    }
    let must_not_fail = demand.must_not_fail(wanted);
    let refused = checks.iter().filter(|check| check.verdict == Verdict::Fail && must_not_fail.contains(&check.name));
    let refused: Vec<String> = refused.map(|check| format!("{}: {}", check.says, check.advice.as_deref().unwrap_or_default())).collect();
    if !refused.is_empty() {
        return Err(Unfit::Refused(refused.join("; and ")));
    }
    Ok(checks.into_iter().filter(|check| check.verdict != Verdict::Ok).collect())
}

fn connection(options: &RedisOptions) -> Check {
    match &options.tls {
        Some(tls) if tls.insecure => {
            let says = format!("{options} answers, encrypted, but anybody could stand in for it");
            Check::warn("connection", says, "leave out tls_insecure and name its authority with tls_ca=FILE")
        }
        Some(_) => Check::ok("connection", format!("{options} answers, encrypted and verified")),
        None => Check::ok("connection", format!("{options} answers, not encrypted")),
    }
}

fn unreachable(options: &RedisOptions, error: &StoreError) -> Check {
    let text = error.to_string();
    let lower = text.to_lowercase();
    let said = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let advice = if said(&["wrongpass", "noauth", "authenticat", "password"]) {
        "check user and password; a password in a URL is percent-encoded"
    } else if said(&["certificate", "tls", "handshake"]) {
        "check whether the server speaks TLS (rediss://) and whether its authority is trusted (tls_ca=FILE)"
    } else {
        "start it, check host and port, and whether a firewall is in between"
    };
    Check::fail("connection", format!("{options}: {text}"), advice)
}
