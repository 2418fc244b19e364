//! Targets that lead inside: refused when they are stored, and never connected to.

use serde_json::json;
use towpath_server::settings::Settings;

use super::receiver::Receiver;
use super::{dead_letters, keep, push, settled};
use crate::support::{server, server_with, settings};

#[tokio::test]
async fn sixty_hostile_addresses_are_refused_and_nobody_is_connected_to() {
    let (receiver, server) = (Receiver::start().await, server().await);
    let port = receiver.port;
    let hosts = [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "127.255.255.254",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "0.0.0.0",
        "0",
        "[::]",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2001::7f00:1]",
        "10.0.0.1",
        "10.255.255.255",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "192.168.255.255",
        "169.254.169.254",
        "169.254.0.1",
        "[fe80::1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[fec0::1]",
        "100.64.0.1",
        "100.127.255.255",
        "100.100.100.200",
        "192.0.0.192",
        "198.18.0.1",
        "198.19.255.255",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "[ff02::1]",
        "[100::1]",
        "metadata.google.internal",
        "metadata",
        "printer.local",
        "router.lan",
        "db.internal",
        "nas.home.arpa",
        "app.intranet",
        "①②⑦.⓪.⓪.①",
        "１２７.０.０.１",
        "[::ffff:169.254.169.254]",
        "[::ffff:10.0.0.1]",
    ];
    assert_eq!(hosts.len(), 60);
    for (number, host) in hosts.iter().enumerate() {
        let body = json!({ "target": { "url": format!("http://{host}:{port}/200") } });
        let answer = server.put(&format!("/v1/batches/h{number}/settings"), body).await;
        answer.error(422, "target_not_allowed");
    }
    for url in ["http://me:pw@example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://127.0.0.1/", "//127.0.0.1/", "http://"] {
        let answer = server.put("/v1/batches/x/settings", json!({ "target": { "url": url } })).await;
        answer.error(400, "invalid_field");
    }
    assert!(receiver.got().is_empty());
    server.get("/v1/batches/h0").await.error(404, "batcher_not_found");
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused_when_it_is_used() {
    let receiver = Receiver::start().await;
    let port = receiver.port;
    // Allowed when it was stored, and no longer when it is used: another server on the same store would not have taken it.
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("data").display());
    let lenient = server_with(Settings { allow_loopback_targets: true, store: store.clone(), ..settings() }).await;
    keep(&lenient, "orders", json!({ "target": { "url": format!("http://localhost:{port}/200") } })).await;
    lenient.running.stop().await;
    let strict = server_with(Settings { store, ..settings() }).await;
    push(&strict, "orders", json!({ "id": 1 })).await;
    settled(&strict, "orders").await;
    let letter = dead_letters(&strict, "orders").await.remove(0);
    assert_eq!(letter["reason"], "max_retries_exceeded");
    assert!(letter["error"].as_str().unwrap().contains("this machine"), "{letter}");
    assert!(receiver.got().is_empty());
}

#[tokio::test]
async fn a_batcher_may_allow_its_own_receiver_and_nothing_beside_it() {
    let (receiver, server) = (Receiver::start().await, server().await);
    let port = receiver.port;
    let target = json!({ "url": format!("http://127.0.0.1:{port}/200") });
    keep(&server, "orders", json!({ "target": target, "allow_targets": [format!("127.0.0.1:{port}")] })).await;
    keep(&server, "network", json!({ "target": target, "allow_targets": ["127.0.0.0/8"] })).await;
    for batcher in ["orders", "network"] {
        push(&server, batcher, json!({ "id": 1 })).await;
        settled(&server, batcher).await;
    }
    assert_eq!(receiver.got().len(), 2);
    let other = json!({ "target": { "url": "http://127.0.0.1:1/" }, "allow_targets": [format!("127.0.0.1:{port}")] });
    server.put("/v1/batches/orders/settings", other).await.error(422, "target_not_allowed");
    server.put("/v1/batches/orders/settings", json!({ "allow_targets": ["http://x"] })).await.error(422, "target_not_allowed");
}
