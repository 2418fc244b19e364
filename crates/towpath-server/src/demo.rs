//! A few functions and a workflow to play with, for `towpath dev`.

mod trial;

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Number, Value, json};
use towpath::{CallContext, FunctionOptions, HandlerError, RunningWorker, Towpath, WorkerError};

const FIBONACCI_MAX: u32 = 20;

/// Starts a worker that serves the demo functions, and the demo workflow.
pub async fn start(towpath: &Towpath, drain_timeout: Duration) -> Result<RunningWorker, WorkerError> {
    let clock = towpath.clock().clone();
    towpath
        .worker()
        .kind("demo")
        .drain_timeout(drain_timeout)
        .function_with(hello_options(), |p: Hello, _ctx: CallContext| async move { Ok::<_, HandlerError>(format!("Hello, {}!", p.name)) })
        .function_with(add_options(), |p: Add, _ctx: CallContext| async move { Ok::<_, HandlerError>(add(&p)) })
        .function_with(fibonacci_options(), |p: Fibonacci, ctx: CallContext| async move { fibonacci(p.n, &ctx).await })
        .function_with(slow_options(), move |p: Slow, ctx: CallContext| {
            let clock = clock.clone();
            async move {
                for second in 1..=p.seconds {
                    tokio::select! {
                        () = clock.sleep_until(clock.now() + Duration::from_secs(1)) => {}
                        () = ctx.cancelled() => return Err(HandlerError::cancelled()),
                    }
                    ctx.progress(&json!({ "seconds": second, "of": p.seconds })).await?;
                }
                Ok(json!({ "slept_seconds": p.seconds }))
            }
        })
        .function_with(flaky_options(), |_: Value, ctx: CallContext| async move {
            match ctx.attempt() {
                1 => Err(HandlerError::retryable("flaky", "the first attempt always fails")),
                attempt => Ok(json!({ "attempt": attempt })),
            }
        })
        .workflow(&trial::TRIAL, trial::trial)
        .start()
        .await
}

#[derive(Deserialize)]
struct Hello {
    #[serde(default = "world")]
    name: String,
}

fn world() -> String {
    "world".to_owned()
}

fn hello_options() -> FunctionOptions {
    FunctionOptions::new("hello")
        .description("Greets a person by name.")
        .parameters(json!([{ "name": "name", "type": "string", "default": "world", "description": "Whom to greet" }]))
}

#[derive(Deserialize)]
struct Add {
    a: Number,
    b: Number,
}

/// Whole numbers stay whole as long as they fit.
fn add(p: &Add) -> Value {
    let whole = p.a.as_i64().zip(p.b.as_i64()).and_then(|(a, b)| a.checked_add(b));
    whole.map_or_else(|| json!(p.a.as_f64().unwrap_or(f64::NAN) + p.b.as_f64().unwrap_or(f64::NAN)), Value::from)
}

fn add_options() -> FunctionOptions {
    FunctionOptions::new("add").description("Adds two numbers.").parameters(json!([
        { "name": "a", "type": "number", "required": true, "description": "One number" },
        { "name": "b", "type": "number", "required": true, "description": "Another" },
    ]))
}

#[derive(Deserialize)]
struct Fibonacci {
    n: u32,
}

fn fibonacci_options() -> FunctionOptions {
    FunctionOptions::new("fibonacci")
        .description("The n-th Fibonacci number, by calling itself: a tree of nested durable calls.")
        .parameters(json!({
            "type": "object", "required": ["n"],
            "properties": { "n": { "type": "integer", "minimum": 0, "maximum": FIBONACCI_MAX, "description": "Which one" } },
        }))
}

/// The two calls below are made at once; the worker gives its permit back while it waits for them.
async fn fibonacci(n: u32, ctx: &CallContext) -> Result<u64, HandlerError> {
    if n < 2 {
        return Ok(u64::from(n));
    }
    let below = |n: u32| ctx.call::<u64, _>("fibonacci", &json!({ "n": n })).into_future();
    let (one, two) = tokio::try_join!(below(n - 1), below(n - 2))?;
    Ok(one + two)
}

#[derive(Deserialize)]
struct Slow {
    #[serde(default = "five")]
    seconds: u64,
}

const fn five() -> u64 {
    5
}

fn slow_options() -> FunctionOptions {
    FunctionOptions::new("slow").description("Takes its time and says how far it is.").parameters(json!({
        "type": "object",
        "properties": { "seconds": { "type": "integer", "minimum": 0, "maximum": 3_600, "default": 5, "description": "How long" } },
    }))
}

fn flaky_options() -> FunctionOptions {
    FunctionOptions::new("flaky").description("Fails at first and succeeds when it is tried again, two seconds later.")
}
