//! Scripts on the server: run by their names, loaded when it does not know them, and some even when its memory is full.
//!
//! A Redis whose memory is full refuses whatever may need more of it, and with that the very commands that would finish what it has
//! accepted: nothing would leave it again. From Redis 7 on a script may say that it runs all the same. Those do that finish work or make
//! room; those that take new work do not, and are refused as a whole.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Arg, Cmd, Value};
use towpath_core::store::StoreError;

use super::{Link, Way, checked, error, slots};
use crate::script::Args;

/// What a script says of itself in its first line.
const EVEN_IF_FULL: &str = "#!lua flags=allow-oom\n";

static INSIST: LazyLock<Script> = LazyLock::new(|| Script::even_if_full(include_str!("../../lua/insist.lua")));

/// A script and its name on the server.
#[derive(Debug)]
pub(crate) struct Script {
    pub(super) plain: Form,
    even_if_full: Option<Form>,
}

/// The text of a script, and the name that the server makes of it.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) code: Cow<'static, str>,
    pub(super) sha: String,
}

impl Form {
    fn new(code: impl Into<Cow<'static, str>>) -> Self {
        let code = code.into();
        Self { sha: redis::Script::new(&code).get_hash().to_owned(), code }
    }

    /// The command that runs it, but for its words.
    fn command(&self, keys: &[&str], words: usize, bytes: usize) -> Cmd {
        let key_bytes: usize = keys.iter().map(|key| key.len()).sum();
        let mut command = Cmd::with_capacity(3 + keys.len() + words, 64 + key_bytes + bytes);
        command.arg("EVALSHA").arg(&self.sha).arg(keys.len()).arg(keys);
        command
    }
}

impl Script {
    /// One that takes something new. When memory is full it is refused.
    pub(crate) fn new(code: &'static str) -> Self {
        Self { plain: Form::new(with_planted_bug(code)), even_if_full: None }
    }

    /// One that finishes what was accepted, or makes room. It runs when memory is full, too, where the server knows how (Redis 7).
    pub(crate) fn even_if_full(code: &'static str) -> Self {
        Self { even_if_full: Some(Form::new(format!("{EVEN_IF_FULL}{}", with_planted_bug(code)))), ..Self::new(code) }
    }
}

/// The text of a script. A debug build plants a bug in it if a test wants that: `TOWPATH_PLANTED_BUG` is `piece of text => replacement`.
/// See `tests/planted/`.
fn with_planted_bug(code: &'static str) -> Cow<'static, str> {
    let bug = if cfg!(debug_assertions) { std::env::var("TOWPATH_PLANTED_BUG").ok() } else { None };
    match bug.as_deref().and_then(|bug| bug.split_once(" => ")) {
        Some((piece, replacement)) => code.replace(piece, replacement).into(),
        None => code.into(),
    }
}

/// Whether the server cannot read what scripts say of themselves: it is older than Redis 7.
#[derive(Default)]
pub(super) struct IsOld(AtomicBool);

impl Link {
    /// Runs a script on the server that has these keys. All of them belong to one function, or the store is no Cluster.
    pub(crate) async fn run(&self, script: &Script, keys: &[&str], args: &[Vec<u8>]) -> Result<Value, StoreError> {
        let mut command = self.form(script).command(keys, args.len(), args.iter().map(Vec::len).sum());
        for word in args {
            command.arg(word);
        }
        self.run_command(script, command, &[]).await.map(|(reply, _)| reply)
    }

    /// The same with many words.
    pub(crate) async fn run_args(&self, script: &Script, keys: &[&str], args: &Args) -> Result<Value, StoreError> {
        self.run_with(script, keys, args, &[]).await.map(|(reply, _)| reply)
    }

    /// Runs a script and, behind it on the same connection, commands that ask what became of it, with keys of the same slot or none: `WAIT`
    /// speaks only of what its own connection has written. It may take a second, so that nothing else is sent there.
    pub(crate) async fn run_with(
        &self,
        script: &Script,
        keys: &[&str],
        args: &Args,
        behind: &[Cmd],
    ) -> Result<(Value, Vec<Value>), StoreError> {
        let form = self.form(script);
        if behind.is_empty()
            && let Way::Single(line) = &*self.way
            && let Some(spare) = self.spares.lend(line).await
        {
            let reply = spare.run(&form.sha, keys, args).await?;
            if !error::is_no_script(&reply) {
                return Ok((checked(reply)?, Vec::new()));
            }
        }
        let mut command = form.command(keys, args.len(), args.bytes());
        for word in args.words() {
            command.arg(word);
        }
        self.run_command(script, command, behind).await
    }

    /// Asks several things at once, as [`ask_all`](Self::ask_all) does. What is refused because memory is full is done all the same, after
    /// the others: for the little that keeps a worker at work, so that there will be room again.
    pub(crate) async fn insist(&self, commands: &[Cmd]) -> Result<Vec<Value>, StoreError> {
        let mut replies = self.ask_all(commands).await?;
        for (command, reply) in commands.iter().zip(&mut replies) {
            let key = slots::key_of(command).and_then(|key| std::str::from_utf8(key).ok());
            if let Some(key) = key.filter(|_| error::is_full(reply)) {
                let words: Vec<Vec<u8>> = simple_words(command).map(<[u8]>::to_vec).collect();
                let mut run = self.form(&INSIST).command(&[key], words.len(), words.iter().map(Vec::len).sum());
                run.arg(words);
                *reply = self.reply_of(&INSIST, run, &[]).await?.0;
            }
        }
        Ok(replies)
    }

    fn form<'a>(&self, script: &'a Script) -> &'a Form {
        script.even_if_full.as_ref().filter(|_| !self.is_old.0.load(Ordering::Relaxed)).unwrap_or(&script.plain)
    }

    async fn run_command(&self, script: &Script, command: Cmd, behind: &[Cmd]) -> Result<(Value, Vec<Value>), StoreError> {
        let (reply, replies) = self.reply_of(script, command, behind).await?;
        Ok((checked(reply)?, replies))
    }

    /// Sends what runs a script, and the script itself if the server does not know it. An error of the script is a reply.
    async fn reply_of(&self, script: &Script, command: Cmd, behind: &[Cmd]) -> Result<(Value, Vec<Value>), StoreError> {
        let mut commands = vec![command];
        commands.extend_from_slice(behind);
        let mut replies = self.send_for(&commands, behind).await?.into_iter();
        let mut reply = replies.next().unwrap_or(Value::Nil);
        if error::is_no_script(&reply) {
            let form = self.form(script);
            let mut load = Cmd::new();
            load.arg("SCRIPT").arg("LOAD").arg(&*form.code);
            commands.insert(0, load);
            replies = self.send_for(&commands, behind).await?.into_iter();
            let loaded = replies.next().unwrap_or(Value::Nil);
            if error::is_not_compiled(&loaded) && form.code.starts_with(EVEN_IF_FULL) {
                self.is_old.0.store(true, Ordering::Relaxed);
                let by_its_plain_name = renamed(&commands[1], &script.plain.sha);
                return Box::pin(self.reply_of(script, by_its_plain_name, behind)).await;
            }
            checked(loaded)?;
            reply = replies.next().unwrap_or(Value::Nil);
        }
        Ok((reply, replies.collect()))
    }
}

/// The same command for the script under another name.
fn renamed(command: &Cmd, sha: &str) -> Cmd {
    let mut renamed = Cmd::new();
    for (place, word) in simple_words(command).enumerate() {
        renamed.arg(if place == 1 { sha.as_bytes() } else { word });
    }
    renamed
}

fn simple_words(command: &Cmd) -> impl Iterator<Item = &[u8]> {
    command.args_iter().filter_map(|word| match word {
        Arg::Simple(word) => Some(word),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use towpath_redis_testing::RedisServer;

    use super::super::tests::{command, open, text};
    use super::*;

    const COUNT: &str = "return redis.call('INCR', KEYS[1])";

    #[tokio::test]
    async fn a_server_that_cannot_read_what_a_script_says_of_itself_gets_it_plain() {
        let server = RedisServer::start();
        let link = open(&server.url()).await;
        // To Redis 6 all scripts that begin so are as wrong as this one is.
        let no_lua = Form::new(format!("{EVEN_IF_FULL}this is no Lua"));
        let script = Script { even_if_full: Some(no_lua), ..Script::new(COUNT) };
        assert_eq!(link.run(&script, &["sum"], &[]).await, Ok(Value::Int(1)));
        assert_eq!(link.run_args(&script, &["sum"], &Args::default()).await, Ok(Value::Int(2)), "and it is known by now");
        assert_eq!(link.run(&Script::even_if_full(COUNT), &["sum"], &[]).await, Ok(Value::Int(3)), "so it is with all");
    }

    #[tokio::test]
    async fn when_memory_is_full_only_those_run_that_say_so() {
        let server = RedisServer::start();
        let link = open(&server.url()).await;
        server.cli(&["config", "set", "maxmemory", "1"]);
        assert!(link.run(&Script::new(COUNT), &["sum"], &[]).await.is_err());
        assert_eq!(link.run(&Script::even_if_full(COUNT), &["sum"], &[]).await, Ok(Value::Int(1)));
        let commands = ["SET a 1", "GET sum", "XGROUP CREATE s g 0 MKSTREAM", "XGROUP CREATE s g 0 MKSTREAM"].map(command);
        assert!(link.ask_all(&commands).await.unwrap().iter().any(error::is_full));
        let replies = link.insist(&commands).await.unwrap();
        assert_eq!((&replies[0], &replies[2]), (&Value::Okay, &Value::Okay));
        assert!(matches!(&replies[3], Value::ServerError(error) if error.code() == "BUSYGROUP"), "{replies:?}");
        assert_eq!(text(&link, "GET a").await, "1");
    }
}
