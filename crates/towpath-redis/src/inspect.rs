//! Reads for people.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::Cmd;
use towpath_core::call::CallState;
use towpath_core::inspect::{
    CallFilter, CallView, FunctionView, LimitPage, LimitQuery, LockPage, LockQuery, LockView, Page, PageRequest, PermitPage, PermitView,
    StoreStatus,
};
use towpath_core::names::{CallId, FunctionKey, LockScope, WorkerId};
use towpath_core::permit::PermitKind;
use towpath_core::store::{InspectStore, StoreError, StoreTrouble};
use towpath_core::worker::WorkerView;

use crate::calls::partition::Partition;
use crate::store::RedisStore;
use crate::value;

/// How long a probe waits for a subscription.
pub(crate) const LISTENS_WITHIN: Duration = Duration::from_secs(1);
/// So many calls are looked at in one go.
const CHUNK: usize = 200;

/// Calls by sequence, the newest last; no more than a page needs.
struct Newest {
    limit: usize,
    below: Option<u64>,
    found: BTreeMap<(u64, CallId), CallView>,
}

impl Newest {
    fn has_room_for(&self, sequence: u64) -> bool {
        let oldest = self.found.first_key_value().map(|((sequence, _), _)| *sequence);
        self.below.is_none_or(|below| sequence < below) && (self.found.len() < self.limit || oldest.is_none_or(|oldest| sequence > oldest))
    }

    fn add(&mut self, sequence: u64, view: CallView) {
        if self.has_room_for(sequence) {
            self.found.insert((sequence, view.call.call_id.clone()), view);
            while self.found.len() > self.limit {
                self.found.pop_first();
            }
        }
    }
}

#[async_trait]
impl InspectStore for RedisStore {
    async fn call(&self, call_id: &CallId) -> Result<Option<CallView>, StoreError> {
        let Some((partition, whole)) = self.find_whole(call_id).await? else { return Ok(None) };
        whole.view(&partition).map(Some)
    }

    async fn calls(&self, filter: &CallFilter, page: PageRequest) -> Result<Page<CallView>, StoreError> {
        let limit = page.limit.min(PageRequest::LIMIT_MAX) as usize;
        let mut partitions = self.all_partitions().await?;
        partitions.retain(|partition| is_meant(partition, filter));
        let mut newest = Newest { limit: limit + 1, below: page.after, found: BTreeMap::new() };
        for partition in &partitions {
            match self.collect(partition, filter, &mut newest).await {
                // One function's trouble hides no other. Asked for alone, it is told.
                Err(error @ StoreError::Unavailable(StoreTrouble::WrongType(_))) if filter.function.is_none() => {
                    let error = self.explain(partition, error).await;
                    tracing::warn!(function = %partition.function, %error, "calls of a function cannot be listed");
                }
                Err(error) => return Err(self.explain(partition, error).await),
                Ok(()) => {}
            }
        }
        let more = newest.found.len() > limit;
        let mut found: Vec<(u64, CallView)> = newest.found.into_iter().map(|((sequence, _), view)| (sequence, view)).collect();
        found.sort_by_key(|(sequence, _)| Reverse(*sequence));
        found.truncate(limit);
        let next = found.last().map(|(sequence, _)| *sequence).filter(|_| more);
        Ok(Page { items: found.into_iter().map(|(_, view)| view).collect(), next })
    }

    async fn functions(&self) -> Result<Vec<FunctionView>, StoreError> {
        self.list_functions().await
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        self.list_workers().await
    }

    async fn offered_by(&self, worker: &WorkerId) -> Result<Option<Vec<FunctionKey>>, StoreError> {
        self.offers_of(worker).await
    }

    async fn lock(&self, scope: &LockScope) -> Result<Option<LockView>, StoreError> {
        self.lock_view(scope).await
    }

    async fn locks(&self, query: &LockQuery) -> Result<LockPage, StoreError> {
        self.lock_page(query).await
    }

    async fn permits(&self, kind: PermitKind, scope: &LockScope) -> Result<Option<PermitView>, StoreError> {
        self.permit_view(kind, scope).await
    }

    async fn limits(&self, query: &LimitQuery) -> Result<LimitPage, StoreError> {
        self.limit_page(query).await
    }

    async fn permit_list(&self, kind: PermitKind, query: &LockQuery) -> Result<PermitPage, StoreError> {
        self.permit_page(kind, query).await
    }

    async fn probe(&self) -> Result<StoreStatus, StoreError> {
        self.shared.prove_writable().await?;
        // What was begun before is under way: claims wait in their line, and subscriptions hear. When the way there is cut, others see to that.
        drop(tokio::time::timeout(LISTENS_WITHIN, self.shared.claims.looked()).await);
        drop(tokio::time::timeout(LISTENS_WITHIN, self.shared.news.listening().settled()).await);
        let now = self.shared.now();
        Ok(StoreStatus {
            location: self.shared.location(),
            durability: self.shared.durability(),
            now,
            commits: 0,
            moves: 0,
            problems: self.shared.incarnation.problems(now),
        })
    }
}

impl RedisStore {
    /// Adds the newest calls of a partition that the filter means.
    async fn collect(&self, partition: &Arc<Partition>, filter: &CallFilter, newest: &mut Newest) -> Result<(), StoreError> {
        let keys = &partition.keys;
        let means = |state: CallState| filter.states.is_empty() || filter.states.contains(&state);
        if means(CallState::Queued) {
            self.collect_by_sequence(partition, &keys.queue, filter, newest).await?;
            self.collect_by_sequence(partition, &keys.exported, filter, newest).await?;
        }
        if means(CallState::Dead) {
            self.collect_by_sequence(partition, &keys.dead, filter, newest).await?;
        }
        for (state, key) in [(CallState::Running, &keys.running), (CallState::Delayed, &keys.delayed)] {
            if means(state) {
                self.collect_all(partition, key, filter, newest).await?;
            }
        }
        // Calls past their deadline have left the queue before their timer ends them.
        if means(CallState::Queued) {
            self.collect_late(partition, filter, newest).await?;
        }
        if CallState::ALL.iter().any(|state| state.has_ended() && *state != CallState::Dead && means(*state)) {
            let mut buckets = Cmd::new();
            buckets.arg("ZRANGE").arg(&keys.buckets).arg(0).arg(-1);
            for bucket in value::array("ZRANGE", self.shared.link.ask(&buckets).await?)? {
                let list = format!("{}{}", keys.listed, value::text(&bucket).unwrap_or_default());
                self.collect_by_sequence(partition, &list, filter, newest).await?;
            }
        }
        Ok(())
    }

    /// Adds calls from a set that is in the order of their sequences, newest first, as long as there is room for older ones.
    async fn collect_by_sequence(
        &self,
        partition: &Arc<Partition>,
        key: &str,
        filter: &CallFilter,
        newest: &mut Newest,
    ) -> Result<(), StoreError> {
        let mut below = newest.below;
        loop {
            let mut ask = Cmd::new();
            let from = below.map_or_else(|| "+inf".to_owned(), |sequence| format!("({sequence}"));
            ask.arg("ZREVRANGEBYSCORE").arg(key).arg(from).arg("-inf").arg("WITHSCORES").arg("LIMIT").arg(0).arg(CHUNK);
            let reply = value::array("ZREVRANGEBYSCORE", self.shared.link.ask(&ask).await?)?;
            let mut ids = Vec::with_capacity(CHUNK);
            for pair in reply.chunks_exact(2) {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sequences are microseconds below 2^53")]
                let sequence = value::score(&pair[1]).unwrap_or_default() as u64;
                below = Some(sequence);
                if newest.has_room_for(sequence) {
                    ids.extend(value::call_id(&pair[0]));
                }
            }
            self.add_views(partition, &ids, filter, newest).await?;
            if reply.len() / 2 < CHUNK || ids.is_empty() {
                return Ok(());
            }
        }
    }

    /// Adds calls from a set that is in another order: all of them are looked at.
    async fn collect_all(&self, partition: &Arc<Partition>, key: &str, filter: &CallFilter, newest: &mut Newest) -> Result<(), StoreError> {
        let mut from = 0;
        loop {
            let mut ask = Cmd::new();
            ask.arg("ZRANGE").arg(key).arg(from).arg(from + CHUNK - 1);
            let ids = value::array("ZRANGE", self.shared.link.ask(&ask).await?)?;
            let looked_at = ids.len();
            let ids: Vec<CallId> = ids.iter().filter_map(|id| value::call_id(id).ok()).collect();
            self.add_views(partition, &ids, filter, newest).await?;
            if looked_at < CHUNK {
                return Ok(());
            }
            from += CHUNK;
        }
    }

    async fn collect_late(&self, partition: &Arc<Partition>, filter: &CallFilter, newest: &mut Newest) -> Result<(), StoreError> {
        let mut ask = Cmd::new();
        let now = self.shared.now().as_millis();
        ask.arg("ZRANGEBYSCORE").arg(&partition.keys.deadlines).arg("-inf").arg(now).arg("LIMIT").arg(0).arg(CHUNK);
        let ids = value::array("ZRANGEBYSCORE", self.shared.link.ask(&ask).await?)?;
        let ids = ids.iter().map(value::call_id).collect::<Result<Vec<CallId>, StoreError>>()?;
        self.add_views(partition, &ids, filter, newest).await
    }

    async fn add_views(
        &self,
        partition: &Arc<Partition>,
        ids: &[CallId],
        filter: &CallFilter,
        newest: &mut Newest,
    ) -> Result<(), StoreError> {
        for whole in self.wholes(partition, ids).await?.into_iter().flatten() {
            let sequence = whole.record.sequence;
            if newest.has_room_for(sequence) {
                match whole.view(partition) {
                    Ok(view) if matches(&view, filter) => newest.add(sequence, view),
                    Ok(_) => {}
                    Err(error) => tracing::warn!(function = %partition.function, %error, "a call cannot be listed"),
                }
            }
        }
        Ok(())
    }
}

fn is_meant(partition: &Partition, filter: &CallFilter) -> bool {
    filter.scope.as_ref().is_none_or(|scope| *scope == partition.function.scope)
        && filter.function.as_ref().is_none_or(|name| *name == partition.function.name)
}

fn matches(view: &CallView, filter: &CallFilter) -> bool {
    (filter.states.is_empty() || filter.states.contains(&view.call.state))
        && filter.worker.as_ref().is_none_or(|worker| view.call.holder.as_ref() == Some(worker))
}
