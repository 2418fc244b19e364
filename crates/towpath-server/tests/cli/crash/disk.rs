//! A disk that is full or cannot be written, under the real server.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::Caller;
use crate::support::{Beside, Server, run, towpath, wait_for};

/// A small file system that goes away with the test. Mounting needs root, which the tests have.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path()).status().unwrap();
        assert!(mounted.success(), "a tmpfs could not be mounted: run the tests as root");
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _left_to_the_system = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_answered_507_loses_nothing_and_work_goes_on_when_there_is_room() {
    let disk = SmallDisk::mount("size=6m");
    let filler = disk.path().join("filler");
    std::fs::write(&filler, vec![0_u8; 3 * 1024 * 1024]).unwrap();
    let data = disk.path().join("data");
    let arguments = ["dev", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()];
    let server = Server::start_with(tempfile::tempdir().unwrap(), &arguments);
    let caller = Caller::new();
    server.run(&["functions", "define", "archive", "--target", "http://127.0.0.1:9/never"]).exits(0);

    let body = json!({ "text": "x".repeat(20_000) });
    let mut accepted = Vec::new();
    let refusal = loop {
        let id = format!("call-{}", accepted.len());
        let (status, answer) = caller.try_submit(&server.url, "archive", &id, &body).expect("the server answers");
        if status != 202 {
            break (status, answer);
        }
        accepted.push(id);
        assert!(accepted.len() < 1_000, "three megabytes cannot hold a thousand calls of 20 kB");
    };
    assert_eq!(
        (refusal.0, &refusal.1["error"]["code"], &refusal.1["error"]["effect"]),
        (507, &"store_full".into(), &"none".into()),
        "{}",
        refusal.1
    );
    assert!(refusal.1["error"]["message"].as_str().unwrap().contains("full"), "{}", refusal.1);
    all_there(&caller, &server.url, &accepted);
    let ready = wait_for("the server not to be ready", || caller.get(&server.url, "/readyz")); // an answer that is no JSON is "ready"
    assert_eq!((ready.0, &ready.1["error"]["code"]), (507, &"store_full".into()), "{}", ready.1);
    assert_eq!(caller.ask_status(&server.url, "/healthz"), Some(200), "the process need not be restarted");

    std::fs::remove_file(&filler).unwrap();
    wait_for("the server to be ready again", || (caller.ask_status(&server.url, "/readyz") == Some(200)).then_some(()));
    let id = "after-there-was-room";
    let (status, answer) = caller.try_submit(&server.url, "archive", id, &body).expect("the server answers");
    assert_eq!(status, 202, "{answer}");
    accepted.push(id.to_owned());
    all_there(&caller, &server.url, &accepted);
}

fn all_there(caller: &Caller, url: &str, accepted: &[String]) {
    assert!(!accepted.is_empty());
    for id in accepted {
        let (status, call) = caller.get(url, &format!("/v1/calls/{id}")).expect("the server answers");
        assert_eq!(status, 200, "{id} was accepted and is gone: {call}");
    }
}

/// A server whose disk fails every fsync from the n-th on.
fn server_on_a_failing_disk(folder: &Path, healthy_syncs: u32) -> Beside {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"]);
    command.args(["-e", &format!("inject=fsync,fdatasync:error=EIO:when={healthy_syncs}+")]);
    command.args([env!("CARGO_BIN_EXE_towpath"), "dev", "--json", "--listen", "127.0.0.1:0"]);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Beside::start(command)
}

#[test]
fn a_disk_that_fails_to_sync_stops_the_server_with_74_and_nothing_acknowledged_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut failing = server_on_a_failing_disk(folder.path(), 80);
    let url = failing.event("listening", |event| event["url"].is_string())["url"].as_str().unwrap().to_owned();
    let caller = Caller::new();
    let mut accepted = Vec::new();
    let mut unsure = Vec::new();
    for number in 0..1_000 {
        let id = format!("call-{number}");
        match caller.try_submit(&url, "hello", &id, &json!({ "name": "you" })) {
            Some((202, _)) => accepted.push(id),
            Some((_, answer)) if answer["error"]["effect"] == "none" => {}
            Some(_) => unsure.push(id),
            None => {
                unsure.push(id); // no answer says nothing
                break;
            }
        }
    }
    assert_eq!(failing.ends().code(), Some(74));
    assert!(!accepted.is_empty(), "the disk failed before anything was accepted: this run proved nothing");

    let server = Server::start_in(folder, "127.0.0.1:0");
    all_there(&caller, &server.url, &accepted);
    let kept = server.run(&["calls", "list", "--limit", "200", "--json"]).exits(0).json();
    for call in kept["calls"].as_array().unwrap() {
        let id = call["call_id"].as_str().unwrap().to_owned();
        assert!(accepted.contains(&id) || unsure.contains(&id), "{id} was answered `effect: none` and is there");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_with_its_name_and_what_to_do() {
    let disk = SmallDisk::mount("size=1m,ro");
    let data = disk.path().join("data");
    let mut command = towpath(disk.0.path().parent().unwrap());
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", &format!("sqlite:{}", data.display())]);
    run(command).exits(7).says("cannot be written").says("make the folder writable").says(data.to_str().unwrap());
}
