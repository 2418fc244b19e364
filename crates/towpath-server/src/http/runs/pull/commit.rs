//! A pull worker's commit: read, checked against the journal, written as a whole or not at all.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::json;
use sha2::{Digest, Sha256};
use towpath_core::lock::Fence;
use towpath_core::names::WorkerId;
use towpath_core::payload::Payload;
use towpath_core::run::{Commit, Committed, Entry, EntryKind, Fact, Run, RunId, RunState, StepId, Then};
use towpath_core::store::{RunCommitted, RunStore, StoreError};

use super::book::Book;
use super::derive::{Derived, Deriving};
use super::then::{Wanted, block};
use crate::http::app::App;
use crate::http::codes::Code;
use crate::http::convert;
use crate::http::error::{ApiError, payload_too_large};
use crate::http::extract::{JsonBody, PathText};
use crate::http::runs::{bodies, body, level, names, store};
use crate::http::wire::run_workers::{CommitRunAnswer, CommitRunBody};

const STEPS_MAX: usize = 500;
const PUBLISHED_MAX: usize = 100;
const PUBLISHED_BYTES_MAX: usize = 64 * 1024;

/// Commit what a worker's execution of a run has come to
///
/// The server makes the step ids, arms timers, starts children and finds out what the run waits for. The same request again is the same
/// commit, so a lost answer is repeated without harm.
#[utoipa::path(
    post, path = "/v1/runs/{run_id}/commit", tag = "run workers", request_body = CommitRunBody,
    params(("run_id" = String, Path, description = "Which run")),
    responses((status = 200, description = "What it has come to", body = CommitRunAnswer)),
)]
pub(crate) async fn commit(
    State(app): State<App>,
    PathText(id): PathText,
    JsonBody(body): JsonBody<CommitRunBody>,
) -> Result<Json<CommitRunAnswer>, ApiError> {
    let (runs, run_id) = (store(&app)?, names::run_id(&id)?);
    check_size(&body)?;
    let owner = Owner {
        worker: convert::worker_id(&body.worker_id)?,
        epoch: Fence::new(body.epoch),
        revision: body.revision,
        digest: digest_of(&body),
    };
    app.run_roster().hear(&owner.worker, app.clock().now());
    // Read before the facts: a fact that comes later has a higher number than the header knows of.
    let Some(run) = runs.run(&run_id).await?.map(|view| view.run) else { return Ok(Json(answer("lost"))) };
    if let Some(reply) = owner.reply_before(&run) {
        return repeated(&app, runs, &run, &owner, &body, reply).await.map(Json);
    }
    if !owner.has(&run) {
        return Ok(Json(answer("lost")));
    }
    if run.revision != owner.revision {
        return Ok(Json(CommitRunAnswer { revision: Some(run.revision), ..answer("stale") }));
    }
    let book = match app.books().take(&run_id, owner.epoch, owner.revision) {
        Some(book) => book,
        None => Book::read(runs, &run).await?,
    };
    make(&app, runs, &run, owner, book, body).await.map(Json)
}

/// Who commits, and what tells this commit from another one.
struct Owner {
    worker: WorkerId,
    epoch: Fence,
    revision: u64,
    digest: Arc<str>,
}

impl Owner {
    /// Whether the run is this worker's, by this claim.
    fn has(&self, run: &Run) -> bool {
        run.state == RunState::Running && run.owner.as_ref() == Some(&self.worker) && run.epoch == self.epoch
    }

    /// The answer to the same commit, if it was made before.
    fn reply_before(&self, run: &Run) -> Option<Committed> {
        let last = run.last_commit.as_ref()?;
        let is_same = last.owner == self.worker && last.epoch == self.epoch && last.revision == self.revision && last.digest == self.digest;
        is_same.then(|| last.reply.clone())
    }
}

fn answer(result: &str) -> CommitRunAnswer {
    CommitRunAnswer { result: result.to_owned(), ..CommitRunAnswer::default() }
}

fn check_size(body: &CommitRunBody) -> Result<(), ApiError> {
    for (field, count, limit) in [("steps", body.steps.len(), STEPS_MAX), ("publish", body.publish.len(), PUBLISHED_MAX)] {
        if count > limit {
            let message = format!("there are {count} {field}: send at most {limit} in one commit");
            return Err(ApiError::new(Code::BatchTooLarge, message).field(field).details(json!({ "limit": limit })));
        }
    }
    Ok(())
}

fn digest_of(body: &CommitRunBody) -> Arc<str> {
    let text = serde_json::to_vec(body).unwrap_or_default();
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

/// Values to publish, checked.
fn published(body: &CommitRunBody) -> Result<Vec<(Arc<str>, Payload)>, ApiError> {
    let value = |(key, value): (&String, &crate::http::wire::Json)| {
        names::event(format!("publish.{key}"), key)?; // a key has the form of a name
        if key.starts_with('$') {
            return Err(ApiError::new(Code::InvalidName, format!("'{key}' begins with '$': such keys are Towpath's own")).field("publish"));
        }
        let (bytes, limit) = (value.get().len() as u64, PUBLISHED_BYTES_MAX as u64);
        if bytes > limit {
            let message = format!("the value of '{key}' has {bytes} bytes: at most {limit} are kept");
            return Err(payload_too_large("publish", message, bytes, limit));
        }
        Ok((Arc::from(key.as_str()), convert::payload(value.clone())))
    };
    body.publish.iter().map(value).collect()
}

/// A run has a bounded number of published values.
async fn check_published(runs: &Arc<dyn RunStore>, run: &Run, new: &[(Arc<str>, Payload)]) -> Result<(), ApiError> {
    if new.is_empty() {
        return Ok(());
    }
    let mut keys: HashSet<Arc<str>> = runs.published(&run.run_id).await?.into_iter().map(|(key, _)| key).collect();
    keys.extend(new.iter().map(|(key, _)| Arc::clone(key)));
    if keys.len() > PUBLISHED_MAX {
        let message = format!("the run would have {} published values: at most {PUBLISHED_MAX} are kept", keys.len());
        return Err(ApiError::new(Code::BatchTooLarge, message).field("publish").details(json!({ "limit": PUBLISHED_MAX })));
    }
    Ok(())
}

async fn make(
    app: &App,
    runs: &Arc<dyn RunStore>,
    run: &Run,
    owner: Owner,
    mut book: Book,
    mut request: CommitRunBody,
) -> Result<CommitRunAnswer, ApiError> {
    let (mut published, wanted) = (published(&request)?, Wanted::of(request.then.take())?);
    check_published(runs, run, &published).await?;
    let mut deriving = Deriving { runs, run, book: &mut book, derived: Derived::default() };
    for (place, step) in std::mem::take(&mut request.steps).into_iter().enumerate() {
        deriving.take(place, step).await?;
    }
    let mut derived = deriving.derived;
    let mut entries = derived.entries();
    let (mut stays, mut usable, mut seen) = (wanted.stays(), Vec::new(), run.facts);
    let then = match wanted {
        Wanted::Stay => Then::Stay,
        Wanted::Release => Then::Release,
        Wanted::Park => {
            let inbox = Inbox::read(runs, run, &book, &derived.consumed).await?;
            derived.consumed.extend(inbox.left_over);
            (stays, seen) = (!inbox.usable.is_empty(), seen.max(inbox.latest));
            usable = inbox.usable;
            if stays { Then::Stay } else { Then::Park { wait: book.wait_set() } }
        }
        Wanted::Close(end, entry) => {
            entries.push(entry);
            Then::Close(end)
        }
        Wanted::Continue(input) => {
            Then::Continue(bodies::begin(&bodies::seed(&[book.seed(), &(run.generation + 1).to_string()]), &input, None))
        }
        Wanted::Block { cause, reason } => {
            let build = app.run_roster().hear(&owner.worker, app.clock().now()).map(|worker| worker.build);
            let (then, said) = block(cause, &reason, build);
            published.push(said);
            then
        }
    };
    let worker = owner.worker.clone();
    let step_ids = std::mem::take(&mut derived.step_ids);
    let commit = to_commit(owner, entries, derived, published, seen, then);
    let (committed, unread) = match runs.commit_run(&run.run_id, commit).await? {
        RunCommitted::Committed { committed, facts } => (committed, facts),
        refused => return Ok(refusal(&refused)),
    };
    let held = stays || committed.has_facts;
    if held {
        app.books().put(run.run_id.clone(), book.at_revision(committed.revision));
    } else {
        app.run_roster().note_left(&worker, &run.run_id);
    }
    usable.extend(unread);
    Ok(said(app, &committed, step_ids, held, &usable).await)
}

fn to_commit(owner: Owner, entries: Vec<Entry>, derived: Derived, published: Vec<(Arc<str>, Payload)>, seen: u64, then: Then) -> Commit {
    Commit {
        owner: owner.worker,
        epoch: owner.epoch,
        revision: owner.revision,
        digest: owner.digest,
        entries,
        consumed: derived.consumed,
        seen,
        armed: derived.armed,
        disarmed: derived.disarmed,
        children: derived.children,
        posts: derived.posts,
        published,
        then,
    }
}

fn refusal(refused: &RunCommitted) -> CommitRunAnswer {
    match refused {
        RunCommitted::Stale { revision } => CommitRunAnswer { revision: Some(*revision), ..answer("stale") },
        RunCommitted::HistoryFull => answer("history_full"),
        RunCommitted::WaitSetTooLarge => answer("wait_set_too_large"),
        RunCommitted::NothingToWaitFor => answer("nothing_to_wait_for"),
        RunCommitted::Lost | RunCommitted::Committed { .. } => answer("lost"),
    }
}

async fn said(app: &App, committed: &Committed, step_ids: Vec<Option<StepId>>, held: bool, facts: &[Fact]) -> CommitRunAnswer {
    CommitRunAnswer {
        result: "committed".to_owned(),
        revision: Some(committed.revision),
        step_ids: step_ids.into_iter().map(|id| id.map(String::from)).collect(),
        held,
        facts: facts.iter().map(body::fact).collect(),
        cancel_requested: committed.cancel_requested,
        paused: committed.paused,
        at: Some(committed.now.as_millis()),
        durability: Some(level(app).await),
    }
}

/// What the inbox of a run that is to be parked has.
struct Inbox {
    /// Facts that an open step can end with.
    usable: Vec<Fact>,
    /// Facts that no step needs any more.
    left_over: Vec<u64>,
    latest: u64,
}

impl Inbox {
    async fn read(runs: &Arc<dyn RunStore>, run: &Run, book: &Book, consumed: &[u64]) -> Result<Self, StoreError> {
        let mut inbox = Self { usable: Vec::new(), left_over: Vec::new(), latest: 0 };
        loop {
            let facts = runs.facts(&run.run_id, inbox.latest).await?;
            let Some(last) = facts.last() else { return Ok(inbox) };
            inbox.latest = last.number;
            for fact in facts.into_iter().filter(|fact| !consumed.contains(&fact.number)) {
                if book.can_use(&fact.kind) {
                    inbox.usable.push(fact);
                } else if book.is_left_over(&fact.kind) {
                    inbox.left_over.push(fact.number);
                }
            }
            if !inbox.usable.is_empty() {
                return Ok(inbox);
            }
        }
    }
}

/// The answer to a commit that was made before: the same again.
async fn repeated(
    app: &App,
    runs: &Arc<dyn RunStore>,
    run: &Run,
    owner: &Owner,
    request: &CommitRunBody,
    reply: Committed,
) -> Result<CommitRunAnswer, ApiError> {
    let step_ids = opened_before(runs, &run.run_id, request, reply.first_entry).await?;
    let held = owner.has(run);
    let facts = if held && request.then.as_ref().is_some_and(|then| then.kind == "park") {
        let book = Book::read(runs, run).await?;
        Inbox::read(runs, run, &book, &[]).await?.usable
    } else {
        Vec::new()
    };
    Ok(said(app, &reply, step_ids, held, &facts).await)
}

/// The ids of the steps of a commit that was made before: its `open` entries are in the order of the request.
async fn opened_before(
    runs: &Arc<dyn RunStore>,
    run_id: &RunId,
    request: &CommitRunBody,
    first_entry: u64,
) -> Result<Vec<Option<StepId>>, ApiError> {
    let journal = runs.journal(run_id, first_entry, super::super::look::JOURNAL_PAGE_BYTES).await?;
    let mut opened = journal.into_iter().filter(|entry| entry.entry.kind == EntryKind::Open).filter_map(|entry| entry.entry.step);
    let id = |(place, step): (usize, &crate::http::wire::run_workers::StepBody)| match (&step.step, &step.step_id) {
        (Some(_), _) => Ok(opened.next()),
        (None, Some(text)) => names::step_id(format!("steps[{place}].step_id"), text).map(Some),
        (None, None) => Ok(None),
    };
    request.steps.iter().enumerate().map(id).collect()
}
