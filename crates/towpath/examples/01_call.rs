//! A first durable call: a worker that adds, a caller that needs only the name.
//!
//! Run it with `cargo run -p towpath --example 01_call`.

use serde::{Deserialize, Serialize};
use serde_json::json;
use towpath::{CallContext, CallError, FunctionOptions, HandlerError, Towpath};

#[derive(Serialize, Deserialize)]
struct Add {
    a: i64,
    b: i64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // "sqlite:./.towpath" keeps every accepted call on disk; in memory, nothing survives the process.
    let towpath = Towpath::open("memory:").await?;

    let options = FunctionOptions::new("add").description("Adds two numbers").parameters(json!([
        {"name": "a", "type": "integer", "required": true},
        {"name": "b", "type": "integer", "required": true},
    ]));
    let worker = towpath
        .worker()
        .function_with(options, |add: Add, _: CallContext| async move { Ok::<_, HandlerError>(add.a + add.b) })
        .start()
        .await?;

    let sum: i64 = towpath.call("add", &Add { a: 1, b: 2 }).await?;
    println!("1 + 2 = {sum}");
    assert_eq!(sum, 3);

    // The same key is the same call, from wherever it comes: it runs once.
    let first = towpath.call::<i64, _>("add", &Add { a: 20, b: 22 }).idempotency_key("order-7").detach().await?;
    let again = towpath.call::<i64, _>("add", &Add { a: 20, b: 22 }).idempotency_key("order-7").detach().await?;
    assert_eq!(first.call_id(), again.call_id());
    println!("order 7 = {}", again.result().await?);

    // What does not fit is refused before anything is kept, and the answer says what to change.
    let refused = towpath.call::<i64, _>("add", &json!({"a": "one"})).await.expect_err("a is no integer");
    println!("{refused}");
    assert!(matches!(refused, CallError::InvalidParams { problems, .. } if problems.len() == 2));

    let unknown = towpath
        .call::<i64, _>("adds", &Add { a: 1, b: 2 })
        .wait_for_function(std::time::Duration::ZERO)
        .await
        .expect_err("the name is wrong");
    println!("{unknown}");
    assert_eq!(unknown.to_string(), "no function is called 'adds'; did you mean 'add'?");

    worker.drain().await;
    towpath.close().await;
    Ok(())
}
