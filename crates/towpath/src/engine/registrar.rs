//! Hears that functions changed, and makes callers doubt what they know of them.

use std::sync::Arc;

use towpath_core::clock::Clock;
use towpath_core::store::Store;

use super::backoff::Backoff;
use crate::functions::FunctionCache;

pub(crate) async fn run(store: Arc<dyn Store>, clock: Arc<dyn Clock>, functions: Arc<FunctionCache>) {
    let mut backoff = Backoff::new(&clock, "hear of changed functions");
    let mut seen = 0;
    loop {
        match store.functions_changed(seen).await {
            Ok(count) => {
                backoff.succeeded();
                seen = count;
                functions.doubt_all();
            }
            Err(error) => {
                // Changes may go unheard until the store is back.
                functions.doubt_all();
                if backoff.failed(error).await.is_err() {
                    return;
                }
            }
        }
    }
}
