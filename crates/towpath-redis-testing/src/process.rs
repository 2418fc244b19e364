//! A server process that is ready when it is handed over, and that ends with the test whatever happens.

use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

const READY_WITHIN: Duration = Duration::from_secs(30);

pub(crate) struct Process {
    child: Child,
    /// A shell that waits for the end of its input and then kills the server: so it ends even if the test is killed.
    guard: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Process {
    /// Starts it and waits until it has said `ready`. If it ends before, its log comes back.
    pub(crate) fn start(program: &str, args: &[&str], ready: &'static str) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}", missing(program, &error)));
        let output = child.stdout.take().expect("its output is a pipe");
        let guard = guard(child.id());
        let log = Arc::new(Mutex::new(Vec::new()));
        let (sender, receiver) = channel();
        let kept = Arc::clone(&log);
        std::thread::spawn(move || listen(BufReader::new(output), ready, &kept, &sender));
        let mut process = Self { child, guard, log };
        match receiver.recv_timeout(READY_WITHIN) {
            Ok(()) => Ok(process),
            Err(_) => {
                process.kill();
                Err(process.log())
            }
        }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().map(|lines| lines.join("\n")).unwrap_or_default()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("the server is there to be signalled");
    }

    /// Makes it stand still, and returns when it does.
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).expect("it is our child");
        assert!(matches!(stopped, WaitStatus::Stopped(..)), "instead of standing still: {stopped:?}");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        // The guard first: later the number of the server might belong to another process. Both may be gone already.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it as an operator does.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        let _ = self.child.wait();
        self.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn guard(of: u32) -> Child {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' INT TERM HUP; read -r _; kill -9 \"$1\"", "guard", &of.to_string()]);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().expect("sh starts")
}

fn listen(output: impl BufRead, ready: &str, log: &Mutex<Vec<String>>, sender: &Sender<()>) {
    for line in output.lines().map_while(Result::ok) {
        let is_ready = line.contains(ready);
        if let Ok(mut lines) = log.lock() {
            lines.push(line);
        }
        if is_ready {
            // Nobody listens any more when it says so again.
            let _ = sender.send(());
        }
    }
}

/// Runs a program to its end and returns what it wrote.
pub(crate) fn output_of(program: &str, args: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(args).stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{}", missing(program, &error)));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{program} failed: {} {}", text(&output.stdout), text(&output.stderr))),
    }
}

fn missing(program: &str, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => format!("{program} is not installed: run ./test once, it installs what the tests need"),
        _ => format!("{program} does not start: {error}"),
    }
}
