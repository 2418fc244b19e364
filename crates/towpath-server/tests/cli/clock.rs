//! A clock that is two hours ahead and then right again, while the server runs and over a restart.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqwest::blocking::Client;
use serde_json::{Value, json};

use crate::support::{Beside, towpath, wait_for};

/// A server, and who talks to it.
struct Serving {
    process: Beside,
    url: String,
    http: Client,
}

impl Serving {
    fn start(mut command: Command) -> Self {
        towpath_server::push::install_tls();
        command.args(["serve", "--listen", "127.0.0.1:0", "--json"]);
        let process = Beside::start(command);
        let event = process.event("listening", |event| event["event"] == "listening");
        let http = Client::builder().no_proxy().tls_certs_only([]).timeout(Duration::from_secs(60)).build().unwrap();
        Self { process, url: event["url"].as_str().unwrap().to_owned(), http }
    }

    /// Takes a lock for three seconds.
    fn lock(&self, scope: &str) {
        let url = format!("{}/v1/locks/{scope}/acquire", self.url);
        let reply: Value = self.http.post(url).json(&json!({ "lease_ms": 3_000 })).send().unwrap().json().unwrap();
        assert_eq!(reply["acquired"], true, "{reply}");
    }

    fn held(&self) -> Vec<String> {
        let reply: Value = self.http.get(format!("{}/v1/locks", self.url)).send().unwrap().json().unwrap();
        reply["locks"].as_array().unwrap().iter().map(|lock| lock["scope"].as_str().unwrap().to_owned()).collect()
    }
}

/// The library that `faketime` puts before a program.
fn faketime_library() -> String {
    let output = Command::new("faketime").args(["-f", "+0", "env"]).output().expect("faketime is installed: ./test does it");
    let environment = String::from_utf8(output.stdout).unwrap();
    environment.lines().find_map(|line| line.strip_prefix("LD_PRELOAD=")).expect("it preloads its library").to_owned()
}

/// The binary under a wall clock that is off by what the file says. Its steady clock is left alone.
fn under_a_clock(folder: &Path, offset: &Path) -> Command {
    let mut command = towpath(folder);
    command.env("LD_PRELOAD", faketime_library()).env("FAKETIME_TIMESTAMP_FILE", offset);
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command
}

#[test]
fn after_a_clock_two_hours_ahead_nothing_is_held_longer_than_its_length_and_the_log_says_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let offset = folder.path().join("offset");
    fs::write(&offset, "+0").unwrap();
    let server = Serving::start(under_a_clock(folder.path(), &offset));
    server.lock("before");
    fs::write(&offset, "+2h").unwrap();
    assert_eq!(server.held(), ["before"], "a clock that was set ends no lease");
    server.process.remark("the machine's clock was set ahead");
    server.lock("ahead");
    fs::write(&offset, "+0").unwrap();
    server.process.remark("the machine's clock was set back");
    wait_for("the leases to end", || server.held().is_empty().then_some(()));
    server.lock("kept");
    drop(server);

    let server = Serving::start(towpath(folder.path()));
    server.process.remark("the clock was ahead when the store was last used");
    assert_eq!(server.held(), ["kept"]);
    wait_for("the lease to end", || server.held().is_empty().then_some(()));
}
