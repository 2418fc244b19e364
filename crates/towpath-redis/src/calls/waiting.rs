//! The claims of this process that wait: their line, and how they are served.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use towpath_core::names::WorkerId;
use towpath_core::store::{ClaimCalls, ClaimFunction, Delivery};

use super::claim::Wanted;
use super::partition::Partition;

/// So many tickets that calls were handed to are remembered. What was handed to one is found within a few claims of its worker.
const HANDED_MAX: usize = 256;

/// The claims of this process that wait, first come first served.
#[derive(Default)]
pub(crate) struct Claims {
    waiting: Mutex<Line>,
    /// Work may have come, or a claim.
    pub(crate) signal: Arc<Notify>,
    /// The claims that look into queues before they wait.
    pub(super) looking: Arc<Looking>,
    /// The partitions of the functions of the latest claim: the next one is for the same functions as a rule.
    list: Mutex<Option<List>>,
}

struct List {
    functions: Arc<[ClaimFunction]>,
    /// How often functions had changed.
    changes: u64,
    partitions: Arc<[Wanted]>,
}

/// Claims that look into queues, by number.
#[derive(Default)]
pub(super) struct Looking {
    numbers: Mutex<BTreeSet<u64>>,
    /// One of them has ended, or waits now.
    ended: Notify,
}

/// A claim that looks into queues, until this is dropped.
pub(super) struct Look {
    looking: Arc<Looking>,
    number: u64,
}

impl Looking {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // No code under this lock can panic half way.
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(self: &Arc<Self>) -> Look {
        let mut numbers = self.lock();
        let number = numbers.last().map_or(0, |last| last + 1);
        numbers.insert(number);
        Look { looking: Arc::clone(self), number }
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.looking.lock().remove(&self.number);
        self.looking.ended.notify_waiters();
    }
}

/// The task that serves claims ends with the store.
impl Drop for Claims {
    fn drop(&mut self) {
        self.signal.notify_one();
    }
}

#[derive(Default)]
pub(super) struct Line {
    pub(super) last_ticket: u64,
    pub(super) claims: VecDeque<WaitingClaim>,
    /// The latest tickets that calls were handed to, and the ids of those calls.
    handed: VecDeque<(u64, Vec<Box<[u8]>>)>,
    /// How often functions had changed when the partitions of these claims were last determined.
    pub(super) changes: u64,
}

/// A claim in the line.
pub(super) struct WaitingClaim {
    pub(super) ticket: u64,
    pub(super) want: Arc<ClaimCalls>,
    pub(super) partitions: Arc<[Wanted]>,
    pub(super) served: oneshot::Sender<Served>,
}

/// What a ticket is handed.
pub(super) struct Accepted {
    /// The ticket is served by these calls. Else it was served by others before.
    pub(super) serves: bool,
    /// Of each call, whether it is heard of for the first time.
    pub(super) are_new: Vec<bool>,
}

/// What a claim that waited was given.
#[derive(Default)]
pub(super) struct Served {
    pub(super) deliveries: Vec<Delivery>,
    /// A submit has handed them over.
    pub(super) handed: bool,
}

impl Claims {
    /// Returns when every claim that looks into queues now has its deliveries, or waits.
    pub(crate) async fn looked(&self) {
        let last = self.looking.lock().last().copied();
        loop {
            let ended = self.looking.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            let first = self.looking.lock().first().copied();
            if first.is_none() || first > last {
                return;
            }
            ended.await;
        }
    }

    /// The partitions of these functions, if they are those of the latest claim and nothing has changed.
    pub(super) fn list_of(&self, functions: &Arc<[ClaimFunction]>, changes: u64) -> Option<Arc<[Wanted]>> {
        let list = self.list();
        let same = list.as_ref().filter(|list| Arc::ptr_eq(&list.functions, functions) && list.changes == changes);
        same.map(|list| Arc::clone(&list.partitions))
    }

    pub(super) fn keep_list(&self, functions: &Arc<[ClaimFunction]>, changes: u64, partitions: &Arc<[Wanted]>) {
        *self.list() = Some(List { functions: Arc::clone(functions), changes, partitions: Arc::clone(partitions) });
    }

    /// The next claim determines its partitions anew.
    pub(crate) fn forget_list(&self) {
        *self.list() = None;
    }

    fn list(&self) -> MutexGuard<'_, Option<List>> {
        // No code under this lock can panic half way.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Line> {
        // No code under this lock can panic half way.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first claim that waits for a partition with work, after this ticket.
    pub(super) fn next_with_work(&self, after: u64) -> Option<(u64, Arc<ClaimCalls>, Arc<[Wanted]>)> {
        let line = self.lock();
        let has_work = |claim: &&WaitingClaim| claim.partitions.iter().any(|wanted| wanted.partition.may_have_work());
        let first = line.claims.iter().filter(|claim| claim.ticket > after).find(has_work);
        first.map(|claim| (claim.ticket, Arc::clone(&claim.want), Arc::clone(&claim.partitions)))
    }

    /// Functions have changed: the partitions of each claim are determined anew. Says which of them are new.
    pub(super) fn follow_shards(&self, changes: u64, wanted: impl Fn(&ClaimCalls) -> Arc<[Wanted]>) -> Vec<Arc<Partition>> {
        let mut line = self.lock();
        line.changes = changes;
        let mut new = Vec::new();
        for claim in &mut line.claims {
            let partitions = wanted(&claim.want);
            if partitions.len() != claim.partitions.len() {
                new.extend(partitions.iter().map(|wanted| Arc::clone(&wanted.partition)));
                claim.partitions = partitions;
            }
        }
        new
    }

    /// Hands deliveries to the claim with this ticket, or returns them when it waits no more.
    pub(super) fn serve(&self, ticket: u64, served: Served) -> Result<(), Vec<Delivery>> {
        let mut line = self.lock();
        let Some(place) = line.claims.iter().position(|claim| claim.ticket == ticket) else { return Err(served.deliveries) };
        let Some(claim) = line.claims.remove(place) else { return Err(served.deliveries) };
        claim.served.send(served).map_err(|served| served.deliveries)
    }

    /// Calls with these ids were handed to a ticket. Says which of them are heard of for the first time, and whether the ticket is served by
    /// them: one that was written down again at the moment of its hand-over may be handed calls twice.
    pub(super) fn accept<'a>(&self, ticket: u64, ids: impl Iterator<Item = &'a [u8]>) -> Accepted {
        let mut line = self.lock();
        let known = line.handed.iter().position(|(known, _)| *known == ticket);
        let place = known.unwrap_or_else(|| {
            line.handed.push_back((ticket, Vec::new()));
            line.handed.len() - 1
        });
        let heard_of = &mut line.handed[place].1;
        let are_new = ids.map(|id| {
            let is_new = !heard_of.iter().any(|known| **known == *id);
            if is_new {
                heard_of.push(id.into());
            }
            is_new
        });
        let are_new = are_new.collect();
        if line.handed.len() > HANDED_MAX {
            line.handed.pop_front();
        }
        Accepted { serves: known.is_none(), are_new }
    }

    /// Serves the claim with this ticket with calls that a submit has handed over. Returns those that it did not ask for, or all of them if it
    /// waits no more.
    pub(super) fn serve_handed(&self, ticket: u64, deliveries: Vec<Delivery>) -> Vec<Delivery> {
        let want = self.lock().claims.iter().find(|claim| claim.ticket == ticket).map(|claim| Arc::clone(&claim.want));
        let Some(want) = want else { return deliveries };
        let is_wanted = |delivery: &Delivery| want.functions.iter().any(|wanted| wanted.function == delivery.request.function);
        let (deliveries, mut others): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(is_wanted);
        if !deliveries.is_empty()
            && let Err(not_wanted) = self.serve(ticket, Served { deliveries, handed: true })
        {
            others.extend(not_wanted);
        }
        others
    }

    /// The waiting claims that a submit may hand calls to, with their tickets. To a ticket calls are handed once.
    pub(super) fn written_down(&self) -> Vec<(Arc<ClaimCalls>, u64)> {
        let line = self.lock();
        let may_be_served = |claim: &&WaitingClaim| claim.want.takes_any && !line.handed.iter().any(|(ticket, _)| *ticket == claim.ticket);
        line.claims.iter().filter(may_be_served).map(|claim| (Arc::clone(&claim.want), claim.ticket)).collect()
    }

    /// Ends all claims of a worker that let a lease run out: it may be gone, and is not given more until it asks again.
    pub(crate) fn dismiss(&self, worker: &WorkerId) {
        let mut line = self.lock();
        let (dismissed, stay): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut line.claims).into_iter().partition(|claim| claim.want.worker == *worker);
        line.claims = stay;
        for claim in dismissed {
            drop(claim.served.send(Served::default()));
        }
    }
}
