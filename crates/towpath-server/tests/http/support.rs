//! A server on a port of its own, a client that speaks to it, and answers that are easy to look at.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use towpath::{CallContext, HandlerError, RawHandler, RunningWorker};
use towpath_core::worker::{FunctionDefinition, PushTarget};
use towpath_server::serve::{self, Running};
use towpath_server::settings::Settings;

/// A server in memory and a client for it.
pub(crate) struct Server {
    pub(crate) running: Running,
    client: Client,
    key: Option<&'static str>,
}

/// Settings of a test's server.
pub(crate) fn settings() -> Settings {
    Settings { store: "memory:".to_owned(), listen: "127.0.0.1:0".parse().unwrap(), drain_grace: Duration::ZERO, ..Settings::default() }
}

/// A server with nothing in it.
pub(crate) async fn server() -> Server {
    server_with(settings()).await
}

pub(crate) async fn server_with(settings: Settings) -> Server {
    Server { running: serve::start(settings).await.unwrap(), client: client(), key: None }
}

pub(crate) fn client() -> Client {
    towpath_server::push::install_tls();
    Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of an answer that must have this status.
    #[track_caller]
    pub(crate) fn with(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    /// The error of an answer that must be one, with the promises that hold for all errors checked.
    #[track_caller]
    pub(crate) fn error(self, status: u16, code: &str) -> Value {
        assert_eq!((self.status.as_u16(), self.body["error"]["code"].as_str()), (status, Some(code)), "{}", self.text);
        let error = &self.body["error"];
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
        assert!(matches!(error["effect"].as_str(), Some("none" | "unknown")), "{error}");
        assert_eq!(error["request_id"].as_str(), self.headers["x-request-id"].to_str().ok(), "the id in the body is that of the header");
        assert_eq!(self.headers["content-type"], "application/json");
        assert_eq!(self.headers["x-content-type-options"], "nosniff");
        error.clone()
    }
}

impl Server {
    /// A server that runs already.
    pub(crate) fn on(running: Running) -> Self {
        Self { running, client: client(), key: None }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.running.addr()
    }

    /// Sends this key with every request.
    pub(crate) fn with_key(mut self, key: &'static str) -> Self {
        self.key = Some(key);
        self
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("http://{}{path}", self.addr()));
        match self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        answer(self.request(Method::GET, path)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        answer(self.request(Method::DELETE, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        answer(self.request(Method::POST, path).json(&body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        answer(self.request(Method::PUT, path).json(&body)).await
    }

    /// Bytes as they are, with the content type of JSON.
    pub(crate) async fn post_bytes(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        answer(self.request(Method::POST, path).header("content-type", "application/json").body(body)).await
    }

    /// Bytes on a socket as no well-behaved client would send them; the answer as it came.
    pub(crate) async fn raw(&self, bytes: impl Into<Vec<u8>>) -> String {
        let (addr, bytes) = (self.addr(), bytes.into());
        let exchange = move || {
            let mut socket = TcpStream::connect(addr).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            // The server may answer and close before it has read everything.
            let _closed = socket.write_all(&bytes);
            let mut text = Vec::new();
            let _reset = socket.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        };
        tokio::task::spawn_blocking(exchange).await.unwrap()
    }

    /// Defines a function with parameter definitions that the API would refuse.
    pub(crate) async fn define_unchecked(&self, name: &str, parameters: &str, url: Option<String>) {
        let mut definition = FunctionDefinition::new(towpath::FunctionKey::global(name.parse().unwrap()));
        definition.parameters = Some(towpath::Payload::from_json(parameters.to_owned()));
        definition.target = url.map(|url| PushTarget { url, concurrency: 1 });
        self.running.towpath().store().define(definition).await.unwrap();
    }

    /// A worker in the server's process: `echo` returns its params, `fail` fails for good, `stubborn` fails in each of two attempts,
    /// `never` does not end by itself.
    pub(crate) async fn with_functions(&self) -> RunningWorker {
        let retry = towpath::RetryPolicy { max_attempts: 2, backoff: towpath::Backoff::Fixed { delay_ms: 1 }, ..Default::default() };
        self.running
            .towpath()
            .worker()
            .raw_function(towpath::FunctionOptions::new("echo"), Arc::new(Echo))
            .function("fail", |_: Value, _ctx: CallContext| async move {
                Err::<Value, _>(HandlerError::fatal("out_of_stock", "there are none left").details(json!({ "sku": "a-1" })))
            })
            .function_with(towpath::FunctionOptions::new("stubborn").retry(retry), |_: Value, _ctx: CallContext| async move {
                Err::<Value, _>(HandlerError::retryable("flaky", "not today"))
            })
            .function("never", |_: Value, ctx: CallContext| async move {
                ctx.cancelled().await;
                Err::<Value, _>(HandlerError::cancelled())
            })
            .start()
            .await
            .unwrap()
    }
}

struct Echo;

#[async_trait::async_trait]
impl RawHandler for Echo {
    async fn run(&self, ctx: CallContext) -> Result<towpath::Payload, HandlerError> {
        Ok(ctx.params_raw().clone())
    }
}

pub(crate) async fn answer(request: RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Answer { status, headers, text, body }
}

/// A pull worker, as any program could be one.
pub(crate) struct PullWorker<'a> {
    server: &'a Server,
    path: String,
    pub(crate) id: String,
}

impl Server {
    /// Registers a pull worker for these functions.
    pub(crate) async fn pull_worker(&self, functions: Value) -> PullWorker<'_> {
        let known = self.post("/v1/workers", json!({ "functions": functions })).await.with(200);
        let id = known["worker_id"].as_str().unwrap().to_owned();
        PullWorker { server: self, path: format!("/v1/workers/{id}"), id }
    }
}

impl PullWorker<'_> {
    pub(crate) async fn post(&self, what: &str, body: Value) -> Answer {
        self.server.post(&format!("{}/{what}", self.path), body).await
    }

    /// Claims one call, which must come.
    pub(crate) async fn claim_one(&self) -> Value {
        let claimed = self.post("claim", json!({ "wait_ms": 10_000 })).await.with(200);
        assert_eq!(claimed["calls"].as_array().map(Vec::len), Some(1), "{claimed}");
        claimed["calls"][0].clone()
    }

    pub(crate) async fn complete(&self, delivery: &Value, data: Value) -> String {
        let result = json!({ "delivery_id": delivery["delivery_id"], "success": true, "data": data });
        let answer = self.post("complete", json!({ "results": [result] })).await.with(200);
        answer["results"][0]["result"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn leave(&self) -> Value {
        self.server.delete(&self.path).await.with(200)
    }
}
