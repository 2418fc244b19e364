//! Legacy callers and workers as the recorded traffic shows them, in one process: generation A, and generation B where it differs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value as Reply};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::log::Log;
use crate::rig::{ADD, GROUP, STREAM, reply_list};

/// How often a read that would block is tried.
const AGAIN: Duration = Duration::from_millis(10);
const HEARTBEAT: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Generation {
    A,
    B,
}

async fn connect(port: u16, database: i64) -> MultiplexedConnection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/{database}")).expect("a URL");
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(20)));
    client.get_multiplexed_async_connection_with_config(&config).await.expect("the server is there")
}

async fn ask(line: &mut MultiplexedConnection, words: &[&str]) -> RedisResult<Reply> {
    let mut command = Cmd::new();
    command.arg(words);
    command.query_async(line).await
}

/// One command, whatever it says.
pub(super) async fn command(port: u16, database: i64, words: &[&str]) {
    drop(ask(&mut connect(port, database).await, words).await);
}

/// What stands about a call, in the stream and in the registry, for a report.
pub(super) async fn dump(port: u16, database: i64, call_id: &str) -> String {
    let (mut line, legacy) = (connect(port, database).await, crate::rig::own("legacy"));
    let [calls, queue, running, exported] = ["calls", "queue", "running", "exported"].map(crate::rig::own);
    let mut shown = format!("  now {}\n", now_ms());
    let questions: [&[&str]; 10] = [
        &["HGET", &calls, call_id],
        &["ZRANGE", &queue, "0", "-1"],
        &["ZRANGE", &running, "0", "-1"],
        &["ZRANGE", &exported, "0", "-1"],
        &["XINFO", "GROUPS", STREAM],
        &["XINFO", "CONSUMERS", STREAM, GROUP],
        &["XPENDING", STREAM, GROUP, "-", "+", "20"],
        &["HGETALL", &legacy],
        &["SMEMBERS", "function:gadd"],
        &["XRANGE", STREAM, "-", "+"],
    ];
    for words in questions {
        shown += &format!("  {words:?}: {:?}\n", ask(&mut line, words).await);
    }
    shown
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis()
}

fn items(reply: Reply) -> Vec<Reply> {
    if let Reply::Array(items) = reply { items } else { Vec::new() }
}

fn text(reply: &Reply) -> String {
    if let Reply::BulkString(bytes) = reply { String::from_utf8_lossy(bytes).into_owned() } else { String::new() }
}

pub(super) struct LegacyCaller {
    pub(super) call_id: String,
    line: MultiplexedConnection,
}

impl LegacyCaller {
    /// Looks for a worker and a group, and adds an entry. `None`: it finds none, and gives up.
    pub(super) async fn call(port: u16, database: i64, call_id: &str) -> Option<Self> {
        let mut line = connect(port, database).await;
        let workers = items(ask(&mut line, &["SMEMBERS", &format!("function:{ADD}")]).await.ok()?);
        let groups = items(ask(&mut line, &["XINFO", "GROUPS", STREAM]).await.ok()?);
        if workers.is_empty() || groups.is_empty() {
            return None;
        }
        let (list, now) = (reply_list(call_id), now_ms().to_string());
        let fields = ["callId", call_id, "functionName", ADD, "params", "{\"a\":1,\"b\":2}", "inputItem", "{}", "responseChannel", &list];
        let rest = ["timeout", "30000", "timestamp", &now];
        ask(&mut line, &[&["XADD", STREAM, "*"], &fields[..], &rest[..]].concat()).await.expect("it is added");
        Some(Self { call_id: call_id.to_owned(), line })
    }

    pub(super) async fn reply(&mut self, within: Duration) -> Option<Value> {
        let list = reply_list(&self.call_id);
        let waited = tokio::time::timeout(within, async {
            loop {
                let popped = ask(&mut self.line, &["LPOP", &list]).await.expect("the server is there");
                if popped != Reply::Nil {
                    return serde_json::from_str(&text(&popped)).expect("a reply is JSON");
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
        waited.await.ok()
    }

    pub(super) async fn is_marked_as_answered(&mut self) -> bool {
        ask(&mut self.line, &["EXISTS", &sent_mark(&self.call_id)]).await == Ok(Reply::Int(1))
    }
}

/// The mark of generation B: a worker sets it before it answers, so that a call is answered once.
fn sent_mark(call_id: &str) -> String {
    format!("function:response:sent:{call_id}")
}

pub(super) struct LegacyWorker {
    serves: JoinHandle<()>,
    is_leaving: Arc<AtomicBool>,
}

/// The part of a worker that its task has.
struct Serving {
    line: MultiplexedConnection,
    generation: Generation,
    id: String,
    consumer: String,
    takes: Duration,
    log: Arc<Log>,
    is_leaving: Arc<AtomicBool>,
}

impl LegacyWorker {
    pub(super) async fn join(port: u16, database: i64, generation: Generation, number: u32, takes: Duration, log: Arc<Log>) -> Self {
        let (line, started, is_leaving) = (connect(port, database).await, now_ms(), Arc::new(AtomicBool::new(false)));
        let (id, consumer) = (format!("worker-{started}-{number}"), format!("consumer-{}-{number}", started + 1));
        let mut serving = Serving { line, generation, id, consumer, takes, log, is_leaving: Arc::clone(&is_leaving) };
        serving.register().await;
        let serves = tokio::spawn(serving.serve());
        Self { serves, is_leaving }
    }

    /// It ends what it runs and leaves.
    pub(super) async fn leave(mut self) {
        self.is_leaving.store(true, Ordering::Release);
        (&mut self.serves).await.expect("it does not panic");
    }

    /// It answers nothing more, and its name stays in the registry.
    pub(super) fn kill(self) {
        self.serves.abort();
    }
}

impl Drop for LegacyWorker {
    fn drop(&mut self) {
        if !self.is_leaving.load(Ordering::Acquire) {
            self.serves.abort();
        }
    }
}

impl Serving {
    fn meta(&self) -> String {
        format!("function:meta:{}:{ADD}", self.id)
    }

    async fn register(&mut self) {
        drop(ask(&mut self.line, &["XGROUP", "CREATE", STREAM, GROUP, "$", "MKSTREAM"]).await);
        let (meta, now, id) = (self.meta(), now_ms().to_string(), self.id.clone());
        let said = ["functionName", ADD, "executionId", "__global__", "workerId", &id, "parameters", "[]", "lastHeartbeat", &now];
        ask(&mut self.line, &[&["HSET", &meta], &said[..]].concat()).await.expect("it is said");
        ask(&mut self.line, &["SADD", &format!("function:{ADD}"), &id]).await.expect("it is said");
        if self.generation == Generation::B {
            let pending = items(ask(&mut self.line, &["XPENDING", STREAM, GROUP, "-", "+", "100"]).await.unwrap_or(Reply::Nil));
            for place in pending.into_iter().filter_map(|one| items(one).first().map(text)) {
                let entry = items(ask(&mut self.line, &["XRANGE", STREAM, &place, &place]).await.unwrap_or(Reply::Nil));
                if let Some((_, fields)) = entry.into_iter().next().map(read_entry) {
                    self.log.is_dropped(&field(&fields, "callId"));
                }
                drop(ask(&mut self.line, &["XACK", STREAM, GROUP, &place]).await);
            }
        }
    }

    async fn serve(mut self) {
        let mut beat = tokio::time::Instant::now();
        while !self.is_leaving.load(Ordering::Acquire) {
            if beat.elapsed() >= HEARTBEAT {
                beat = tokio::time::Instant::now();
                let (meta, now) = (self.meta(), now_ms().to_string());
                drop(ask(&mut self.line, &["HSET", &meta, "lastHeartbeat", &now]).await);
            }
            let consumer = self.consumer.clone();
            let read = ask(&mut self.line, &["XREADGROUP", "GROUP", GROUP, &consumer, "COUNT", "1", "STREAMS", STREAM, ">"]).await;
            match read {
                Ok(reply) => match items(reply).into_iter().next().and_then(|stream| items(stream).into_iter().nth(1)) {
                    Some(entries) => {
                        for entry in items(entries) {
                            self.run(entry).await;
                        }
                    }
                    None => tokio::time::sleep(AGAIN).await,
                },
                // Another worker has destroyed the group: that ends this one, too.
                Err(_no_group) => break,
            }
        }
        self.leave().await;
    }

    async fn run(&mut self, entry: Reply) {
        let (place, fields) = read_entry(entry);
        let (call_id, list) = (field(&fields, "callId"), field(&fields, "responseChannel"));
        for name in ["callId", "functionName", "params", "inputItem", "responseChannel", "timeout", "timestamp"] {
            assert!(fields.iter().any(|(known, value)| known == name && !value.is_empty()), "no {name} in {fields:?}");
        }
        let run = self.log.begins(&call_id);
        tokio::time::sleep(self.takes).await;
        if self.generation == Generation::B {
            drop(ask(&mut self.line, &["SET", &sent_mark(&call_id), "1", "EX", "60"]).await);
        }
        let reply = json!({"success": true, "data": run, "callId": call_id, "timestamp": now_ms().to_string()}).to_string();
        ask(&mut self.line, &["LPUSH", &list, &reply]).await.expect("it is answered");
        drop(ask(&mut self.line, &["EXPIRE", &list, "60"]).await);
        drop(ask(&mut self.line, &["XACK", STREAM, GROUP, &place]).await);
        self.log.answers(run);
    }

    async fn leave(mut self) {
        let (meta, id) = (self.meta(), self.id.clone());
        drop(ask(&mut self.line, &["DEL", &meta]).await);
        drop(ask(&mut self.line, &["SREM", &format!("function:{ADD}"), &id]).await);
        if self.generation == Generation::A {
            self.log.group_is_destroyed();
            drop(ask(&mut self.line, &["XGROUP", "DESTROY", STREAM, GROUP]).await);
        }
    }
}

fn read_entry(entry: Reply) -> (String, Vec<(String, String)>) {
    let mut parts = items(entry).into_iter();
    let place = parts.next().as_ref().map(text).unwrap_or_default();
    let fields = parts.next().map(items).unwrap_or_default();
    (place, fields.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect())
}

fn field(fields: &[(String, String)], name: &str) -> String {
    fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()).unwrap_or_default()
}
