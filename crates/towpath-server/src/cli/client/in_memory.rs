//! Requests to the server's own routes in this very process, on a store that it opened itself. No port, no second implementation.

use std::fmt;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request as HttpRequest, header};
use http_body_util::BodyExt;
use tower::ServiceExt;
use towpath::{OpenError, Towpath};
use towpath_core::store::Durability;
use towpath_server::settings::Settings;

use super::error::RequestError;
use super::{Request, Response};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;

/// A store in this process, behind the server's routes.
pub(super) struct InMemory {
    store: String,
    towpath: Towpath,
    router: Router,
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemory").field("store", &self.store).finish_non_exhaustive()
    }
}

impl InMemory {
    /// Opens the store. Its loops run for as long as this process: what is due meanwhile happens. It removes nothing that is old: how long
    /// that is kept is said to the server.
    pub(super) async fn open(store: &str, durability: Option<Durability>) -> Result<Self, Failure> {
        let mut builder = Towpath::builder().owner(format!("towpath {}", std::env::args().nth(1).unwrap_or_default()));
        if let Some(durability) = durability {
            builder = builder.durability(durability);
        }
        let towpath = builder.open(store).await.map_err(|error| cannot_open(&error))?;
        let router = towpath_server::serve::router(towpath.clone(), &Settings { store: store.to_owned(), ..Settings::default() });
        Ok(Self { store: towpath::shown(store), towpath, router })
    }

    pub(super) fn store(&self) -> &str {
        &self.store
    }

    pub(super) async fn send(&self, request: Request) -> Result<Response, RequestError> {
        let mut builder = HttpRequest::builder().method(request.method).uri(request.target).header(header::HOST, "localhost");
        if let Some(traceparent) = &request.traceparent {
            builder = builder.header("traceparent", traceparent);
        }
        if request.body.is_some() {
            builder = builder.header(header::CONTENT_TYPE, "application/json");
        }
        let request_body = request.body.map_or_else(Body::empty, Body::from);
        let http = builder.body(request_body).map_err(|error| self.no_answer(error.to_string()))?;
        let answered = tokio::time::timeout(request.patience, self.router.clone().oneshot(http)).await;
        let response = match answered {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_elapsed) => return Err(self.no_answer("it took too long".to_owned())),
        };
        let status = response.status().as_u16();
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = response.into_body().collect().await.map_err(|error| self.no_answer(error.to_string()))?.to_bytes();
        Ok(Response { status, body, retry_after: retry_after.map(Duration::from_secs) })
    }

    fn no_answer(&self, cause: String) -> RequestError {
        RequestError::Cut { server: self.store.clone(), cause }
    }

    pub(super) async fn close(self) {
        drop(self.router);
        self.towpath.close().await;
    }
}

fn cannot_open(error: &OpenError) -> Failure {
    let message = error.to_string();
    match error {
        OpenError::UnknownStore { .. } => Failure::usage("unknown_store", message).field("store"),
        OpenError::Refused { .. } => Failure::new(Exit::RefusedConfiguration, "refused_configuration", message),
        _ if message.contains("is in use by") => Failure::new(Exit::Unreachable, "store_in_use", message)
            .hint("leave out --store to talk to the server that has it, or stop that one first"),
        _ => {
            let failure = Failure::not_opened(Exit::Unreachable, "store_unavailable", &message);
            if failure.detail.hint.is_some() { failure } else { failure.hint("`towpath doctor` looks for the cause") }
        }
    }
}
