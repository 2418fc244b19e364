//! Limits: how many in how long, across every process on the same store. Here in virtual time, so that nothing is waited for.
//!
//! Run it with `cargo run -p towpath --example 05_limit`.

use std::time::Duration;

use towpath::limits::{LimitError, Rule, RuleName, Rules};
use towpath::testing::TestTowpath;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), LimitError> {
    let towpath = TestTowpath::new().await;

    // A hundred a minute for the tenant, twenty of them at once; two a second for each user. All rules allow, or nothing is taken.
    let mail = || -> Result<_, LimitError> {
        let tenant = Rule::gcra("per_minute", 100, Duration::from_secs(60))?.burst(20)?;
        let user = Rule::sliding_log("per_user", 2, Duration::from_secs(1))?.key("u17")?;
        Ok(towpath.limit("mail").rule(tenant).rule(user))
    };
    for _ in 0..2 {
        assert!(mail()?.take().await?.allowed);
    }
    let denied = mail()?.take().await?;
    println!("denied by {}: come back in {:?}", denied.rule, denied.retry_after);
    assert_eq!(denied.retry_after, Some(Duration::from_secs(1)));

    // What was taken and not used goes back.
    towpath.advance(Duration::from_secs(1)).await;
    let verdict = mail()?.take().await?;
    verdict.refund().await?;
    assert_eq!(mail()?.peek().await?.remaining, 1);

    // Waiting for one's turn: a gcra rule says when it is, and keeps the place.
    let api = || -> Result<_, LimitError> { Ok(towpath.limit("api").rule(Rule::gcra("evenly", 10, Duration::from_secs(1))?)) };
    let before = towpath.now();
    for _ in 0..3 {
        assert!(towpath.finish(api()?.max_wait(Duration::from_secs(5)).take()).await?.allowed);
    }
    println!("three turns took {:?}", towpath.now().since(before));
    assert_eq!(towpath.now().since(before), Duration::from_millis(200));

    // A policy has a name, and every process sees it.
    let name = RuleName::new("default")?;
    towpath.limit_policies().put(None, &name, &Rules::one("hourly=fixed_window:1000/1h".parse()?)).await?;
    let verdict = towpath.limit("anything").policy("default").cost(250).take().await?;
    println!("{} of {} left this hour", verdict.remaining, verdict.limit);
    assert_eq!(verdict.remaining, 750);
    Ok(())
}
