//! The doctor, over HTTP: the server examines its own store.

use axum::Json;
use axum::extract::State;

use super::app::App;
use super::error::ApiError;
use super::extract::Query;
use super::wire::doctor::{DoctorBody, DoctorQuery};

/// Examine the store of this server
///
/// It takes a second or two: the server measures its disk, or sends some hundred commands to its Redis. It changes nothing but a probe of its own.
#[utoipa::path(
    get, path = "/v1/doctor", tag = "health", params(DoctorQuery),
    responses((status = 200, description = "What was found, and what to do", body = DoctorBody)),
)]
pub(crate) async fn doctor(State(app): State<App>, Query(query): Query<DoctorQuery>) -> Result<Json<DoctorBody>, ApiError> {
    let examined = app.doctor().examine(app.towpath(), query.store.unwrap_or(true)).await;
    let durability = examined.durability.map(|level| level.as_str().to_owned());
    Ok(Json(DoctorBody { store: app.doctor().store(), durability, checks: examined.findings }))
}
