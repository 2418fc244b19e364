//! A worker that leaves in good order: it finishes what it runs, and hands the rest to the next worker.
//!
//! Run it with `cargo run -p towpath --example 02_worker_drain`. In a service, the shutdown is a signal: `tokio::signal::ctrl_c()`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use towpath::{CallContext, HandlerError, Towpath};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let towpath = Towpath::open(&format!("sqlite:{}", folder.path().display())).await?;

    // Quick jobs end at once; endless ones end only when they are asked to.
    let (shutdown, started) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let (signal, counter) = (Arc::clone(&shutdown), Arc::clone(&started));
    let job = move |kind: String, ctx: CallContext| {
        let started = Arc::clone(&counter);
        async move {
            started.add_permits(1);
            match kind.as_str() {
                "endless" => {
                    ctx.cancelled().await;
                    Err(HandlerError::cancelled())
                }
                _ => Ok(format!("{kind} by the first worker")),
            }
        }
    };
    let first = towpath.worker().function("job", job).drain_timeout(Duration::from_millis(200));
    let first = tokio::spawn(first.run_until(async move { signal.notified().await }));

    let quick: String = towpath.call("job", "quick").await?;
    println!("{quick}");
    let endless = towpath.call::<String, _>("job", "endless").detach().await?;
    let both_started = started.acquire_many(2).await?;
    both_started.forget();

    shutdown.notify_one();
    let report = first.await??;
    println!("the first worker left: {} finished, {} handed back", report.finished, report.handed_back);
    assert_eq!(report.handed_back, 1);

    // What was handed back waits for no lease: the next worker gets it at once, and no crash is counted against it.
    let second = |kind: String, _: CallContext| async move { Ok::<_, HandlerError>(format!("{kind} by the second worker")) };
    let second = towpath.worker().function("job", second).start().await?;
    let call_id = endless.call_id().clone();
    let answer = endless.result().await?;
    println!("{answer}");
    assert_eq!(answer, "endless by the second worker");
    let call = towpath.store().call(&call_id).await?.ok_or("the outcome is kept")?.call;
    assert_eq!((call.delivery, call.crashes), (2, 0));

    second.drain().await;
    towpath.close().await;
    Ok(())
}
