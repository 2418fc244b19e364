//! A producer that keeps at it: what it has pushed once was taken.

use std::time::Duration;

use reqwest::blocking::{Client, RequestBuilder};
use serde_json::Value;

use crate::support::wait_for;

pub(super) struct Producer {
    http: Client,
}

impl Producer {
    pub(super) fn new() -> Self {
        towpath_server::push::install_tls();
        let http = Client::builder().no_proxy().tls_certs_only([]).timeout(Duration::from_secs(20)).build();
        Self { http: http.expect("a client can be made") }
    }

    /// Keeps settings of the batcher.
    pub(super) fn keep(&self, url: &str, settings: &Value) {
        let (status, answer) = self.send(self.http.put(format!("{url}/v1/batches/orders/settings")).json(settings)).expect("it answers");
        assert_eq!(status, 201, "{answer}");
    }

    /// Pushes a message under its id until it is taken.
    pub(super) fn push(&self, url: &str, message: &Value) {
        wait_for("a message to be taken", || {
            let (status, answer) = self.send(self.http.post(format!("{url}/v1/batches/orders/messages")).json(message))?;
            assert!(matches!(status, 200 | 202 | 500..), "it was refused: {status} {answer}");
            (status < 300).then_some(())
        });
    }

    fn send(&self, request: RequestBuilder) -> Option<(u16, String)> {
        let response = request.send().ok()?;
        Some((response.status().as_u16(), response.text().ok()?))
    }
}
