//! One shell per place, as a reader has one terminal: variables, jobs and `$!` live from command to command.

use std::io::{BufRead, BufReader, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// No command of a page takes this long.
const TOO_LONG: Duration = Duration::from_secs(120);
/// Said by the shell after each command.
const END: &str = "\u{1}end of step";

pub(crate) struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    steps: PathBuf,
    count: usize,
}

impl Shell {
    /// A shell in `folder`, with `programs` before everything else on its path.
    pub(crate) fn start(folder: &Path, programs: &Path, variables: &[(&str, String)]) -> Self {
        let steps = programs.join("steps");
        std::fs::create_dir_all(&steps).unwrap();
        let (reader, writer) = pipe().expect("a pipe");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc"]).current_dir(folder).stdin(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            let ours = |name: &str| ["TOWPATH_", "EXECUTIONS_MODE", "QUEUE_BULL_"].iter().any(|start| name.starts_with(start));
            if ours(&name.to_string_lossy()) {
                command.env_remove(name);
            }
        }
        command.env("PATH", path).envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
        let mut child = command.stdout(writer.try_clone().expect("a pipe")).stderr(writer).spawn().expect("bash is installed");
        drop(command); // with it goes our end of the pipe, so that the lines end with the shell
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        let input = child.stdin.take();
        let mut shell = Self { child, input, lines, steps, count: 0 };
        shell.run("set -m"); // jobs, as in a terminal
        shell
    }

    /// Runs a command to its end and returns what it printed on standard output and standard error.
    pub(crate) fn run(&mut self, command: &str) -> Vec<String> {
        self.count += 1;
        let file = self.steps.join(format!("step-{}", self.count));
        std::fs::write(&file, format!("{command}\n")).unwrap();
        // From a file, so that the command cannot read the commands that follow it.
        self.send(&format!(". '{}' </dev/null; printf '\\n%s\\n' '{END}'\n", file.display()));
        let mut printed = Vec::new();
        loop {
            match self.lines.recv_timeout(TOO_LONG) {
                Ok(line) if line == END => break,
                // The shell's own word about a job that was killed; a terminal shows it at some prompt.
                Ok(line) if line.contains(" Killed ") && line.contains("/steps/") => {}
                Ok(line) => printed.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("this did not end: {command}\nit printed {printed:#?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the shell has ended with: {command}\nit printed {printed:#?}"),
            }
        }
        while printed.last().is_some_and(String::is_empty) {
            printed.pop();
        }
        printed
    }

    /// Starts a command in the background. Its output goes to the file that is returned.
    pub(crate) fn begin(&mut self, command: &str) -> PathBuf {
        let file = self.steps.join(format!("output-{}", self.count + 1));
        let printed = self.run(&format!("{command} >'{}' 2>&1 &", file.display()));
        assert_eq!(printed, Vec::<String>::new(), "{command}");
        file
    }

    fn send(&mut self, text: &str) {
        let input = self.input.as_mut().expect("the shell is open");
        input.write_all(text.as_bytes()).and_then(|()| input.flush()).expect("the shell reads");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shell {
    /// Ends the jobs by their ids, then the shell. A job that does not end by itself is killed.
    pub(crate) fn close(&mut self) {
        const GOODBYE: &str = "jobs=$(jobs -p); [ -z \"$jobs\" ] || kill $jobs 2>/dev/null\n\
             for n in $(seq 100); do [ -z \"$(jobs -rp)\" ] && break; sleep 0.1; done\n\
             jobs=$(jobs -p); [ -z \"$jobs\" ] || kill -9 $jobs 2>/dev/null\nexit 0\n";
        if let Some(mut input) = self.input.take() {
            let _ended_before = input.write_all(GOODBYE.as_bytes());
        }
        let _reaped = self.child.wait();
    }
}
