//! `towpath workers`: who serves functions, and whether they were heard of lately.

use clap::{Args, Subcommand};
use comfy_table::{Cell, Color};
use towpath_server::http::wire::workers::{FunctionRef, WorkerBody, WorkerList};

use super::client::{Client, routes};
use super::exit::Exit;
use super::failure::Failure;
use super::output::{self, Output};
use super::words;

/// List workers
#[derive(Args, Debug)]
pub(crate) struct WorkersArgs {
    #[command(subcommand)]
    command: Option<WorkersCommand>,
}

#[derive(Subcommand, Debug)]
enum WorkersCommand {
    /// List all workers (the default)
    #[command(alias = "list")]
    Ls,
}

pub(crate) async fn run(client: &Client, out: Output, args: WorkersArgs) -> Result<Exit, Failure> {
    match args.command.unwrap_or(WorkersCommand::Ls) {
        WorkersCommand::Ls => list(client, out).await,
    }
}

async fn list(client: &Client, out: Output) -> Result<Exit, Failure> {
    let list: WorkerList = client.get_all(routes::WORKERS).await?;
    if out.is_json() {
        out.json(&list);
        return Ok(Exit::Done);
    }
    if list.workers.is_empty() {
        out.note("no worker is known; start one with `towpath worker NAME --exec CMD`");
        return Ok(Exit::Done);
    }
    let mut table = output::table(["worker", "kind", "health", "running", "heard", "functions"]);
    for worker in &list.workers {
        table.add_row(row(worker));
    }
    out.table(&table);
    Ok(Exit::Done)
}

fn row(worker: &WorkerBody) -> Vec<Cell> {
    let health = if worker.healthy { Cell::new("healthy").fg(Color::Green) } else { Cell::new("silent").fg(Color::Red) };
    let functions: Vec<String> = worker.functions.iter().map(full_name).collect();
    vec![
        Cell::new(&worker.worker_id),
        Cell::new(&worker.kind),
        health,
        output::count(worker.running),
        Cell::new(words::ago(worker.last_heartbeat)),
        Cell::new(functions.join(", ")),
    ]
}

fn full_name(function: &FunctionRef) -> String {
    if function.scope == "__global__" { function.name.clone() } else { format!("{}:{}", function.scope, function.name) }
}
