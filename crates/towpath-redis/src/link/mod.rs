//! Connections: the shared one, exclusive ones for blocking reads, and what a failure means.

mod error;

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, Cmd, Value};
use tokio::sync::{Mutex, watch};
use towpath_core::store::StoreError;

use crate::options::{Place, RedisOptions};

pub(crate) use error::trouble;

const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The way to the server. Clones share it.
#[derive(Clone)]
pub(crate) struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    shared: Mutex<Option<MultiplexedConnection>>,
    lives: watch::Sender<u64>,
}

/// A script and its name on the server.
#[derive(Debug)]
pub(crate) struct Script {
    code: &'static str,
    sha: String,
}

impl Script {
    pub(crate) fn new(code: &'static str) -> Self {
        Self { code, sha: redis::Script::new(code).get_hash().to_owned() }
    }
}

/// A connection of one's own, for reads that block: nothing else waits behind them, and they have no time limit but their own.
pub(crate) struct Exclusive {
    connection: MultiplexedConnection,
    id: i64,
}

impl Link {
    /// Connects, or says why not.
    pub(crate) async fn open(options: &RedisOptions) -> Result<Self, StoreError> {
        let Place::Standalone(address) = &options.place else {
            return Err(trouble("only a single server for now".to_owned()));
        };
        let url = format!("redis://{}:{}/{}", address.host, address.port, options.database);
        let client = Client::open(url).map_err(|error| trouble(error.to_string()))?;
        let inner = Inner { client, shared: Mutex::new(None), lives: watch::Sender::new(0) };
        let link = Self { inner: Arc::new(inner) };
        link.connection().await?;
        Ok(link)
    }

    /// Whether keys of different functions may live on different servers.
    pub(crate) fn is_cluster(&self) -> bool {
        false
    }

    /// Counts the connections made. A new one means: subscriptions, scripts and blocked reads of the old one are gone, and whatever the
    /// server kept may be gone too.
    pub(crate) fn lives(&self) -> watch::Receiver<u64> {
        self.inner.lives.subscribe()
    }

    /// Asks one thing. An error reply of the server is an error here.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value, StoreError> {
        let mut connection = self.connection().await?;
        let reply = connection.send_packed_command(command).await;
        let reply = self.checked(reply).await?;
        reply.extract_error().map_err(|refused| error::refused(&refused))
    }

    /// Asks several things at once, in order. An error reply of the server stands in its place as [`Value::ServerError`].
    pub(crate) async fn ask_all(&self, commands: &[Cmd]) -> Result<Vec<Value>, StoreError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::Pipeline::with_capacity(commands.len());
        for command in commands {
            pipeline.add_command(command.clone());
        }
        let mut connection = self.connection().await?;
        let reply = connection.send_packed_commands(&pipeline, 0, commands.len()).await;
        self.checked(reply).await
    }

    /// Runs a script on the server that has these keys. All of them belong to one function, or the store is no Cluster.
    pub(crate) async fn run(&self, script: &Script, keys: &[&str], args: &[Vec<u8>]) -> Result<Value, StoreError> {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&script.sha).arg(keys.len()).arg(keys).arg(args);
        let mut connection = self.connection().await?;
        let reply = connection.send_packed_command(&command).await;
        let reply = self.checked(reply).await?;
        if !error::is_no_script(&reply) {
            return reply.extract_error().map_err(|refused| error::refused(&refused));
        }
        let mut load = Cmd::new();
        load.arg("SCRIPT").arg("LOAD").arg(script.code);
        self.ask(&load).await?;
        self.ask(&command).await
    }

    /// Runs a script and, behind it on the same connection, commands that ask what became of it.
    pub(crate) async fn run_with(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[Vec<u8>],
        behind: &[Cmd],
    ) -> Result<(Value, Vec<Value>), StoreError> {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&script.sha).arg(keys.len()).arg(keys).arg(args);
        let mut commands = vec![command];
        commands.extend_from_slice(behind);
        let mut replies = self.ask_all(&commands).await?;
        if replies.first().is_some_and(error::is_no_script) {
            let mut load = Cmd::new();
            load.arg("SCRIPT").arg("LOAD").arg(script.code);
            self.ask(&load).await?;
            replies = self.ask_all(&commands).await?;
        }
        let confirmed = replies.split_off(1.min(replies.len()));
        let reply = replies.pop().unwrap_or(Value::Nil).extract_error().map_err(|refused| error::refused(&refused))?;
        Ok((reply, confirmed))
    }

    /// A connection of one's own to the server that has this key.
    pub(crate) async fn exclusive(&self, _key: &str) -> Result<Exclusive, StoreError> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = self.inner.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(|error| error::not_reached(&error))?;
        let mut who = Cmd::new();
        who.arg("CLIENT").arg("ID");
        let id = who.query_async(&mut connection).await.map_err(|error| error::not_reached(&error))?;
        Ok(Exclusive { connection, id })
    }

    /// Ends the blocking read of an exclusive connection: it returns as if its time were over.
    pub(crate) async fn unblock(&self, id: i64) -> Result<(), StoreError> {
        let mut command = Cmd::new();
        command.arg("CLIENT").arg("UNBLOCK").arg(id);
        self.ask(&command).await.map(drop)
    }

    /// A connection that hears what is published.
    pub(crate) async fn subscribed(&self, channel: &str) -> Result<PubSub, StoreError> {
        let connection = self.inner.client.get_async_pubsub().await;
        let mut connection = connection.map_err(|error| error::not_reached(&error))?;
        connection.subscribe(channel).await.map_err(|error| error::not_reached(&error))?;
        Ok(connection)
    }

    async fn connection(&self) -> Result<MultiplexedConnection, StoreError> {
        let mut shared = self.inner.shared.lock().await;
        if let Some(connection) = &*shared {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER_WITHIN));
        let connection = self.inner.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connection.map_err(|error| error::not_reached(&error))?;
        *shared = Some(connection.clone());
        self.inner.lives.send_modify(|lives| *lives += 1);
        Ok(connection)
    }

    /// A broken connection is not used again.
    async fn checked<T>(&self, reply: redis::RedisResult<T>) -> Result<T, StoreError> {
        match reply {
            Ok(reply) => Ok(reply),
            Err(failure) => {
                *self.inner.shared.lock().await = None;
                Err(error::lost(&failure))
            }
        }
    }
}

impl Exclusive {
    /// What [`Link::unblock`] wants to know.
    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// Asks, for as long as it takes.
    pub(crate) async fn ask(&mut self, command: &Cmd) -> Result<Value, StoreError> {
        let reply = self.connection.req_packed_command(command).await.map_err(|failure| error::lost(&failure))?;
        reply.extract_error().map_err(|refused| error::refused(&refused))
    }
}
