//! Rights: each command is tried in a way that changes nothing, each pattern of keys is reached for, and a script is loaded and run.

use redis::{Cmd, Value};
use towpath_core::store::{StoreError, StoreTrouble};

use super::check::Check;
use crate::about::{self, is_about_rights, refusal};
use crate::acl::{AclCommand, COMMANDS};
use crate::link::Link;
use crate::options::RedisOptions;
use crate::store::secret_name;

const GRANT: &str = "let an administrator run the line that `towpath doctor --print-acl` prints";

/// Every command that is needed.
pub(crate) async fn commands(link: &Link, options: &RedisOptions) -> Result<Check, StoreError> {
    let (key, channel) = (format!("{}:probe:{{doctor-{}}}", options.prefix, secret_name()), channel(options));
    let mut refused = Vec::new();
    for command in COMMANDS {
        let Some(trial) = command.trial else { continue };
        if is_refused(link, command, trial, &key, &channel).await? {
            refused.push(command);
        }
    }
    let who = who(link, options).await?;
    if refused.is_empty() {
        return Ok(Check::ok("rights", format!("user {who} may send all commands that are needed")));
    }
    let list = refused.iter().map(|command| format!("{} ({})", command.name, command.why)).collect::<Vec<_>>().join(", ");
    Ok(Check::fail("rights", format!("user {who} must not send {list}"), GRANT))
}

async fn is_refused(link: &Link, command: &AclCommand, trial: &str, key: &str, channel: &str) -> Result<bool, StoreError> {
    let mut cmd = Cmd::new();
    for word in trial.split(' ') {
        cmd.arg(match word {
            "KEY" => key,
            "CHANNEL" => channel,
            word => word,
        });
    }
    // Commands of a Cluster may be unknown to a server that is none, and never are sent to it.
    if command.name.starts_with("cluster") && !link.is_cluster() {
        return Ok(false);
    }
    // Each master has its own users. One that does not have the key says so only to who may send the command.
    let mut replies = link.ask_each(&cmd).await.into_iter();
    replies.try_fold(false, |refused, reply| Ok(refused | refusal(&reply?).is_some_and(|refusal| is_about_rights(&refusal))))
}

/// The patterns of keys that every server needs, by removing one of each that is not there; and the channel, by listening to it.
pub(crate) async fn keys(link: &Link, options: &RedisOptions) -> Result<Check, StoreError> {
    let starts = ["function:stream:", "function:response:", "function:meta:", "n8n-ratelimit-"].map(str::to_owned);
    let examples = starts.into_iter().chain(["calls:", "probe:"].map(|kind| format!("{}:{kind}", options.prefix)));
    let mut refused = out_of_reach(link, examples.map(|start| Pattern::behind(&start))).await?;
    if let Err(error) = link.subscribed(&channel(options)).await {
        if !matches!(error, StoreError::Unavailable(StoreTrouble::NotAllowed(_))) {
            return Err(error);
        }
        refused.push(format!("the channel {}", channel(options)));
    }
    if refused.is_empty() {
        return Ok(Check::ok("keys", format!("function:*, n8n-ratelimit-*, {0}:* and the channels {0}:* can be reached", options.prefix)));
    }
    Ok(Check::fail("keys", format!("this user cannot reach {}", refused.join(", ")), GRANT))
}

/// The patterns of keys of locks and of batches, which a server without either does not need.
pub(crate) async fn keys_of_locks_and_batches(link: &Link, options: &RedisOptions) -> Result<Check, StoreError> {
    const NAME: &str = "keys of locks and batches";
    let locks = ["n8n-lock-".to_owned(), format!("{}:{{n8n-lock-", options.prefix)].map(|start| Pattern::behind(&start));
    let batches = ["queue:", "batch:", "dlq:"].map(Pattern::behind);
    let (locks, batches) = (out_of_reach(link, locks).await?, out_of_reach(link, batches).await?);
    let lacks = [("locks", "which are refused", locks), ("batches", "which are neither gathered nor delivered", batches)];
    let lacks: Vec<String> = lacks
        .into_iter()
        .filter(|(_, _, refused)| !refused.is_empty())
        .map(|(what, then, refused)| format!("{} of {what}, {then}", refused.join(", ")))
        .collect();
    if lacks.is_empty() {
        return Ok(Check::ok(NAME, "n8n-lock-*, queue:*, batch:* and dlq:* can be reached"));
    }
    Ok(Check::fail(NAME, format!("this user cannot reach {}", lacks.join("; nor ")), GRANT))
}

/// A pattern of keys, and a key of it that no one else has: no person or program can guess its name.
struct Pattern {
    shown: String,
    example: String,
}

impl Pattern {
    fn behind(start: &str) -> Self {
        Self { example: format!("{start}towpath-doctor-{}", secret_name()), shown: format!("{start}*") }
    }
}

/// Those of some patterns of whose keys this user must not remove any.
async fn out_of_reach(link: &Link, patterns: impl IntoIterator<Item = Pattern>) -> Result<Vec<String>, StoreError> {
    let mut refused = Vec::new();
    for Pattern { shown, example } in patterns {
        if about::permitted(link, Cmd::new().arg("DEL").arg(&example)).await?.is_none() {
            refused.push(shown);
        }
    }
    Ok(refused)
}

/// Scripts: loaded, and run under the name they were given.
pub(crate) async fn scripts(link: &Link) -> Result<Check, StoreError> {
    const PROBE: &str = "return 'towpath'";
    let expected = redis::Script::new(PROBE).get_hash().to_owned();
    let Some(loaded) = about::permitted(link, Cmd::new().arg("SCRIPT").arg("LOAD").arg(PROBE)).await? else {
        return Ok(Check::fail("scripts", "this user must not load them", GRANT));
    };
    let Some(ran) = about::permitted(link, Cmd::new().arg("EVALSHA").arg(&expected).arg(0)).await? else {
        return Ok(Check::fail("scripts", "this user must not run them", GRANT));
    };
    let text = |reply: Value| redis::from_redis_value::<String>(reply).unwrap_or_default();
    if text(loaded) == expected && text(ran) == "towpath" {
        return Ok(Check::ok("scripts", "are loaded and run"));
    }
    Ok(Check::fail("scripts", "the server answers with something else", "is this a Redis or Valkey, without a proxy in between"))
}

fn channel(options: &RedisOptions) -> String {
    format!("{}:probe", options.prefix)
}

async fn who(link: &Link, options: &RedisOptions) -> Result<String, StoreError> {
    let name = about::permitted(link, Cmd::new().arg("ACL").arg("WHOAMI")).await?;
    let name = name.and_then(|reply| redis::from_redis_value::<String>(reply).ok());
    Ok(name.or_else(|| options.username.clone()).unwrap_or_else(|| "default".to_owned()))
}
