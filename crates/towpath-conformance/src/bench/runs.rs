//! The verbs of runs.

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use towpath_core::names::WorkerId;
use towpath_core::run::{Commit, Committed, Entry, Fact, Run, RunId, RunState, Then};
use towpath_core::store::{
    ClaimRuns, ClaimedRun, EventSent, NewEvent, RunCommitted, RunFilter, RunPageRequest, RunRenewal, RunRequest, RunRequested, RunStore,
    RunView, StartRun, Started, TakeOverRuns, TakenOver,
};
use towpath_core::time::Timestamp;

use super::{Bench, one, sure};
use crate::waiting::Waiting;
use crate::words::{RUN_IDLE, run_place, worker_id};

/// How many owners of the bench may fall silent in a row.
pub const RUN_DELIVERIES_MAX: u32 = 3;
/// Places that the workers of the bench serve.
const SERVED: [&str; 3] = ["order", "order@us-east", "shipping"];

/// A run in the hands of a worker of the bench.
#[derive(Clone, Debug)]
pub struct Execution {
    /// Who has it.
    pub worker: WorkerId,
    /// Its header, as the worker has last seen it.
    pub run: Run,
    /// The facts that it was given.
    pub facts: Vec<Fact>,
}

impl Execution {
    /// A commit that appends these entries. The worker has seen all facts that it was given.
    pub fn commit(&self, entries: Vec<Entry>, then: Then) -> Commit {
        let seen = self.facts.iter().map(|fact| fact.number).max().unwrap_or(0);
        Commit {
            owner: self.worker.clone(),
            epoch: self.run.epoch,
            revision: self.run.revision,
            digest: Arc::from(format!("{}{then:?}{}", self.run.revision, entries.len())),
            entries,
            consumed: Vec::new(),
            seen,
            armed: Vec::new(),
            disarmed: Vec::new(),
            children: Vec::new(),
            posts: Vec::new(),
            published: Vec::new(),
            then,
        }
    }

    /// A commit that uses up all facts that it was given.
    pub fn consuming(&self, entries: Vec<Entry>, then: Then) -> Commit {
        let consumed = self.facts.iter().map(|fact| fact.number).collect();
        Commit { consumed, ..self.commit(entries, then) }
    }
}

impl Bench {
    /// The store's runs, for what has no verb.
    #[track_caller]
    pub fn runs(&self) -> Arc<dyn RunStore> {
        self.under_test.runs().expect("cases of runs run on stores that have them")
    }

    /// Starts a run, and returns whatever the store says.
    pub async fn start_run(&self, start: StartRun) -> Started {
        sure(self.runs().start_run(start).await)
    }

    /// Starts a run that must be new.
    #[track_caller]
    pub fn started(&self, start: StartRun) -> impl Future<Output = RunId> {
        let at = Location::caller();
        async move {
            let run_id = start.run_id.clone();
            match self.start_run(start).await {
                Started::Created { .. } => run_id,
                other => panic!("{at}: should be new, but: {other:?}"),
            }
        }
    }

    /// What a worker gets now, of all places that are served.
    pub async fn claim_runs(&self, worker: &str, max: u32) -> Vec<Execution> {
        self.claim_runs_of(worker, max, &SERVED).await
    }

    /// What a worker gets now, of these places.
    pub async fn claim_runs_of(&self, worker: &str, max: u32, places: &[&str]) -> Vec<Execution> {
        let want = ClaimRuns {
            worker: worker_id(worker),
            places: places.iter().map(|place| run_place(place)).collect(),
            max,
            idle: RUN_IDLE,
            wait: Duration::ZERO,
        };
        let claimed = sure(self.runs().claim_runs(want).await);
        claimed.into_iter().map(|claimed| execution(worker, claimed)).collect()
    }

    /// A worker must get exactly one run.
    pub async fn execute(&self, worker: &str) -> Execution {
        one(self.claim_runs(worker, 10).await)
    }

    /// A worker looks for runs of silent owners.
    pub async fn take_over_runs(&self, worker: &str) -> TakenOver {
        let want = TakeOverRuns {
            worker: worker_id(worker),
            places: SERVED.iter().map(|place| run_place(place)).collect(),
            max: 10,
            idle: RUN_IDLE,
            max_deliveries: RUN_DELIVERIES_MAX,
            executing: Vec::new(),
        };
        sure(self.runs().take_over_runs(want).await)
    }

    /// A worker must take over exactly one run.
    pub async fn taken_over(&self, worker: &str) -> Execution {
        execution(worker, one(self.take_over_runs(worker).await.claimed))
    }

    /// Renews one claim.
    pub async fn renew_run(&self, execution: &Execution) -> RunRenewal {
        let claim = (execution.run.run_id.clone(), execution.run.epoch);
        one(sure(self.runs().renew_runs(&execution.worker, vec![claim]).await))
    }

    /// Commits, and returns whatever the store says.
    pub async fn put_commit(&self, execution: &Execution, commit: Commit) -> RunCommitted {
        sure(self.runs().commit_run(&execution.run.run_id, commit).await)
    }

    /// Commits what must be taken. The execution goes on with what the store has now.
    #[track_caller]
    pub fn committed<'a>(&'a self, execution: &'a mut Execution, commit: Commit) -> impl Future<Output = Committed> + 'a {
        let at = Location::caller();
        async move {
            match self.put_commit(execution, commit).await {
                RunCommitted::Committed { committed, facts } => {
                    execution.run.revision = committed.revision;
                    execution.facts.extend(facts);
                    committed
                }
                other => panic!("{at}: should be taken, but: {other:?}"),
            }
        }
    }

    /// Sends an event.
    pub async fn send(&self, run_id: &RunId, event: NewEvent) -> EventSent {
        sure(self.runs().send_event(run_id, event).await)
    }

    /// Asks something of a run.
    pub async fn ask_run(&self, run_id: &RunId, request: RunRequest) -> RunRequested {
        sure(self.runs().request_run(run_id, request).await)
    }

    /// Cancels a run.
    pub async fn cancel_run(&self, run_id: &RunId) -> RunRequested {
        self.ask_run(run_id, RunRequest::Cancel { reason: Arc::from("a case") }).await
    }

    /// Terminates a run.
    pub async fn terminate_run(&self, run_id: &RunId) -> RunRequested {
        self.ask_run(run_id, RunRequest::Terminate { reason: Arc::from("a case") }).await
    }

    /// Sends all posts, also those that others cause.
    pub async fn send_posts(&self) {
        while sure(self.runs().send_posts(100).await) > 0 {}
    }

    /// Fires all timers of runs that are due. Returns how many.
    pub async fn fire_runs(&self) -> u64 {
        sure(self.runs().fire_runs(1_000).await).fired
    }

    /// A run that must be there.
    #[track_caller]
    pub fn run(&self, run_id: &RunId) -> impl Future<Output = RunView> {
        let at = Location::caller();
        let (runs, run_id) = (self.runs(), run_id.clone());
        async move { sure(runs.run(&run_id).await).unwrap_or_else(|| panic!("{at}: there is no run {run_id}")) }
    }

    /// Where a run stands.
    pub async fn run_state(&self, run_id: &RunId) -> RunState {
        self.run(run_id).await.run.state
    }

    /// All runs of a list, read page by page.
    pub async fn all_runs(&self, filter: &RunFilter, limit: u32) -> Vec<RunView> {
        let (mut listed, mut page) = (Vec::new(), RunPageRequest { after: None, limit });
        loop {
            let found = sure(self.runs().runs(filter, page.clone()).await);
            assert!(found.runs.len() <= limit as usize, "a page of {} runs instead of {limit}", found.runs.len());
            listed.extend(found.runs);
            let Some(next) = found.next else { return listed };
            assert!(page.after.is_none_or(|after| next < after), "the next page begins where this one began: {next:?}");
            page.after = Some(next);
        }
    }

    /// What an owner waits for: that something comes for one of its runs. It gives up after a minute.
    pub async fn start_listening(&self, owner: &str) -> Waiting<Vec<RunId>> {
        let (runs, owner) = (self.runs(), worker_id(owner));
        self.start(|_store| async move { sure(runs.runs_notified(&owner, Duration::from_secs(60)).await) }).await
    }

    /// A claim of one run that waits for a minute.
    pub async fn start_claim_of_runs(&self, worker: &str, places: &[&str]) -> Waiting<Vec<RunId>> {
        let want = ClaimRuns {
            worker: worker_id(worker),
            places: places.iter().map(|place| run_place(place)).collect(),
            max: 1,
            idle: RUN_IDLE,
            wait: Duration::from_secs(60),
        };
        let runs = self.runs();
        let claim = async move { sure(runs.claim_runs(want).await).into_iter().map(|claimed| claimed.run.run_id).collect() };
        self.start(|_store| claim).await
    }

    /// What the timekeeper waits for: that anything at all is due.
    pub async fn start_timekeeping(&self) -> Waiting<Timestamp> {
        self.start(|store| async move { store.due_before(None).await }).await
    }

    /// The bodies of a journal.
    pub async fn journal(&self, run_id: &RunId) -> Vec<String> {
        let entries = sure(self.runs().journal(run_id, 0, usize::MAX).await);
        entries.into_iter().map(|entry| entry.entry.body.as_str().to_owned()).collect()
    }
}

fn execution(worker: &str, claimed: ClaimedRun) -> Execution {
    Execution { worker: worker_id(worker), run: claimed.run, facts: claimed.facts }
}
