//! Batches: messages in, batches out, settings, dead letters.

pub(crate) mod dead_letters;
pub(crate) mod lists;
pub(crate) mod messages;
pub(crate) mod pull;
pub(crate) mod settings;

use towpath::batches::{BatchError, KnownBatcher};

use super::app::App;
use super::convert;
use super::error::ApiError;

/// The batcher that a path names, which must be known.
async fn known(app: &App, name: &str) -> Result<KnownBatcher, ApiError> {
    let name = convert::batches::batcher_name(name)?;
    match app.towpath().batchers().find(&name).await? {
        Some(known) => Ok(known),
        None => Err(BatchError::UnknownBatcher { batcher: name }.into()),
    }
}
