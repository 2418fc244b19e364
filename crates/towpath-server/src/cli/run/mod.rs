//! `towpath run`: workflow runs started, looked at, awaited, sent events, and asked to stop or to go on.

mod ask;
mod choice;
mod end;
mod export;
mod look;
mod start;

use clap::{Args, Subcommand};

use super::client::Client;
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;

const EXAMPLES: &str = "\
A run is one execution of a workflow. A worker executes its steps; a step with a
recorded result never runs again, whatever crashes. `show` says why a run is not
moving: which event, timer or worker it waits for, or what blocks it.

Examples:
  towpath run start order@1.0.0 --input @order.json --reference order-42
                                       sent twice, it is the same run
  towpath run start order@1.0.0 --input '{\"id\":42}' --wait
                                       prints its result when it is over
  towpath run ls --state blocked       what needs a person
  towpath run show ID                  all that is known of one
  towpath run show ID --journal        and every step that it has taken
  towpath run send ID approved --data '{\"granted\":true}'
  towpath run wait ID --timeout 30s
  towpath run cancel ID --reason 'the customer changed her mind'
  towpath run terminate ID             ends it without running its code
  towpath run pause ID; towpath run resume ID
  towpath run resume --state blocked --workflow order --yes
                                       all that a filter matches
  towpath run export ID -o run.ndjson  journal and inbox, as lines of JSON

start exits 6 when a run with the same reference was started before, send when
the event came before, cancel and the like when the run had closed before. wait
exits 1 when the run failed, was cancelled or terminated, 4 when it is not over.";

/// Start, watch and steer runs of workflows
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(subcommand)]
    command: RunCommand,
}

impl RunArgs {
    /// Whether it may begin a store.
    pub(crate) const fn puts_something(&self) -> bool {
        matches!(self.command, RunCommand::Start(_))
    }
}

#[derive(Subcommand, Debug)]
enum RunCommand {
    /// Start a run and print its id
    Start(start::StartArgs),
    /// Show one run, and why it is not moving
    Show(look::ShowArgs),
    /// List runs, those created last first
    #[command(alias = "list")]
    Ls(look::ListArgs),
    /// Wait for the end of a run and print its result
    Wait(end::WaitArgs),
    /// Send an event to a run
    Send(ask::SendArgs),
    /// Have its code end a run, with clean-up
    Cancel(ask::EndArgs),
    /// End a run at once, without running its code
    Terminate(ask::EndArgs),
    /// Start nothing more for a run; events and timers gather
    Pause(choice::ChoiceArgs),
    /// Go on with a run that is paused or blocked
    Resume(choice::ChoiceArgs),
    /// Write a run's journal and inbox as lines of JSON
    Export(export::ExportArgs),
}

pub(crate) async fn run(client: &Client, out: Output, args: RunArgs) -> Result<Exit, Failure> {
    match args.command {
        RunCommand::Start(args) => start::start(client, out, args).await,
        RunCommand::Show(args) => look::show(client, out, &args).await,
        RunCommand::Ls(args) => look::list(client, out, &args).await,
        RunCommand::Wait(args) => end::wait(client, out, &args).await,
        RunCommand::Send(args) => ask::send(client, out, args).await,
        RunCommand::Cancel(args) => ask::end(client, out, "cancel", args).await,
        RunCommand::Terminate(args) => ask::end(client, out, "terminate", args).await,
        RunCommand::Pause(args) => ask::ask_all(client, out, "pause", args, None).await,
        RunCommand::Resume(args) => ask::ask_all(client, out, "resume", args, None).await,
        RunCommand::Export(args) => export::export(client, out, &args).await,
    }
}
