//! The shared connection to one server, made anew when it breaks: by one caller for all, and not too often.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::PubSub;
use redis::{Cmd, Value};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::Instant;
use towpath_core::store::StoreError;

use super::dial::Dialer;
use super::error;
use super::own::OwnWire;
use super::sentinel::Sentinels;
use super::wire::{Wire, already_greeted};
use crate::options::Address;

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Reads that block do so for five seconds at most. What is not answered so much later was swallowed on the way: a router or proxy that forgot
/// the connection keeps it open for ever.
const BLOCKED_READ_ENDS_WITHIN: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Which server it is.
pub(super) enum Target {
    Fixed(Address),
    /// Asked anew for every connection.
    Master(Sentinels),
}

pub(super) struct Line {
    target: Target,
    dialer: Arc<Dialer>,
    current: Mutex<Option<Arc<Wire>>>,
    /// Held by the one who dials; the others wait for what becomes of it.
    attempts: AsyncMutex<Attempts>,
    lives: watch::Sender<u64>,
}

/// How dialling went lately.
#[derive(Default)]
struct Attempts {
    failed: u32,
    /// Until then nobody dials again, and what the latest attempt ran into.
    pause: Option<(Instant, StoreError)>,
}

impl Line {
    pub(super) fn new(target: Target, dialer: Arc<Dialer>, lives: watch::Sender<u64>) -> Self {
        Self { target, dialer, current: Mutex::new(None), attempts: AsyncMutex::default(), lives }
    }

    /// Sends all at once. An error reply stands in its place.
    pub(super) async fn send(&self, commands: &[Cmd]) -> Result<Vec<Value>, StoreError> {
        let wire = self.wire().await?;
        match wire.send(commands).await {
            Ok(replies) => {
                if replies.iter().any(error::is_demoted) {
                    self.forget(&wire);
                }
                Ok(replies)
            }
            // Not used again even if only one reply was late: whoever waits behind it would wait as long.
            Err(failure) => {
                self.forget(&wire);
                Err(error::lost(&wire.address, &failure))
            }
        }
    }

    /// The connection, made if there is none.
    pub(super) async fn wire(&self) -> Result<Arc<Wire>, StoreError> {
        if let Some(wire) = self.alive() {
            return Ok(wire);
        }
        let mut attempts = self.attempts.lock().await;
        if let Some(wire) = self.alive() {
            return Ok(wire);
        }
        match &attempts.pause {
            Some((until, failure)) if Instant::now() < *until => return Err(failure.clone()),
            _ => {}
        }
        match self.dial().await {
            Ok(wire) => {
                *attempts = Attempts::default();
                let wire = Arc::new(wire);
                *self.current() = Some(Arc::clone(&wire));
                self.lives.send_modify(|lives| *lives += 1);
                Ok(wire)
            }
            Err(failure) => {
                let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(attempts.failed)).min(LONGEST_PAUSE);
                attempts.failed = attempts.failed.saturating_add(1);
                attempts.pause = Some((Instant::now() + pause, failure.clone()));
                Err(failure)
            }
        }
    }

    /// A connection of one's own to the server of the shared one, with time enough for reads that block.
    pub(super) async fn exclusive(&self) -> Result<OwnWire, StoreError> {
        let address = self.wire().await?.address.clone();
        let greeted = self.dialer.data(&address).await?;
        Ok(OwnWire::new(&address, greeted, BLOCKED_READ_ENDS_WITHIN))
    }

    /// A connection of one's own that hears what is published on a channel.
    pub(super) async fn subscribed(&self, channel: &str) -> Result<PubSub, StoreError> {
        let address = self.wire().await?.address.clone();
        let greeted = self.dialer.data(&address).await?;
        let subscribed = tokio::time::timeout(ANSWER_WITHIN, async {
            let mut connection = PubSub::new(&already_greeted(), greeted.stream).await?;
            connection.subscribe(channel).await?;
            Ok(connection)
        });
        let subscribed = subscribed.await.map_err(|_| error::not_reached(&address, "no answer in time"))?;
        subscribed.map_err(|failure: redis::RedisError| match failure.code() {
            Some(code) => error::refusal(code, failure.detail().unwrap_or_default()),
            None => error::not_reached(&address, &failure.to_string()),
        })
    }

    /// The next one who asks makes a new connection, unless somebody has.
    pub(super) fn forget(&self, wire: &Arc<Wire>) {
        let mut current = self.current();
        if current.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, wire)) {
            *current = None;
        }
    }

    /// The same, for the connection to this server.
    pub(super) fn forget_server(&self, address: &Address) {
        let mut current = self.current();
        if current.as_ref().is_some_and(|kept| kept.address == *address) {
            *current = None;
        }
    }

    /// The connection, if it has not broken.
    pub(super) fn alive(&self) -> Option<Arc<Wire>> {
        self.current().as_ref().filter(|wire| !wire.is_over()).cloned()
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Wire>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn dial(&self) -> Result<Wire, StoreError> {
        match &self.target {
            Target::Fixed(address) => Wire::new(address, self.dialer.data(address).await?, Some(ANSWER_WITHIN)).await,
            Target::Master(sentinels) => sentinels.master(&self.dialer, ANSWER_WITHIN).await,
        }
    }
}
