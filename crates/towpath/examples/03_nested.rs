//! Functions that call functions: a handler that waits gives its permit back, so even one permit is enough for any depth.
//!
//! Run it with `cargo run -p towpath --example 03_nested`.

use towpath::{CallContext, HandlerError, Towpath};

/// The slow way to a Fibonacci number: every step is two durable calls, side by side.
async fn fibonacci(n: u32, ctx: CallContext) -> Result<u64, HandlerError> {
    if n < 2 {
        return Ok(u64::from(n));
    }
    let (one, other) = (ctx.call::<u64, _>("fibonacci", &(n - 1)), ctx.call::<u64, _>("fibonacci", &(n - 2)));
    let (one, other) = tokio::try_join!(one.into_future(), other.into_future())?;
    Ok(one + other)
}

/// As deep as it is told to go.
async fn descend(levels: u32, ctx: CallContext) -> Result<u32, HandlerError> {
    if levels == 0 { Ok(ctx.depth()) } else { Ok(ctx.call("descend", &(levels - 1)).await?) }
}

/// Calls itself without end, until it is told that this is deep enough.
async fn endless((): (), ctx: CallContext) -> Result<String, HandlerError> {
    match ctx.call("endless", &()).await {
        Err(error) if error.code() == "depth_exceeded" => Ok(error.to_string()),
        other => Ok(other?),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let towpath = Towpath::open("memory:").await?;
    let worker = towpath
        .worker()
        .concurrency(1)
        .function("fibonacci", fibonacci)
        .function("descend", descend)
        .function("endless", endless)
        .start()
        .await?;

    let number: u64 = towpath.call("fibonacci", &10).await?;
    println!("the tenth Fibonacci number is {number}");
    assert_eq!(number, 55);

    let depth: u32 = towpath.call("descend", &500).await?;
    println!("{depth} calls deep and back, with one permit");
    assert_eq!(depth, 500);

    let stopped: String = towpath.call("endless", &()).await?;
    println!("{stopped}");
    assert!(stopped.starts_with("the call would be 1001 calls deep"));

    worker.drain().await;
    towpath.close().await;
    Ok(())
}
