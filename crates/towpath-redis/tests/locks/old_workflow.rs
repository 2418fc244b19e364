//! A workflow that locks as workflows always did: INCR and EXPIRE, SET of the identity, GET in a loop, DEL. Each step is one command of a plain
//! client, so that a test can stop between any two of them.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue};
use serde_json::{Value, json};

use crate::rig::pause;

#[derive(Clone)]
pub(crate) struct OldWorkflow {
    server: MultiplexedConnection,
}

/// What a workflow hands to its lock node.
#[derive(Clone)]
pub(crate) struct Inputs {
    pub(crate) scope: String,
    pub(crate) lock_id: String,
    pub(crate) execution_id: String,
    pub(crate) ttl_seconds: i64,
    /// How long to wait; none is to fail fast.
    pub(crate) max_wait: Option<Duration>,
    /// How often to look meanwhile. Outside of tests: every second.
    pub(crate) look_every: Duration,
}

impl Inputs {
    pub(crate) fn new(scope: &str, lock_id: &str) -> Self {
        Self {
            scope: scope.to_owned(),
            lock_id: lock_id.to_owned(),
            execution_id: format!("e-{lock_id}"),
            ttl_seconds: 86_400,
            max_wait: None,
            look_every: Duration::from_millis(20),
        }
    }

    pub(crate) fn ttl(self, ttl_seconds: i64) -> Self {
        Self { ttl_seconds, ..self }
    }

    pub(crate) fn waiting(self, length: Duration) -> Self {
        Self { max_wait: Some(length), ..self }
    }

    fn identity(&self) -> Value {
        json!({
            "lock_id": self.lock_id, "workflow_id": "wf-1", "workflow_name": "Old import",
            "execution_id": self.execution_id, "locked_at": "2026-01-15T08:00:00.000Z",
        })
    }
}

pub(crate) fn counter(scope: &str) -> String {
    format!("n8n-lock-{scope}")
}

pub(crate) fn meta(scope: &str) -> String {
    format!("n8n-lock-{scope}:meta")
}

impl OldWorkflow {
    pub(crate) async fn connect(port: u16) -> Self {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).expect("a URL");
        Self { server: client.get_multiplexed_async_connection().await.expect("the server is up") }
    }

    async fn send<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, redis::RedisError> {
        let mut command = Cmd::new();
        command.arg(words);
        command.query_async(&mut self.server.clone()).await
    }

    pub(crate) async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.send(words).await.unwrap_or_else(|failure| panic!("{words:?}: {failure}"))
    }

    /// The lock node's INCR, with the EXPIRE that it sends behind it, also when it fails.
    pub(crate) async fn attempt(&self, inputs: &Inputs) -> i64 {
        let count = self.command(&["INCR", &counter(&inputs.scope)]).await;
        let _was_there: i64 = self.command(&["EXPIRE", &counter(&inputs.scope), &inputs.ttl_seconds.to_string()]).await;
        count
    }

    pub(crate) async fn write_identity(&self, inputs: &Inputs) {
        let () = self.command(&["SET", &meta(&inputs.scope), &inputs.identity().to_string()]).await;
        let _was_there: i64 = self.command(&["EXPIRE", &meta(&inputs.scope), &inputs.ttl_seconds.to_string()]).await;
    }

    /// The whole lock node: its output, or the text of the error that it stops with.
    #[expect(clippy::disallowed_methods, reason = "an old workflow lives by its own machine's clock")]
    pub(crate) async fn acquire(&self, inputs: &Inputs) -> Result<Value, String> {
        let began = Instant::now();
        loop {
            let count = self.attempt(inputs).await;
            if count == 1 {
                self.write_identity(inputs).await;
                let Inputs { scope, lock_id, execution_id, .. } = inputs;
                return Ok(json!({
                    "acquired": true, "count": count, "scope": scope, "lock_id": lock_id, "key": counter(scope), "meta_key": meta(scope),
                    "workflow_id": "wf-1", "workflow_name": "Old import", "execution_id": execution_id,
                    "locked_at": "2026-01-15T08:00:00.000Z",
                }));
            }
            let Some(max_wait) = inputs.max_wait else {
                return Err(format!(
                    "Lock acquisition failed (fail-fast): scope '{}' is held (count={count}). Caller passed wait_till_lock_released=false.",
                    inputs.scope
                ));
            };
            loop {
                pause(inputs.look_every).await;
                let value: Option<String> = self.command(&["GET", &counter(&inputs.scope)]).await;
                if began.elapsed() > max_wait {
                    return Err(format!("Lock acquisition timed out after {}s waiting for scope '{}'.", max_wait.as_secs(), inputs.scope));
                }
                if value.is_none_or(|value| value.is_empty()) {
                    break;
                }
            }
        }
    }

    pub(crate) async fn read_identity(&self, scope: &str) -> Option<String> {
        self.command(&["GET", &meta(scope)]).await
    }

    pub(crate) async fn delete_counter(&self, scope: &str) {
        let _deleted: i64 = self.command(&["DEL", &counter(scope)]).await;
    }

    pub(crate) async fn delete_identity(&self, scope: &str) {
        let _deleted: i64 = self.command(&["DEL", &meta(scope)]).await;
    }

    /// The whole release node: its output, or the text of the error that it stops with.
    pub(crate) async fn release(&self, scope: &str, lock_id: &str) -> Result<Value, String> {
        let raw = self.read_identity(scope).await;
        let stored = raw.as_deref().map(|raw| serde_json::from_str(raw).unwrap_or_else(|_| json!({ "lock_id": raw })));
        if let Some(stored) = &stored
            && stored["lock_id"] != lock_id
        {
            let field = |name: &str| stored[name].as_str().unwrap_or("unknown (legacy meta)").to_owned();
            return Err(format!(
                "LOGIC ERROR: Lock held by {} (id: {}, execution: {}) since {}, not by lock_id={lock_id}",
                field("workflow_name"),
                field("workflow_id"),
                field("execution_id"),
                field("locked_at"),
            ));
        }
        self.delete_counter(scope).await;
        self.delete_identity(scope).await;
        Ok(json!({ "released": true, "idempotent": stored.is_none(), "scope": scope, "lock_id": lock_id }))
    }

    /// A key ran out. The server's own clock is not waited for where its end is all that matters.
    pub(crate) async fn runs_out(&self, key: &str) {
        let _deleted: i64 = self.command(&["PEXPIRE", key, "0"]).await;
    }

    /// How long a key is kept, ms; -1 for ever, -2 when it is not there.
    pub(crate) async fn left_ms(&self, key: &str) -> i64 {
        self.command(&["PTTL", key]).await
    }
}
