//! Locks in the words of n8n, looked at, and measured.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use towpath::locks::n8n::{LockAcquired, LockAcquisition, Node};
use towpath::locks::{LockQuery, LockWait, PermitKind};
use towpath::testing::TestTowpath;
use towpath::{Observer, Payload, SetConfig, Towpath, VirtualClock};

use crate::on_every_store;
use crate::support::{seconds, start};

on_every_store! {
    an_n8n_workflow_that_leaves_everything_out_gets_what_it_always_got
    an_n8n_workflow_is_told_in_its_own_words_that_a_lock_is_held
    an_n8n_workflow_waits_for_a_lock_until_it_is_released
    an_n8n_workflow_may_release_twice_and_only_its_own
    a_cleanup_without_registered_scopes_says_so
    a_failed_execution_is_cleaned_up_in_the_words_of_n8n
    numbers_that_cannot_be_stop_no_n8n_workflow_and_lock_nothing
    all_kinds_of_locks_are_listed
}

fn asks(scope: &str, lock_id: &str) -> LockAcquisition {
    LockAcquisition { scope: Some(scope.to_owned()), lock_id: Some(lock_id.to_owned()), ..LockAcquisition::default() }
}

fn hasty(scope: &str, lock_id: &str) -> LockAcquisition {
    LockAcquisition { wait_till_lock_released: Some(false), ..asks(scope, lock_id) }
}

async fn acquired(test: &Towpath, inputs: LockAcquisition) -> LockAcquired {
    match test.lock_acquisition(inputs).await.unwrap() {
        Node::Output(output) => output,
        Node::Stopped(text) => panic!("{text}"),
    }
}

async fn an_n8n_workflow_that_leaves_everything_out_gets_what_it_always_got(test: TestTowpath) {
    let output = acquired(&test, LockAcquisition::default()).await;
    let expected = json!({
        "acquired": true, "count": 1, "scope": "default", "lock_id": output.lock_id, "key": "n8n-lock-default",
        "meta_key": "n8n-lock-default:meta", "workflow_id": "unknown", "workflow_name": "unknown", "execution_id": "unknown",
        "locked_at": test.now().to_iso(), "fence": output.fence,
    });
    assert_eq!(serde_json::to_value(&output).unwrap(), expected);
    assert!(!output.lock_id.is_empty() && output.fence > 0);
    let view = test.look_at_lock("default").await.unwrap().unwrap();
    let lease_end = view.holder.and_then(|holder| holder.lease_end).unwrap();
    assert_eq!((lease_end.since(test.now()), view.max_hold_end), (seconds(86_400), Some(lease_end)), "a day, and nobody renews it");
}

async fn an_n8n_workflow_is_told_in_its_own_words_that_a_lock_is_held(test: TestTowpath) {
    acquired(&test, asks("excel", "a")).await;
    let stopped = Node::Stopped(
        "Lock acquisition failed (fail-fast): scope 'excel' is held (count=1). Caller passed wait_till_lock_released=false.".to_owned(),
    );
    assert_eq!(test.lock_acquisition(hasty("excel", "b")).await.unwrap(), stopped);
    let waits = LockAcquisition { max_wait_seconds: Some(30.0), ..asks("excel", "b") };
    let stopped = test.finish(test.lock_acquisition(waits)).await.unwrap();
    assert_eq!(stopped, Node::Stopped("Lock acquisition timed out after 30s waiting for scope 'excel'.".to_owned()));
    assert_eq!(test.look_at_lock("excel").await.unwrap().unwrap().waiters, [], "who timed out has left the queue");
}

async fn an_n8n_workflow_waits_for_a_lock_until_it_is_released(test: TestTowpath) {
    acquired(&test, asks("excel", "a")).await;
    let towpath = test.towpath().clone();
    let waiting = start(async move { towpath.lock_acquisition(asks("excel", "b")).await.unwrap() });
    test.settle().await;
    assert!(matches!(test.lock_release("excel", "a").await.unwrap(), Node::Output(released) if !released.idempotent));
    let Node::Output(output) = waiting.await.unwrap() else { panic!("it waited in vain") };
    assert_eq!((output.lock_id.as_str(), output.locked_at), ("b", test.now().to_iso()));
}

async fn an_n8n_workflow_may_release_twice_and_only_its_own(test: TestTowpath) {
    acquired(&test, asks("excel", "a")).await;
    let released = async |lock_id: &str| match test.lock_release("excel", lock_id).await.unwrap() {
        Node::Output(released) => serde_json::to_value(released).unwrap(),
        Node::Stopped(text) => json!(text),
    };
    let output = |idempotent| json!({ "released": true, "idempotent": idempotent, "scope": "excel", "lock_id": "a" });
    assert_eq!(released("a").await, output(false));
    assert_eq!(released("a").await, output(true));
    let workflow = |text: &str| Some(text.to_owned());
    let inputs = LockAcquisition { workflow_id: workflow("wf-1"), workflow_name: workflow("Import"), ..asks("excel", "b") };
    let next = acquired(&test, LockAcquisition { execution_id: workflow("4711"), ..inputs }).await;
    assert_eq!(released("a").await, output(true), "the next holder is left alone");
    let text = format!("LOGIC ERROR: Lock held by Import (id: wf-1, execution: 4711) since {}, not by lock_id=c", next.locked_at);
    assert_eq!(released("c").await, json!(text));
}

async fn a_cleanup_without_registered_scopes_says_so(test: TestTowpath) {
    let reason = async || test.error_handler_lock_cleanup("4711", Vec::new()).await.unwrap().reason.unwrap_or_default();
    assert!(reason().await.contains("no lock scopes are registered"), "{}", reason().await);
    // As the seeds write it.
    let value = Payload::from_json(r#"{"lockScopes":["nightly"]}"#);
    test.set_config(SetConfig { value, if_version: None }).await.unwrap();
    assert_eq!(test.registered_lock_scopes().await.unwrap().len(), 1);
    assert_eq!(reason().await, "no locks owned by failed execution");
}

async fn a_failed_execution_is_cleaned_up_in_the_words_of_n8n(test: TestTowpath) {
    let of = |scope: &str, execution: &str| LockAcquisition { execution_id: Some(execution.to_owned()), ..asks(scope, scope) };
    for (scope, execution) in [("a", "4711"), ("b", "4711"), ("c", "4712")] {
        acquired(&test, of(scope, execution)).await;
    }
    let value = Payload::from_json(r#"{"lock_scopes":["c","never"]}"#);
    test.set_config(SetConfig { value, if_version: None }).await.unwrap();
    let cleaned = test.error_handler_lock_cleanup("4711", vec!["b".to_owned()]).await.unwrap();
    assert_eq!(serde_json::to_value(cleaned).unwrap(), json!({ "cleaned": true, "cleaned_count": 2, "scopes": ["a", "b"] }));
    let nothing = test.error_handler_lock_cleanup("4711", Vec::new()).await.unwrap();
    let expected = json!({ "cleaned": false, "cleaned_count": 0, "scopes": [], "reason": "no locks owned by failed execution" });
    assert_eq!(serde_json::to_value(nothing).unwrap(), expected);
}

async fn numbers_that_cannot_be_stop_no_n8n_workflow_and_lock_nothing(test: TestTowpath) {
    for ttl in [0.0, -1.0, 0.05, 604_801.0, 1e300, f64::NAN, f64::INFINITY] {
        let refused = test.lock_acquisition(LockAcquisition { ttl_seconds: Some(ttl), ..asks("s", "a") }).await.unwrap_err();
        assert_eq!(refused.code(), "out_of_range", "{ttl}: {refused}");
    }
    for wait in [-1.0, 604_801.0, f64::NAN] {
        let refused = test.lock_acquisition(LockAcquisition { max_wait_seconds: Some(wait), ..asks("s", "a") }).await.unwrap_err();
        assert_eq!(refused.code(), "out_of_range", "{wait}: {refused}");
    }
    for scope in ["", "a:meta"] {
        assert_eq!(test.lock_acquisition(asks(scope, "a")).await.unwrap_err().code(), "invalid_name");
        assert_eq!(test.lock_release(scope, "a").await.unwrap_err().code(), "invalid_name");
    }
    assert_eq!(test.look_at_lock("s").await.unwrap(), None);
}

async fn all_kinds_of_locks_are_listed(test: TestTowpath) {
    let all = || LockQuery { limit: 10, ..LockQuery::default() };
    let _guards = (
        test.lock("s").acquire().await.unwrap().granted().unwrap(),
        test.semaphore("gpu").limit(4).weight(3).acquire().await.unwrap().granted().unwrap(),
        test.rw("doc").read().await.unwrap().granted().unwrap(),
    );
    assert_eq!(test.locks_in_use(all()).await.unwrap().items[0].scope.as_str(), "s");
    let gpu = test.permits_in_use(PermitKind::Semaphore, all()).await.unwrap();
    assert_eq!((gpu.items.len(), gpu.items[0].permits[0].weight), (1, 3));
    let doc = test.permits_in_use(PermitKind::ReadWrite, all()).await.unwrap();
    assert_eq!((doc.items.len(), doc.items[0].scope.as_str()), (1, "doc"));
    assert!(test.look_at_permits(PermitKind::Semaphore, "doc").await.unwrap().is_none());
}

/// Hears how long waits and holds last.
#[derive(Default)]
struct Stopwatch(Mutex<Vec<(&'static str, Option<PermitKind>, Duration)>>);

impl Observer for Stopwatch {
    fn lock_waited(&self, kind: Option<PermitKind>, for_long: Duration) {
        self.0.lock().unwrap().push(("waited", kind, for_long));
    }

    fn lock_held(&self, kind: Option<PermitKind>, for_long: Duration) {
        self.0.lock().unwrap().push(("held", kind, for_long));
    }
}

#[tokio::test]
async fn waits_and_holds_are_measured_from_their_first_moment() {
    let (clock, watch) = (VirtualClock::new(), Arc::new(Stopwatch::default()));
    let observer = Arc::<Stopwatch>::clone(&watch);
    let towpath = Towpath::builder().clock(Arc::new(clock.clone())).observer(observer).open("memory:").await.unwrap();
    let first = towpath.lock("s").ttl(seconds(600)).without_renewal().acquire().await.unwrap().granted().unwrap();
    let waiting = start({
        let towpath = towpath.clone();
        async move { towpath.lock("s").acquire().await.unwrap().granted().unwrap() }
    });
    while towpath.look_at_lock("s").await.unwrap().unwrap().waiters.is_empty() {
        tokio::task::yield_now().await;
    }
    clock.advance(seconds(7));
    first.release().await.unwrap();
    let second = waiting.await.unwrap();
    let units = towpath.semaphore("gpu").wait(LockWait::No).acquire().await.unwrap().granted().unwrap();
    clock.advance(seconds(2));
    units.release().await.unwrap();
    second.release().await.unwrap();
    let (zero, gpu) = (Duration::ZERO, Some(PermitKind::Semaphore));
    let expected = [
        ("waited", None, zero),
        ("held", None, seconds(7)),
        ("waited", None, seconds(7)),
        ("waited", gpu, zero),
        ("held", gpu, seconds(2)),
        ("held", None, seconds(2)),
    ];
    assert_eq!(*watch.0.lock().unwrap(), expected);
    towpath.close().await;
}
