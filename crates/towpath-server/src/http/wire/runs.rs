//! Workflow runs on the wire, as callers see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::calls::FailureBody;
use super::{Json, object};

/// A run to start.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRunBody {
    /// Which workflow.
    pub workflow: String,
    /// In which version. Default: the only version that the server knows of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The shard whose workers execute it. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// Its input: any JSON, at most 1 MiB. Default `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub input: Option<Json>,
    /// Your own name for it, unique per workflow: starting it again is the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// What becomes of a start whose reference is taken by a run with another input: `refuse` (the default) or `return_existing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<String>,
    /// Whether the reference can be used again: `never` (the default), while the run can be read, or `after_closed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse: Option<String>,
    /// It starts after this. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 604_800_000)]
    pub delay_ms: Option<u64>,
    /// It is cancelled after this if it is still open, and terminated a minute later. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3_162_240_000_000_u64)]
    pub deadline_ms: Option<u64>,
    /// How long it can be read after its end. Default 604,800,000, a week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 2_592_000_000_u64)]
    pub retain_ms: Option<u64>,
    /// An event that the run receives in the same move, whether it is new or was started before.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub event: Option<SendBody>,
}

/// A run was started, now or before.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunStarted {
    /// Which run.
    pub run_id: String,
    /// Where it stands.
    pub state: String,
    /// It was started before, under the same reference; nothing new was started.
    pub existing: bool,
    /// What became of the event: `accepted`, `duplicate`, `mailbox_full` or `run_closed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// What the acknowledgement is worth: `memory`, `everysec`, `always`, `replicated` or `fsync`.
    pub durability: String,
    /// `no_worker_seen`: no worker is known to have served this workflow in this version. The run waits for one.
    pub warnings: Vec<String>,
}

/// An event for one run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SendBody {
    /// What it is called. A run waits for events by name.
    pub event: String,
    /// Its data: any JSON, at most 1 MiB. Default `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub data: Option<Json>,
    /// Events with the same name and reference are the same event, for a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// An event for many runs: `run_ids`, or `workflow` and `references`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SendManyBody {
    /// What it is called.
    pub event: String,
    /// Its data: any JSON, at most 1 MiB. Default `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub data: Option<Json>,
    /// Events with the same name and reference are the same event, for a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The runs, at most 1,000.
    #[serde(default)]
    pub run_ids: Vec<String>,
    /// The workflow that the references belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The references of the runs, at most 1,000.
    #[serde(default)]
    pub references: Vec<String>,
}

/// What became of an event.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventSentBody {
    /// Which run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The reference of the run, where it was asked for by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// `accepted`, or `duplicate`: it came before. Of many also `mailbox_full`, `run_closed` and `run_not_found`: nothing was done.
    pub result: String,
    /// Its number in the run's inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Where a run that has closed stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// An event was sent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SendAnswer {
    /// What became of it.
    #[serde(flatten)]
    pub sent: EventSentBody,
    /// What the acknowledgement is worth: `memory`, `everysec`, `always`, `replicated` or `fsync`.
    pub durability: String,
}

/// What became of an event for many runs, in the order in which they were named.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SendManyAnswer {
    /// One entry per run.
    pub results: Vec<EventSentBody>,
    /// What the acknowledgement is worth: `memory`, `everysec`, `always`, `replicated` or `fsync`.
    pub durability: String,
}

/// Why something is asked of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonBody {
    /// A sentence for people. It stands in the journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a caller asked of a run is done.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunRequestAnswer {
    /// Which run.
    pub run_id: String,
    /// Where it stands now.
    pub state: String,
    /// What the acknowledgement is worth: `memory`, `everysec`, `always`, `replicated` or `fsync`.
    pub durability: String,
}

/// A run, without the payloads of its journal.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunBody {
    /// Which run.
    pub run_id: String,
    /// Its workflow.
    pub workflow: String,
    /// In which version. It never changes.
    pub version: String,
    /// Its shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The caller's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// `delayed`, `ready`, `running`, `waiting`, `blocked`, `completed`, `failed`, `cancelled` or `terminated`.
    pub state: String,
    /// Why it is blocked, or backs off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// A sentence: what an open run waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// No worker starts anything for it.
    pub paused: bool,
    /// A caller wants it cancelled.
    pub cancel_requested: bool,
    /// How often it was continued as new.
    pub generation: u64,
    /// How many entries the journal of this generation has.
    pub entries: u64,
    /// How many bytes they have.
    pub journal_bytes: u64,
    /// How many events in its inbox are not consumed.
    pub unconsumed_events: u32,
    /// How many workers in a row fell silent while they executed it.
    pub deliveries: u32,
    /// The worker that executes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// Until when that may be silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<i64>,
    /// What a parked run waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsForBody>,
    /// The run that started it as a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Builds of workers that it did not fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfit_builds: Vec<String>,
    /// When it was created.
    pub created_at: i64,
    /// When its state last changed.
    pub changed_at: i64,
    /// When it starts, if it is delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<i64>,
    /// When it is cancelled, if it is still open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<i64>,
    /// Until when it backs off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_off_until: Option<i64>,
    /// When it closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<i64>,
    /// Until when a closed run can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<i64>,
    /// How it ended. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcomeBody>,
}

/// What a parked run waits for. The first of these wakes it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct WaitsForBody {
    /// Names of events.
    pub events: Vec<String>,
    /// When its timers are due, the earliest first; at most 100 are listed.
    pub timers: Vec<i64>,
    /// How many children are open.
    pub children: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunOutcomeBody {
    /// `completed`, `failed`, `cancelled` or `terminated`.
    pub kind: String,
    /// Its result, with `completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub data: Option<Json>,
    /// Its error, with `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureBody>,
    /// Why, with `cancelled` and `terminated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A page of runs, those created last first. They carry no payloads.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunList {
    /// The runs.
    pub runs: Vec<RunBody>,
    /// Ask for the next page with `cursor=` this; absent on the last page. A page may have fewer runs than asked for, even none, and a next
    /// one all the same: one page looks at a bounded number of runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which runs to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RunQuery {
    /// Only runs of this workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Only runs of this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Only runs of this shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// Only runs in these states, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Only runs that are blocked or back off for this cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Only children of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Only runs with this reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Only runs created at this instant or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Only runs created before this instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// Where the page before ended: its `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most this many, 1 to 200. Default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// How long to wait for the end of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RunWaitQuery {
    /// At most 60,000. Default 30,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// Which entries of a journal.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JournalQuery {
    /// From this number on. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// At most this many, 1 to 200. Default 200. A page ends with the entry that reaches 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A page of a journal.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JournalPage {
    /// The generation that it belongs to.
    pub generation: u64,
    /// The entries, by number.
    pub entries: Vec<JournalEntryBody>,
    /// Ask for the next page with `from=` this; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// An entry of a journal.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JournalEntryBody {
    /// Its number, from 0.
    pub number: u64,
    /// When it was written.
    pub at: i64,
    /// `begin`, `open`, `start`, `attempt`, `done`, `mark`, `cancel` or `close`.
    pub kind: String,
    /// Of which step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// What it says, as decision 051 lists it.
    #[schema(value_type = Value)]
    pub body: Json,
}

/// The values that the code of a run has published, by key.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PublishedBody {
    /// The latest value of each key.
    #[schema(value_type = Object)]
    pub published: BTreeMap<String, Json>,
}

/// Workflows of which there are runs, or workers.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WorkflowList {
    /// By name, version and shard.
    pub workflows: Vec<WorkflowBody>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A workflow in one version and shard.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WorkflowBody {
    /// Its name.
    pub workflow: String,
    /// Its version.
    pub version: String,
    /// Its shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The name of its stream.
    pub stream: String,
    /// How many runs it has in each state that has any.
    pub runs: BTreeMap<String, u64>,
    /// Pull workers of this server that serve it.
    pub pull_workers: u64,
    /// Since when its oldest ready run waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ready_at: Option<i64>,
}
