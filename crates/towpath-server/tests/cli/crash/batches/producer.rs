//! A producer that keeps at it: what it has pushed once was taken.

use std::time::Duration;

use reqwest::blocking::{Client, RequestBuilder};
use serde_json::Value;

use crate::support::wait_for;

pub(crate) struct Producer {
    http: Client,
}

impl Producer {
    pub(crate) fn new() -> Self {
        towpath_server::push::install_tls();
        let http = Client::builder().no_proxy().tls_certs_only([]).timeout(Duration::from_secs(20)).build();
        Self { http: http.expect("a client can be made") }
    }

    /// Keeps settings of a batcher.
    pub(crate) fn keep(&self, url: &str, batcher: &str, settings: &Value) {
        let (status, answer) = self.send(self.http.put(format!("{url}/v1/batches/{batcher}/settings")).json(settings)).expect("it answers");
        assert!(status < 300, "{answer}");
    }

    /// Makes a function known that nobody serves.
    pub(crate) fn define(&self, url: &str, function: &str) {
        let definition = serde_json::json!({});
        let (status, answer) = self.send(self.http.put(format!("{url}/v1/functions/{function}")).json(&definition)).expect("it answers");
        assert_eq!(status, 200, "{answer}");
    }

    /// Pushes a message under its id, to one server after the other, until it is taken.
    pub(crate) fn push(&self, urls: &[String], message: &Value) {
        let mut turns = urls.iter().cycle();
        wait_for("a message to be taken", || {
            let url = turns.next().expect("there are servers");
            let (status, answer) = self.send(self.http.post(format!("{url}/v1/batches/orders/messages")).json(message))?;
            assert!(matches!(status, 200 | 202 | 500..), "it was refused: {status} {answer}");
            (status < 300).then_some(())
        });
    }

    /// What a path has to show.
    pub(crate) fn get(&self, url: &str, path: &str) -> Option<Value> {
        let (_, text) = self.send(self.http.get(format!("{url}{path}")))?;
        serde_json::from_str(&text).ok()
    }

    fn send(&self, request: RequestBuilder) -> Option<(u16, String)> {
        let response = request.send().ok()?;
        Some((response.status().as_u16(), response.text().ok()?))
    }
}
