//! `docs/redis-keys.md` names every key of runs that is written.

use std::sync::Arc;

use towpath_conformance::words::{
    StartWords, child, done, event, event_name, json, reference, run_id, run_place, seconds, start, step, waits_for,
};
use towpath_core::run::{ClosePolicy, Commit, Post, Then, TimerAt};
use towpath_core::store::{NewEvent, RunRequest, RunStore};

use crate::rig::{Rig, claim, commit, commit_of, started};

const PAGE: &str = include_str!("../../../../docs/redis-keys.md");

/// A key as the page writes it: names are placeholders there.
fn as_on_the_page(key: &str) -> String {
    let stream = run_place("order").stream();
    let key = key.replace(&format!("towpath:{{{stream}}}"), "R").replace(&stream, "P");
    let reference = "towpath:{ref/<workflow>/<reference>}";
    let key = key.replace("towpath:{ref/order/o-1}", reference).replace("towpath:{ref/order/o-5}", reference);
    let words = key.split(':').map(|word| match word {
        "ready" | "begun" | "running" | "waiting" | "blocked" | "paused" | "terminated" => "<state>",
        id if id.len() == 37 && id.contains('-') => "<id>",
        word => word,
    });
    format!("`{}`", words.collect::<Vec<_>>().join(":"))
}

#[tokio::test]
async fn the_page_about_keys_names_every_key_of_runs_that_is_written() {
    let rig = Rig::start();
    let store = rig.store().await;
    let id = started(&store, start("order", 1).known_as("o-1")).await;
    let one = claim(&store, "w1", "order", 1).await.remove(0);
    let paid = NewEvent { reference: Some(reference("click")), ..event("paid", "1") };
    store.send_event(&id, paid).await.unwrap();
    let (kid, create) = child(&id, 1, 9, ClosePolicy::Cancel);
    let send = Post::Send { to: id.clone(), name: event_name("a"), data: json("1"), reference: reference("r") };
    let everything = Commit {
        entries: vec![done(1, "1")],
        armed: vec![(step(1), TimerAt::After(seconds(60)))],
        children: vec![kid],
        posts: vec![create, send],
        published: vec![(Arc::from("at"), json("1"))],
        ..commit_of(&one, Then::Stay)
    };
    store.commit_run(&id, everything).await.unwrap();
    rig.cli(&["HSET", &format!("towpath:{{{}}}:held", run_place("order").stream()), "nothing", "0 0"]);
    started(&store, start("order", 2)).await;
    let two = claim(&store, "w1", "order", 1).await.remove(0);
    commit(&store, &two, towpath_conformance::words::does_not_fit("a")).await;
    started(&store, start("order", 3)).await;
    let three = claim(&store, "w1", "order", 1).await.remove(0);
    commit(&store, &three, Then::Release).await;
    started(&store, start("order", 4)).await;
    let four = claim(&store, "w1", "order", 2).await;
    commit(&store, &four[0], waits_for(&["x"])).await;
    started(&store, start("order", 5).known_as("o-5")).await;
    store.request_run(&run_id("order", 5), RunRequest::Terminate { reason: Arc::from("a test") }).await.unwrap();

    let keys = rig.cli(&["KEYS", "*workflow*"]) + "\n" + &rig.cli(&["KEYS", "*{re*"]);
    let written: std::collections::BTreeSet<String> = keys.lines().map(as_on_the_page).collect();
    assert!(written.len() >= 20, "too little was written to prove anything: {written:?}");
    let missing: Vec<&String> = written.iter().filter(|key| !PAGE.contains(*key)).collect();
    assert_eq!(missing, Vec::<&String>::new(), "write them down in docs/redis-keys.md");
}
