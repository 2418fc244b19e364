//! What surrounds every handler, from the outside in: an id, the count and the log line, the error body, the panic guard, the names the
//! server goes by, the key, the cap on requests.

use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, OriginalUri, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Method};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tower_http::catch_panic::CatchPanicLayer;

use super::app::App;
use super::codes::Code;
use super::error::{self, ApiError};
use super::request_id::{self, RequestId};
use super::routes::{self, Permission};
use super::{auth, host};

/// The whole API as a service.
pub(crate) fn router(app: App) -> Router {
    let (routes, _document) = routes::all();
    surround(routes, app)
}

fn surround(routes: Router<App>, app: App) -> Router {
    routes
        .fallback(route_not_found)
        .method_not_allowed_fallback(method_not_allowed)
        // Each layer wraps those above it.
        .layer(from_fn_with_state(app.clone(), cap))
        .layer(from_fn_with_state(app.clone(), auth::require))
        .layer(from_fn_with_state(app.clone(), host::check))
        .layer(CatchPanicLayer::custom(error::panicked))
        .layer(from_fn(error::render))
        .layer(from_fn_with_state(app.clone(), observe))
        .layer(from_fn(request_id::assign))
        .with_state(app)
}

async fn route_not_found(method: Method, OriginalUri(uri): OriginalUri) -> ApiError {
    let path: String = uri.path().escape_default().take(200).collect();
    ApiError::new(Code::RouteNotFound, format!("there is no {method} {path}"))
        .field("path")
        .hint("GET /openapi.json lists all paths; a '/' inside a name is written %2F")
}

async fn method_not_allowed(method: Method) -> ApiError {
    ApiError::new(Code::MethodNotAllowed, format!("this path does not take {method}"))
        .field("method")
        .hint("the 'allow' header lists what it takes")
}

/// Takes no more requests at once than the server is set up for. The probes always get through: they say how things are.
async fn cap(State(app): State<App>, request: Request, next: Next) -> Response {
    if app.permission_of(&request) == Permission::Public {
        return next.run(request).await;
    }
    let Ok(_permit) = app.requests().clone().try_acquire_owned() else {
        let message = "the server has as many open requests as it takes";
        return ApiError::new(Code::OverloadedServer, message).hint("try again with back-off").into_response();
    };
    next.run(request).await
}

/// Counts and logs each request by its route, never by its path: paths hold names and ids.
async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    let began = app.clock().now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let request_id = request.extensions().get::<RequestId>().cloned().unwrap_or_default();
    let open = app.metrics().open_request();
    let mut response = next.run(request).await;
    drop(open);
    harden(&mut response);
    let status = response.status().as_u16();
    app.metrics().count_request(&method, &route, status);
    let took: Duration = app.clock().now().since(began);
    tracing::debug!(%request_id, %method, route, status, took_ms = took.as_millis(), "answered");
    response
}

/// Nothing that this server sends is for a browser to guess at, to keep, or to run.
fn harden(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use axum::routing::get;
    use http_body_util::BodyExt;
    use tower::ServiceExt;
    use towpath::Towpath;

    use super::*;
    use crate::metrics::Metrics;
    use crate::push::Pushed;
    use crate::settings::Settings;

    async fn panics() {
        panic!("inner detail");
    }

    #[tokio::test]
    async fn a_handler_that_panics_is_answered_500_with_the_one_body() {
        let towpath = Towpath::open("memory:").await.unwrap();
        let app = App::new(towpath.clone(), &Settings::default(), Arc::new(Metrics::new()), Pushed::nothing());
        let router = surround(Router::new().route("/bug", get(panics)), app);
        let request = Request::builder().uri("/bug").header("host", "localhost").body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.status(), 500);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["error"]["code"], &body["error"]["effect"]), (&"internal".into(), &"unknown".into()));
        assert!(!body.to_string().contains("inner detail"), "what went wrong inside stays inside: {body}");
        towpath.close().await;
    }
}
