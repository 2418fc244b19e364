//! What works without a server, and what a missing one looks like.

use std::net::TcpListener;
use std::path::Path;

use crate::support::{Ran, now, run, towpath};

fn offline(arguments: &[&str]) -> Ran {
    let mut command = towpath(Path::new("."));
    command.args(arguments);
    run(command)
}

#[test]
fn help_teaches_and_lists_the_exit_codes() {
    offline(&["--help"]).exits(0).prints("First steps").prints("7  the store or the server cannot be reached");
    for command in ["dev", "serve", "call", "worker", "functions", "calls", "dlq", "limit", "config", "doctor", "completions"] {
        offline(&[command, "--help"]).exits(0).prints("Examples:");
    }
    offline(&[]).exits(0).prints("Usage");
    offline(&["cal"]).exits(2).says("call");
}

#[test]
fn help_fits_a_terminal_of_eighty_columns_where_it_is_not_wrapped() {
    for command in ["dev", "serve", "call", "worker", "functions", "calls", "dlq", "limit", "config", "doctor", "completions"] {
        let help = offline(&[command, "--help"]).exits(0).stdout;
        let examples = help.split_once("Examples:").map(|(_, examples)| examples.to_owned()).unwrap_or_default();
        let long: Vec<&str> = examples.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{command}: {long:?}");
    }
}

#[test]
fn version_openapi_and_completions_need_no_server() {
    offline(&["version"]).exits(0).prints(env!("CARGO_PKG_VERSION"));
    assert_eq!(offline(&["version", "--json"]).exits(0).json()["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(offline(&["openapi"]).exits(0).json()["openapi"].as_str().unwrap().split('.').next(), Some("3"));
    for shell in ["bash", "zsh", "fish"] {
        offline(&["completions", shell]).exits(0).prints("towpath");
    }
    assert_eq!(offline(&["completions", "fish", "--json"]).exits(0).json()["shell"], "fish");
    offline(&["completions", "tcl"]).exits(2);
}

#[test]
fn every_client_command_exits_7_without_a_server_and_says_how_to_start_one() {
    // A port that was free a moment ago and is nobody's now.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = format!("http://127.0.0.1:{port}");
    let commands: [&[&str]; 18] = [
        &["limit", "check", "acme"],
        &["call", "add"],
        &["worker", "x", "--exec", "cat"],
        &["functions"],
        &["workers"],
        &["calls"],
        &["calls", "wait", "x"],
        &["calls", "cancel", "x"],
        &["run", "start", "order@1", "--reference", "r"],
        &["run", "ls"],
        &["run", "show", "x"],
        &["run", "wait", "x"],
        &["run", "send", "x", "approved"],
        &["run", "resume", "--state", "blocked", "--yes"],
        &["run", "export", "x"],
        &["dlq", "list"],
        &["config", "get"],
        &["config", "watch"],
    ];
    for command in commands {
        let arguments = [command, &["--server", &server]].concat();
        let ran = offline(&arguments).exits(7).says("towpath dev").says(&server);
        assert_eq!(ran.stdout, "", "{command:?}");
        let error = offline(&[arguments.as_slice(), &["--json"]].concat()).exits(7).error();
        assert_eq!((&error["code"], &error["effect"]), (&"server_unreachable".into(), &"none".into()));
    }
}

#[test]
fn an_address_that_is_none_is_refused() {
    for server in ["localhost:8690", "ftp://localhost", "http://", "nonsense"] {
        offline(&["functions", "--server", server]).exits(2).says("http://127.0.0.1:8690");
    }
}

#[test]
fn something_else_on_the_port_is_not_taken_for_a_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let _request = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello").unwrap();
    });
    offline(&["functions", "--server", &server]).exits(7).says("no Towpath server");
    answering.join().unwrap();
}

#[test]
fn a_call_whose_answer_was_cut_off_is_sent_again_under_the_same_id() {
    use std::io::{Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let mut bodies = Vec::new();
        for turn in 0..3 {
            let (mut stream, _) = listener.accept().unwrap();
            let request = read_request(&mut stream);
            match turn {
                0 => {} // heard, and cut off
                1 => answer(&mut stream, r#"{"call_id":"same-1","state":"queued","existing":true,"durability":"fsync"}"#),
                _ => answer(&mut stream, ENDED),
            }
            bodies.push(request);
        }
        bodies
    });
    let ran = offline(&["call", "add", "{}", "--call-id", "same-1", "--server", &server]).exits(0).says("sending the same call again");
    assert_eq!(ran.stdout, "3\n");
    assert!(!ran.stderr.contains("made before"), "it is our own call: {}", ran.stderr);
    let bodies = serving.join().unwrap();
    assert!(bodies[0].contains("same-1") && bodies[1].contains("same-1"), "{bodies:?}");
    assert!(bodies[2].starts_with("GET /v1/calls/same-1?"), "{bodies:?}");

    fn read_request(stream: &mut std::net::TcpStream) -> String {
        let mut text = String::new();
        let mut chunk = [0; 4096];
        loop {
            let read = stream.read(&mut chunk).unwrap();
            text += &String::from_utf8_lossy(&chunk[..read]);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) || read == 0 {
                return text;
            }
        }
    }

    fn answer(stream: &mut std::net::TcpStream, body: &str) {
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).unwrap();
    }

    const ENDED: &str = r#"{"call_id":"same-1","function_name":"add","scope":"__global__","state":"completed","attempt":1,"failures":0,
        "crashes":0,"submitted_at":1,"deadline":2,"cancel_requested":false,"depth":0,"outcome":{"kind":"ok","data":3},"params":{}}"#;
}

#[test]
fn without_words_the_commands_are_shown_in_groups() {
    let folder = tempfile::tempdir().unwrap();
    for variable in [None, Some("http://127.0.0.1:1")] {
        let mut command = towpath(folder.path());
        command.envs(variable.map(|url| ("TOWPATH_SERVER", url)));
        let ran = run(command).exits(0).prints("Calls:\n  call ").prints("Servers:\n  dev ").prints("First steps:");
        assert_eq!(ran.stderr, "");
    }
}

#[test]
fn a_server_that_cannot_start_promises_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for words in
        [&["serve", "--store", "redis://127.0.0.1:1", "--listen", "127.0.0.1:0"][..], &["calls", "ls", "--store", "redis://127.0.0.1:1"]]
    {
        let mut command = towpath(folder.path());
        command.args(words);
        let ran = run(command).exits(7).says("cannot be reached").says("start it again when the store is back");
        assert!(!ran.stderr.contains("goes on by itself"), "{}", ran.stderr);
    }
}

#[test]
fn a_call_to_a_server_that_never_answers_ends_soon_after_its_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let begun = now();
    offline(&["call", "add", "{}", "--timeout", "1s", "--call-id", "mute-1", "--server", &server])
        .exits(7)
        .says("may or may not have been accepted")
        .says("towpath calls show mute-1");
    let took = begun.elapsed();
    assert!(took < std::time::Duration::from_secs(12), "timeout 1 s, allowance 5 s, and a busy machine: {took:?}");
}

#[test]
fn a_call_whose_server_falls_silent_ends_soon_after_its_timeout() {
    use std::io::{Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _request = stream.read(&mut [0; 4096]).unwrap();
        let body = r#"{"call_id":"mute-2","state":"queued","existing":false,"durability":"fsync"}"#;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).unwrap();
        let mut silent = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            silent.push(stream);
        }
    });
    let begun = now();
    offline(&["call", "add", "{}", "--timeout", "1s", "--call-id", "mute-2", "--json", "--server", &server])
        .exits(7)
        .says("mute-2 was accepted");
    let took = begun.elapsed();
    assert!(took < std::time::Duration::from_secs(12), "timeout 1 s, allowance 5 s, and a busy machine: {took:?}");
}
