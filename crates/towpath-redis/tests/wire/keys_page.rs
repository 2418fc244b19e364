//! `docs/redis-keys.md` names every key that is written.

use std::time::Duration;

use towpath::{HandlerError, Payload, SetConfig};
use towpath_core::limit::{Check, Rules};
use towpath_core::names::LimitScope;

use crate::rig::{ADD, Add, Ours, Rig, Sum};

const PAGE: &str = include_str!("../../../../docs/redis-keys.md");

/// A key as the page writes it: ids and names are placeholders there.
fn as_on_the_page(key: &str) -> String {
    if let Some((_, state)) = key.split_once("}:").filter(|_| key.starts_with("towpath:{n8n-ratelimit-")) {
        let state = match state.split(':').next() {
            Some("w") => "w:<number>:<key>".to_owned(),
            letter => format!("{}:<rule>[:<key>]", letter.unwrap_or_default()),
        };
        return format!("`towpath:{{n8n-ratelimit-<scope>}}:{state}`");
    }
    if key.starts_with("towpath:limit:") {
        return format!("`{key}`");
    }
    if key.starts_with("n8n-ratelimit-") {
        return "`n8n-ratelimit-<scope>-<number>`".to_owned();
    }
    let (first, rest) = key.split_once(':').unwrap_or((key, ""));
    let room = rest.split(':').next().unwrap_or_default();
    match (first, room) {
        ("towpath", room) if rest.contains('{') => format!("`towpath:{room}:{{…}}`"),
        ("towpath", "claim") => "`towpath:claim:<worker>`".to_owned(),
        ("towpath", room) => format!("`towpath:{room}`"),
        ("function", "stream") => "`function:stream:<scope>:<name>`".to_owned(),
        ("function", "meta") => "`function:meta:<workerId>:<name>`".to_owned(),
        ("function", "response") if rest.starts_with("response:inbox:") => "`function:response:inbox:<caller>`".to_owned(),
        ("function", "response") if rest.starts_with("response:sent:") => "`function:response:sent:<callId>`".to_owned(),
        ("function", "response") if rest.starts_with("response:back:") => "`function:response:back:<callId>`".to_owned(),
        ("function", "response") => "`function:response:<callId>`".to_owned(),
        ("function", "global_config") => "`function:global_config`".to_owned(),
        ("function", _name) => "`function:<name>`".to_owned(),
        _ => key.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_about_keys_names_every_key_that_is_written() {
    let rig = Rig::start();
    let (here, there) = (rig.towpath().await, rig.towpath().await);
    let _worker = Ours::new().start(&there).await;
    let _old = rig.legacy_worker(&["--generation", "b", "--worker-id", "worker-2"]).await;
    let _fails = there
        .worker()
        .function("fails", |(): (), _| async { Err::<(), _>(HandlerError::retryable("no_luck", "not today")) })
        .function("reports", |(): (), ctx: towpath::CallContext| async move {
            ctx.progress(&1).await?;
            Ok(())
        })
        .start()
        .await
        .expect("the server is there");
    here.set_config(SetConfig { value: Payload::from_json("{}"), if_version: None }).await.expect("the server is there");
    here.store().probe().await.expect("the server is there");
    for rule in
        ["a=gcra:1/1s", "b=sliding_log:1/1s,key=u1", "c=sliding_counter:1/1s", "d=fixed_window:1/60s", "e=fixed_window:1/60s,key=u1"]
    {
        let rules = Rules::one(rule.parse().expect("a rule"));
        let check = Check::take(LimitScope::new("acme").expect("a scope"), rules, 1, Duration::ZERO).expect("a check");
        assert!(here.store().take(&check).await.expect("the server is there").allowed);
    }
    let limits = rig.cli(&["KEYS", "*n8n-ratelimit-*"]);
    assert_eq!(limits.lines().count(), 5, "{limits}");
    for number in 0..10 {
        let key = format!("key-{number}");
        here.call::<Sum, _>(ADD, &Add { a: 1, b: 2 }).idempotency_key(&key).await.expect("it is answered");
    }
    here.call::<(), _>("reports", &()).await.expect("it is answered");
    here.call::<(), _>("fails", &()).await.expect_err("it always fails");
    rig.legacy_entry("call-1", &[]);
    rig.legacy_answer("call-1");
    let written = format!("{}\n{limits}", rig.cli(&["KEYS", "*"]));
    let missing: Vec<&str> = written.lines().filter(|key| !PAGE.contains(&as_on_the_page(key))).collect();
    assert_eq!(missing, Vec::<&str>::new(), "write them down in docs/redis-keys.md");
}
