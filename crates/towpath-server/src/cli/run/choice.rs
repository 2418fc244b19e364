//! Which runs a command is about: named by their ids, or by a filter.

use clap::Args;
use towpath_core::run::RunState;
use towpath_server::http::wire::runs::{RunList, RunQuery};

use super::look::check_words;
use crate::cli::client::{Client, routes};
use crate::cli::failure::Failure;
use crate::cli::words;

/// The largest page that the server gives.
const PAGE: u32 = 200;
/// One command changes this many runs at most.
const RUNS_MAX: usize = 10_000;

#[derive(Args, Debug)]
pub(super) struct ChoiceArgs {
    /// The ids of the runs
    #[arg(value_name = "ID", required_unless_present_any = ["workflow", "state"], conflicts_with_all = ["workflow", "state", "yes"])]
    ids: Vec<String>,
    /// All open runs of this workflow instead; needs --yes
    #[arg(long, value_name = "NAME[@VERSION]")]
    workflow: Option<String>,
    /// All runs in these states instead, separated by commas; needs --yes
    #[arg(long, value_name = "STATES")]
    state: Option<String>,
    /// Do it for every run that the filter matches
    #[arg(long, short)]
    yes: bool,
}

impl ChoiceArgs {
    /// The ids of the runs. They are collected before anything is changed, so that a change does not shift the pages.
    pub(super) async fn ids(self, client: &Client, verb: &str) -> Result<Vec<String>, Failure> {
        if !self.ids.is_empty() {
            return Ok(self.ids);
        }
        let ids = matching(client, self.query()?).await?;
        if ids.is_empty() || self.yes {
            return Ok(ids);
        }
        let count = words::plural(ids.len() as u64, "run");
        Err(Failure::usage("missing_yes", format!("{count} would be asked to {verb}; nothing was done"))
            .field("yes")
            .hint("repeat it with --yes; `towpath run ls` with the same filter shows them"))
    }

    fn query(&self) -> Result<RunQuery, Failure> {
        check_words("state", self.state.as_deref(), &RunState::ALL.map(RunState::as_str))?;
        let open = || RunState::ALL.into_iter().filter(|state| !state.is_closed()).map(RunState::as_str).collect::<Vec<_>>().join(",");
        let (workflow, version) = match self.workflow.as_deref().map(|text| text.rsplit_once('@').unwrap_or((text, ""))) {
            Some((workflow, version)) => (Some(workflow.to_owned()), Some(version.to_owned()).filter(|version| !version.is_empty())),
            None => (None, None),
        };
        Ok(RunQuery { workflow, version, state: Some(self.state.clone().unwrap_or_else(open)), limit: Some(PAGE), ..RunQuery::default() })
    }
}

async fn matching(client: &Client, query: RunQuery) -> Result<Vec<String>, Failure> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let page: RunList = client.get(&routes::with_query(routes::RUNS, &RunQuery { cursor, ..query.clone() })).await?;
        ids.extend(page.runs.into_iter().map(|run| run.run_id));
        cursor = page.next;
        if cursor.is_none() || ids.len() >= RUNS_MAX {
            ids.truncate(RUNS_MAX);
            return Ok(ids);
        }
    }
}
