//! Starting the binary, and waiting for things themselves instead of for some time.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// Nothing that is waited for takes this long on a healthy machine, however busy.
const TOO_LONG: Duration = Duration::from_secs(60);

/// A shell's wait for the file `go`. Bounded, so that nothing runs for ever should a test fail.
pub(crate) const UNTIL_GO: &str = "n=0; while [ ! -e go ] && [ $n -lt 9000 ]; do n=$((n+1)); sleep 0.01; done";
/// A shell that does not end by itself, but for the same bound.
pub(crate) const ON_AND_ON: &str = "n=0; while [ $n -lt 1800 ]; do n=$((n+1)); sleep 0.05; done";

/// Looks until `look` finds something.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < TOO_LONG, "waited too long for {what}");
        std::thread::park_timeout(Duration::from_millis(5)); // between two looks at the thing itself
    }
}

#[expect(clippy::disallowed_methods, reason = "a real process is waited for, by the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// What a command did.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Standard output as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: stdout is {:?}, stderr is {:?}", self.stdout, self.stderr))
    }

    /// The error body on standard error.
    pub(crate) fn error(&self) -> Value {
        let body: Value = serde_json::from_str(&self.stderr).unwrap_or_else(|error| panic!("{error}: stderr is {:?}", self.stderr));
        body["error"].clone()
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "stderr lacks {text:?}: {}", self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "stdout lacks {text:?}: {}", self.stdout);
        self
    }
}

/// The binary, without anything of the surrounding environment that would change what it does.
pub(crate) fn towpath(folder: &Path) -> Command {
    let mut command = program();
    for (name, _) in std::env::vars_os() {
        let ours = |name: &str| ["TOWPATH_", "EXECUTIONS_MODE", "QUEUE_BULL_"].iter().any(|begin| name.starts_with(begin));
        if ours(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The binary. Where the tests themselves run under `nohup`, it would inherit that SIGHUP is ignored; `env` undoes that.
fn program() -> Command {
    let binary = env!("CARGO_BIN_EXE_towpath");
    if !ignores_sighup() {
        return Command::new(binary);
    }
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", binary]);
    command
}

/// Whether this process ignores SIGHUP, the signal of the lowest number.
fn ignores_sighup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 == 1)
}

/// Runs a command to its end.
pub(crate) fn run(mut command: Command) -> Ran {
    let output = command.output().expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text");
    Ran { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A process that runs beside the test, ended with it.
pub(crate) struct Beside {
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

impl Beside {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the binary starts");
        let stdout = Lines::of(child.stdout.take().expect("stdout is a pipe"));
        let stderr = Lines::of(child.stderr.take().expect("stderr is a pipe"));
        Self { child, stdout, stderr }
    }

    /// A process of whose output only the first line is read; then both pipes are closed.
    pub(crate) fn start_unread(mut command: Command) -> (Self, String) {
        let mut child = command.spawn().expect("the binary starts");
        let mut first = String::new();
        BufReader::new(child.stdout.take().expect("stdout is a pipe")).read_line(&mut first).expect("it can be read");
        drop(child.stderr.take());
        (Self { child, stdout: Lines::of(std::io::empty()), stderr: Lines::of(std::io::empty()) }, first)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id is small"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("the process is there");
    }

    /// The first JSON line on standard output for which `is` holds.
    pub(crate) fn event(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let found = self.stdout.find(|line| serde_json::from_str(line).ok().filter(|event| is(event)));
        found.unwrap_or_else(|| panic!("no event {what}; stdout: {:?}, stderr: {:?}", self.stdout.last(), self.stderr.last()))
    }

    /// The first line on standard error with this in it.
    pub(crate) fn remark(&self, part: &str) -> String {
        let found = self.stderr.find(|line| line.contains(part).then(|| line.to_owned()));
        found.unwrap_or_else(|| panic!("nothing says {part:?}; stderr: {:?}", self.stderr.last()))
    }

    /// All lines on standard error with this in them, once it has ended.
    pub(crate) fn remarks(&self, part: &str) -> Vec<String> {
        wait_for("the end of standard error", || self.stderr.shared.0.lock().unwrap().ended.then_some(()));
        let heard = self.stderr.shared.0.lock().unwrap();
        heard.lines.iter().filter(|line| line.contains(part)).cloned().collect()
    }

    /// The first line on standard output with this in it.
    pub(crate) fn line(&self, part: &str) -> String {
        let found = self.stdout.find(|line| line.contains(part).then(|| line.to_owned()));
        found.unwrap_or_else(|| panic!("no line has {part:?}; stdout: {:?}", self.stdout.last()))
    }

    /// Waits for its end by itself.
    pub(crate) fn ends(&mut self) -> ExitStatus {
        wait_for("the process to end", || self.child.try_wait().expect("it can be asked"))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ended_before = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Lines as they come.
struct Lines {
    shared: Arc<(Mutex<Heard>, Condvar)>,
}

#[derive(Default)]
struct Heard {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::new(Heard::default()), Condvar::new()));
        let heard = Arc::clone(&shared);
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                heard.0.lock().unwrap().lines.push(line);
                heard.1.notify_all();
            }
            heard.0.lock().unwrap().ended = true;
            heard.1.notify_all();
        });
        Self { shared }
    }

    /// The last of them, for the message of a test that fails.
    fn last(&self) -> Vec<String> {
        let heard = self.shared.0.lock().unwrap();
        heard.lines[heard.lines.len().saturating_sub(10)..].to_vec()
    }

    /// Waits for a line that `pick` likes; `None` when the stream ends or it takes too long.
    fn find<T>(&self, pick: impl Fn(&str) -> Option<T>) -> Option<T> {
        let begun = now();
        let mut heard = self.shared.0.lock().unwrap();
        loop {
            if let Some(found) = heard.lines.iter().find_map(|line| pick(line)) {
                return Some(found);
            }
            if heard.ended || begun.elapsed() > TOO_LONG {
                return None;
            }
            heard = self.shared.1.wait_timeout(heard, Duration::from_millis(200)).unwrap().0;
        }
    }
}

/// A server with a folder of its own.
pub(crate) struct Server {
    pub(crate) process: Beside,
    pub(crate) url: String,
    pub(crate) folder: TempDir,
}

impl Server {
    /// `towpath dev` on a free port.
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().expect("a folder can be made"), "127.0.0.1:0")
    }

    /// A server that forgets everything when it ends.
    pub(crate) fn start_in_memory(listen: &str) -> Self {
        Self::start_with(tempfile::tempdir().expect("a folder can be made"), &["dev", "--store", "memory:", "--listen", listen])
    }

    pub(crate) fn start_in(folder: TempDir, listen: &str) -> Self {
        Self::start_with(folder, &["dev", "--listen", listen])
    }

    /// Starts a server; again, when the address of a predecessor is not free yet.
    pub(crate) fn start_with(folder: TempDir, arguments: &[&str]) -> Self {
        let (process, url) = wait_for("the server to listen", || {
            let mut command = towpath(folder.path());
            command.args(arguments).arg("--json");
            let process = Beside::start(command);
            let listening: Option<Value> = process.stdout.find(|line| serde_json::from_str(line).ok());
            if listening.is_none() {
                process.remark("cannot listen"); // anything else is a failure
            }
            let url = listening?["url"].as_str().expect("it says where").to_owned();
            Some((process, url))
        });
        Self { process, url, folder }
    }

    /// Ends the server as a crash would, and keeps its folder and address.
    pub(crate) fn crash(self) -> (TempDir, String) {
        let Self { process, url, folder } = self;
        drop(process);
        (folder, url.trim_start_matches("http://").to_owned())
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = towpath(self.folder.path());
        command.env("TOWPATH_SERVER", &self.url).args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        run(self.command(arguments))
    }

    /// Runs a command with text on its standard input.
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().expect("the binary starts");
        child.stdin.take().expect("stdin is a pipe").write_all(input.as_bytes()).expect("it listens");
        let output = child.wait_with_output().expect("it ends");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text");
        Ran { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// A worker that serves already.
    pub(crate) fn worker(&self, name: &str, arguments: &[&str]) -> Beside {
        let mut command = self.command(&["worker", name, "--json"]);
        command.args(arguments);
        let worker = Beside::start(command);
        worker.event("serving", |event| event["event"] == "serving");
        worker
    }

    /// Submits a call and gives its id.
    pub(crate) fn submit(&self, name: &str, params: &str, more: &[&str]) -> String {
        let mut command = self.command(&["call", name, params, "--detach"]);
        command.args(more);
        run(command).exits(0).stdout.trim().to_owned()
    }

    /// Everything that is known of a call.
    pub(crate) fn call(&self, call_id: &str) -> Value {
        self.run(&["calls", "show", call_id, "--json"]).exits(0).json()
    }

    /// The call as soon as it is in a state.
    pub(crate) fn call_in_state(&self, call_id: &str, state: &str) -> Value {
        wait_for(&format!("call {call_id} to be {state}"), || Some(self.call(call_id)).filter(|call| call["state"] == state))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file's content, as soon as it has a whole line.
    pub(crate) fn line_of(&self, name: &str) -> String {
        let path = self.path(name);
        wait_for(&format!("the file {name}"), || {
            let text = std::fs::read_to_string(&path).ok()?;
            text.ends_with('\n').then(|| text.trim().to_owned())
        })
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("the folder can be written");
    }
}

/// Whether a process is there and not just waiting to be buried.
pub(crate) fn is_alive(pid: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    !matches!(state, Some("Z" | "X"))
}
