//! The processes below this one: its children, their children, and so on, in whatever group or session they are.

use std::collections::HashMap;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpid};

use crate::cli::time;

/// Between two looks: a process that was told to end needs a moment.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A process that the system does not let go (a dead disk) is given up after this many looks.
const LOOKS_MAX: u32 = 1_000;

/// From now on a process whose parent has ended becomes a child of this one, so that it stays below. Linux only.
pub(crate) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _an_old_kernel_has_none = nix::sys::prctl::set_child_subreaper(true);
}

/// Ends every process below this one with SIGKILL. Linux only: elsewhere it finds none.
pub(crate) async fn end_all() {
    for _ in 0..LOOKS_MAX {
        // Orphans are children, so who has no child has nothing below.
        let found = if has_children() { living() } else { Vec::new() };
        if found.is_empty() {
            return;
        }
        signal_each(&found, Signal::SIGKILL);
        time::sleep(LOOK_EVERY).await;
    }
}

/// Sends a signal to every process below this one. Linux only: elsewhere it finds none.
pub(super) fn signal_all(signal: Signal) {
    signal_each(&living(), signal);
}

fn signal_each(found: &[Pid], signal: Signal) {
    for pid in found {
        let _already_gone = kill(*pid, signal);
    }
}

fn has_children() -> bool {
    waitpid(None, Some(WaitPidFlag::WNOHANG)) != Err(Errno::ECHILD)
}

fn living() -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in entries.filter_map(|entry| Process::read(&entry.file_name().to_string_lossy())) {
        children.entry(process.parent).or_default().push(process);
    }
    let (mut found, mut parents) = (Vec::new(), vec![getpid().as_raw()]);
    while let Some(parent) = parents.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            parents.push(process.pid);
            if process.lives {
                found.push(Pid::from_raw(process.pid));
            }
        }
    }
    found
}

struct Process {
    pid: i32,
    parent: i32,
    lives: bool,
}

impl Process {
    fn read(name: &str) -> Option<Self> {
        let pid = name.parse().ok()?;
        Self::parse(pid, &std::fs::read_to_string(format!("/proc/{name}/stat")).ok()?)
    }

    /// `PID (NAME) STATE PARENT …`; a name may hold spaces and brackets.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
        let lives = !matches!(fields.next()?, "Z" | "X");
        Some(Self { pid, parent: fields.next()?.parse().ok()?, lives })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_confuse_nothing() {
        let read = |stat: &str| Process::parse(7, stat).map(|process| (process.parent, process.lives));
        assert_eq!(read("7 (sh) S 42 7 7 0"), Some((42, true)));
        assert_eq!(read("7 (a ) Z 1 (b) Z 43 7"), Some((43, false)));
        assert_eq!(read("7 (sh"), None);
        assert_eq!(read("7 (sh) S"), None);
    }
}
