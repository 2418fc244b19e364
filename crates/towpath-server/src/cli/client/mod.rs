//! The API's client. It speaks to a server over the network, or with `--store` to the same routes in this very process: one language,
//! two ways to be heard.

mod error;
mod http;
mod in_memory;
mod paged;
pub(crate) mod routes;

use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use towpath_core::store::Durability;

pub(crate) use error::RequestError;
pub(crate) use paged::Paged;
use towpath_server::http::pages::PageQuery;

use self::http::HttpTransport;
use self::in_memory::InMemory;
use super::failure::Failure;
use super::globals::Globals;

/// How long an answer may take beyond the time it was asked to wait.
const PATIENCE: Duration = Duration::from_secs(15);

/// A server, wherever it is.
#[derive(Debug)]
pub(crate) struct Client {
    transport: Transport,
}

#[derive(Debug)]
enum Transport {
    Http(HttpTransport),
    InMemory(Box<InMemory>),
}

/// A request, before it is known how it travels.
struct Request {
    method: Method,
    /// Path and query.
    target: String,
    body: Option<Vec<u8>>,
    traceparent: Option<String>,
    patience: Duration,
}

/// An answer, however it came.
struct Response {
    status: u16,
    body: Bytes,
    retry_after: Option<Duration>,
}

impl Client {
    /// The server or the store that the options name. Nothing is sent yet; a store is opened.
    pub(crate) async fn connect(globals: &Globals) -> Result<Self, Failure> {
        match &globals.store {
            Some(store) => Self::on_store(store, globals.durability).await,
            None => Self::to_server(globals),
        }
    }

    /// A server on the network.
    pub(crate) fn to_server(globals: &Globals) -> Result<Self, Failure> {
        let transport = Transport::Http(HttpTransport::new(&globals.server, globals.client_key()?.as_deref())?);
        Ok(Self { transport })
    }

    /// A store that this process opens for itself.
    pub(crate) async fn on_store(store: &str, durability: Option<Durability>) -> Result<Self, Failure> {
        Ok(Self { transport: Transport::InMemory(Box::new(InMemory::open(store, durability).await?)) })
    }

    /// Whom we talk to, for messages.
    pub(crate) fn server(&self) -> &str {
        match &self.transport {
            Transport::Http(http) => http.base(),
            Transport::InMemory(own) => own.store(),
        }
    }

    /// Reads something that is there at once.
    pub(crate) async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, RequestError> {
        self.ask(Ask::get(target)).await
    }

    /// Reads all pages of a list.
    pub(crate) async fn get_all<P: Paged>(&self, path: &str) -> Result<P, RequestError> {
        let mut all: P = self.get(path).await?;
        while let Some(cursor) = all.next().take() {
            let page = self.get(&routes::with_query(path, &PageQuery { cursor: Some(cursor), limit: None })).await?;
            all.append(page);
        }
        Ok(all)
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, RequestError> {
        let response = self.send(ask.request).await?;
        if !(200..300).contains(&response.status) {
            return Err(RequestError::from_answer(self.server(), response.status, &response.body, response.retry_after));
        }
        serde_json::from_slice(&response.body).map_err(|error| RequestError::Garbled {
            server: self.server().to_owned(),
            status: response.status,
            cause: format!("its answer cannot be understood: {error}"),
        })
    }

    /// Sends a request whose answer is not one JSON value.
    pub(crate) async fn bytes(&self, ask: Ask) -> Result<Bytes, RequestError> {
        let response = self.send(ask.request).await?;
        if (200..300).contains(&response.status) {
            return Ok(response.body);
        }
        Err(RequestError::from_answer(self.server(), response.status, &response.body, response.retry_after))
    }

    /// Sends a request whose answer says nothing that is not known already.
    pub(crate) async fn done(&self, ask: Ask) -> Result<(), RequestError> {
        let response = self.send(ask.request).await?;
        if (200..300).contains(&response.status) {
            return Ok(());
        }
        Err(RequestError::from_answer(self.server(), response.status, &response.body, response.retry_after))
    }

    async fn send(&self, request: Request) -> Result<Response, RequestError> {
        match &self.transport {
            Transport::Http(http) => http.send(request).await,
            Transport::InMemory(own) => own.send(request).await,
        }
    }

    /// Ends the connection; with `--store`, closes the store.
    pub(crate) async fn close(self) {
        match self.transport {
            Transport::Http(_) => {}
            Transport::InMemory(own) => own.close().await,
        }
    }
}

/// Something to ask of a server.
pub(crate) struct Ask {
    request: Request,
}

impl Ask {
    pub(crate) fn get(target: &str) -> Self {
        Self::new(Method::GET, target)
    }

    pub(crate) fn post<B: Serialize>(target: &str, body: &B) -> Self {
        Self::new(Method::POST, target).body(body)
    }

    pub(crate) fn post_empty(target: &str) -> Self {
        Self::new(Method::POST, target)
    }

    pub(crate) fn put<B: Serialize>(target: &str, body: &B) -> Self {
        Self::new(Method::PUT, target).body(body)
    }

    pub(crate) fn delete(target: &str) -> Self {
        Self::new(Method::DELETE, target)
    }

    /// A deletion that says what it was decided on.
    pub(crate) fn delete_with<B: Serialize>(target: &str, body: &B) -> Self {
        Self::new(Method::DELETE, target).body(body)
    }

    fn new(method: Method, target: &str) -> Self {
        Self { request: Request { method, target: target.to_owned(), body: None, traceparent: None, patience: PATIENCE } }
    }

    fn body<B: Serialize>(mut self, body: &B) -> Self {
        let body = serde_json::to_vec(body).expect("wire types are plain structs that always have a JSON form");
        self.request.body = Some(body);
        self
    }

    /// The server was asked to wait this long before it answers.
    pub(crate) fn waiting(mut self, length: Duration) -> Self {
        self.request.patience = PATIENCE.saturating_add(length);
        self
    }

    /// Gives up after this at the latest.
    pub(crate) fn no_longer_than(mut self, length: Duration) -> Self {
        self.request.patience = self.request.patience.min(length);
        self
    }

    /// Gives up sooner than usual.
    pub(crate) fn within(mut self, length: Duration) -> Self {
        self.request.patience = length;
        self
    }

    /// Carries a trace context along.
    pub(crate) fn traceparent(mut self, traceparent: Option<String>) -> Self {
        self.request.traceparent = traceparent;
        self
    }
}
