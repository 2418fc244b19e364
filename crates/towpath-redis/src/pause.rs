//! Pauses that are about the network and not about calls.

use std::time::Duration;

/// Lets real time pass, whatever the store's clock says.
#[expect(clippy::disallowed_methods, reason = "the server is real and comes back in real time, whatever the store's clock says")]
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
