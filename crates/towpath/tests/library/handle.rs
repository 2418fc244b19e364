//! The handle itself: opening, closing, the shared configuration, and who counts.

use std::sync::{Arc, Mutex};

use crate::support::{seconds, start, state};
use serde_json::Value;
use towpath::core::call::LostLease;
use towpath::core::store::Ended;
use towpath::testing::TestTowpath;
use towpath::{
    CallContext, CallId, CallState, ConfigView, FunctionKey, FunctionOptions, HandlerError, Observer, Payload, Retention, RetryPolicy,
    SetConfig, StoreError, Towpath, VirtualClock, WorkerId,
};
use towpath_conformance::model::ModelStore;

fn json(text: &str) -> Payload {
    Payload::from_json(text.to_owned())
}

async fn set(test: &TestTowpath, text: &str) -> ConfigView {
    test.set_config(SetConfig { value: json(text), if_version: None }).await.unwrap().unwrap()
}

async fn a_config_watch_tells_how_things_stand_and_then_every_change(test: TestTowpath) {
    let mut watch = test.watch_config();
    assert_eq!(watch.changed().await.unwrap(), ConfigView { version: 0, value: Payload::null(), updated_at: None });
    let next = start(async move {
        let view = watch.changed().await;
        (watch, view)
    });
    test.advance(seconds(300)).await;
    assert!(!next.is_finished(), "nothing has changed");
    set(&test, "1").await;
    let (mut watch, view) = next.await.unwrap();
    assert_eq!(view.unwrap().value, json("1"));
    set(&test, "2").await;
    set(&test, "3").await;
    assert_eq!(watch.changed().await.unwrap().value, json("3"), "two changes may be told as one");
}

async fn a_config_change_under_an_old_version_is_refused(test: TestTowpath) {
    let version = set(&test, "1").await.version;
    let change = |if_version| SetConfig { value: json("2"), if_version: Some(if_version) };
    assert_eq!(test.set_config(change(version + 1)).await, Ok(None));
    assert_eq!(test.config().await.unwrap().value, json("1"));
    assert_eq!(test.set_config(change(version)).await.unwrap().unwrap().value, json("2"));
}

crate::on_every_store! {
    a_config_watch_tells_how_things_stand_and_then_every_change
    a_config_change_under_an_old_version_is_refused
}

/// Writes down what it is told.
#[derive(Default)]
struct Scribe(Mutex<Vec<String>>);

impl Scribe {
    fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Scribe {
    fn submitted(&self, function: &FunctionKey) {
        self.write(format!("{function} submitted"));
    }

    fn ended(&self, ended: &Ended) {
        self.write(format!("{} {} after {} s", ended.function, ended.state, ended.took.as_secs()));
    }

    fn lost_lease(&self, why: LostLease) {
        self.write(format!("lost lease: {}", why.as_str()));
    }

    fn reclaimed(&self, count: u64) {
        self.write(format!("{count} reclaimed"));
    }

    fn retried(&self, function: &FunctionKey) {
        self.write(format!("{function} retried"));
    }

    fn store_error(&self, error: &StoreError) {
        self.write(format!("store error: {error}"));
    }
}

#[tokio::test]
async fn an_observer_is_told_what_happens_to_calls() {
    let clock = VirtualClock::new();
    let store = Arc::new(ModelStore::new(Arc::new(clock.clone())));
    let scribe = Arc::new(Scribe::default());
    let observer: Arc<dyn Observer> = Arc::<Scribe>::clone(&scribe);
    // Two handles on one store: the first moves the clock and the timers, the second is observed.
    let towpath = Towpath::builder().clock(Arc::new(clock.clone())).observer(observer).with_store(Arc::<ModelStore>::clone(&store));
    let test = TestTowpath::with_store(store, clock);
    let flaky = |_: Value, ctx: CallContext| async move {
        if ctx.attempt() == 1 { Err(HandlerError::retryable("busy", "later")) } else { Ok("done") }
    };
    let worker = towpath.worker().id(WorkerId::new("w").unwrap()).concurrency(1).function("flaky", flaky).start().await.unwrap();
    test.finish(towpath.call::<String, _>("flaky", &())).await.unwrap();
    assert_eq!(scribe.take(), ["flaky submitted", "flaky retried", "flaky completed after 2 s"]);

    worker.drain().await;
    let handle = towpath.call::<String, _>("flaky", &()).detach().await.unwrap();
    handle.cancel().await.unwrap();
    assert_eq!(scribe.take(), ["flaky submitted", "flaky cancelled after 0 s"]);

    let hang = |_: Value, _: CallContext| async { std::future::pending::<Result<(), HandlerError>>().await };
    let _worker = towpath.worker().id(WorkerId::new("v").unwrap()).concurrency(1).function("flaky", hang).start().await.unwrap();
    let _handle = towpath.call::<String, _>("flaky", &()).detach().await.unwrap();
    test.settle().await;
    test.store().unregister(&WorkerId::new("v").unwrap()).await.unwrap();
    test.advance(seconds(10)).await;
    assert_eq!(scribe.take(), ["flaky submitted", "lost lease: expired"]);
}

#[tokio::test]
async fn what_a_file_has_taken_is_there_after_it_was_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("data").display());
    let towpath = Towpath::open(&url).await.unwrap();
    let echo = |n: i64, _: CallContext| async move { Ok::<_, HandlerError>(n) };
    towpath.worker().function("echo", echo).start().await.unwrap().drain().await;
    let handle = towpath.call::<i64, _>("echo", &7).call_id("kept").detach().await.unwrap();
    drop(handle);

    let second = Towpath::builder().owner("a second one").open(&url).await.unwrap_err().to_string();
    assert!(second.contains("is in use by") && second.contains("two processes cannot write one file"), "{second}");
    towpath.close().await;
    assert_eq!(towpath.config().await.unwrap_err().to_string(), "the store did not take it: the store is closed");

    let towpath = Towpath::open(&url).await.unwrap();
    let worker = towpath.worker().function("echo", echo).start().await.unwrap();
    let kept = towpath.call::<i64, _>("echo", &7).call_id("kept").detach().await.unwrap();
    assert!(kept.existing());
    assert_eq!(kept.result().await, Ok(7));
    worker.drain().await;
    towpath.close().await;
}

#[tokio::test]
async fn a_place_that_cannot_be_opened_is_refused_with_the_url_and_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("not-ours.db");
    std::fs::write(&file, "something else altogether, longer than a header of one hundred bytes ".repeat(4)).unwrap();
    let url = format!("sqlite:{}", file.display());
    let refused = Towpath::open(&url).await.unwrap_err().to_string();
    assert!(refused.contains(&url), "{refused}");
    let refused = Towpath::connect("mysql://localhost").await.unwrap_err().to_string();
    assert!(refused.contains("write 'sqlite:PATH'"), "{refused}");
}

#[tokio::test]
async fn a_handle_drops_old_dead_letters_only_if_it_was_told_how_long_to_keep_them() {
    let (clock, two_minutes) = (VirtualClock::new(), seconds(120));
    let store = Arc::new(ModelStore::new(Arc::new(clock.clone())));
    let test = TestTowpath::with_store(Arc::<ModelStore>::clone(&store), clock.clone());
    let options = FunctionOptions::new("broken").retry(RetryPolicy { max_attempts: 1, ..RetryPolicy::default() });
    let fail = |_: Value, _: CallContext| async { Err::<(), _>(HandlerError::retryable("busy", "later")) };
    let worker = test.worker().function_with(options, fail).start().await.unwrap();
    test.call::<Value, _>("broken", &()).call_id("old").await.unwrap_err();
    worker.drain().await;
    let id = CallId::new("old").unwrap();

    let handle = || Towpath::builder().clock(Arc::new(clock.clone()));
    let by_default = handle().with_store(Arc::<ModelStore>::clone(&store));
    clock.advance(seconds(91 * 86_400));
    test.advance(two_minutes).await;
    assert_eq!((state(&test, &id).await, *by_default.retention()), (CallState::Dead, Retention::FOREVER));

    let _keeper = handle().retention(Retention::default()).with_store(store);
    test.advance(two_minutes).await;
    assert_eq!(state(&test, &id).await, CallState::Settled);
}

#[tokio::test]
async fn loops_stop_with_the_last_handle() {
    let clock = VirtualClock::new();
    let store = Arc::new(ModelStore::new(Arc::new(clock.clone())));
    let weak = Arc::downgrade(&store);
    let towpath = Towpath::builder().clock(Arc::new(clock)).with_store(store);
    let worker = towpath.worker().function("echo", |n: i64, _: CallContext| async move { Ok(n) }).start().await.unwrap();
    assert_eq!(towpath.call::<i64, _>("echo", &1).await, Ok(1));
    drop(towpath);
    assert!(weak.upgrade().is_some(), "the worker still uses it");
    drop(worker);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(weak.upgrade().is_none(), "nobody holds the store any more");
}
