//! The promises about functions, workers and the shared configuration.

use towpath_core::call::{CallState, RetryPolicy};
use towpath_core::names::WorkerId;
use towpath_core::payload::Payload;
use towpath_core::store::{ConfigView, Heartbeat, SetConfig};
use towpath_core::worker::{FunctionDefinition, Offer, RegisterWorker, WorkerView};

use crate::bench::{Bench, sure};
use crate::waiting::Waiting;
use crate::words::{definition, failed, function, json, offer, ok, seconds, worker_id};

async fn worker(t: &Bench, id: &str) -> Option<WorkerView> {
    let id: WorkerId = worker_id(id);
    sure(t.store().workers().await).into_iter().find(|worker| worker.worker_id == id)
}

async fn forget(t: &Bench, name: &str) -> bool {
    sure(t.store().forget(&function(name)).await)
}

async fn redefine(t: &Bench, before: &FunctionDefinition, after: &FunctionDefinition) -> bool {
    sure(t.store().redefine(before, after.clone()).await)
}

async fn heartbeat(t: &Bench, id: &str) -> Heartbeat {
    sure(t.store().heartbeat(&worker_id(id)).await)
}

pub async fn a_worker_makes_its_functions_known(t: &mut Bench) {
    let mut described = definition("add");
    described.description = Some("Adds two numbers.".to_owned());
    t.register_with("w1", vec![Offer { definition: described.clone(), concurrency: Some(4) }, offer("wf-7:sub")]).await;
    let add = t.known_function("add").await;
    assert_eq!((add.definition, add.workers, add.healthy_workers), (described, 1, 1));
    assert_eq!(t.known_function("wf-7:sub").await.definition, definition("wf-7:sub"));
    let view = worker(t, "w1").await.expect("a registered worker is listed");
    let now = t.now();
    assert_eq!((view.kind.as_str(), view.registered_at, view.last_heartbeat), ("rust", now, now));
    assert_eq!((view.healthy, view.running), (true, 0));
    assert_eq!(view.functions, [function("add"), function("wf-7:sub")]);
}

pub async fn a_worker_that_registers_again_replaces_what_it_offered(t: &mut Bench) {
    t.register("w1", &["add", "sub"]).await;
    let held = t.submit_and_claim("w1", "add").await;
    t.advance_s(5);
    let again = RegisterWorker { worker_id: worker_id("w1"), kind: "http".to_owned(), offers: vec![offer("sub"), offer("mul")] };
    sure(t.store().register(again).await);
    let view = worker(t, "w1").await.expect("it is still listed");
    assert_eq!(view.functions, [function("sub"), function("mul")], "as it named them");
    assert_eq!((view.kind.as_str(), view.last_heartbeat, view.running), ("http", t.now(), 1));
    assert_eq!(t.known_function("add").await.workers, 0, "a function stays known without workers");
    t.answer(&held, ok("1")).await;
}

pub async fn a_worker_may_offer_nothing(t: &mut Bench) {
    t.register("w1", &[]).await;
    assert_eq!(worker(t, "w1").await.map(|worker| worker.functions), Some(Vec::new()));
    assert_eq!(heartbeat(t, "w1").await, Heartbeat::Known);
}

pub async fn of_two_offers_of_one_function_the_latter_counts(t: &mut Bench) {
    let mut latter = definition("add");
    latter.description = Some("The latter.".to_owned());
    let offers = vec![offer("add"), offer("sub"), Offer { definition: latter.clone(), concurrency: Some(1) }];
    t.register_with("w1", offers).await;
    assert_eq!(worker(t, "w1").await.map(|worker| worker.functions), Some(vec![function("sub"), function("add")]));
    let add = t.known_function("add").await;
    assert_eq!((add.definition, add.workers), (latter, 1));
    t.submit("add").await;
    t.submit("add").await;
    assert_eq!(t.claim("w1", "add", 10).await.len(), 1);
}

pub async fn the_latest_definition_counts(t: &mut Bench) {
    t.register("w1", &["add"]).await;
    let mut newer = definition("add");
    newer.retry = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    t.register_with("w2", vec![Offer { definition: newer.clone(), concurrency: None }]).await;
    assert_eq!(t.known_function("add").await.definition, newer);
    let work = t.submit_and_claim("w1", "add").await;
    t.answer(&work, failed("busy")).await;
    t.check_state(&work.call_id(), CallState::Dead).await;
    t.define("add").await;
    assert_eq!(t.known_function("add").await.definition, definition("add"));
}

pub async fn a_definition_is_replaced_only_if_it_is_the_one_expected(t: &mut Bench) {
    let (first, mut second) = (definition("add"), definition("add"));
    second.description = Some("The second.".to_owned());
    assert!(!redefine(t, &first, &second).await, "it is not known");
    assert_eq!(t.function("add").await, None, "and it is not known after that either");
    t.register("w1", &["add"]).await;
    assert!(!redefine(t, &second, &first).await);
    assert_eq!(t.known_function("add").await.definition, first);
    let changes = sure(t.store().functions_changed(0).await);
    assert!(redefine(t, &first, &second).await);
    assert_eq!((t.known_function("add").await.definition, t.known_function("add").await.workers), (second.clone(), 1));
    assert!(sure(t.store().functions_changed(changes).await) > changes, "it is told as every change is");
    assert!(!redefine(t, &first, &second).await, "twice is once");
    assert!(redefine(t, &second, &second).await);
}

pub async fn a_heartbeat_of_an_unknown_worker_says_so(t: &mut Bench) {
    assert_eq!(heartbeat(t, "w1").await, Heartbeat::Unknown);
    assert_eq!(worker(t, "w1").await, None, "a heartbeat registers nobody");
    t.register("w1", &["add"]).await;
    assert_eq!(heartbeat(t, "w1").await, Heartbeat::Known);
}

pub async fn a_worker_is_healthy_for_thirty_seconds_after_it_was_heard(t: &mut Bench) {
    t.register("w1", &["add"]).await;
    t.advance_ms(29_999);
    assert_eq!(t.known_function("add").await.healthy_workers, 1);
    t.advance_ms(1);
    let add = t.known_function("add").await;
    assert_eq!((add.workers, add.healthy_workers), (1, 0));
    assert_eq!(worker(t, "w1").await.map(|worker| worker.healthy), Some(false));
    assert_eq!(heartbeat(t, "w1").await, Heartbeat::Known);
    assert_eq!(t.known_function("add").await.healthy_workers, 1, "one word from it is enough");
}

pub async fn a_worker_that_is_silent_for_too_long_is_taken_off_the_list(t: &mut Bench) {
    t.register("w1", &["add"]).await;
    t.register("w2", &["add"]).await;
    let call = t.submit_this(crate::words::SubmitWords::timeout(t.new_call("add"), seconds(600))).await;
    let work = t.claim_one("w1", "add").await;
    t.advance_s(25);
    let _held = t.renew(&work).await;
    heartbeat(t, "w2").await;
    t.advance_ms(19_999);
    assert_eq!(t.fire().await.workers_removed, 0);
    t.advance_ms(1);
    assert_eq!(t.fire().await.workers_removed, 1);
    assert_eq!((worker(t, "w1").await, t.known_function("add").await.workers), (None, 1));
    assert_eq!(heartbeat(t, "w1").await, Heartbeat::Unknown, "it must register again");
    t.check_state(&call, CallState::Running).await;
    t.answer(&work, ok("1")).await;
}

pub async fn a_worker_that_leaves_hands_back_what_it_holds(t: &mut Bench) {
    t.register("w1", &["add", "sub"]).await;
    t.register("w2", &["add"]).await;
    let one = t.submit_and_claim("w1", "add").await;
    let parked = t.submit_and_claim("w1", "sub").await;
    let _held = t.park(&parked, true).await;
    let others = t.submit_and_claim("w2", "add").await;
    let done = t.submit_and_claim("w1", "add").await;
    t.answer(&done, ok("1")).await;
    assert_eq!(sure(t.store().unregister(&worker_id("w1")).await), 2);
    t.check_state(&one.call_id(), CallState::Queued).await;
    t.check_state(&parked.call_id(), CallState::Queued).await;
    t.check_state(&others.call_id(), CallState::Running).await;
    assert_eq!(t.call(&one.call_id()).await.crashes, 0);
    assert_eq!(worker(t, "w1").await, None);
    assert_eq!(t.known_function("sub").await.workers, 0, "the function stays known");
    assert_eq!(t.claim_one("w2", "add").await.call_id(), one.call_id(), "another worker gets it at once");
}

pub async fn a_stranger_that_leaves_hands_back_what_it_holds(t: &mut Bench) {
    assert_eq!(sure(t.store().unregister(&worker_id("w1")).await), 0);
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    assert_eq!(sure(t.store().unregister(&worker_id("w1")).await), 1);
    t.check_state(&work.call_id(), CallState::Queued).await;
}

pub async fn a_function_without_workers_and_unfinished_calls_can_be_forgotten(t: &mut Bench) {
    assert!(!forget(t, "add").await, "it is not known");
    t.define("add").await;
    t.define("wf-7:add").await;
    let work = t.submit_and_claim("w1", "add").await;
    t.answer(&work, ok("1")).await;
    assert!(forget(t, "add").await);
    assert_eq!(t.function("add").await, None);
    assert!(!forget(t, "add").await);
    t.check_state(&work.call_id(), CallState::Completed).await;
    t.known_function("wf-7:add").await;
}

pub async fn a_function_with_a_worker_cannot_be_forgotten(t: &mut Bench) {
    t.register("w1", &["add"]).await;
    assert!(!forget(t, "add").await);
    t.advance_s(40);
    assert!(!forget(t, "add").await, "not even when its worker is unhealthy");
    t.pass_s(5).await;
    assert!(forget(t, "add").await);
}

pub async fn a_function_with_an_unfinished_call_cannot_be_forgotten(t: &mut Bench) {
    t.define_with("add", |f| f.retry.max_attempts = 2).await;
    t.submit("add").await;
    assert!(!forget(t, "add").await, "queued");
    let work = t.claim_one("w1", "add").await;
    assert!(!forget(t, "add").await, "running");
    t.answer(&work, failed("busy")).await;
    assert!(!forget(t, "add").await, "delayed");
    t.pass_s(2).await;
    let work = t.claim_one("w1", "add").await;
    t.answer(&work, failed("busy")).await;
    assert!(!forget(t, "add").await, "dead");
    t.known_function("add").await;
}

pub async fn a_function_is_found_as_soon_as_it_is_known(t: &mut Bench) {
    let until = t.now() + seconds(5);
    let find = |store: std::sync::Arc<dyn towpath_core::store::Store>| async move { sure(store.find(&function("add"), until).await) };
    let waiting: Waiting<_> = t.start(find).await;
    t.define("sub").await;
    t.check_waits(&waiting).await;
    t.register("w1", &["add"]).await;
    let found = waiting.end().await.expect("it is known now");
    assert_eq!((found.definition, found.workers), (definition("add"), 1));
    assert!(sure(t.store().find(&function("add"), until).await).is_some(), "what is known is found at once");
}

pub async fn a_function_that_is_not_known_in_time_is_not_found(t: &mut Bench) {
    let until = t.now() + seconds(5);
    let waiting = t.start(|store| async move { sure(store.find(&function("add"), until).await) }).await;
    t.advance_ms(4_999);
    t.check_waits(&waiting).await;
    t.advance_ms(1);
    assert_eq!(waiting.end().await, None);
    assert_eq!(sure(t.store().find(&function("add"), t.now()).await), None, "an instant that has come is not waited for");
}

pub async fn changes_of_functions_are_counted_and_told(t: &mut Bench) {
    let wait = async |seen| t.start(move |store| async move { sure(store.functions_changed(seen).await) }).await;
    let waiting = wait(0).await;
    t.check_waits(&waiting).await;
    t.define("add").await;
    let added = waiting.end().await;

    let waiting = wait(added).await;
    t.define("add").await;
    t.register("w1", &["add"]).await;
    heartbeat(t, "w1").await;
    t.submit("add").await;
    sure(t.store().unregister(&worker_id("w1")).await);
    t.check_waits(&waiting).await;
    t.define_with("add", |f| f.limits.max_concurrent = Some(1)).await;
    let changed = waiting.end().await;
    assert!(changed > added, "the count rises: {added}, then {changed}");

    let waiting = wait(changed).await;
    t.register("w1", &["sub"]).await;
    let registered = waiting.end().await;
    sure(t.store().unregister(&worker_id("w1")).await);
    let waiting = wait(registered).await;
    t.check_waits(&waiting).await;
    assert!(forget(t, "sub").await);
    assert!(waiting.end().await > registered);
    assert!(wait(0).await.end().await > registered, "whoever starts at 0 is told at once");
}

pub async fn the_configuration_is_null_until_somebody_sets_it(t: &mut Bench) {
    let unset = ConfigView { version: 0, value: Payload::null(), updated_at: None };
    assert_eq!(sure(t.store().config().await), unset);
    t.advance_s(1);
    let set = sure(t.store().set_config(SetConfig { value: json("{\"a\": 1}"), if_version: None }).await);
    let expected = ConfigView { version: 1, value: json("{\"a\": 1}"), updated_at: Some(t.now()) };
    assert_eq!(set, Some(expected.clone()));
    assert_eq!(sure(t.store().config().await), expected);
}

pub async fn the_configuration_changes_only_from_the_version_expected(t: &mut Bench) {
    let set = async |value: &str, if_version| sure(t.store().set_config(SetConfig { value: json(value), if_version }).await);
    assert_eq!(set("1", Some(1)).await, None, "nobody has set it yet");
    assert_eq!(set("1", Some(0)).await.map(|config| config.version), Some(1));
    assert_eq!(set("2", Some(0)).await, None, "somebody was faster");
    let kept = sure(t.store().config().await);
    assert_eq!((kept.version, kept.value), (1, json("1")));
    assert_eq!(set("2", Some(1)).await.map(|config| config.version), Some(2));
    assert_eq!(set("2", None).await.map(|config| config.version), Some(3), "the same value is a new version");
}

pub async fn a_change_of_the_configuration_wakes_its_watchers(t: &mut Bench) {
    let until = t.now() + seconds(60);
    let waiting = t.start(move |store| async move { sure(store.config_changed(0, until).await) }).await;
    assert_eq!(sure(t.store().set_config(SetConfig { value: json("0"), if_version: Some(7) }).await), None);
    t.check_waits(&waiting).await;
    sure(t.store().set_config(SetConfig { value: json("1"), if_version: None }).await);
    let seen = waiting.end().await;
    assert_eq!((seen.version, seen.value), (1, json("1")));
    assert_eq!(sure(t.store().config_changed(0, until).await).version, 1, "whoever is behind is told at once");
}

pub async fn a_watcher_of_the_configuration_gets_the_present_one_when_its_time_is_over(t: &mut Bench) {
    sure(t.store().set_config(SetConfig { value: json("1"), if_version: None }).await);
    let until = t.now() + seconds(5);
    let waiting = t.start(move |store| async move { sure(store.config_changed(1, until).await) }).await;
    t.advance_ms(4_999);
    t.check_waits(&waiting).await;
    t.advance_ms(1);
    assert_eq!(waiting.end().await, sure(t.store().config().await));
}
