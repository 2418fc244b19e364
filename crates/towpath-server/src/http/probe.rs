//! Whether the store can write, found out by writing, and remembered for a moment so that probes cost little.

use std::time::Duration;

use tokio::sync::Mutex;
use towpath_core::inspect::StoreStatus;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::app::App;

/// An answer older than this is not given again.
const REMEMBERED_FOR: Duration = Duration::from_secs(2);
/// A store that takes longer than this is not ready.
const WRITE_TIME_MAX: Duration = Duration::from_secs(5);

type Answer = Result<StoreStatus, StoreError>;

/// The latest answer. The lock is held during the write, so that many probes at once cause one write.
#[derive(Debug, Default)]
pub(crate) struct Probe(Mutex<Option<(Timestamp, Answer)>>);

impl Probe {
    pub(crate) async fn ask(&self, app: &App) -> Answer {
        let mut latest = self.0.lock().await;
        if let Some((at, answer)) = &*latest
            && app.clock().now().since(*at) < REMEMBERED_FOR
        {
            return answer.clone();
        }
        let answer = tokio::time::timeout(WRITE_TIME_MAX, app.store().probe()).await.unwrap_or_else(|_elapsed| {
            let message = format!("a probe write took longer than {} seconds", WRITE_TIME_MAX.as_secs());
            Err(StoreError::Unavailable(towpath_core::store::StoreTrouble::Other(message)))
        });
        // A probe whose reply was lost has no effect that a caller would have to look up: the store does not answer.
        let answer = answer.map_err(|error| match error {
            StoreError::Unknown(cause) => StoreError::Unavailable(towpath_core::store::StoreTrouble::Other(cause)),
            other => other,
        });
        *latest = Some((app.clock().now(), answer.clone()));
        answer
    }
}
