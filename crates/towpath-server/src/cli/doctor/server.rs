//! The server: does it answer, is it healthy, and do calls wait that no worker serves.

use std::time::Duration;

use towpath_server::doctor::Finding;
use towpath_server::http::wire::batches::{BatcherBody, BatcherList};
use towpath_server::http::wire::doctor::DoctorBody;
use towpath_server::http::wire::functions::{FunctionBody, FunctionList};
use towpath_server::http::wire::health::HealthBody;

use crate::cli::client::{Ask, Client, RequestError, routes};
use crate::cli::words;

/// Work that has waited this long deserves a look.
const OLD: Duration = Duration::from_secs(60);
/// A doctor does not wait long for a pulse.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// An examination measures a disk, or sends some hundred commands to a Redis.
const EXAMINED_WITHIN: Duration = Duration::from_secs(60);

/// More dead letters than anybody looks at one by one.
const DEAD_LETTERS_MANY: u64 = 10_000;

/// What a server said about itself.
pub(crate) struct Checked {
    /// What was found.
    pub(crate) findings: Vec<Finding>,
    /// How it is, if it said so.
    pub(crate) health: Option<HealthBody>,
    /// The status with which it refused to say how it is.
    pub(crate) refused: Option<u16>,
}

/// Asks the server. `asked_for`: the user named it, so its absence is a failure and not just a remark.
pub(crate) async fn check(client: &Client, asked_for: bool) -> Checked {
    let asked: Result<HealthBody, RequestError> = client.ask(Ask::get(routes::HEALTH).within(ANSWER_WITHIN)).await;
    match asked {
        Err(error) => {
            let refused = if let RequestError::Refused { status, .. } = &error { Some(*status) } else { None };
            Checked { findings: vec![no_answer(&error, asked_for)], health: None, refused }
        }
        Ok(health) => {
            let mut findings = vec![says(client, &health)];
            findings.extend(work(client, &health).await);
            Checked { findings, health: Some(health), refused: None }
        }
    }
}

/// Lets the server examine its store. `None`: it is of a version that cannot.
pub(crate) async fn examine(client: &Client) -> Option<Result<DoctorBody, RequestError>> {
    match client.ask(Ask::get(routes::DOCTOR).within(EXAMINED_WITHIN)).await {
        Err(RequestError::Refused { status: 404, .. }) => None,
        answered => Some(answered),
    }
}

/// Names that lead nowhere, of a store that was examined already.
pub(crate) async fn names(client: &Client) -> Vec<Finding> {
    let answered: Result<DoctorBody, RequestError> =
        client.ask(Ask::get(&format!("{}?store=false", routes::DOCTOR)).within(EXAMINED_WITHIN)).await;
    answered.map(|body| body.checks).unwrap_or_default()
}

fn no_answer(error: &RequestError, asked_for: bool) -> Finding {
    let message = error.brief();
    match error {
        RequestError::Unreachable { .. } if !asked_for => {
            Finding::warn("server", message, "start one with `towpath dev` or `towpath serve`, or name it with --server URL")
        }
        RequestError::Refused { status: 401 | 403, .. } => {
            Finding::fail("server", message, "give its key with --api-key or TOWPATH_API_KEY")
        }
        RequestError::Refused { .. } => Finding::fail("server", message, "do what the message says, or look at the server's log"),
        _ => Finding::fail("server", message, "start it with `towpath serve`, or name another with --server URL"),
    }
}

fn says(client: &Client, health: &HealthBody) -> Finding {
    let (ours, up) = (env!("CARGO_PKG_VERSION"), words::length(Duration::from_millis(health.uptime_ms)));
    let message = format!("{} answers: version {}, up {up}, store {}", client.server(), health.version, health.store);
    match health.status.as_str() {
        "draining" => Finding::warn("server", format!("{message}, but it is stopping"), "wait for its successor"),
        _ if health.version != ours => Finding::info("server", message, format!("this towpath is {ours}: use one version on both sides")),
        _ => Finding::ok("server", message),
    }
}

/// What waits, what is old, what was given up.
async fn work(client: &Client, health: &HealthBody) -> Vec<Finding> {
    let list: Result<FunctionList, RequestError> = client.get_all(routes::FUNCTIONS).await;
    let mut findings = match list {
        Ok(list) => backlog(&list.functions),
        Err(error) => vec![Finding::warn("backlog", format!("functions cannot be listed: {}", error.brief()), "look at the server's log")],
    };
    findings.push(oldest(health));
    findings.extend(batches(client).await);
    findings.push(match health.dead {
        0 => Finding::ok("dead letters", "none"),
        dead => Finding::info("dead letters", words::plural(dead, "call"), "see why with `towpath dlq ls`, then replay or drop them"),
    });
    findings
}

/// Batchers that hold what they gather, and batches that were given up. A store without batches has nothing to say.
async fn batches(client: &Client) -> Vec<Finding> {
    let list: Result<BatcherList, RequestError> = client.get_all(routes::BATCHES).await;
    let Ok(list) = list else { return Vec::new() };
    let held: Vec<Finding> = list.batchers.iter().filter_map(held).collect();
    let dead: u64 = list.batchers.iter().map(|batcher| batcher.dead_letters).sum();
    let mut findings = if held.is_empty() { vec![Finding::ok("batches", "every batcher in use has a target")] } else { held };
    if dead > DEAD_LETTERS_MANY {
        let message = format!("{dead} dead letters of batches");
        findings.push(Finding::warn("batches", message, "see why with `towpath dlq ls --batches`, then replay or drop them"));
    } else if dead > 0 {
        let message = words::plural(dead, "dead letter") + " of batches";
        findings.push(Finding::info("batches", message, "see why with `towpath dlq ls --batches`, then replay or drop them"));
    }
    findings
}

fn held(batcher: &BatcherBody) -> Option<Finding> {
    let (name, messages) = (&batcher.batcher, batcher.open_messages);
    // Everybody has that one, whether it is used or not.
    let is_idle = name == "input_contour" && messages == 0;
    (batcher.target == "none" && !is_idle).then(|| {
        let message = format!("batcher '{name}' has no target and holds {}", words::plural(messages, "message"));
        let advice =
            format!("give it one: `towpath batch settings {name} --set target='{{\"url\": ..}}'`, or let a worker receive its batches");
        Finding::warn("batches", message, advice)
    })
}

fn backlog(functions: &[FunctionBody]) -> Vec<Finding> {
    let unserved = functions.iter().filter(|function| function.healthy_workers == 0 && function.target.is_none());
    let stuck: Vec<Finding> = unserved
        .filter(|function| function.queued + function.delayed > 0)
        .map(|function| {
            let (name, waiting) = (&function.name, words::plural(function.queued + function.delayed, "call"));
            let advice = format!("start a worker, such as `towpath worker {name} --exec CMD`");
            Finding::warn("backlog", format!("{waiting} of '{name}' and no healthy worker"), advice)
        })
        .collect();
    if stuck.is_empty() { vec![Finding::ok("backlog", "everything that waits is served")] } else { stuck }
}

fn oldest(health: &HealthBody) -> Finding {
    match health.oldest_queued_age_ms.map(Duration::from_millis) {
        None => Finding::ok("oldest call", "nothing waits"),
        Some(age) if age > OLD => {
            Finding::warn("oldest call", format!("has waited for {}", words::length(age)), "add workers, or raise their --concurrency")
        }
        Some(age) => Finding::ok("oldest call", format!("has waited for {}", words::length(age))),
    }
}
