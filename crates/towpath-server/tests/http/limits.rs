//! Heads that are too large, requests and connections that are too many, bodies that are cut off.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use towpath_server::settings::Settings;

use crate::support::{server, server_with, settings};

#[tokio::test]
async fn heads_that_make_no_sense_are_refused_and_the_connection_closed() {
    let server = server().await;
    let many = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect::<String>();
    let cases = [
        ("200 headers", format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"), "431"),
        ("a header of 100 KB", format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(100_000)), "431"),
        ("no HTTP", "hello\r\n\r\n".to_owned(), "400"),
        ("a space before the colon", "GET /healthz HTTP/1.1\r\nhost : localhost\r\n\r\n".to_owned(), "400"),
        ("a folded header", "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: a\r\n b\r\n\r\n".to_owned(), "400"),
        (
            "two lengths",
            "POST /v1/workers HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
            "400",
        ),
        ("a negative length", "POST /v1/workers HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n".to_owned(), "400"),
    ];
    for (what, bytes, status) in cases {
        let answer = server.raw(bytes).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{what}: {answer}");
    }
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_length_and_chunks_together_do_not_smuggle_a_second_request() {
    let server = server().await;
    let smuggled = "POST /v1/workers HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\
                    transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answer = server.raw(smuggled).await;
    assert!(!answer.contains("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_sent() {
    let server = server().await;
    let head = "POST /v1/functions/x/call HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                expect: 100-continue\r\ncontent-length: 1000000000000\r\nconnection: close\r\n\r\n";
    let answer = server.raw(head).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("payload_too_large"), "{answer}");
}

#[tokio::test]
async fn a_body_without_a_length_is_cut_at_the_limit() {
    let server = server().await;
    let part = bytes::Bytes::from(vec![b' '; 64 * 1024]);
    let endless = futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(part.clone()));
    let body = reqwest::Body::wrap_stream(futures_util::StreamExt::take(endless, 160)); // 10 MiB
    let error = server.post_bytes("/v1/functions/x/call", body).await.error(413, "payload_too_large");
    assert_eq!((&error["field"], &error["details"]["limit"]), (&json!("body"), &json!(4_194_304)));
}

#[tokio::test]
async fn requests_beyond_the_cap_are_told_to_come_back_and_the_probes_are_not() {
    let server = server_with(Settings { max_requests: 1, ..settings() }).await;
    // "100 Continue" is sent when the body is asked for, which is when the request has its place.
    let mut open = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
    let head = b"POST /v1/workers HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\nexpect: 100-continue\r\n\r\n";
    open.write_all(head).await.unwrap();
    assert!(open.read(&mut [0; 1024]).await.unwrap() > 0);
    let refused = server.get("/v1/functions").await;
    assert_eq!(refused.headers["retry-after"], "1");
    refused.error(503, "overloaded_server");
    assert_eq!(server.get("/readyz").await.status, 200);
    drop(open);
    while server.get("/v1/functions").await.status != 200 {
        tokio::task::yield_now().await; // the place is free once the server noticed that the client is gone
    }
}

#[tokio::test]
async fn connections_beyond_the_cap_are_told_to_come_back() {
    let server = server_with(Settings { max_connections: 2, ..settings() }).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut socket = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
        socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        assert!(socket.read(&mut [0; 1024]).await.unwrap() > 0); // answered, and kept open
        held.push(socket);
    }
    let refused = server.raw("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("overloaded_server"), "{refused}");
    drop(held);
    while !server.raw("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.starts_with("HTTP/1.1 200") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_body_that_is_cut_off_does_no_harm() {
    let server = server().await;
    let _worker = server.with_functions().await;
    let mut socket = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
    let head = b"POST /v1/functions/echo/calls HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"para";
    socket.write_all(head).await.unwrap();
    drop(socket);
    assert_eq!(server.get("/v1/calls").await.with(200)["calls"], json!([]));
}

#[tokio::test]
async fn memory_stays_flat_under_bodies_that_are_refused() {
    let server = server().await;
    let large = format!("{{\"params\":\"{}\"}}", "x".repeat(10_000_000));
    let deep = "[".repeat(1_000_000);
    let send = async |rounds: usize| {
        for _ in 0..rounds {
            server.post_bytes("/v1/functions/x/call", large.clone()).await.error(413, "payload_too_large");
            server.post_bytes("/v1/functions/x/call", deep.clone()).await.error(400, "too_deep");
        }
    };
    send(5).await;
    let before = resident_kb();
    send(20).await;
    let grown = resident_kb().saturating_sub(before);
    // Client and server share this process; 200 MB passed through it.
    assert!(grown < 60_000, "memory grew by {grown} kB");
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_head_that_never_ends_does_not_hold_its_connection() {
    let server = server_with(Settings { head_time_max: Duration::from_millis(100), ..settings() }).await;
    let cut = server.raw("GET /healthz HTTP/1.1\r\nhost: loc").await; // ends only because the server closes
    assert!(!cut.contains("200 OK"), "{cut}");
}

#[tokio::test]
async fn a_body_that_never_ends_is_answered_408() {
    let server = server_with(Settings { body_time_max: Duration::from_millis(100), ..settings() }).await;
    let head = "POST /v1/workers HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"fun";
    let answer = server.raw(head).await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"), "{answer}");
}
