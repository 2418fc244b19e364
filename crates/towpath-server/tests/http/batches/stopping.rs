//! Stopping in good order: what is being delivered may end, nothing new is claimed.

use serde_json::json;
use towpath_server::settings::Settings;

use super::receiver::Receiver;
use super::{keep, push};
use crate::support::{server_with, settings};

#[tokio::test]
async fn a_stop_lets_a_delivery_end_and_leaves_what_gathers_for_the_next_start() {
    let (receiver, folder) = (Receiver::start().await, tempfile::tempdir().unwrap());
    let store = format!("sqlite:{}", folder.path().join("data").display());
    let on_disk = || Settings { allow_loopback_targets: true, store: store.clone(), ..settings() };
    let server = server_with(on_disk()).await;
    keep(&server, "orders", json!({ "target": { "url": format!("{}/200", receiver.base) } })).await;
    push(&server, "orders", json!({ "id": "hang" })).await;
    receiver.gets(1).await;
    push(&server, "orders", json!({ "id": "hang", "later": true })).await;
    let stopping = tokio::spawn(server.running.stop());
    receiver.release();
    stopping.await.unwrap();
    let got = receiver.got();
    assert_eq!(got.len(), 1, "what gathered meanwhile was not claimed any more");

    let server = server_with(on_disk()).await;
    let got = receiver.gets(2).await;
    assert_eq!(got[1].json()["messages"], json!([{ "id": "hang", "later": true }]), "the first one was settled before the stop");
    assert_eq!(got[1].header("towpath-attempt"), "1");
    receiver.release();
    server.running.stop().await;
}
