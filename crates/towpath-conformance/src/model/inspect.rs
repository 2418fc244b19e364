//! Reads for people.
//!
//! - Calls are listed newest submit first. A cursor is the submit sequence of the last item of the page before, so a page neither repeats
//!   nor skips a call, whatever was submitted or forgotten in between.
//! - Locks are listed by scope in byte order, those alone that are held or waited for; a cursor is the last scope of the page before.
//! - A page never has more than [`PageRequest::LIMIT_MAX`] items, whatever was asked; `next` is set only when there is more.

use async_trait::async_trait;
use towpath_core::inspect::{
    CallFilter, CallView, FunctionView, LimitPage, LimitQuery, LockPage, LockQuery, LockView, Page, PageRequest, PermitPage, PermitView,
    StoreStatus,
};
use towpath_core::names::{CallId, LockScope};
use towpath_core::permit::PermitKind;
use towpath_core::store::{Durability, InspectStore, StoreError};
use towpath_core::time::Timestamp;
use towpath_core::worker::WorkerView;

use super::ModelStore;
use super::records::{Record, Records};

#[async_trait]
impl InspectStore for ModelStore {
    async fn call(&self, call_id: &CallId) -> Result<Option<CallView>, StoreError> {
        Ok(self.look(|state, _| state.records.record(call_id).map(Record::view)))
    }

    async fn calls(&self, filter: &CallFilter, page: PageRequest) -> Result<Page<CallView>, StoreError> {
        Ok(self.look(|state, _| state.records.page(filter, &page)))
    }

    async fn functions(&self) -> Result<Vec<FunctionView>, StoreError> {
        Ok(self.look(|state, now| {
            let records = &state.records;
            records.functions.keys().filter_map(|function| records.function_view(function, now)).collect()
        }))
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        Ok(self.look(|state, now| {
            let records = &state.records;
            records.workers.iter().map(|(worker_id, worker)| records.worker_view(worker_id, worker, now)).collect()
        }))
    }

    async fn lock(&self, scope: &LockScope) -> Result<Option<LockView>, StoreError> {
        Ok(self.look(|state, now| state.records.locks.get(scope).and_then(|lock| LockView::of(scope, lock, now))))
    }

    async fn locks(&self, query: &LockQuery) -> Result<LockPage, StoreError> {
        Ok(self.look(|state, now| state.records.lock_page(query, now)))
    }

    async fn permits(&self, kind: PermitKind, scope: &LockScope) -> Result<Option<PermitView>, StoreError> {
        Ok(self
            .look(|state, now| state.records.permits.get(&(kind, scope.clone())).and_then(|permits| PermitView::of(scope, permits, now))))
    }

    async fn permit_list(&self, kind: PermitKind, query: &LockQuery) -> Result<PermitPage, StoreError> {
        Ok(self.look(|state, now| state.records.permit_page(kind, query, now)))
    }

    async fn limits(&self, query: &LimitQuery) -> Result<LimitPage, StoreError> {
        let now = self.shared.clock.now_us();
        Ok(self.look(|state, _| state.records.limit_page(query, now)))
    }

    async fn probe(&self) -> Result<StoreStatus, StoreError> {
        Ok(self.look(|_, now| StoreStatus {
            location: "model:".to_owned(),
            durability: Durability::Memory,
            now,
            commits: 0,
            moves: 0,
            refuses: None,
            problems: Vec::new(),
        }))
    }
}

/// The model knows every lock there is, so it needs no names and no scan.
fn is_meant(query: &LockQuery, scope: &LockScope) -> bool {
    scope.as_str().starts_with(&query.prefix) && query.after.as_ref().is_none_or(|after| scope > after)
}

impl Records {
    fn lock_page(&self, query: &LockQuery, now: Timestamp) -> LockPage {
        let limit = query.limit.min(PageRequest::LIMIT_MAX) as usize;
        let views =
            self.locks.iter().filter(|(scope, _)| is_meant(query, scope)).filter_map(|(scope, lock)| LockView::of(scope, lock, now));
        let mut in_use = views.filter(LockView::is_in_use);
        let items: Vec<_> = in_use.by_ref().take(limit).collect();
        let next = items.last().map(|view| view.scope.clone()).filter(|_| in_use.next().is_some());
        LockPage { items, next }
    }

    fn permit_page(&self, kind: PermitKind, query: &LockQuery, now: Timestamp) -> PermitPage {
        let limit = query.limit.min(PageRequest::LIMIT_MAX) as usize;
        let meant = self.permits.iter().filter(|((of, scope), _)| *of == kind && is_meant(query, scope));
        let views = meant.filter_map(|((_, scope), permits)| PermitView::of(scope, permits, now));
        let mut in_use = views.filter(PermitView::is_in_use);
        let items: Vec<_> = in_use.by_ref().take(limit).collect();
        let next = items.last().map(|view| view.scope.clone()).filter(|_| in_use.next().is_some());
        PermitPage { items, next }
    }

    fn page(&self, filter: &CallFilter, page: &PageRequest) -> Page<CallView> {
        let limit = page.limit.min(PageRequest::LIMIT_MAX) as usize;
        let older = self.calls.range(..page.after.unwrap_or(u64::MAX)).rev();
        let mut matching = older.filter(|(_, record)| record.is_meant_by(filter));
        let (mut items, mut last, mut bytes) = (Vec::new(), None, 0);
        while items.len() < limit && bytes < PageRequest::BYTES_MAX {
            let Some((sequence, record)) = matching.next() else { break };
            let view = if filter.brief { record.view().brief() } else { record.view() };
            bytes += if filter.brief { 0 } else { view.payload_bytes() };
            items.push(view);
            last = Some(*sequence);
        }
        Page { items, next: last.filter(|_| matching.next().is_some()) }
    }
}

impl Record {
    fn is_meant_by(&self, filter: &CallFilter) -> bool {
        let Record { call, request, .. } = self;
        (filter.states.is_empty() || filter.states.contains(&call.state))
            && filter.scope.as_ref().is_none_or(|scope| *scope == request.function.scope)
            && filter.function.as_ref().is_none_or(|name| *name == request.function.name)
            && filter.worker.as_ref().is_none_or(|worker| call.holder.as_ref() == Some(worker))
    }
}
