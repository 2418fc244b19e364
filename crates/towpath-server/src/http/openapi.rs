//! The document that describes the API. It is generated from the routes and committed as api/openapi.json, so that a change shows.

use std::sync::OnceLock;

use utoipa::OpenApi;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};

use super::routes::{self, Permission};
use super::wire::error::ErrorBody;

#[derive(OpenApi)]
#[openapi(
    info(title = "Towpath", description = "Durable function calls. Durations end in `_ms`; instants are milliseconds since the Unix \
        epoch by the store's clock. Every error has the body `ErrorBody`; its codes are listed in docs/errors.md."),
    components(schemas(ErrorBody)),
    tags((name = "calls", description = "Call functions, look at calls, cancel them"),
        (name = "functions", description = "What can be called"),
        (name = "workers", description = "Serve functions from any program that speaks HTTP"),
        (name = "dead letters", description = "Calls that were given up, kept until they are replayed or dropped"),
        (name = "batches", description = "Messages gathered per key until their sender falls silent, then handed over as one"),
        (name = "batch dead letters", description = "Batches that could not be delivered, kept until they are replayed or dropped"),
        (name = "runs", description = "Workflow runs: start, look, send events, ask"),
        (name = "run workers", description = "Execute workflow runs from any program that speaks HTTP"),
        (name = "compatible", description = "The routes that clients of ELO's input contour know"),
        (name = "limits", description = "How many in how long: check, look, give back, reset"),
        (name = "locks", description = "Only one at a time, or so many: locks, semaphores, read/write locks"),
        (name = "config", description = "The configuration that all share"),
        (name = "health", description = "How the server is")),
)]
struct Frame;

const KEY: &str = "api_key";

/// The document without its paths.
pub(super) fn frame() -> utoipa::openapi::OpenApi {
    let mut document = Frame::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("One of the server's keys")).build();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(KEY, SecurityScheme::Http(bearer));
    document
}

/// Adds to an operation what all have: the error body, the permission, the key.
pub(super) fn complete(operation: &mut Operation, permission: Permission) {
    let body = RefOr::Ref(Ref::from_schema_name("ErrorBody"));
    let content = ContentBuilder::new().schema(Some(body)).build();
    let error = ResponseBuilder::new().description("What went wrong").content("application/json", content).build();
    operation.responses.responses.insert("default".to_owned(), RefOr::T(error));
    // Handlers are named for their room; clients generated from the document know no rooms.
    let room = operation.tags.as_deref().unwrap_or_default().first().map_or_else(String::new, |tag| tag.replace(' ', "_"));
    operation.operation_id = operation.operation_id.take().map(|name| format!("{room}_{name}"));
    operation.extensions = Some(routes::extension(permission));
    if permission != Permission::Public {
        operation.security = Some(vec![SecurityRequirement::new(KEY, Vec::<String>::new()), SecurityRequirement::default()]);
    }
}

/// The whole document as JSON, ending with a newline.
pub fn text() -> String {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let (_router, document) = routes::all();
        document.to_pretty_json().map(|json| json + "\n").unwrap_or_default()
    })
    .clone()
}
