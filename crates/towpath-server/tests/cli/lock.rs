//! `towpath lock`: taken, held while a program runs, released, looked at.

use crate::support::{Beside, ON_AND_ON, Server, UNTIL_GO, is_alive, wait_for};

fn waiters(server: &Server, scope: &str) -> usize {
    let shown = server.run(&["lock", "show", scope, "--json"]);
    if shown.code == 0 { shown.json()["waiters"].as_array().unwrap().len() } else { 0 }
}

#[test]
fn a_lock_is_taken_listed_renewed_and_released() {
    let server = Server::start();
    let fence = server.run(&["lock", "acquire", "excel", "--ttl", "10m", "--lock-id", "me"]).exits(0).stdout.trim().to_owned();
    server.run(&["lock", "acquire", "excel"]).exits(4).says("scope 'excel' is held");
    server.run(&["lock", "acquire", "excel", "--wait", "50ms"]).exits(4).says("timed out after 0.05s");
    server.run(&["lock", "ls"]).exits(0).prints("SCOPE").prints("excel").prints("me");
    server.run(&["lock", "show", "excel"]).exits(0).prints("me (towpath)").prints(&fence);
    server.run(&["lock", "renew", "excel", "--fence", &fence, "--lease", "1m"]).exits(0).prints("another 1 min");
    server.run(&["lock", "release", "excel", "--lock-id", "other"]).exits(5).says("LOGIC ERROR: Lock held by");
    server.run(&["lock", "release", "excel", "--fence", &fence]).exits(0).prints("released");
    server.run(&["lock", "release", "excel", "--fence", &fence]).exits(0).prints("already");
    server.run(&["lock", "renew", "excel", "--fence", &fence]).exits(5).says("no longer");
    server.run(&["lock", "show", "never"]).exits(3);
}

#[test]
fn bad_input_is_refused_with_what_to_change_and_leaves_nothing_behind() {
    let server = Server::start();
    let long = "x".repeat(300);
    for (words, says) in [
        (vec!["lock", "acquire", ""], "value"),
        (vec!["lock", "acquire", " "], "is empty"),
        (vec!["lock", "acquire", "a:meta"], "':meta'"),
        (vec!["lock", "acquire", "a\nb"], "control character"),
        (vec!["lock", "acquire", &long], "300 bytes"),
        (vec!["lock", "acquire", "s", "--ttl", "0"], "out of range"),
        (vec!["lock", "acquire", "s", "--ttl", "0.05"], "out of range"),
        (vec!["lock", "acquire", "s", "--ttl=-5"], "no length of time"),
        (vec!["lock", "acquire", "s", "--ttl", "8d"], "out of range"),
        (vec!["lock", "acquire", "s", "--ttl", "99999999999999"], "ten years"),
        (vec!["lock", "acquire", "s", "--ttl", "a week"], "no length of time"),
        (vec!["lock", "acquire", "s", "--ttl", "10s", "--lease", "11s"], "out of range"),
        (vec!["lock", "acquire", "s", "--wait", "8d"], "out of range"),
        (vec!["lock", "acquire", "s", "--lock-id", ""], "lock id is empty"),
        (vec!["lock", "acquire", "s", "--execution-id", &long], "300 bytes"),
        (vec!["lock", "acquire", "s", "--kind", "shared"], "shared"),
        (vec!["lock", "acquire", "s", "--kind", "semaphore"], "--limit"),
        (vec!["lock", "acquire", "s", "--kind", "semaphore", "--limit", "0"], "out of range"),
        (vec!["lock", "acquire", "s", "--kind", "semaphore", "--limit", "2", "--weight", "3"], "out of range"),
        (vec!["lock", "renew", "s", "--fence", "x"], "--fence"),
        (vec!["lock", "renew", "s", "--fence", "1", "--lease", "1ms"], "out of range"),
        (vec!["lock", "release", "s"], "whose lock?"),
        (vec!["lock", "release", "s", "--fence", "1", "--lock-id", "a"], "release by one of them"),
        (vec!["lock", "release", "s", "--force"], "--reason"),
        (vec!["lock", "cleanup", ""], "execution id is empty"),
        (vec!["lock", "cleanup", "e", "--scope", "a:meta"], "':meta'"),
        (vec!["lock", "show", "a:meta"], "':meta'"),
        (vec!["lock", "ls", "--kind", "shared"], "shared"),
        (vec!["lock", "run", "s", "--ttl", "0", "--", "true"], "out of range"),
    ] {
        let ran = server.run(&words);
        assert_eq!(ran.code, 2, "{words:?}: {} {}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(says), "{words:?} lacks {says:?}: {}", ran.stderr);
    }
    server.run(&["lock", "ls"]).exits(0).says("no locks");
    server.run(&["lock", "release", "never", "--lock-id", "a"]).exits(0).prints("absent");
    server.run(&["lock", "acquire", "замок 🔒", "--ttl", "600", "--wait", "0.5"]).exits(0);
    let shown = server.run(&["lock", "show", "замок 🔒", "--json"]).exits(0).json();
    let left = shown["max_hold_end"].as_i64().unwrap() - shown["holder"]["lease_end"].as_i64().unwrap();
    assert_eq!(left, 0, "600 without a unit is seconds, of lease and cap alike");
}

#[test]
fn all_kinds_of_locks_are_listed_and_shown() {
    let server = Server::start();
    server.run(&["lock", "acquire", "excel", "--lock-id", "me"]).exits(0);
    for who in ["a", "b"] {
        server.run(&["lock", "acquire", "gpu", "--kind", "semaphore", "--limit", "4", "--lock-id", who]).exits(0);
    }
    server.run(&["lock", "acquire", "doc", "--kind", "write", "--lock-id", "w"]).exits(0);
    let all = server.run(&["lock", "ls"]).exits(0).prints("KIND").prints("exclusive").prints("semaphore").prints("a and 1 more");
    assert!(all.stdout.contains("rw"), "{}", all.stdout);
    let only = server.run(&["lock", "ls", "--kind", "rw", "--json"]).exits(0).json();
    assert_eq!((only["locks"].as_array().unwrap().len(), &only["locks"][0]["scope"]), (1, &"doc".into()));
    server.run(&["lock", "ls", "--scan", "--prefix", "ex"]).exits(0).prints("excel");
    server.run(&["lock", "show", "gpu", "--kind", "semaphore"]).exits(0).prints("a (units 1, fence").prints("b (units 1");
    server.run(&["lock", "show", "gpu"]).exits(3);
}

#[test]
fn a_lock_is_forced_open_with_a_reason_and_an_execution_is_cleaned_up() {
    let server = Server::start();
    server.run(&["lock", "acquire", "excel", "--lock-id", "me"]).exits(0);
    server.run(&["lock", "release", "excel", "--force"]).exits(2);
    server.run(&["lock", "release", "excel", "--force", "--reason", "its host burnt down"]).exits(0).prints("held by 'me'");
    for scope in ["a", "b"] {
        server.run(&["lock", "acquire", scope, "--execution-id", "4711"]).exits(0);
    }
    let cleaned = server.run(&["lock", "cleanup", "4711", "--json"]).exits(0).json();
    assert_eq!((&cleaned["cleaned_count"], &cleaned["scopes"]), (&2.into(), &serde_json::json!(["a", "b"])));
    server.run(&["lock", "cleanup", "4711"]).exits(3).says("no locks owned by failed execution");
}

#[test]
fn a_program_runs_while_the_lock_is_held_and_gives_its_own_code() {
    let server = Server::start();
    let script = "echo \"$TOWPATH_FENCE $TOWPATH_LOCK_ID\"; exit 42";
    let ran = server.run(&["lock", "run", "nightly", "--lock-id", "me", "--", "sh", "-c", script]).exits(42);
    let (fence, lock_id) = ran.stdout.trim().split_once(' ').unwrap();
    assert!(fence.parse::<u64>().is_ok_and(|fence| fence > 0) && lock_id == "me", "{}", ran.stdout);
    server.run(&["lock", "ls"]).exits(0).says("no locks");
    server.run(&["lock", "run", "nightly", "--", "/no/such/program"]).exits(2).says("cannot be started");
    server.run(&["lock", "ls"]).exits(0).says("no locks");
    server.run(&["lock", "run", "nightly", "--", "sh", "-c", "kill -9 $$"]).exits(137);
    // A lease is no longer than what it is part of, unless somebody asks for that.
    server.run(&["lock", "run", "nightly", "--ttl", "5s", "--", "true"]).exits(0);
    server.run(&["lock", "run", "nightly", "--ttl", "5s", "--lease", "6s", "--", "true"]).exits(2).says("from 1 s to 5 s");
}

#[test]
fn programs_that_want_the_same_lock_run_one_after_the_other() {
    let server = Server::start();
    let first = format!("echo in >> log; {UNTIL_GO}; echo out >> log");
    let mut first = Beside::start(server.command(&["lock", "run", "nightly", "--", "sh", "-c", &first]));
    assert_eq!(server.line_of("log"), "in");
    server.run(&["lock", "run", "nightly", "--", "true"]).exits(4);
    let mut second = Beside::start(server.command(&["lock", "run", "nightly", "--wait", "60s", "--", "sh", "-c", "echo next >> log"]));
    wait_for("the second to wait", || (waiters(&server, "nightly") == 1).then_some(()));
    server.write("go", "");
    assert!(first.ends().success() && second.ends().success());
    assert_eq!(std::fs::read_to_string(server.path("log")).unwrap(), "in\nout\nnext\n");
}

#[test]
fn a_program_is_ended_when_its_lock_is_lost_unless_it_may_go_on() {
    let server = Server::start();
    let script = format!("echo $$ > pid; {ON_AND_ON}");
    let mut killed = Beside::start(server.command(&["lock", "run", "nightly", "--lease", "1s", "--", "sh", "-c", &script]));
    let pid = server.line_of("pid");
    server.run(&["lock", "release", "nightly", "--force", "--reason", "test"]).exits(0);
    assert_eq!(killed.ends().code(), Some(5));
    killed.remark("is lost");
    wait_for("the program to be gone", || (!is_alive(&pid)).then_some(()));

    let script = format!("echo on > on; {UNTIL_GO}; echo done > done");
    let mut warned =
        Beside::start(server.command(&["lock", "run", "nightly", "--lease", "1s", "--on-loss", "warn", "--", "sh", "-c", &script]));
    server.line_of("on");
    server.run(&["lock", "release", "nightly", "--force", "--reason", "test"]).exits(0);
    warned.remark("is lost");
    server.write("go", "");
    assert_eq!(warned.ends().code(), Some(5));
    assert_eq!(server.line_of("done"), "done", "it was allowed to finish");
}

/// A program with a child in a pipe and one in a session of its own; the process ids are in the files.
fn family() -> String {
    format!(
        "setsid sh -c 'echo $$ > session.pid; {ON_AND_ON}' & sh -c 'echo $$ > child.pid; {ON_AND_ON}' | cat & echo $PPID > guard.pid; wait"
    )
}

fn family_is_gone(server: &Server, members: &[String]) {
    assert!(members.iter().all(|pid| pid != &server.process.pid().to_string()));
    for pid in members {
        wait_for("the program and all that it started to end", || (!is_alive(pid)).then_some(()));
    }
}

fn parent_of(pid: &str) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn a_killed_holder_ends_with_its_program_and_is_followed_when_its_lease_ends() {
    let server = Server::start();
    let holder = Beside::start(server.command(&["lock", "run", "nightly", "--lease", "1s", "--", "sh", "-c", &family()]));
    let members = ["child.pid", "session.pid", "guard.pid"].map(|name| server.line_of(name));
    holder.signal(nix::sys::signal::Signal::SIGKILL);
    family_is_gone(&server, &members);
    server.run(&["lock", "run", "nightly", "--wait", "30s", "--", "true"]).exits(0);
}

/// A holder in a terminal, whose program is this shell script.
fn in_terminal(server: &Server, script: &str) -> Beside {
    let inside = format!("{} lock run nightly -- sh {script}", env!("CARGO_BIN_EXE_towpath"));
    let mut terminal = std::process::Command::new("script");
    terminal.args(["-qec", &inside, "/dev/null"]).env("TOWPATH_SERVER", &server.url).current_dir(server.folder.path());
    terminal.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    Beside::start(terminal)
}

#[test]
fn a_holder_that_is_killed_in_a_terminal_ends_with_its_program() {
    let server = Server::start();
    server.write("family.sh", &family());
    let _terminal = in_terminal(&server, "family.sh");
    let members = ["child.pid", "session.pid", "guard.pid"].map(|name| server.line_of(name));
    let holder = parent_of(&members[2]);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(holder.parse().unwrap()), nix::sys::signal::Signal::SIGKILL).unwrap();
    family_is_gone(&server, &members);
}

#[test]
fn what_a_program_that_was_told_to_end_leaves_running_ends_before_the_lock_is_released() {
    let server = Server::start();
    let script = |name: &str| format!("sh -c 'trap \"\" TERM; echo $$ > {name}; {ON_AND_ON}' & wait");
    let holder = |scope: &str| Beside::start(server.command(&["lock", "run", scope, "--lease", "1s", "--", "sh", "-c", &script(scope)]));
    let (mut told, mut lost) = (holder("told"), holder("lost"));
    let [of_told, of_lost] = ["told", "lost"].map(|name| server.line_of(name));
    told.signal(nix::sys::signal::Signal::SIGTERM);
    server.run(&["lock", "release", "lost", "--force", "--reason", "test"]).exits(0);
    assert_eq!(told.ends().code(), Some(143));
    assert!(!is_alive(&of_told), "it works on without the lock");
    assert_eq!(lost.ends().code(), Some(5));
    assert!(!is_alive(&of_lost), "it works on although the lock is lost");
    server.run(&["lock", "ls"]).exits(0).says("no locks");
}

#[test]
fn in_a_terminal_what_a_program_started_is_told_to_end_before_the_lock_is_released() {
    let server = Server::start();
    let child = format!("trap \"echo told > told; exit\" TERM; echo $$ > child.pid; {ON_AND_ON}");
    server.write("leader.sh", &format!("echo $PPID > guard.pid; sh -c '{child}'; echo next > next"));
    let mut terminal = in_terminal(&server, "leader.sh");
    let [child, guard] = ["child.pid", "guard.pid"].map(|name| server.line_of(name));
    let holder = parent_of(&guard);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(holder.parse().unwrap()), nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(terminal.ends().code(), Some(143));
    assert!(!is_alive(&child), "it works on without the lock");
    assert_eq!(server.line_of("told"), "told");
    server.run(&["lock", "ls"]).exits(0).says("no locks");
}

#[test]
fn a_program_does_not_outlive_its_guard() {
    let server = Server::start();
    let mut holder = Beside::start(server.command(&["lock", "run", "nightly", "--", "sh", "-c", &family()]));
    let members = ["child.pid", "session.pid", "guard.pid"].map(|name| server.line_of(name));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(members[2].parse().unwrap()), nix::sys::signal::Signal::SIGKILL).unwrap();
    assert_eq!(holder.ends().code(), Some(137));
    family_is_gone(&server, &members);
    server.run(&["lock", "ls"]).exits(0).says("no locks");
}

#[test]
fn a_closed_terminal_ends_the_program_and_releases_the_lock() {
    let server = Server::start();
    let script = format!("trap 'echo cleaned > cleaned; exit 3' TERM; echo up > up; {ON_AND_ON}");
    let mut holder = Beside::start(server.command(&["lock", "run", "nightly", "--", "sh", "-c", &script]));
    server.line_of("up");
    holder.signal(nix::sys::signal::Signal::SIGHUP);
    assert_eq!(holder.ends().code(), Some(3));
    assert_eq!(server.line_of("cleaned"), "cleaned");
    server.run(&["lock", "ls"]).exits(0).says("no locks");
}

#[test]
fn whoever_stops_waiting_leaves_the_queue() {
    let server = Server::start();
    server.run(&["lock", "acquire", "nightly"]).exits(0);
    let mut waiting = Beside::start(server.command(&["lock", "run", "nightly", "--wait", "60s", "--", "true"]));
    wait_for("it to wait", || (waiters(&server, "nightly") == 1).then_some(()));
    waiting.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(waiting.ends().code(), Some(130));
    assert_eq!(waiters(&server, "nightly"), 0);
}

/// The command that a remark gives in backquotes.
fn given_command(said: &str) -> Vec<String> {
    let command = said.split('`').nth(1).unwrap_or_else(|| panic!("no command in {said:?}"));
    command.split_whitespace().skip(1).map(|word| word.trim_matches('\'').to_owned()).collect()
}

#[test]
fn the_release_that_acquire_names_works_for_every_kind() {
    let server = Server::start();
    for kind in ["semaphore", "read", "write"] {
        let mut words = vec!["lock", "acquire", "gpu", "--kind", kind];
        words.extend(if kind == "semaphore" { &["--limit", "2"][..] } else { &[] });
        let command = given_command(&server.run(&words).exits(0).stderr);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        server.run(&command).exits(0).prints("'gpu': released");
    }
}

#[test]
fn a_release_of_the_wrong_kind_says_which_one_is_held() {
    let server = Server::start();
    server.run(&["lock", "acquire", "gpu", "--kind", "semaphore", "--limit", "2", "--lock-id", "me"]).exits(0);
    let said = server.run(&["lock", "release", "gpu", "--lock-id", "me"]).exits(0).prints("absent").says("semaphore").stderr;
    let command = given_command(&said);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    server.run(&command).exits(0).prints("'gpu': released");
    let said = server.run(&["lock", "release", "gpu", "--lock-id", "me"]).exits(0).prints("absent").stderr;
    assert_eq!(said, "", "nothing is held any more");
    server.run(&["lock", "acquire", "report", "--kind", "read", "--lock-id", "me"]).exits(0);
    server.run(&["lock", "release", "report", "--fence", "1"]).exits(0).says("--kind read");
}
