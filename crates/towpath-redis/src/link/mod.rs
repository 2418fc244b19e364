//! Connections: the shared one, exclusive ones for blocking reads, and what a failure means.
//!
//! | file | what it does |
//! |---|---|
//! | `dial` | reaches a server, encrypts (`tls`), says who we are |
//! | `wire` | one connection that many share |
//! | `own` | one connection of one's own, and what it says (`reply`) |
//! | `spare` | connections for scripts that come one at a time |
//! | `scripts` | scripts by their names, and what they do when memory is full |
//! | `line` | the shared connection to one server, made anew when it breaks |
//! | `sentinel` | finds the master |
//! | `cluster` | a line to each node, and who has which slot (`slots`) |
//! | `error` | what a failure means |

mod cluster;
mod dial;
mod error;
mod line;
mod own;
mod reply;
mod scripts;
mod sentinel;
mod slots;
mod spare;
#[cfg(test)]
mod tests;
mod tls;
mod wire;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::PubSub;
use redis::{Cmd, FromRedisValue, Value};
use tokio::sync::watch;
use towpath_core::store::StoreError;

use crate::options::{Address, Place, RedisOptions};

use cluster::Cluster;
use dial::Dialer;
use line::{ANSWER_WITHIN, Line, Target};
use own::OwnWire;
use scripts::IsOld;
use sentinel::Sentinels;
use spare::Spares;

pub(crate) use error::{checked, refusal, trouble};
pub(crate) use reply::{Reply, Text};
pub(crate) use scripts::Script;
pub(crate) use sentinel::Testimony;
pub(crate) use slots::slot_of_key;

/// A read that has not ended by then is told so again.
const TOLD_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// The way to the server. Clones share it.
#[derive(Clone)]
pub(crate) struct Link {
    way: Arc<Way>,
    /// For writes that wait until replicas have them: nothing else waits behind those. In a Cluster they go with all others.
    waiting: Option<Arc<Line>>,
    /// Not used in a Cluster.
    spares: Arc<Spares>,
    is_old: Arc<IsOld>,
    lives: watch::Sender<u64>,
}

enum Way {
    /// One server, or whichever is the master.
    Single(Arc<Line>),
    Cluster(Cluster),
}

/// A connection of one's own, for reads that block: nothing else waits behind them. Dropping it closes it. After an error it is of no use
/// any more: drop it and ask for another.
pub(crate) struct Exclusive {
    link: Link,
    wire: OwnWire,
}

/// Which connection it is, and on which server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExclusiveId {
    address: Address,
    id: i64,
}

impl Link {
    /// Connects, or says why not.
    pub(crate) async fn open(options: &RedisOptions) -> Result<Self, StoreError> {
        let dialer = Arc::new(Dialer::new(options)?);
        let lives = watch::Sender::new(0);
        match options.place.clone() {
            Place::Cluster(entrances) => {
                let way = Arc::new(Way::Cluster(Cluster::open(dialer, entrances, lives.clone()).await?));
                Ok(Self { way, waiting: None, spares: Arc::default(), is_old: Arc::default(), lives })
            }
            Place::Standalone(address) => Self::single(|| Target::Fixed(address.clone()), dialer, lives).await,
            Place::Sentinel { sentinels, master } => {
                Self::single(|| Target::Master(Sentinels::new(sentinels.clone(), master.clone())), dialer, lives).await
            }
        }
    }

    async fn single(target: impl Fn() -> Target, dialer: Arc<Dialer>, lives: watch::Sender<u64>) -> Result<Self, StoreError> {
        let line = Line::new(target(), Arc::clone(&dialer), lives.clone());
        line.wire().await?;
        // Made when it is first used. Nobody but those who use it need know when it is made anew.
        let waiting = Line::new(target(), dialer, watch::Sender::new(0));
        let (way, waiting) = (Arc::new(Way::Single(Arc::new(line))), Some(Arc::new(waiting)));
        Ok(Self { way, waiting, spares: Arc::default(), is_old: Arc::default(), lives })
    }

    /// What each of the Sentinels says, if there are any.
    pub(crate) async fn ask_sentinels(options: &RedisOptions) -> Result<Vec<Testimony>, StoreError> {
        let Place::Sentinel { sentinels, master } = options.place.clone() else { return Ok(Vec::new()) };
        let dialer = Dialer::new(options)?;
        Ok(Sentinels::new(sentinels, master).testimonies(&dialer).await)
    }

    /// Whether keys of different functions may live on different servers.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(*self.way, Way::Cluster(_))
    }

    /// The slot that a key lies in; `None` where there is only one server.
    pub(crate) fn slot(&self, key: &str) -> Option<u16> {
        self.is_cluster().then(|| slots::slot_of_key(key.as_bytes()))
    }

    /// Counts the connections made. A new one means: subscriptions, scripts and blocked reads of the old one are gone, and whatever the
    /// server kept may be gone too. It rises when somebody asks after a break, not by itself.
    pub(crate) fn lives(&self) -> watch::Receiver<u64> {
        self.lives.subscribe()
    }

    /// Asks one thing. An error reply of the server is an error here.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value, StoreError> {
        let mut replies = self.send(std::slice::from_ref(command)).await?;
        checked(replies.pop().unwrap_or(Value::Nil))
    }

    /// Asks several things at once, in order. An error reply of the server stands in its place as [`Value::ServerError`]; [`checked`] says
    /// what it means. In a Cluster a command without a key (`WAIT`) goes where the one before it goes, and only commands for one node are
    /// done in order.
    pub(crate) async fn ask_all(&self, commands: &[Cmd]) -> Result<Vec<Value>, StoreError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        match &*self.way {
            Way::Single(line) => line.send(commands).await,
            Way::Cluster(cluster) => cluster.send_all(commands).await,
        }
    }

    /// The same for reads that do not need each other: each has a reply or a failure of its own. A node of a Cluster that is away keeps no other
    /// from answering.
    pub(crate) async fn ask_apart(&self, commands: &[Cmd]) -> Vec<Result<Value, StoreError>> {
        if commands.is_empty() {
            return Vec::new();
        }
        let replies = match &*self.way {
            Way::Single(line) => match line.send(commands).await {
                Ok(replies) => replies.into_iter().map(Ok).collect(),
                Err(failure) => vec![Err(failure); commands.len()],
            },
            Way::Cluster(cluster) => cluster.send_each(commands).await,
        };
        replies.into_iter().map(|reply| reply.and_then(checked)).collect()
    }

    /// Asks every server that is written to: one, or all masters of a Cluster. It is not sent on to another that would know better.
    pub(crate) async fn ask_each(&self, command: &Cmd) -> Vec<Result<Value, StoreError>> {
        let lines = match &*self.way {
            Way::Single(line) => vec![Arc::clone(line)],
            Way::Cluster(cluster) => cluster.masters(),
        };
        let ask = lines.iter().map(|line| async {
            let mut replies = line.send(std::slice::from_ref(command)).await?;
            Ok(replies.pop().unwrap_or(Value::Nil))
        });
        join_all(ask).await
    }

    /// In a Cluster: for each master a key of this name that lies there, as long as it has the slot.
    pub(crate) fn key_on_each_master(&self, name: &str) -> Vec<String> {
        match &*self.way {
            Way::Single(_) => Vec::new(),
            Way::Cluster(cluster) => cluster.key_on_each(name),
        }
    }

    /// A connection of one's own to the server that has this key.
    pub(crate) async fn exclusive(&self, key: &str) -> Result<Exclusive, StoreError> {
        let wire = match &*self.way {
            Way::Single(line) => line.exclusive().await?,
            Way::Cluster(cluster) => {
                let (slot, version) = (Some(slots::slot_of_key(key.as_bytes())), cluster.version());
                match cluster.owner(slot)?.exclusive().await {
                    Ok(wire) => wire,
                    // Maybe another node has taken over.
                    Err(_) => {
                        cluster.learn(version).await?;
                        cluster.owner(slot)?.exclusive().await?
                    }
                }
            }
        };
        if wire.client_id == 0 {
            return Err(error::refusal("NOPERM", "CLIENT ID"));
        }
        Ok(Exclusive { link: self.clone(), wire })
    }

    /// Ends a blocking read, and brings what it brought. The word to end it goes another way than the read and may be there first, so it is
    /// said again. A read that does not end was forgotten on the way.
    pub(crate) async fn end<T>(
        &self,
        id: &ExclusiveId,
        mut read: Pin<&mut impl Future<Output = Result<T, StoreError>>>,
    ) -> Result<T, StoreError> {
        let told = async {
            loop {
                self.unblock(id.clone()).await?;
                if let Ok(reply) = tokio::time::timeout(TOLD_AGAIN_AFTER, &mut read).await {
                    return reply;
                }
            }
        };
        tokio::time::timeout(ANSWER_WITHIN, told).await.unwrap_or_else(|_| Err(error::silent(&id.address)))
    }

    /// Ends the blocking read of an exclusive connection: it returns as if its time were over. One whose server is not the one we speak
    /// with any more needs no help: its connection breaks.
    pub(crate) async fn unblock(&self, id: ExclusiveId) -> Result<(), StoreError> {
        let line = match &*self.way {
            Way::Single(line) => Arc::clone(line),
            Way::Cluster(cluster) => cluster.line(&id.address),
        };
        if line.wire().await?.address != id.address {
            return Ok(());
        }
        let mut command = Cmd::new();
        command.arg("CLIENT").arg("UNBLOCK").arg(id.id);
        line.send(&[command]).await?.into_iter().try_for_each(|reply| checked(reply).map(drop))
    }

    /// A connection that hears what is published, on whatever node of a Cluster. Its stream ends when it breaks.
    pub(crate) async fn subscribed(&self, channel: &str) -> Result<PubSub, StoreError> {
        match &*self.way {
            Way::Single(line) => line.subscribed(channel).await,
            Way::Cluster(cluster) => {
                let line = cluster.owner(None)?;
                match (line.subscribed(channel).await, cluster.other_than(&line)) {
                    (Err(_), Some(other)) => other.subscribed(channel).await,
                    (subscribed, _) => subscribed,
                }
            }
        }
    }

    /// Asks several things at once, the last of which may wait until replicas have what was written.
    pub(crate) async fn ask_and_wait(&self, commands: &[Cmd]) -> Result<Vec<Value>, StoreError> {
        self.send_for(commands, commands).await
    }

    async fn send_for(&self, commands: &[Cmd], that_wait: &[Cmd]) -> Result<Vec<Value>, StoreError> {
        match &self.waiting {
            Some(line) if !that_wait.is_empty() => line.send(commands).await,
            _ => self.send(commands).await,
        }
    }

    /// The names of all keys of a pattern, on whatever node of a Cluster. `None`: the user may not look at names.
    pub(crate) async fn key_names(&self, pattern: &str) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        let lines = match &*self.way {
            Way::Single(line) => vec![Arc::clone(line)],
            Way::Cluster(cluster) => cluster.masters(),
        };
        let mut names = Vec::new();
        for line in lines {
            let mut cursor = 0_u64;
            loop {
                let mut scan = Cmd::new();
                scan.arg("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
                let reply = line.send(&[scan]).await?.pop().unwrap_or(Value::Nil);
                if error::is_not_permitted(&reply) {
                    return Ok(None);
                }
                let page: (u64, Vec<Vec<u8>>) = FromRedisValue::from_redis_value(checked(reply)?)
                    .map_err(|failure| StoreError::Corrupt(format!("the Redis server's reply to SCAN makes no sense: {failure}")))?;
                names.extend(page.1);
                cursor = page.0;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(Some(names))
    }

    /// Sends at once to the server that has the key. All that have one have keys of one slot.
    async fn send(&self, commands: &[Cmd]) -> Result<Vec<Value>, StoreError> {
        match &*self.way {
            Way::Single(line) => line.send(commands).await,
            Way::Cluster(cluster) => cluster.send(commands.iter().find_map(slots::slot_of), commands).await,
        }
    }

    /// What an exclusive connection has seen of its server concerns the shared one too.
    async fn heed(&self, address: &Address, code: &str) {
        match &*self.way {
            Way::Single(line) if error::says_demoted(code) => line.forget_server(address),
            Way::Cluster(cluster) if matches!(code, "MOVED" | "READONLY" | "UNBLOCKED") => {
                // If nobody answers now, the next request asks again.
                let _ = cluster.learn(cluster.version()).await;
            }
            _ => {}
        }
    }
}

impl Exclusive {
    /// What [`Link::unblock`] wants to know.
    pub(crate) fn id(&self) -> ExclusiveId {
        ExclusiveId { address: self.wire.address.clone(), id: self.wire.client_id }
    }

    /// Asks what is answered soon.
    #[cfg(test)]
    pub(crate) async fn ask(&mut self, command: &Cmd) -> Result<Reply, StoreError> {
        self.ask_blocking(command, Duration::from_secs(5)).await
    }

    /// Asks what may block for so long. What is not answered soon after was swallowed on the way: a proxy that forgot a connection may
    /// keep it open for ever. That the other side is gone is noticed sooner, as the connection breaks.
    pub(crate) async fn ask_blocking(&mut self, command: &Cmd, block: Duration) -> Result<Reply, StoreError> {
        let text = self.read_blocking(command, block).await?;
        self.wire.understood(&text)
    }

    /// The same, for long answers that are read word by word.
    pub(crate) async fn read_blocking(&mut self, command: &Cmd, block: Duration) -> Result<Text, StoreError> {
        let text = tokio::time::timeout(block + ANSWER_WITHIN, self.wire.ask(command)).await;
        let text = text.map_err(|_| error::silent(&self.wire.address))??;
        if text.is_error() {
            let reply = self.wire.understood(&text)?;
            self.heeded(reply).await?;
        }
        Ok(text)
    }

    /// A reply, unless the server refused: then others shall know too.
    async fn heeded(&mut self, reply: Reply) -> Result<Reply, StoreError> {
        match reply {
            Reply::Error(said) => {
                let (code, detail) = said.split_once(' ').unwrap_or((&said, ""));
                self.link.heed(&self.wire.address, code).await;
                Err(error::refusal(code, detail))
            }
            reply => Ok(reply),
        }
    }
}
