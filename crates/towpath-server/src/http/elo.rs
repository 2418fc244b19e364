//! The routes that ELO's clients know: `/ingest`, `/dlq` and `/health`, with the fields of both of its versions.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use towpath::batches::{BatchCounts, BatchHandle, DeadLetterQuery, Message, Pushed, Select};
use utoipa::IntoParams;

use super::app::App;
use super::batches::dead_letters::WHO;
use super::codes::Code;
use super::convert;
use super::error::ApiError;
use super::extract::{Query, RawJsonBody};

const LIMIT_DEFAULT: u32 = 100;

/// Which dead letters to list, and in what order.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DlqQuery {
    /// At most this many, 1 to 200. Default 100.
    #[serde(default)]
    limit: Option<u32>,
    /// `oldest` (default) or `newest` first.
    #[serde(default)]
    order: Option<String>,
}

fn batcher(app: &App) -> BatchHandle {
    app.towpath().batch(app.elo_routes().batcher.as_str())
}

/// Take a message, as ELO's input contour does
#[utoipa::path(
    post, path = "/ingest", tag = "compatible", request_body = Object,
    responses((status = 200, description = "`accepted`, `message_id`, `trace_id`, `batch_key`, `deadline`; of a duplicate also `duplicate` and `reason`", body = Object)),
)]
pub(crate) async fn ingest(State(app): State<App>, RawJsonBody(body): RawJsonBody) -> Result<Json<Value>, ApiError> {
    let given: Given<'_> = serde_json::from_slice(&body).unwrap_or_default();
    let text = |value: Option<&RawValue>| value.and_then(|value| serde_json::from_str::<Value>(value.get()).ok()).filter(is_given);
    let new_id = |kind: &str| Value::from(format!("{kind}_{}", app.towpath().ids().call_id()));
    let (message_id, trace_id) = (text(given.message_id), text(given.trace_id));
    let mut added = String::new();
    let mut chosen = |name: &str, known: Option<Value>| {
        known.unwrap_or_else(|| {
            let made = new_id(if name == "message_id" { "msg" } else { "trace" });
            added += &format!(",\"{name}\":{made}");
            made
        })
    };
    let (message_id, trace_id) = (chosen("message_id", message_id), chosen("trace_id", trace_id));
    let message = Message::new(with_fields(&body, &added));
    let pushed = batcher(&app).push_all(vec![message]).await?.into_iter().next();
    let pushed = pushed.ok_or_else(|| ApiError::new(Code::Internal, "the store gave no answer"))??;
    let mut answer = json!({ "message_id": message_id, "trace_id": trace_id, "batch_key": pushed.batch_key().as_str() });
    match pushed {
        Pushed::Accepted { deadline, .. } => {
            answer["accepted"] = json!(true);
            answer["deadline"] = json!(deadline.to_iso());
        }
        Pushed::Duplicate { .. } => {
            answer["accepted"] = json!(false);
            answer["duplicate"] = json!(true);
            answer["reason"] = json!("duplicate");
        }
    }
    Ok(Json(answer))
}

#[derive(Default, Deserialize)]
struct Given<'a> {
    #[serde(borrow, default)]
    message_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    trace_id: Option<&'a RawValue>,
}

/// An id that is there: `null`, nothing and blanks are none.
fn is_given(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Number(_) => true,
        _ => false,
    }
}

/// An object with more fields at its end; of two with one name the later counts. What is no object stays as it is.
fn with_fields(body: &bytes::Bytes, added: &str) -> bytes::Bytes {
    let trimmed = body.trim_ascii();
    let Some(inside) = trimmed.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}")).filter(|_| !added.is_empty()) else {
        return body.clone();
    };
    let added = if inside.trim_ascii().is_empty() { added.trim_start_matches(',') } else { added };
    [b"{", inside, added.as_bytes(), b"}"].concat().into()
}

/// List dead letters, as ELO's input contour does
#[utoipa::path(
    get, path = "/dlq", tag = "compatible", params(DlqQuery),
    responses((status = 200, description = "`count`, `total`, and the same entries as `items` and `entries`, secrets hidden", body = Object)),
)]
pub(crate) async fn dlq(State(app): State<App>, Query(query): Query<DlqQuery>) -> Result<Json<Value>, ApiError> {
    let limit = super::bounds::check("limit", query.limit)?.unwrap_or(LIMIT_DEFAULT);
    let newest_first = match query.order.as_deref() {
        None | Some("oldest") => false,
        Some("newest") => true,
        Some(_) => return Err(ApiError::new(Code::InvalidField, "'order' is oldest or newest").field("order")),
    };
    let letters = app.towpath().dead_letters().batcher(&app.elo_routes().batcher);
    let page = letters.list(&DeadLetterQuery { newest_first, limit, ..DeadLetterQuery::default() }).await?;
    let total = batcher(&app).counts().await?.dead_letters;
    let entries: Vec<_> = page.items.iter().map(|(_, letter)| convert::json(&letter.redacted())).collect();
    Ok(Json(json!({ "count": entries.len(), "total": total, "items": entries, "entries": entries })))
}

/// Drop all dead letters, as ELO's input contour does
#[utoipa::path(
    delete, path = "/dlq", tag = "compatible",
    responses((status = 200, description = "`cleared`: how many there were", body = Object)),
)]
pub(crate) async fn clear_dlq(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    let cleared = app.towpath().dead_letters().batcher(&app.elo_routes().batcher).drop(&Select::All, WHO).await?;
    Ok(Json(json!({ "cleared": cleared })))
}

/// Say how the batcher is, as ELO's input contour does
#[utoipa::path(
    get, path = "/health", tag = "compatible",
    responses((status = 200, description = "`status`, `redis`, `queues` and `config`, without any address", body = Object)),
)]
pub(crate) async fn health(State(app): State<App>) -> Json<Value> {
    let store = app.probe().ask(&app).await;
    let counts = batcher(&app).counts().await;
    let incoming = batcher(&app).incoming().await;
    let settings = batcher(&app).settings().await;
    let is_well = store.is_ok() && counts.is_ok() && incoming.is_ok();
    let counts = counts.unwrap_or(BatchCounts::default());
    let mut config = Map::new();
    if let Ok(settings) = settings {
        config.insert("debounce_seconds".to_owned(), seconds(settings.debounce));
        config.insert("max_wait_seconds".to_owned(), seconds(settings.max_wait));
    }
    Json(json!({
        "status": if is_well { "ok" } else { "degraded" },
        "redis": is_well,
        "queues": { "incoming": incoming.unwrap_or(0), "pending_batches": counts.open_keys + counts.in_flight, "dlq": counts.dead_letters },
        "config": config,
    }))
}

/// Whole seconds as a whole number, as both versions write them.
fn seconds(length: std::time::Duration) -> Value {
    if length.subsec_nanos() == 0 { json!(length.as_secs()) } else { json!(length.as_secs_f64()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_added_at_the_end_and_nothing_else_is_touched() {
        let with =
            |body: &'static str| String::from_utf8(with_fields(&bytes::Bytes::from_static(body.as_bytes()), ",\"a\":1").to_vec()).unwrap();
        assert_eq!(with(" {\"n\": 1e400} \n"), "{\"n\": 1e400,\"a\":1}");
        assert_eq!(with("{ }"), "{ \"a\":1}");
        assert_eq!(with("[1]"), "[1]");
        assert_eq!(with_fields(&bytes::Bytes::from_static(b" {} "), ""), " {} ");
    }
}
