//! An old workflow as far as Redis sees it: a plain client that sends plain commands.

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Value};
use towpath_conformance::backend::OldCaller;

/// A client of one server, or of all masters of a Cluster: each command goes to the one that takes it.
pub(crate) struct PlainClient {
    servers: Vec<MultiplexedConnection>,
    /// The key at which an identity lies, for the key that an old workflow would use.
    place_of: fn(&str) -> String,
}

impl PlainClient {
    pub(crate) async fn of(ports: &[u16], database: i64, place_of: fn(&str) -> String) -> Self {
        let mut servers = Vec::new();
        for port in ports {
            servers.push(connect(*port, database).await);
        }
        Self { servers, place_of }
    }

    async fn send<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = Cmd::new();
        for (at, word) in words.iter().enumerate() {
            command.arg(if at == 1 { (self.place_of)(word) } else { (*word).to_owned() });
        }
        for server in &self.servers {
            let reply: Value = match command.query_async(&mut server.clone()).await {
                Err(refused) if refused.code() == Some("MOVED") => continue,
                reply => reply.unwrap_or_else(|failure| panic!("{words:?}: {failure}")),
            };
            return T::from_redis_value(reply).unwrap_or_else(|failure| panic!("{words:?}: {failure}"));
        }
        panic!("no server has {words:?}")
    }
}

async fn connect(port: u16, database: i64) -> MultiplexedConnection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/{database}")).expect("a URL");
    client.get_multiplexed_async_connection().await.expect("the server is up")
}

#[async_trait]
impl OldCaller for PlainClient {
    async fn incr(&self, key: &str) -> i64 {
        self.send(&["INCR", key]).await
    }

    async fn get(&self, key: &str) -> Option<String> {
        self.send(&["GET", key]).await
    }

    async fn set(&self, key: &str, value: &str) {
        self.send::<()>(&["SET", key, value]).await;
    }

    async fn del(&self, key: &str) {
        self.send::<()>(&["DEL", key]).await;
    }
}
