//! A place to follow a page in: a fresh folder, ports of its own, a server or a Redis, and one shell.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use towpath_redis_testing::RedisServer;

use crate::page::{self, Command};
use crate::samples::Names;
use crate::shell::Shell;

/// The ports that the pages show: of the server, of a second one, of the Redis.
const SHOWN: [&str; 3] = ["8690", "8691", "6379"];
/// Between two looks at what a job has printed.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const TOO_LONG: Duration = Duration::from_secs(60);

/// On which store `towpath dev` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Embedded,
    Redis,
}

pub(crate) struct Place {
    // The shell goes first: its jobs end while their server and Redis are there.
    shell: Shell,
    names: Names,
    ports: [String; 3],
    store: Store,
    redis: Option<RedisServer>,
    /// How the Redis was set up before a reader came.
    settings: String,
    folders: [TempDir; 2],
}

impl Drop for Place {
    /// A worker that a page kills leaves its program behind. It is known by the folder that it runs in.
    fn drop(&mut self) {
        self.shell.close();
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let is_ours = std::fs::read_link(process.path().join("cwd")).is_ok_and(|folder| folder.starts_with(self.folders[0].path()));
            if let Some(id) = process.file_name().to_str().and_then(|name| name.parse().ok()).filter(|_| is_ours) {
                let _ended_meanwhile = kill(Pid::from_raw(id), Signal::SIGKILL);
            }
        }
    }
}

impl Place {
    pub(crate) fn open(kind: page::Place, store: Store) -> Self {
        let (folder, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // A reader stands in the folder of the repository.
        std::os::unix::fs::symlink(page::root().join("examples"), folder.path().join("examples")).unwrap();
        let needs_redis = kind == page::Place::Redis || store == Store::Redis;
        let redis = needs_redis.then(|| RedisServer::build().append_only("everysec").line("maxmemory 100mb").start());
        let redis_port = redis.as_ref().map_or_else(free_port, RedisServer::port);
        let ports = [free_port(), free_port(), redis_port].map(|port| port.to_string());
        put_programs(&programs, redis_port);
        let server = format!("127.0.0.1:{}", ports[0]);
        let variables = [("TOWPATH_SERVER", format!("http://{server}")), ("TOWPATH_LISTEN", server)];
        let shell = Shell::start(folder.path(), programs.path(), &variables);
        let settings = redis.as_ref().map(settings_of).unwrap_or_default();
        let mut place = Self { shell, names: Names::default(), ports, store, redis, settings, folders: [folder, programs] };
        if kind == page::Place::Dev {
            place.start_dev(redis_port);
        }
        place
    }

    /// `towpath dev` in its own terminal, as the pages say.
    fn start_dev(&mut self, redis_port: u16) {
        let store = match self.store {
            Store::Embedded => String::new(),
            Store::Redis => format!(" --store redis://127.0.0.1:{redis_port}"),
        };
        let file = self.shell.begin(&format!("towpath dev{store}"));
        self.wait_for(&file, &["…", "…is running at…", "…"].map(str::to_owned)).unwrap_or_else(|wrong| panic!("{wrong}"));
    }

    /// Runs a command of a page, after a pause of so many seconds. `Err` says what the page shows and what was printed.
    pub(crate) fn follow(&mut self, command: &Command, pause: u32) -> Result<Vec<String>, String> {
        if pause > 0 {
            self.shell.run(&format!("sleep {pause}"));
        }
        let here = |text: &str| self.with_ports(&self.names.in_this_run(text));
        if let Some(text) = command.in_background() {
            let text = here(text);
            let file = self.shell.begin(&text);
            let mut shown = command.prints.clone();
            if shown.is_empty() {
                return Ok(Vec::new());
            }
            shown.push("…".to_owned());
            return self.wait_for(&file, &shown);
        }
        let text = here(&command.text);
        let begun = now();
        loop {
            let printed = self.shell.run(&text);
            let printed = self.as_shown(printed);
            if self.names.match_lines(&command.prints, &printed) {
                return Ok(printed);
            }
            if !command.until || begun.elapsed() > TOO_LONG {
                return Err(difference(&command.prints, &printed));
            }
            std::thread::park_timeout(LOOK_AGAIN);
        }
    }

    /// Runs a command that is on no page.
    pub(crate) fn run(&mut self, text: &str) -> Vec<String> {
        let text = self.with_ports(text);
        self.shell.run(&text)
    }

    /// Waits until a job has printed what the page shows.
    fn wait_for(&mut self, file: &PathBuf, shown: &[String]) -> Result<Vec<String>, String> {
        let begun = now();
        loop {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let printed = self.as_shown(text.lines().map(str::to_owned).collect());
            if self.names.match_lines(shown, &printed) {
                return Ok(printed);
            }
            if begun.elapsed() > TOO_LONG {
                return Err(difference(shown, &printed));
            }
            std::thread::park_timeout(LOOK_AGAIN);
        }
    }

    /// Whether the Redis is set up as it was before.
    pub(crate) fn leave(self) -> Result<(), String> {
        match &self.redis {
            Some(redis) if settings_of(redis) != self.settings => Err("the page changes the settings of the reader's Redis".to_owned()),
            _ => Ok(()),
        }
    }

    fn with_ports(&self, text: &str) -> String {
        SHOWN.iter().zip(&self.ports).fold(text.to_owned(), |text, (shown, real)| replace_number(&text, shown, real))
    }

    fn as_shown(&self, lines: Vec<String>) -> Vec<String> {
        let back = |line: String| {
            let line = SHOWN.iter().zip(&self.ports).fold(line, |text, (shown, real)| replace_number(&text, real, shown));
            // The pages show the embedded store's level.
            if self.store == Store::Redis { line.replace("everysec", "fsync") } else { line }
        };
        lines.into_iter().map(back).collect()
    }
}

fn settings_of(redis: &RedisServer) -> String {
    redis.cli(&["config", "get", "*"])
}

fn difference(shown: &[String], printed: &[String]) -> String {
    format!("the page shows\n    {}\nand this was printed\n    {}", shown.join("\n    "), printed.join("\n    "))
}

/// `towpath` is the binary under test. `redis-cli` goes to this place's Redis and prints as in a terminal.
fn put_programs(folder: &TempDir, redis_port: u16) {
    let put = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_towpath"), folder.path().join("towpath")).unwrap();
    let real = std::env::var("PATH").unwrap_or_default();
    put("redis-cli", format!("#!/bin/sh\nPATH='{real}' exec redis-cli -p {redis_port} --no-raw \"$@\"\n"));
}

/// A port on which nothing listens, below those that the system gives to the near ends of connections.
fn free_port() -> u16 {
    const FIRST: u16 = 23_000;
    const COUNT: u16 = 8_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id().wrapping_mul(31) % u32::from(COUNT)) as u16;
    let mut ports = (0..COUNT).map(|_| FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a port is free")
}

/// Replaces a number where it stands alone, not where it is a part of a longer one or of an id.
fn replace_number(text: &str, from: &str, to: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        let is_part = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
        let stands_alone = !is_part(before.chars().next_back()) && !is_part(after.chars().next());
        replaced.push_str(before);
        replaced.push_str(if stands_alone { to } else { from });
        rest = after;
    }
    replaced + rest
}

#[expect(clippy::disallowed_methods, reason = "a real process is waited for, by the real clock")]
fn now() -> Instant {
    Instant::now()
}
