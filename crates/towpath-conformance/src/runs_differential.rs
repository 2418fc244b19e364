//! Seeded random operations on runs, sent to the model and to a store: they must agree on every reply and on all that can be read.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::run::{BlockCause, ClosePolicy, Commit, EntryKind, Group, RunEnd, RunId, RunPlace, RunState, Then, TimerAt, WaitSet};
use towpath_core::store::{
    ClaimRuns, Durability, NewEvent, OnConflict, Reuse, RunCommitted, RunFilter, RunPageRequest, RunPlaceView, RunRequest, RunStore,
    RunView, StartRun, Started, StoreError, TakeOverRuns,
};

use crate::backend::{Backend, ModelBackend, UnderTest};
use crate::words::{
    RUN_IDLE, StartWords, build, child, done, entry, event, event_name, json, reference, run_id, run_place, seconds, start, step, worker_id,
};

/// Places that workers serve.
const PLACES: [&str; 3] = ["order", "order@us-east", "shipping"];
/// Runs of a shorter list while the least that disagrees is looked for.
const SHRINKS_MAX: usize = 200;

/// Something done to runs. What it means in detail follows from what the model has at that moment, so that a shorter list means something, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Op {
    kind: u8,
    run: u8,
    detail: u8,
}

/// Makes a test of random operations on runs.
///
/// ```
/// # mod tests {
/// use towpath_conformance::backend::ModelBackend;
///
/// towpath_conformance::runs_differential!(ModelBackend, seeds = 5, operations = 200);
/// # }
/// ```
#[macro_export]
macro_rules! runs_differential {
    ($backend:expr, seeds = $seeds:expr, operations = $operations:expr) => {
        #[tokio::test]
        async fn random_runs_agree_with_the_model() {
            if let Err(why) = $crate::runs_differential::check(&$backend, $seeds, $operations).await {
                panic!("{why}");
            }
        }
    };
}

/// What all operations together must have reached.
const REACHED: [&str; 9] =
    ["Completed", "Failed", "Cancelled", "Terminated", "Waiting", "Blocked", "Delayed", "generation", "has_facts: true"];

/// Runs the operations of `seeds` seeds and says where the stores part, or what was never reached.
pub async fn check(backend: &dyn Backend, seeds: u64, operations: usize) -> Result<(), String> {
    let mut reached = BTreeSet::new();
    for seed in 0..seeds {
        let ops = operations_of(seed, operations);
        if let Some((index, why)) = first_disagreement(backend, &ops, &mut reached).await {
            let (ops, why) = shrink(backend, ops[..=index].to_vec(), why).await;
            let list: Vec<String> = ops.iter().map(|op| format!("  {op:?}")).collect();
            return Err(format!("seed {seed}: {why}\n{} operations are enough:\n{}", ops.len(), list.join("\n")));
        }
    }
    let missing: Vec<_> = REACHED.iter().filter(|word| !reached.contains(**word)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("the operations proved too little, for these never happened: {missing:?}")) }
}

fn operations_of(seed: u64, count: usize) -> Vec<Op> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    let mut next = move |below: u8| {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        u8::try_from((state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % u64::from(below)).unwrap_or(0)
    };
    (0..count).map(|_| Op { kind: next(40), run: next(6), detail: next(12) }).collect()
}

/// Takes operations away for as long as the stores still disagree.
async fn shrink(backend: &dyn Backend, ops: Vec<Op>, why: String) -> (Vec<Op>, String) {
    let mut shortest = (ops, why);
    let (mut chunk, mut tries) = (shortest.0.len() / 2, 0);
    while chunk > 0 {
        let mut start = 0;
        while start < shortest.0.len() && tries < SHRINKS_MAX {
            tries += 1;
            let mut shorter = shortest.0.clone();
            shorter.drain(start..(start + chunk).min(shorter.len()));
            match first_disagreement(backend, &shorter, &mut BTreeSet::new()).await {
                Some((index, why)) => {
                    shorter.truncate(index + 1);
                    shortest = (shorter, why);
                }
                None => start += chunk,
            }
        }
        chunk /= 2;
    }
    shortest
}

async fn first_disagreement(backend: &dyn Backend, ops: &[Op], reached: &mut BTreeSet<&'static str>) -> Option<(usize, String)> {
    let mut pair = Pair::new(backend).await;
    for (index, op) in ops.iter().enumerate() {
        if let Err(why) = pair.put(*op, reached).await {
            return Some((index, format!("{op:?}: {why}")));
        }
    }
    None
}

/// The model and a store, under one clock.
struct Pair {
    clock: VirtualClock,
    model: Box<dyn UnderTest>,
    store: Box<dyn UnderTest>,
    /// Every run that was ever started.
    known: BTreeSet<RunId>,
    /// The latest commit, to be repeated.
    last: Option<(RunId, Commit)>,
}

/// What both sides say, if they say the same.
fn same<T: PartialEq + Debug>(by_model: Result<T, StoreError>, by_store: Result<T, StoreError>) -> Result<T, String> {
    match (by_model, by_store) {
        (Ok(by_model), Ok(by_store)) if by_model == by_store => Ok(by_model),
        (by_model, by_store) => Err(format!("\n  model: {by_model:?}\n  store: {by_store:?}")),
    }
}

impl Pair {
    async fn new(backend: &dyn Backend) -> Self {
        let clock = VirtualClock::new();
        let model = ModelBackend.fresh(Arc::new(clock.clone())).await;
        let store = backend.fresh(Arc::new(clock.clone())).await;
        Self { clock, model, store, known: BTreeSet::new(), last: None }
    }

    fn sides(&self) -> (Arc<dyn RunStore>, Arc<dyn RunStore>) {
        let runs = |side: &dyn UnderTest| side.runs().unwrap_or_else(|| unreachable!("these operations are for stores that have runs"));
        (runs(&*self.model), runs(&*self.store))
    }

    async fn put(&mut self, op: Op, reached: &mut BTreeSet<&'static str>) -> Result<(), String> {
        let said = match op.kind {
            0..=5 => self.start(op).await?,
            6..=10 => self.claim(op).await?,
            11..=23 => self.commit(op).await?,
            24..=27 => self.send(op).await?,
            28 | 29 => self.take_over(op).await?,
            30 => self.renew(op).await?,
            31..=33 => self.request(op).await?,
            34 => self.repeat_commit().await?,
            35 => self.register_build(op).await?,
            36 => {
                self.model.reopen().await;
                self.store.reopen().await;
                String::new()
            }
            _time => {
                self.clock.advance(Duration::from_secs(u64::from(op.detail)));
                String::new()
            }
        };
        self.settle().await?;
        let all = self.compare(op).await?;
        reached.extend(REACHED.iter().filter(|word| said.contains(**word) || all.contains(**word)));
        Ok(())
    }

    /// Timers fire and posts arrive, on both sides.
    async fn settle(&self) -> Result<(), String> {
        let (model, store) = self.sides();
        same(model.fire_runs(1_000).await, store.fire_runs(1_000).await)?;
        while same(model.send_posts(1_000).await, store.send_posts(1_000).await)? > 0 {}
        Ok(())
    }

    /// All that can be read of the run that the operation was about, and where all runs stand.
    async fn compare(&mut self, op: Op) -> Result<String, String> {
        let (model, store) = self.sides();
        let about = subject(op);
        let children: Vec<RunId> = (1..4).map(|number| child(&about, number, 9, ClosePolicy::Cancel).0.run_id).collect();
        self.known.extend(children);
        let mut said = String::new();
        for run_id in &self.known {
            let view = same(model.run(run_id).await, store.run(run_id).await)?;
            if let Some(view) = view {
                said += &format!("{:?} ", view.run.state);
                said += if view.run.generation > 0 { "generation " } else { "" };
            }
        }
        same(model.journal(&about, 0, usize::MAX).await, store.journal(&about, 0, usize::MAX).await)?;
        same(model.journal(&about, 1, 8).await, store.journal(&about, 1, 8).await)?;
        same(model.facts(&about, 0).await, store.facts(&about, 0).await)?;
        same(model.published(&about).await, store.published(&about).await)?;
        self.compare_lists(op).await?;
        Ok(said)
    }

    /// A list, a reference, and the places.
    async fn compare_lists(&self, op: Op) -> Result<(), String> {
        let (model, store) = self.sides();
        let filter = filter_of(op);
        same(all_pages(&*model, &filter).await, all_pages(&*store, &filter).await)?;
        let (workflow, name) = (subject_place(op).workflow, reference(&format!("ref-{}", op.run / 2)));
        same(model.run_referenced(&workflow, &name).await, store.run_referenced(&workflow, &name).await)?;
        same(open_places(&*model).await, open_places(&*store).await)?;
        Ok(())
    }

    async fn start(&mut self, op: Op) -> Result<String, String> {
        let place = PLACES[usize::from(op.run) % PLACES.len()];
        let mut run = StartRun { retain: seconds(30), ..start(place, op.run) };
        if op.detail % 2 == 1 {
            run = run.known_as(&format!("ref-{}", op.run / 2));
        }
        if op.detail.is_multiple_of(5) {
            run = run.with_input("other");
        }
        if op.detail.is_multiple_of(7) {
            let click = op.detail.is_multiple_of(2).then(|| reference("click"));
            run = run.with_event(NewEvent { reference: click, ..event("paid", "1") });
        }
        run.delay = if op.detail == 3 { seconds(5) } else { Duration::ZERO };
        run.timeout = (op.detail == 4).then(|| seconds(20));
        run.on_conflict = if op.detail == 5 { OnConflict::ReturnExisting } else { OnConflict::Refuse };
        run.reuse = if op.detail >= 9 { Reuse::AfterClosed } else { Reuse::Never };
        self.known.insert(run.run_id.clone());
        let (model, store) = self.sides();
        // What an acknowledgement is worth is the store's own.
        let plain = |started: Result<Started, _>| match started {
            Ok(Started::Created { .. }) => Ok(Started::Created { durability: Durability::Memory }),
            other => other,
        };
        let said = same(plain(model.start_run(run.clone()).await), plain(store.start_run(run).await))?;
        Ok(format!("{said:?}"))
    }

    async fn claim(&mut self, op: Op) -> Result<String, String> {
        let want = ClaimRuns {
            worker: worker_id(&format!("w{}", op.run % 2)),
            places: PLACES.iter().map(|place| run_place(place)).collect(),
            max: u32::from(op.detail % 3) + 1,
            idle: RUN_IDLE,
            wait: Duration::ZERO,
        };
        let (model, store) = self.sides();
        same(model.claim_runs(want.clone()).await, store.claim_runs(want).await).map(|said| format!("{said:?}"))
    }

    async fn take_over(&mut self, op: Op) -> Result<String, String> {
        let want = TakeOverRuns {
            worker: worker_id(&format!("w{}", op.run % 2)),
            places: PLACES.iter().map(|place| run_place(place)).collect(),
            max: u32::from(op.detail % 3) + 1,
            idle: RUN_IDLE,
            max_deliveries: 2,
            executing: if op.detail > 8 { vec![subject(op)] } else { Vec::new() },
        };
        let (model, store) = self.sides();
        same(model.take_over_runs(want.clone()).await, store.take_over_runs(want).await).map(|said| format!("{said:?}"))
    }

    /// The run that an owner's operation is about: the one that is executed, if any is.
    async fn executed(&self, op: Op) -> Option<towpath_core::run::Run> {
        let (model, _) = self.sides();
        let mut executed = Vec::new();
        for run_id in &self.known {
            let view = model.run(run_id).await.ok().flatten();
            executed.extend(view.map(|view| view.run).filter(|run| run.state == RunState::Running));
        }
        if executed.is_empty() { None } else { Some(executed.swap_remove(usize::from(op.run) % executed.len())) }
    }

    async fn renew(&mut self, op: Op) -> Result<String, String> {
        let Some(run) = self.executed(op).await else { return Ok(String::new()) };
        let owner = if op.detail == 0 { worker_id("w9") } else { run.owner.clone().unwrap_or_else(|| worker_id("w9")) };
        let claims = vec![(run.run_id.clone(), run.epoch), (subject(op), run.epoch)];
        let (model, store) = self.sides();
        same(model.renew_runs(&owner, claims.clone()).await, store.renew_runs(&owner, claims).await).map(|said| format!("{said:?}"))
    }

    async fn commit(&mut self, op: Op) -> Result<String, String> {
        let Some(run) = self.executed(op).await else { return Ok(String::new()) };
        let (model, _) = self.sides();
        let facts = model.facts(&run.run_id, 0).await.unwrap_or_default();
        let open = |number: u8| child(&run.run_id, number, 9, ClosePolicy::Cancel);
        let wait = WaitSet {
            events: BTreeSet::from([event_name("paid")]),
            groups: if op.detail == 11 { [(step(9), Group { open: 1, fail_fast: true })].into() } else { [].into() },
            ..WaitSet::default()
        };
        let then = match op.kind {
            11..=15 => Then::Park { wait },
            16 => Then::Close(if op.detail < 6 { RunEnd::Completed } else { RunEnd::Failed }),
            17 => Then::Continue(entry(EntryKind::Begin, r#"{"input":3}"#)),
            18 => Then::Release,
            19 => Then::Block { cause: BlockCause::Nondeterminism, build: Some(build("a")) },
            20 => Then::BackOff { cause: BlockCause::Panicked, build: Some(build("b")), delay: seconds(4) },
            _stays => Then::Stay,
        };
        let consumes = op.detail.is_multiple_of(3);
        let commit = Commit {
            owner: if op.detail == 10 { worker_id("w9") } else { run.owner.clone().unwrap_or_else(|| worker_id("w9")) },
            epoch: run.epoch,
            revision: run.revision + u64::from(op.detail == 9),
            digest: Arc::from(format!("{op:?}{}", run.revision)),
            entries: vec![entry(EntryKind::Open, "{}"), done(op.detail, &format!("{}", op.detail))],
            consumed: if consumes { facts.iter().map(|fact| fact.number).collect() } else { Vec::new() },
            seen: if op.detail == 8 { 0 } else { run.facts },
            armed: if op.detail % 4 == 1 { vec![(step(op.detail), TimerAt::After(seconds(u64::from(op.detail))))] } else { Vec::new() },
            disarmed: if op.detail == 7 { vec![step(1), step(5)] } else { Vec::new() },
            children: if op.detail == 2 { vec![open(1).0, open(2).0] } else { Vec::new() },
            posts: if op.detail == 2 { vec![open(1).1, open(2).1] } else { Vec::new() },
            published: if op.detail == 6 { vec![(Arc::from("at"), json(&format!("{}", run.revision)))] } else { Vec::new() },
            then,
        };
        self.last = Some((run.run_id.clone(), commit.clone()));
        self.put_commit(&run.run_id, commit).await
    }

    async fn repeat_commit(&mut self) -> Result<String, String> {
        let Some((run_id, commit)) = self.last.clone() else { return Ok(String::new()) };
        self.put_commit(&run_id, commit).await
    }

    async fn put_commit(&self, run_id: &RunId, commit: Commit) -> Result<String, String> {
        let (model, store) = self.sides();
        let said: RunCommitted = same(model.commit_run(run_id, commit.clone()).await, store.commit_run(run_id, commit).await)?;
        Ok(format!("{said:?}"))
    }

    async fn send(&mut self, op: Op) -> Result<String, String> {
        let name = if op.detail.is_multiple_of(3) { "other" } else { "paid" };
        let click = (op.detail > 7).then(|| reference("click"));
        let sent = NewEvent { reference: click, ..event(name, "2") };
        let (model, store) = self.sides();
        let about = subject(op);
        same(model.send_event(&about, sent.clone()).await, store.send_event(&about, sent).await).map(|said| format!("{said:?}"))
    }

    async fn request(&mut self, op: Op) -> Result<String, String> {
        let request = match op.detail {
            0..=2 => RunRequest::Cancel { reason: Arc::from("a test") },
            3 => RunRequest::Terminate { reason: Arc::from("a test") },
            4..=6 => RunRequest::Pause,
            _resumes => RunRequest::Resume,
        };
        let (model, store) = self.sides();
        let about = subject(op);
        let said = same(model.request_run(&about, request.clone()).await, store.request_run(&about, request).await)?;
        Ok(format!("{said:?}"))
    }

    async fn register_build(&mut self, op: Op) -> Result<String, String> {
        let (name, places) = (if op.detail < 6 { "a" } else { "c" }, PLACES.map(run_place));
        let (model, store) = self.sides();
        same(model.register_build(&build(name), &places).await, store.register_build(&build(name), &places).await)
            .map(|said| format!("{said:?}"))
    }
}

/// The run that an operation names.
fn subject(op: Op) -> RunId {
    run_id(PLACES[usize::from(op.run) % PLACES.len()], op.run)
}

fn subject_place(op: Op) -> RunPlace {
    run_place(PLACES[usize::from(op.run) % PLACES.len()])
}

/// A filter that follows from an operation.
fn filter_of(op: Op) -> RunFilter {
    let (place, all) = (subject_place(op), RunFilter::default());
    let state = RunState::ALL[usize::from(op.kind) % RunState::ALL.len()];
    match op.detail {
        0 => all,
        1 => RunFilter { workflow: Some(place.workflow), ..all },
        2 => RunFilter { version: Some(place.version), states: vec![state], ..all },
        3 => RunFilter { shard: place.shard, ..all },
        4 => RunFilter { states: vec![state, RunState::Ready, state], ..all },
        5 => RunFilter { workflow: Some(place.workflow), states: vec![state], ..all },
        6 => RunFilter { cause: Some(BlockCause::Nondeterminism), ..all },
        7 => RunFilter { cause: Some(BlockCause::Panicked), workflow: Some(place.workflow), ..all },
        8 => RunFilter { parent: Some(subject(op)), ..all },
        9 => RunFilter { reference: Some(reference(&format!("ref-{}", op.run / 2))), ..all },
        10 => RunFilter { since: Some(VirtualClock::new().now() + seconds(u64::from(op.kind) * 4)), ..all },
        _until => RunFilter { until: Some(VirtualClock::new().now() + seconds(u64::from(op.kind) * 4)), ..all },
    }
}

/// All runs of a list, three at a time.
async fn all_pages(runs: &dyn RunStore, filter: &RunFilter) -> Result<Vec<RunView>, StoreError> {
    let (mut listed, mut page) = (Vec::new(), RunPageRequest { after: None, limit: 3 });
    loop {
        let found = runs.runs(filter, page.clone()).await?;
        listed.extend(found.runs);
        match found.next {
            Some(next) if page.after.as_ref() != Some(&next) => page.after = Some(next),
            _last => return Ok(listed),
        }
    }
}

/// The open runs of all places. Closed ones may be counted for a while after they are gone.
async fn open_places(runs: &dyn RunStore) -> Result<Vec<RunPlaceView>, StoreError> {
    let mut places = runs.run_places().await?;
    places.iter_mut().for_each(|view| view.counts.retain(|(state, _)| !state.is_closed()));
    places.retain(|view| !view.counts.is_empty());
    Ok(places)
}
