//! Asking for a lock until it is granted: the server holds a request for a while, and the same question again keeps its place.

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use towpath_server::http::wire::decimal::Decimal;
use towpath_server::http::wire::locks::{AcquireAnswer, AcquireBody, CancelLockBody};

use crate::cli::client::{Ask, Client, routes};
use crate::cli::failure::Failure;
use crate::cli::{time, words};

/// How long the server may hold a request that waits.
const HELD_AT_MOST: Duration = Duration::from_secs(60);
/// A question whose answer was lost is put again so soon.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Which lock, for whom.
#[derive(Args, Debug)]
pub(super) struct AskArgs {
    /// What is locked
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(super) scope: String,
    /// How long it can be held at the longest
    #[arg(long, value_name = "TIME", value_parser = words::parse_length, default_value = "1d")]
    pub(super) ttl: Duration,
    /// Wait so long for it, first come first served [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    wait: Option<Duration>,
    /// Who asks [default: a new id]
    #[arg(long, value_name = "ID")]
    lock_id: Option<String>,
    /// The execution that it belongs to
    #[arg(long, value_name = "ID")]
    execution_id: Option<String>,
    /// What kind of lock
    #[arg(long, value_parser = ["exclusive", "read", "write", "semaphore"], default_value = "exclusive")]
    pub(super) kind: String,
    /// How many units a semaphore has
    #[arg(long, value_name = "N", required_if_eq("kind", "semaphore"))]
    limit: Option<u32>,
    /// How many units are wanted
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
}

/// Milliseconds for the wire.
pub(super) fn decimal_ms(length: Duration) -> Decimal {
    Decimal(length.as_secs_f64() * 1_000.0)
}

/// Seconds for the wire, rounded up to what a person could have meant.
fn whole_ms(left: Duration) -> Decimal {
    Decimal(left.as_micros().div_ceil(1_000) as f64 / 1_000.0)
}

/// Takes a question back whose command has ended.
pub(super) async fn take_back(client: &Client, args: &AskArgs, request_id: &str) -> Result<(), Failure> {
    let body = CancelLockBody { request_id: request_id.to_owned(), kind: Some(args.kind.clone()), lock_id: args.lock_id.clone() };
    Ok(client.done(Ask::post(&routes::lock_verb(&args.scope, "cancel"), &body)).await?)
}

/// Asks until the lock is granted, refused, or the wait is over.
pub(super) async fn ask(client: &Client, args: &AskArgs, lease: Option<Duration>, request_id: &str) -> Result<AcquireAnswer, Failure> {
    let mut body = AcquireBody {
        kind: Some(args.kind.clone()),
        lock_id: args.lock_id.clone(),
        execution_id: args.execution_id.clone(),
        workflow_name: Some("towpath lock".to_owned()),
        ttl_seconds: Some(Decimal(args.ttl.as_secs_f64())),
        lease_ms: lease.map(decimal_ms),
        wait: Some(args.wait.is_some()),
        request_id: Some(request_id.to_owned()),
        limit: args.limit.map(|limit| Decimal(f64::from(limit))),
        weight: args.weight.map(|weight| Decimal(f64::from(weight))),
        ..AcquireBody::default()
    };
    let target = routes::lock_verb(&args.scope, "acquire");
    let until = time::now() + args.wait.unwrap_or_default();
    loop {
        let left = until.saturating_duration_since(time::now());
        body.max_wait_seconds = args.wait.map(|_| whole_ms(left));
        match client.ask::<AcquireAnswer>(Ask::post(&target, &body).waiting(HELD_AT_MOST)).await {
            Ok(answer) if answer.acquired => return Ok(answer),
            Ok(_still_waiting) => {}
            Err(error) if error.may_pass() && !left.is_zero() => time::sleep(AGAIN_AFTER.min(left)).await,
            Err(error) => return Err(error.into()),
        }
    }
}
