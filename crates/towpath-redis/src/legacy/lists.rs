//! Legacy workers, their functions and what waits for them, for people.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::names::{FunctionKey, FunctionName, Scope, WorkerId};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;
use towpath_core::worker::{HEALTHY_FOR, WorkerView};

use super::LEGACY;
use super::consumers::made_at;
use super::meta::Meta;
use crate::keys;
use crate::registry::reply::{command, next};
use crate::store::RedisStore;
use crate::value;

/// A search for functions reads so many pages of names at most, of a thousand keys each.
const PAGES_MAX: usize = 20;
/// A process searches no more often than this.
const SEARCH_EVERY: Duration = Duration::from_secs(10);

impl RedisStore {
    /// Healthy legacy workers of the functions that are known, by id.
    pub(crate) async fn list_legacy_workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        let functions = self.functions_in_set().await?;
        self.look_at_peers(&functions).await?;
        let now = self.shared.now();
        let mut found: BTreeMap<WorkerId, WorkerView> = BTreeMap::new();
        for function in functions {
            let Some(serving) = self.last_serving(&function) else { continue };
            for worker in serving.legacy.iter().filter(|worker| now.since(worker.heartbeat) < HEALTHY_FOR) {
                // A name that is not a worker id cannot be shown as one.
                let Ok(worker_id) = WorkerId::new(&worker.id) else { continue };
                let view = found.entry(worker_id.clone()).or_insert_with(|| {
                    let started = made_at(&worker.id, "worker").and_then(|ms| i64::try_from(ms).ok());
                    WorkerView {
                        worker_id,
                        kind: LEGACY.to_owned(),
                        functions: Vec::new(),
                        registered_at: started.map_or(worker.heartbeat, Timestamp::from_millis),
                        last_heartbeat: worker.heartbeat,
                        healthy: true,
                        running: 0,
                    }
                });
                view.last_heartbeat = view.last_heartbeat.max(worker.heartbeat);
                view.functions.push(function.clone());
            }
        }
        Ok(found.into_values().collect())
    }

    /// Makes functions known that only legacy workers serve and that no Towpath process has named. It reads the names of keys, so it runs when a
    /// person asks for a list, not too often, and not without the right to.
    pub(crate) async fn find_legacy_functions(&self) -> Result<(), StoreError> {
        if !self.is_time_to_search() {
            return Ok(());
        }
        let mut metas = BTreeSet::new();
        for name in self.names_of_metas().await? {
            metas.extend(read_meta_name(&name));
        }
        let known: BTreeSet<FunctionKey> = self.functions_in_set().await?.into_iter().collect();
        let metas: Vec<(WorkerId, FunctionName)> = metas.into_iter().collect();
        let asks = metas.iter().map(|(worker, name)| {
            let mut ask = command("HMGET", &[keys::meta(worker, name)]);
            ask.arg(&Meta::FIELDS);
            ask
        });
        let mut replies = self.shared.link.ask_all(&asks.collect::<Vec<_>>()).await?.into_iter();
        let mut functions = BTreeSet::new();
        for (_, name) in &metas {
            // A key of another type is not a worker's.
            let Ok(fields) = next::<Vec<Option<String>>>(&mut replies) else { continue };
            let meta = Meta::read(fields);
            let scope = meta.scope().map_or(Ok(Scope::global()), Scope::new);
            if let (true, Ok(scope)) = (meta.is_legacy(), scope) {
                functions.insert(FunctionKey { scope, name: name.clone() });
            }
        }
        for function in functions.difference(&known) {
            if self.check_place(function).is_ok() {
                self.adopt(function).await?;
            }
        }
        Ok(())
    }

    fn is_time_to_search(&self) -> bool {
        let now = self.shared.now();
        // No code that can panic runs under this lock.
        let mut searched = self.shared.legacy.searched.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = searched.is_none_or(|at| now.since(at) >= SEARCH_EVERY || now < at);
        if is_time {
            *searched = Some(now);
        }
        is_time
    }

    /// The names of workers' hashes. A user of its own has only the printed rights, and going through all keys is not among them.
    async fn names_of_metas(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        self.some_key_names("function:meta:*").await
    }

    /// The names of keys of a pattern, as far as a search of [`PAGES_MAX`] pages finds them. None for a user of its own.
    pub(crate) async fn some_key_names(&self, pattern: &str) -> Result<Vec<Vec<u8>>, StoreError> {
        if self.shared.options.username.as_ref().is_some_and(|user| user != "default") {
            return Ok(Vec::new());
        }
        if self.shared.link.is_cluster() {
            return Ok(self.shared.link.key_names(pattern).await?.unwrap_or_default());
        }
        let (mut names, mut cursor) = (Vec::new(), 0_u64);
        for _page in 0..PAGES_MAX {
            let mut scan = Cmd::new();
            scan.arg("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
            let reply = self.shared.link.ask_all(&[scan]).await?.pop().unwrap_or(Value::Nil);
            let Value::Array(parts) = reply else { break };
            cursor = parts.first().and_then(value::text).and_then(|cursor| cursor.parse().ok()).unwrap_or_default();
            let Some(Value::Array(page)) = parts.into_iter().nth(1) else { break };
            names.extend(page.into_iter().filter_map(value::into_bytes));
            if cursor == 0 {
                break;
            }
        }
        Ok(names)
    }
}

/// The worker and the function that the name of a hash tells. A worker id has no colon.
fn read_meta_name(name: &[u8]) -> Option<(WorkerId, FunctionName)> {
    let (worker, function) = std::str::from_utf8(name).ok()?.strip_prefix("function:meta:")?.split_once(':')?;
    Some((WorkerId::new(worker).ok()?, FunctionName::new(function).ok()?))
}
