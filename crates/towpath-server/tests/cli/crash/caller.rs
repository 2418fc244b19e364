//! A client of the HTTP API that keeps at it, as a careful caller would.

use std::time::Duration;

use reqwest::blocking::Client as HttpClient;
use serde_json::{Value, json};

use crate::support::{Server, wait_for};

/// Repeats under the same id until there is an answer.
pub(crate) struct Caller {
    http: HttpClient,
}

impl Caller {
    pub(crate) fn new() -> Self {
        towpath_server::push::install_tls();
        let http = HttpClient::builder().no_proxy().tls_certs_only([]).timeout(Duration::from_secs(20)).build();
        Self { http: http.expect("a client can be made") }
    }

    /// Submits a detached call. `None` when no answer came.
    pub(crate) fn try_submit(&self, url: &str, function: &str, call_id: &str, params: &Value) -> Option<(u16, Value)> {
        let body = json!({ "call_id": call_id, "params": params, "wait_for_function_ms": 60_000 });
        self.answer(self.http.post(format!("{url}/v1/functions/{function}/calls")).json(&body))
    }

    /// Makes a function known before it has a worker, so that its calls wait.
    pub(crate) fn define(&self, url: &str, function: &str) {
        self.define_as(url, function, &json!({}));
    }

    /// The same, with all that is said about it.
    pub(crate) fn define_as(&self, url: &str, function: &str, definition: &Value) {
        let answer = self.answer(self.http.put(format!("{url}/v1/functions/{function}")).json(definition));
        assert!(answer.as_ref().is_some_and(|(status, _)| *status == 200), "{answer:?}");
    }

    /// Submits until it is accepted.
    pub(crate) fn submit(&self, url: &str, function: &str, call_id: &str) {
        wait_for("a call to be accepted", || {
            let (status, body) = self.try_submit(url, function, call_id, &json!({}))?;
            assert!(status == 202, "{call_id} was refused: {status} {body}");
            Some(())
        });
    }

    pub(crate) fn get(&self, url: &str, path: &str) -> Option<(u16, Value)> {
        self.ask(reqwest::Method::GET, url, path)
    }

    /// A request without a body.
    pub(crate) fn ask(&self, method: reqwest::Method, url: &str, path: &str) -> Option<(u16, Value)> {
        self.answer(self.http.request(method, format!("{url}{path}")))
    }

    /// The status of an answer, whatever its body.
    pub(crate) fn ask_status(&self, url: &str, path: &str) -> Option<u16> {
        self.http.get(format!("{url}{path}")).send().ok().map(|response| response.status().as_u16())
    }

    fn answer(&self, request: reqwest::blocking::RequestBuilder) -> Option<(u16, Value)> {
        let response = request.send().ok()?;
        let status = response.status().as_u16();
        Some((status, response.json().ok()?))
    }

    /// The call when it has ended.
    pub(crate) fn ended(&self, url: &str, call_id: &str) -> Value {
        wait_for(&format!("{call_id} to end"), || {
            let (status, call) = self.get(url, &format!("/v1/calls/{call_id}?wait_ms=20000"))?;
            assert_eq!(status, 200, "{call_id} was accepted and is gone: {call}");
            call.get("outcome").is_some().then_some(call)
        })
    }

    /// A counter of the metrics, summed over its labels.
    pub(crate) fn counter(&self, server: &Server, name: &str) -> f64 {
        let text = self.http.get(format!("{}/metrics", server.url)).send().expect("it answers").text().expect("metrics are text");
        let values = text.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }
}
