//! Reads for people.

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
use towpath_core::store::{InspectStore, StoreError};
use towpath_core::worker::WorkerView;

use crate::pages::Listed;
use crate::room::Room;
use crate::store::RedisStore;
use crate::value;

/// How long a probe waits for a subscription.
const LISTENS_WITHIN: Duration = Duration::from_secs(1);

/// So many calls of a function are looked at in one go.
const CHUNK: usize = 200;

#[async_trait]
impl InspectStore for RedisStore {
    async fn call(&self, call_id: &CallId) -> Result<Option<CallView>, StoreError> {
        self.write_down_delivery_of(call_id).await?;
        let Some(room) = self.room_of(call_id).await? else { return Ok(None) };
        Ok(self.views(&room, std::slice::from_ref(call_id)).await?.pop().flatten())
    }

    async fn calls(&self, filter: &CallFilter, page: PageRequest) -> Result<Page<CallView>, StoreError> {
        self.write_down_all_deliveries().await?;
        let limit = page.limit.min(PageRequest::LIMIT_MAX) as usize;
        let mut rooms = self.all_rooms().await?;
        rooms.retain(|room| is_meant(room, filter));
        // Each function brings enough for the whole page, so the newest of all of them are the page.
        let mut found: Vec<(u64, CallView)> = Vec::new();
        for room in &rooms {
            found.extend(self.newest(room, filter, page.after, limit + 1).await?);
        }
        found.sort_by_key(|(sequence, _)| std::cmp::Reverse(*sequence));
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().map(|(sequence, _)| *sequence).filter(|_| more);
        Ok(Page { items: found.into_iter().map(|(_, view)| view).collect(), next })
    }

    async fn functions(&self) -> Result<Vec<FunctionView>, StoreError> {
        self.write_down_all_deliveries().await?;
        self.list_functions().await
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        self.write_down_all_deliveries().await?;
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
        // Whoever has begun to listen shall hear; when the way there is cut, others see to that.
        drop(tokio::time::timeout(LISTENS_WITHIN, self.shared.news.turns().settled()).await);
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
    /// A function's newest calls that are meant, older than a sequence.
    async fn newest(
        &self,
        room: &Arc<Room>,
        filter: &CallFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<(u64, CallView)>, StoreError> {
        // Dead letters have an index of their own: they are looked for most when there is much else.
        let index = if filter.states == [CallState::Dead] { &room.keys.dead } else { &room.keys.index };
        let mut found = Vec::new();
        let mut below = after;
        // A line may be a page of many calls: what is asked for is looked at first.
        let mut chunk = limit.clamp(1, CHUNK);
        while found.len() < limit {
            let mut ask = Cmd::new();
            let from = below.map_or_else(|| "+inf".to_owned(), |sequence| format!("({sequence}"));
            ask.arg("ZREVRANGEBYSCORE").arg(index).arg(from).arg("-inf").arg("WITHSCORES").arg("LIMIT").arg(0).arg(chunk);
            let reply = value::array("ZREVRANGEBYSCORE", self.shared.link.ask(&ask).await?)?;
            let lines = reply.len() / 2;
            let mut listed = Vec::with_capacity(lines);
            for pair in reply.chunks_exact(2) {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sequences count up from 1")]
                let sequence = value::score(&pair[1]).unwrap_or_default() as u64;
                listed.push((sequence, Listed::read(&pair[0])?));
            }
            let Some((last, _)) = listed.last().cloned() else { break };
            let mut listed = self.spelled_out(room, listed).await?;
            // A page begins before the cursor and may end behind it.
            listed.retain(|(sequence, _)| below.is_none_or(|below| *sequence < below));
            listed.sort_by_key(|(sequence, _)| std::cmp::Reverse(*sequence));
            below = Some(last);
            let ids: Vec<CallId> = listed.iter().map(|(_, id)| id.clone()).collect();
            let views = self.views(room, &ids).await?;
            let shown = listed.iter().zip(views).filter_map(|((sequence, _), view)| Some((*sequence, view?)));
            found.extend(shown.filter(|(_, view)| matches(view, filter)));
            if lines < chunk {
                break;
            }
            chunk = CHUNK;
        }
        found.truncate(limit);
        Ok(found)
    }
}

fn is_meant(room: &Room, filter: &CallFilter) -> bool {
    filter.scope.as_ref().is_none_or(|scope| *scope == room.function.scope)
        && filter.function.as_ref().is_none_or(|name| *name == room.function.name)
}

fn matches(view: &CallView, filter: &CallFilter) -> bool {
    (filter.states.is_empty() || filter.states.contains(&view.call.state))
        && filter.worker.as_ref().is_none_or(|worker| view.call.holder.as_ref() == Some(worker))
}
