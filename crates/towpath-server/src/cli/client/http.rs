//! Requests over the network.

use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use reqwest::header;
use url::{Host, Url};

use super::error::RequestError;
use super::{Request, Response};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;

/// A connection that takes longer is no connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A server on the network.
#[derive(Debug)]
pub(super) struct HttpTransport {
    http: reqwest::Client,
    base: String,
    key: Option<header::HeaderValue>,
}

impl HttpTransport {
    /// Checks the address and the key; connects to nothing yet.
    pub(super) fn new(server: &str, key: Option<&str>) -> Result<Self, Failure> {
        let url = check_address(server)?;
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .redirect(reqwest::redirect::Policy::none()) // a redirected POST would become a GET, and the key would travel on
            .user_agent(concat!("towpath/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        let http = builder
            .build()
            .map_err(|error| Failure::new(Exit::Failed, "no_http_client", format!("the HTTP client cannot be set up: {error}")))?;
        Ok(Self { http, base: url.as_str().trim_end_matches('/').to_owned(), key: key.map(bearer).transpose()? })
    }

    /// Whom we talk to.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    pub(super) async fn send(&self, request: Request) -> Result<Response, RequestError> {
        let mut builder = self.http.request(request.method, format!("{}{}", self.base, request.target)).timeout(request.patience);
        if let Some(key) = &self.key {
            builder = builder.header(header::AUTHORIZATION, key.clone());
        }
        if let Some(traceparent) = &request.traceparent {
            builder = builder.header("traceparent", traceparent);
        }
        if let Some(body) = request.body {
            builder = builder.header(header::CONTENT_TYPE, "application/json").body(body);
        }
        let response = builder.send().await.map_err(|error| self.no_answer(&error))?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = response.bytes().await.map_err(|error| self.no_answer(&error))?;
        Ok(Response { status, body, retry_after: retry_after.map(Duration::from_secs) })
    }

    fn no_answer(&self, error: &reqwest::Error) -> RequestError {
        let (server, cause) = (self.base.clone(), root_cause(error));
        if error.is_connect() { RequestError::Unreachable { server, cause } } else { RequestError::Cut { server, cause } }
    }
}

fn bearer(key: &str) -> Result<header::HeaderValue, Failure> {
    let mut value = header::HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| {
        Failure::usage("invalid_api_key", "the API key holds characters that cannot be sent: check where it was copied from")
            .field("api-key")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn check_address(server: &str) -> Result<Url, Failure> {
    let wrong = |why: String| {
        Failure::usage("invalid_server", format!("'{server}' is no address of a server: {why}"))
            .field("server")
            .hint(format!("write it as {}", crate::cli::globals::DEFAULT_SERVER))
    };
    let url = Url::parse(server).map_err(|error| wrong(error.to_string()))?;
    match (url.scheme(), url.host()) {
        ("http" | "https", Some(_)) => Ok(url),
        ("http" | "https", None) => Err(wrong("it names no host".to_owned())),
        (scheme, _) => Err(wrong(format!("'{scheme}' is neither http nor https"))),
    }
}

/// A proxy of the environment cannot know this machine's own server.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

/// The innermost error: "Connection refused" says more than "error sending request".
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
