//! A disk that is full or cannot be written, under the real server.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::Caller;
use crate::support::{Server, run, towpath};

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
    assert_eq!((refusal.0, &refusal.1["error"]["code"], &refusal.1["error"]["effect"]), (507, &"store_full".into(), &"none".into()));
    assert!(refusal.1["error"]["message"].as_str().unwrap().contains("full"), "{}", refusal.1);
    all_there(&caller, &server.url, &accepted);

    std::fs::remove_file(&filler).unwrap();
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

#[test]
fn a_folder_that_cannot_be_written_is_refused_with_its_name_and_what_to_do() {
    let disk = SmallDisk::mount("size=1m,ro");
    let data = disk.path().join("data");
    let mut command = towpath(disk.0.path().parent().unwrap());
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", &format!("sqlite:{}", data.display())]);
    run(command).exits(7).says("cannot be written").says("make the folder writable").says(data.to_str().unwrap());
}
