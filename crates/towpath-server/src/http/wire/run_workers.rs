//! Workers of workflow runs on the wire: any program that speaks HTTP can execute workflows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::runs::JournalEntryBody;
use super::{Json, object};

/// A worker that introduces itself. Doing it again replaces what it said before.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterRunWorkerBody {
    /// Which worker; made by the server when absent. A process that starts anew takes a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// The build of its code: another text for other code. Runs that did not fit another build are ready again.
    pub build: String,
    /// What it serves, 1 to 100 workflows.
    #[serde(deserialize_with = "object::list")]
    pub workflows: Vec<ServedWorkflowBody>,
    /// How long it may be silent before other workers take over its runs. Default 15,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 500, maximum = 3_600_000)]
    pub lease_ms: Option<u64>,
}

/// A workflow as a worker serves it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServedWorkflowBody {
    /// Its name.
    pub workflow: String,
    /// Its version.
    pub version: String,
    /// The shard. Default: runs without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
}

/// A worker is known.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunWorkerRegistered {
    /// Use it in the paths below `/v1/run-workers/`.
    pub worker_id: String,
    /// A claimed run is taken over when it was not renewed for this long.
    pub lease_ms: u64,
    /// Renew this often.
    pub renew_ms: u64,
    /// How many runs are ready again because of this build.
    pub unblocked: u64,
}

/// Request body of a claim of runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRunsBody {
    /// At most this many runs. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    pub max: Option<u32>,
    /// How long to wait for the first one. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 60_000)]
    pub wait_ms: Option<u64>,
}

/// What a claim got; empty when nothing came in time.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClaimedRuns {
    /// The runs.
    pub runs: Vec<ClaimedRunBody>,
}

/// A run in a worker's hands.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClaimedRunBody {
    /// Which run.
    pub run_id: String,
    /// Its workflow.
    pub workflow: String,
    /// Its version.
    pub version: String,
    /// Its shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The number of this claim: it goes with every commit and renewal.
    pub epoch: u64,
    /// What the first commit builds on.
    pub revision: u64,
    /// How often the run was continued as new. Each generation has a journal of its own.
    pub generation: u64,
    /// Until when the worker may be silent.
    pub lease_until: i64,
    /// A caller wants it cancelled.
    pub cancel_requested: bool,
    /// What came from outside and is not consumed: the first 1,000 facts, about 256 KiB.
    pub facts: Vec<FactBody>,
    /// The journal of this generation: the first 256 KiB.
    pub journal: Vec<JournalEntryBody>,
    /// Read on with GET /v1/runs/{run_id}/journal?from= this; absent when the journal is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_next: Option<u64>,
}

/// What came from outside.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FactBody {
    /// Its number: an entry that uses it names it.
    pub number: u64,
    /// When it came.
    pub at: i64,
    /// `event`, `timer_due`, `child_closed` or `cancel`.
    pub kind: String,
    /// The name of an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// The step of a timer or a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// The data of an event; how a child ended, as in its `close` entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub data: Option<Json>,
    /// Why a caller wants the run cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a worker's execution of a run has come to. It is written as a whole or not at all; the same request again is the same commit.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitRunBody {
    /// Which worker.
    pub worker_id: String,
    /// The epoch of its claim.
    pub epoch: u64,
    /// The revision that the claim or the commit before gave.
    pub revision: u64,
    /// Steps that the code has issued, and results, at most 500.
    #[serde(default, deserialize_with = "object::list")]
    pub steps: Vec<StepBody>,
    /// Values for people and programs outside, by key: at most 100 of 64 KiB. A key does not begin with `$`.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub publish: BTreeMap<String, Json>,
    /// What becomes of the run. Default: the worker goes on with it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub then: Option<ThenBody>,
}

/// A step that the code has issued (`step`), or one that the journal has (`step_id`), and its result if there is one.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepBody {
    /// A new step.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub step: Option<NewStepBody>,
    /// A step of the journal. Neither this nor `step`: `fact` is a cancellation that the code has noticed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// How a task ended: `ok` or `err`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// The result of a task, with `ok`: any JSON, at most 1 MiB. Default `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub value: Option<Json>,
    /// The error of a task, with `err`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub error: Option<RunErrorBody>,
    /// The number of the fact that ends a sleep, an event or a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fact: Option<u64>,
}

/// A step that the code has issued.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewStepBody {
    /// `task`, `sleep`, `event`, `child` or `send`.
    pub kind: String,
    /// The name of a task, of an event (`event`, `send`), of a child's workflow. A sleep has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What tells it from other steps of its kind and name, instead of its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The input of a task or a child, the data of a `send`: any JSON. A task without one is known by its name alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub input: Option<Json>,
    /// How long a sleep takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 3_162_240_000_000_u64)]
    pub sleep_ms: Option<u64>,
    /// When a sleep ends, instead of `sleep_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
    /// How long the run waits for an event. Default: forever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3_162_240_000_000_u64)]
    pub deadline_ms: Option<u64>,
    /// The version of a child's workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What becomes of an open child when the run closes: `cancel` (the default), `terminate` or `abandon`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_close: Option<String>,
    /// The run that a `send` is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// An error of a task or of a run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunErrorBody {
    /// A word for programs. Default `handler_error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// A sentence for people.
    pub message: String,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub details: Option<Json>,
}

/// What becomes of a run with a commit.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ThenBody {
    /// `stay`: the worker goes on. `park`: no worker has it until an open step can end. `complete`, `fail`, `cancel`: it ends. `continue`:
    /// it begins anew with another input and an empty journal. `release`: another worker goes on. `block`: a person or another build must
    /// help.
    pub kind: String,
    /// The result, with `complete`. Default `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub value: Option<Json>,
    /// The error, with `fail`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub error: Option<RunErrorBody>,
    /// The next input, with `continue`. Default `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub input: Option<Json>,
    /// Why, with `block`: `nondeterminism`, `panicked`, `decode`, `history_full` or `exhausted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// A sentence for people, with `block` and `cancel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a commit has come to.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct CommitRunAnswer {
    /// `committed`, now or already before. Of all others nothing was written. `lost`: the run is not this worker's any more; stop. `stale`:
    /// the store has another revision; claim again. `history_full`: the journal takes no new steps; block the run, or continue as new.
    /// `nothing_to_wait_for`: nothing could wake the parked run. `wait_set_too_large`: it would wait for too much.
    pub result: String,
    /// The revision of the next commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The ids of the steps, in the order of the request; `null` for a cancellation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub step_ids: Vec<Option<String>>,
    /// The worker has the run still: it stays, or there are facts that it has not used.
    pub held: bool,
    /// Facts that open steps can use, if the run was to be parked and was not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<FactBody>,
    /// A caller wants the run cancelled.
    pub cancel_requested: bool,
    /// Start no new task; release the run.
    pub paused: bool,
    /// When, by the store's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<i64>,
    /// What the acknowledgement is worth: `memory`, `everysec`, `always`, `replicated` or `fsync`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
}

/// Request body of a renewal.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRunsBody {
    /// The runs that the worker executes, at most 1,000.
    #[serde(default, deserialize_with = "object::list")]
    pub runs: Vec<HeldRunBody>,
    /// Keep this request open for this long, or until something comes for one of the runs. It is renewed meanwhile. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 60_000)]
    pub wait_ms: Option<u64>,
}

/// A claim of a run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldRunBody {
    /// Which run.
    pub run_id: String,
    /// The epoch of the claim.
    pub epoch: u64,
    /// The number of the latest fact that the worker knows of. With `wait_ms`, the answer comes at once if there is a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_fact: Option<u64>,
}

/// What a renewal learns, in the order of the request.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RenewRunsAnswer {
    /// One entry per run.
    pub runs: Vec<RenewedRunBody>,
}

/// What became of a claim.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RenewedRunBody {
    /// Which run.
    pub run_id: String,
    /// `held`, or `lost`: it is not this worker's any more; stop.
    pub result: String,
    /// Until when the worker may be silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<i64>,
    /// The number of the latest fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_fact: Option<u64>,
    /// A caller wants it cancelled.
    pub cancel_requested: bool,
    /// Start no new task; release the run.
    pub paused: bool,
}

/// A worker left.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunWorkerLeft {
    /// Runs that other workers can take at once.
    pub released: u64,
}
