//! Testing your own functions: retries, time-outs and cancellations by the virtual clock, in milliseconds of real time.
//!
//! Run it with `cargo run -p towpath --example 04_testing`. In your crate, each of these is a `#[tokio::test]`.

use std::time::Duration;

use serde_json::json;
use towpath::testing::TestTowpath;
use towpath::{CallContext, CallError, CallState, HandlerError, Phase};

/// The function under test: the bank is busy at first, and never there for large amounts.
async fn charge(amount: u64, ctx: CallContext) -> Result<String, HandlerError> {
    if amount == 0 {
        return Err(HandlerError::fatal("nothing_to_charge", "the amount is zero"));
    }
    if amount > 1_000 {
        ctx.progress(&json!({"waiting_for": "the bank"})).await?;
        ctx.cancelled().await;
        return Err(HandlerError::cancelled());
    }
    if ctx.attempt() == 1 {
        return Err(HandlerError::retryable("bank_busy", "come back later").retry_after(Duration::from_secs(60)));
    }
    Ok(format!("charged {amount} under {}", ctx.idempotency_key()))
}

async fn a_busy_bank_is_asked_again_a_minute_later() {
    let test = TestTowpath::new().await;
    let _worker = test.worker().function("charge", charge).start().await.expect("the worker starts");
    let before = test.now();
    let call = test.call::<String, _>("charge", &5).idempotency_key("order-7").timeout(Duration::from_secs(120));
    assert_eq!(test.finish(call).await, Ok("charged 5 under order-7".to_owned()));
    assert_eq!(test.now().since(before), Duration::from_secs(60));
}

async fn an_amount_of_zero_is_refused_for_good() {
    let test = TestTowpath::new().await;
    let _worker = test.worker().function("charge", charge).start().await.expect("the worker starts");
    let refused = test.call::<String, _>("charge", &0).await.expect_err("zero is refused");
    assert!(refused.to_string().contains("the amount is zero"), "{refused}");
}

async fn a_bank_that_does_not_answer_times_out() {
    let test = TestTowpath::new().await;
    let _worker = test.worker().function("charge", charge).start().await.expect("the worker starts");
    let call = test.call::<String, _>("charge", &5_000).timeout(Duration::from_secs(10));
    let error = test.finish(call).await.expect_err("nobody answers");
    assert!(matches!(error, CallError::TimedOut { phase: Phase::Running, .. }), "{error}");
}

async fn a_cancelled_charge_stops_and_leaves_its_progress() {
    let test = TestTowpath::new().await;
    let _worker = test.worker().function("charge", charge).start().await.expect("the worker starts");
    let handle = test.call::<String, _>("charge", &5_000).detach().await.expect("the call is taken");
    test.advance(Duration::from_secs(3_600)).await;
    handle.cancel().await.expect("the store answers");
    test.settle().await;
    let view = test.store().call(handle.call_id()).await.expect("the store answers").expect("the call is kept");
    assert_eq!(view.call.state, CallState::Cancelled);
    assert_eq!(view.progress.map(|(_, progress)| progress.as_str().to_owned()), Some(r#"{"waiting_for":"the bank"}"#.to_owned()));
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    a_busy_bank_is_asked_again_a_minute_later().await;
    an_amount_of_zero_is_refused_for_good().await;
    a_bank_that_does_not_answer_times_out().await;
    a_cancelled_charge_stops_and_leaves_its_progress().await;
    println!("more than an hour passed by the virtual clock; all is as it should be");
}
