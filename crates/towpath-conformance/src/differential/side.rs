//! One of the two stores that are compared: it takes operations and says what came of them.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use towpath_core::call::Outcome;
use towpath_core::clock::VirtualClock;
use towpath_core::inspect::{CallFilter, CallView, FunctionView, Page, PageRequest};
use towpath_core::names::CallId;
use towpath_core::store::{
    CallNews, CallWatch, Cancelled, Completed, ConfigView, Delivery, Durability, Fired, Heartbeat, Renewal, Replayed, Store, StoreError,
    Submitted,
};
use towpath_core::time::Timestamp;
use towpath_core::worker::WorkerView;

use super::op::{self, Op, Ref};
use crate::backend::{Backend, UnderTest};
use crate::dump::comparable;
use crate::words::{call_id, function, json, worker_id};

/// What has to come comes soon; by the wall, because only a broken store keeps it waiting.
const SOON: Duration = Duration::from_secs(10);

/// What came of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Done,
    Flag(bool),
    Count(u64),
    Submitted(Submitted),
    Claimed(Vec<Delivery>),
    Renewed(Vec<Renewal>),
    Completed(Vec<Completed>),
    Cancelled(Cancelled),
    Replayed(Replayed),
    Heartbeat(Heartbeat),
    Found(Option<Box<FunctionView>>),
    Config(Option<ConfigView>),
    Fired(Fired),
    Due(Option<Timestamp>),
    Heard(Vec<(CallId, Heard)>),
    Call(Option<Box<CallView>>),
    Calls(Page<CallView>),
    Functions(Vec<FunctionView>),
    Workers(Vec<WorkerView>),
    Now(Timestamp),
    /// No operation provokes a store's trouble.
    Trouble(StoreError),
}

/// What a watcher has heard since it last listened. Several changes may be heard as one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Heard {
    Nothing,
    Changed,
    Ended(Arc<Outcome>),
}

pub(super) struct Side {
    under_test: Box<dyn UnderTest>,
    store: Arc<dyn Store>,
    watches: BTreeMap<CallId, Box<dyn CallWatch>>,
    functions_seen: u64,
}

impl Side {
    pub(super) async fn new(backend: &dyn Backend, clock: &VirtualClock) -> Self {
        let under_test = backend.fresh(Arc::new(clock.clone())).await;
        let store = under_test.store();
        Self { under_test, store, watches: BTreeMap::new(), functions_seen: 0 }
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Does one operation. `expected` is what the model said, so that what must come can be waited for; the model itself knows at once.
    pub(super) async fn apply(&mut self, op: &Op, expected: Option<&Reply>) -> Reply {
        match self.try_apply(op, expected).await {
            Ok(reply) => reply,
            Err(trouble) => Reply::Trouble(trouble),
        }
    }

    async fn try_apply(&mut self, op: &Op, expected: Option<&Reply>) -> Result<Reply, StoreError> {
        match op {
            Op::Reopen => {
                self.watches.clear();
                self.functions_seen = 0;
                self.under_test.reopen().await;
                self.store = self.under_test.store();
                Ok(Reply::Done)
            }
            // The clock is moved for both sides at once.
            Op::Advance { .. } => Ok(Reply::Done),
            Op::Watch { id } => {
                // At rest, so that nothing from before this moment is still to be told.
                self.store.probe().await?;
                let id = call_id(id);
                self.watches.insert(id.clone(), self.store.watch(&id));
                Ok(Reply::Done)
            }
            Op::Listen => self.listen().await,
            Op::FunctionsChanged => {
                let must_come = expected == Some(&Reply::Flag(true));
                let changed = self.wait(must_come, self.store.functions_changed(self.functions_seen)).await?.transpose()?;
                self.functions_seen = changed.unwrap_or(self.functions_seen);
                Ok(Reply::Flag(changed.is_some()))
            }
            Op::Attention { worker } => {
                let must_come = expected == Some(&Reply::Flag(true));
                let worker = worker_id(worker);
                Ok(Reply::Flag(self.wait(must_come, self.store.attention(&worker)).await?.is_some()))
            }
            Op::DueBefore { known } => {
                let must_come = matches!(expected, Some(Reply::Due(Some(_))));
                Ok(Reply::Due(self.wait(must_come, self.store.due_before(*known)).await?))
            }
            op => ask(&*self.store, op).await,
        }
    }

    /// The result of something that may wait for ever, asked once the store has come to rest: what must come is waited for, anything
    /// else is there or not.
    async fn wait<T>(&self, must_come: bool, question: impl Future<Output = T>) -> Result<Option<T>, StoreError> {
        self.store.probe().await?;
        Ok(if must_come { tokio::time::timeout(SOON, question).await.ok() } else { at_once(question) })
    }

    async fn listen(&mut self) -> Result<Reply, StoreError> {
        self.store.probe().await?;
        let mut all = Vec::new();
        for (call_id, watch) in &mut self.watches {
            let mut heard = Heard::Nothing;
            while let Some(news) = at_once(watch.next()) {
                match news {
                    CallNews::Changed if heard == Heard::Nothing => heard = Heard::Changed,
                    CallNews::Changed | CallNews::Doubtful => {}
                    // The latest end counts, when an id has had two lives. Some stores go on saying it.
                    CallNews::Ended(outcome) if heard == Heard::Ended(Arc::clone(&outcome)) => break,
                    CallNews::Ended(outcome) => heard = Heard::Ended(outcome),
                }
            }
            all.push((call_id.clone(), heard));
        }
        for (call_id, _) in all.iter().filter(|(_, heard)| matches!(heard, Heard::Ended(_))) {
            self.watches.remove(call_id);
        }
        Ok(Reply::Heard(all))
    }
}

/// Everything that is answered at once.
async fn ask(store: &dyn Store, op: &Op) -> Result<Reply, StoreError> {
    Ok(match op {
        Op::Claim { worker, functions, max, lease_ms } => Reply::Claimed(store.claim(op::claim(worker, functions, *max, *lease_ms)).await?),
        Op::Renew { worker, deliveries, lease_ms } => Reply::Renewed(store.renew(op::renew(worker, deliveries, *lease_ms)).await?),
        Op::Complete { worker, answers } => Reply::Completed(store.complete(op::complete(worker, answers)).await?),
        Op::Release { worker, deliveries } => {
            Reply::Count(store.release(&worker_id(worker), deliveries.iter().map(Ref::id).collect()).await?)
        }
        Op::Park { worker, delivery, parked } => Reply::Renewed(vec![store.park(&worker_id(worker), &delivery.id(), *parked).await?]),
        Op::Progress { worker, delivery, report } => {
            Reply::Renewed(vec![store.report_progress(&worker_id(worker), &delivery.id(), json(report)).await?])
        }
        Op::Cancel { id } => Reply::Cancelled(store.cancel(&call_id(id)).await?),
        Op::Replay { id, as_id } => Reply::Replayed(store.replay_dead(&call_id(id), call_id(as_id)).await?),
        Op::Drop { id } => Reply::Flag(store.drop_dead(&call_id(id)).await?),
        Op::Fire { limit } => Reply::Fired(store.fire_due(*limit).await?),
        op => return ask_registry_or_look(store, op).await,
    })
}

async fn ask_registry_or_look(store: &dyn Store, op: &Op) -> Result<Reply, StoreError> {
    Ok(match op {
        Op::Register { worker, offers } => store.register(op::register(worker, offers)).await.map(|()| Reply::Done)?,
        Op::Heartbeat { worker } => Reply::Heartbeat(store.heartbeat(&worker_id(worker)).await?),
        Op::Unregister { worker } => Reply::Count(store.unregister(&worker_id(worker)).await?),
        Op::Define { function, shape } => store.define(shape.definition(function)).await.map(|()| Reply::Done)?,
        Op::Forget { function: name } => Reply::Flag(store.forget(&function(name)).await?),
        Op::Find { function: name } => {
            let found = store.find(&function(name), Timestamp::default()).await?;
            Reply::Found(found.map(comparable).map(Box::new))
        }
        Op::Config => Reply::Config(Some(store.config().await?)),
        Op::SetConfig { value, if_version } => Reply::Config(store.set_config(op::set_config(value, *if_version)).await?),
        Op::ConfigChanged { seen } => Reply::Config(Some(store.config_changed(*seen, Timestamp::default()).await?)),
        Op::Call { id } => Reply::Call(store.call(&call_id(id)).await?.map(Box::new)),
        Op::Calls { states, of, worker, after, limit } => {
            // A cursor means something to the store alone that gave it: each side looks for its own.
            let cursor = match after {
                Some(newest) => store.calls(&CallFilter::default(), PageRequest::first(*newest)).await?.next,
                None => None,
            };
            let page = PageRequest { after: cursor, limit: *limit };
            let mut page = store.calls(&op::filter(states, *of, *worker), page).await?;
            page.next = page.next.map(|_| 0);
            Reply::Calls(page)
        }
        Op::Functions => Reply::Functions(store.functions().await?.into_iter().map(comparable).collect()),
        Op::Workers => Reply::Workers(store.workers().await?),
        Op::Probe => Reply::Now(store.probe().await?.now),
        op => match op::submit(op) {
            Some(call) => Reply::Submitted(worth_nothing(store.submit(call).await?)),
            None => Reply::Done,
        },
    })
}

/// What is ready is had, however much this task has had already: the runtime's fairness is not what is tested.
fn at_once<T>(question: impl Future<Output = T>) -> Option<T> {
    tokio::task::unconstrained(question).now_or_never()
}

/// What an acknowledgement is worth is each store's own.
fn worth_nothing(submitted: Submitted) -> Submitted {
    let durability = Durability::Memory;
    match submitted {
        Submitted::Accepted { deadline, .. } => Submitted::Accepted { deadline, durability },
        Submitted::Existing { call_id, state, deadline, .. } => Submitted::Existing { call_id, state, deadline, durability },
        other => other,
    }
}
