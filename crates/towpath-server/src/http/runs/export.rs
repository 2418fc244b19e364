//! A run as lines of JSON: what it is, its journal, its inbox, what it has published.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use towpath_core::run::RunId;
use towpath_core::store::StoreError;

use super::look::{JOURNAL_PAGE_BYTES, detail};
use super::{body, found, names};
use crate::http::app::App;
use crate::http::convert;
use crate::http::error::ApiError;
use crate::http::extract::PathText;
use crate::http::wire::Json;

/// Export a run as lines of JSON
///
/// The first line has `run`, each other one `entry`, `fact` or `published`. The last one is `{"end": true}`: a file without it was cut.
#[utoipa::path(
    get, path = "/v1/runs/{run_id}/export", tag = "runs",
    params(("run_id" = String, Path, description = "Which run")),
    responses((status = 200, description = "One JSON object per line", body = String, content_type = "application/x-ndjson")),
)]
pub(crate) async fn export(State(app): State<App>, PathText(id): PathText) -> Result<Response, ApiError> {
    let run_id = names::run_id(&id)?;
    let first = line("run", &detail(&app, &found(&app, &run_id).await?).await);
    let lines = stream::try_unfold(Next::Run(first), move |next| step(app.clone(), run_id.clone(), next));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

#[derive(Serialize)]
struct PublishedLine<'a> {
    key: &'a str,
    value: Json,
}

/// What is written next.
enum Next {
    Run(String),
    Journal(u64),
    Facts(u64),
    Published,
    End,
    Nothing,
}

/// The next lines. An error ends the answer without its last line.
async fn step(app: App, run_id: RunId, next: Next) -> Result<Option<(Bytes, Next)>, StoreError> {
    let Some(runs) = app.towpath().run_store() else { return Ok(None) };
    let (text, next) = match next {
        Next::Run(line) => (line, Next::Journal(0)),
        Next::Journal(from) => {
            let entries = runs.journal(&run_id, from, JOURNAL_PAGE_BYTES).await?;
            let next = entries.last().map_or(Next::Facts(0), |last| Next::Journal(last.number + 1));
            (entries.iter().map(|entry| line("entry", &body::journal_entry(entry))).collect(), next)
        }
        Next::Facts(after) => {
            let facts = runs.facts(&run_id, after).await?;
            let next = facts.last().map_or(Next::Published, |last| Next::Facts(last.number));
            (facts.iter().map(|fact| line("fact", &body::fact(fact))).collect(), next)
        }
        Next::Published => {
            let published = runs.published(&run_id).await?;
            let values = published.iter().map(|(key, value)| line("published", &PublishedLine { key, value: convert::json(value) }));
            (values.collect(), Next::End)
        }
        Next::End => ("{\"end\":true}\n".to_owned(), Next::Nothing),
        Next::Nothing => return Ok(None),
    };
    Ok(Some((Bytes::from(text), next)))
}

fn line(kind: &str, value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    format!("{{\"{kind}\":{text}}}\n")
}
