//! Reads for people: all that is kept of a lock, as the law's own state.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::inspect::{LockPage, LockQuery, LockView, PageRequest, PermitPage, PermitView};
use towpath_core::lock::{Counter, Fence, LockState, Waiter};
use towpath_core::names::{ExecutionId, LockId, LockScope, WaiterId};
use towpath_core::permit::{Permit, PermitKind, PermitState};
use towpath_core::store::{HeldScope, StoreError, StoreTrouble};
use towpath_core::time::Timestamp;

use super::keys::SharedKeys;
use super::record::read_record;
use super::scripts;
use crate::store::RedisStore;
use crate::unreadable::WHAT_TO_DO;
use crate::value;

const MAY_NOT_SCAN: &str = "the user of the Redis server may not look at the names of keys: let an administrator add +scan to its rights, or \
     ask without a scan";

fn limit_of(query: &LockQuery) -> usize {
    query.limit.min(PageRequest::LIMIT_MAX) as usize
}

/// Those that the query is about, in order.
fn meant(query: &LockQuery, mut scopes: BTreeSet<LockScope>) -> impl Iterator<Item = LockScope> {
    if let Some(after) = &query.after {
        scopes = scopes.split_off(after);
        scopes.remove(after);
    }
    scopes.into_iter().filter(|scope| scope.as_str().starts_with(&query.prefix))
}

impl RedisStore {
    pub(crate) async fn lock_view(&self, scope: &LockScope) -> Result<Option<LockView>, StoreError> {
        let state = self.lock_state(scope).await?;
        Ok(LockView::of(scope, &state, self.shared.now()))
    }

    /// By our own indexes and the scopes that the query names; on wish by the names of keys, so that no old workflow's lock is missed.
    pub(crate) async fn lock_page(&self, query: &LockQuery) -> Result<LockPage, StoreError> {
        let mut scopes = BTreeSet::from_iter(query.also.iter().cloned());
        scopes.extend(self.indexed_scopes().await?);
        scopes.extend(self.used().await?.into_iter().filter_map(|used| match used {
            HeldScope::Lock(scope) => Some(scope),
            HeldScope::Permit(..) => None,
        }));
        if query.scan {
            scopes.extend(self.named_scopes(&query.prefix).await?);
        }
        let (limit, mut items) = (limit_of(query), Vec::new());
        for scope in meant(query, scopes) {
            let view = self.or_left_out(&scope, self.lock_view(&scope).await)?;
            if let Some(view) = view.filter(LockView::is_in_use) {
                if items.len() == limit {
                    let next = items.last().map(|view: &LockView| view.scope.clone());
                    return Ok(LockPage { items, next });
                }
                items.push(view);
            }
        }
        Ok(LockPage { items, next: None })
    }

    pub(crate) async fn permit_page(&self, kind: PermitKind, query: &LockQuery) -> Result<PermitPage, StoreError> {
        let of_kind = self.used().await?.into_iter().filter_map(|used| match used {
            HeldScope::Permit(used_as, scope) => (used_as == kind).then_some(scope),
            HeldScope::Lock(_) => None,
        });
        let (limit, mut items) = (limit_of(query), Vec::new());
        for scope in meant(query, of_kind.collect()) {
            let view = self.or_left_out(&scope, self.permit_view(kind, &scope).await)?;
            if let Some(view) = view.filter(PermitView::is_in_use) {
                if items.len() == limit {
                    let next = items.last().map(|view: &PermitView| view.scope.clone());
                    return Ok(PermitPage { items, next });
                }
                items.push(view);
            }
        }
        Ok(PermitPage { items, next: None })
    }

    /// What is known of a scope, or nothing if its keys hold something else: one scope hides no other.
    pub(super) fn or_left_out<T>(&self, scope: &LockScope, known: Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
        match known {
            Err(error) if self.shared.is_local(&error) => {
                self.shared.pass_over(&scope.key(), b"", error);
                Ok(None)
            }
            known => known,
        }
    }

    async fn indexed_scopes(&self) -> Result<Vec<LockScope>, StoreError> {
        let mut ask = Cmd::new();
        let index = &self.shared.locks.keys.index;
        ask.arg("ZRANGE").arg(index).arg(0).arg(-1);
        let listed = self.shared.link.ask(&ask).await.and_then(|reply| value::array("ZRANGE", reply));
        let listed = self.shared.or_pass_over(index, listed, Vec::new())?;
        Ok(listed.iter().filter_map(|scope| LockScope::new(value::text(scope)?).ok()).collect())
    }

    async fn named_scopes(&self, prefix: &str) -> Result<Vec<LockScope>, StoreError> {
        let keys = &self.shared.locks.keys;
        let Some(names) = self.shared.link.key_names(&SharedKeys::pattern(prefix)).await? else {
            return Err(StoreError::Unavailable(StoreTrouble::NotAllowed(MAY_NOT_SCAN.to_owned())));
        };
        Ok(names.iter().filter_map(|name| keys.scope_of(std::str::from_utf8(name).ok()?)).collect())
    }

    pub(super) async fn lock_state(&self, scope: &LockScope) -> Result<LockState, StoreError> {
        let keys = self.lock_keys(scope)?;
        let looked = [&*keys.counter, &*keys.meta, &*keys.record, &*keys.waiters, &*keys.alive];
        let reply = self.or_corrupt(self.shared.link.run(&scripts::LOOK, &looked, &[]).await, &looked).await?;
        let parts = value::array("a look at a lock", reply)?;
        let [counter, meta, record, waiters, alive] = parts.as_slice() else {
            return Err(value::strange("a look at a lock", &Value::Array(parts)));
        };
        let text = |value: &Value| value::bytes(value).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let mut state = match text(record) {
            Some(text) => read_record(&text)
                .ok_or_else(|| StoreError::Corrupt(format!("the key {} holds no record of a lock: {WHAT_TO_DO}", keys.record)))?,
            None => LockState::default(),
        };
        (state.counter, state.meta) = (text(counter).map(Counter::new), text(meta).map(Into::into));
        state.queue.waiters = read_waiters(waiters, alive, &HashMap::new())?;
        Ok(state)
    }

    pub(crate) async fn permit_view(&self, kind: PermitKind, scope: &LockScope) -> Result<Option<PermitView>, StoreError> {
        let state = self.permit_state(kind, scope).await?;
        Ok(PermitView::of(scope, &state, self.shared.now()))
    }

    pub(super) async fn permit_state(&self, kind: PermitKind, scope: &LockScope) -> Result<PermitState, StoreError> {
        let keys = self.permit_keys(kind, scope);
        let looked = keys.own();
        let reply = self.or_corrupt(self.shared.link.run(&scripts::LOOK_AT_PERMITS, &looked, &[]).await, &looked).await?;
        let parts = value::array("a look at permits", reply)?;
        let [ends, rows, waiters, alive, weights, numbers] = parts.as_slice() else {
            return Err(value::strange("a look at permits", &Value::Array(parts)));
        };
        let weights = pairs(weights)?.into_iter().filter_map(|(waiter, units)| Some((waiter, units.parse().ok()?))).collect();
        let mut state = PermitState::default();
        state.queue.waiters = read_waiters(waiters, alive, &weights)?;
        let numbers: Vec<Option<i64>> = value::array("HMGET", numbers.clone())?.iter().map(value::number).collect();
        let number = |at: usize| numbers.get(at).copied().flatten();
        let counted = |at: usize| number(at).and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
        (state.queue.arrivals, state.fence_high) = (counted(0), Fence::new(counted(1)));
        state.free_since = number(2).map(Timestamp::from_millis);
        let rows: HashMap<String, String> = pairs(rows)?.into_iter().collect();
        for (lock_id, ends) in pairs(ends)? {
            let row = rows.get(&lock_id).and_then(|row| read_permit(&lock_id, row, instant(&ends)));
            state.permits.push(row.ok_or_else(|| {
                StoreError::Corrupt(format!("the key {} holds no row of '{}': {WHAT_TO_DO}", looked[1], lock_id.escape_debug()))
            })?);
        }
        state.permits.sort_by_key(|permit| permit.fence);
        Ok(state)
    }
}

fn read_permit(lock_id: &str, row: &str, lease_end: Timestamp) -> Option<Permit> {
    let mut words = row.splitn(5, ' ');
    let (weight, fence, cap) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?);
    let lease = Duration::from_millis(words.next()?.parse().ok()?);
    let execution = words.next().filter(|execution| !execution.is_empty());
    Some(Permit {
        lock_id: LockId::new(lock_id).ok()?,
        weight,
        fence: Fence::new(fence),
        lease_end,
        lease,
        max_hold_end: instant(cap),
        execution_id: execution.and_then(|execution| ExecutionId::new(execution).ok()),
    })
}

/// Who waits, by arrival. A weight that is not known is one.
fn read_waiters(waiters: &Value, alive: &Value, weights: &HashMap<String, u32>) -> Result<Vec<Waiter>, StoreError> {
    let alive: HashMap<String, String> = pairs(alive)?.into_iter().collect();
    let read = |(waiter, arrival): (String, String)| {
        let (alive_until, weight) = (alive.get(&waiter).map_or_else(Timestamp::default, |at| instant(at)), weights.get(&waiter));
        let (weight, arrival) = (weight.copied().unwrap_or(1), arrival.parse().ok()?);
        Some(Waiter { waiter: WaiterId::try_from(waiter).ok()?, arrival, alive_until, weight })
    };
    Ok(pairs(waiters)?.into_iter().filter_map(read).collect())
}

/// Scores are whole milliseconds or counts far below 2^53, which the server writes without a fraction.
fn instant(text: &str) -> Timestamp {
    text.parse().map(Timestamp::from_millis).unwrap_or_default()
}

fn pairs(reply: &Value) -> Result<Vec<(String, String)>, StoreError> {
    let items = value::array("a list of pairs", reply.clone())?;
    let text = |value: &Value| value::bytes(value).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
    Ok(items.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect())
}
