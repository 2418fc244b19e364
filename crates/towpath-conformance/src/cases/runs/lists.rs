//! The promises about lists of runs, references and places.

use towpath_core::run::{BlockCause, ClosePolicy, Commit, RunId, RunState, Then};
use towpath_core::store::{Reuse, RunFilter, RunPlaceView, RunRequest, RunView, StartRun};

use crate::bench::Bench;
use crate::words::{
    RUN_RETAIN, StartWords, child, completes, does_not_fit, done, reference, run_place, seconds, start, waits_for, waits_for_children,
};

fn ids(views: &[RunView]) -> Vec<RunId> {
    views.iter().map(|view| view.run.run_id.clone()).collect()
}

pub async fn a_list_has_the_runs_that_were_created_last_first_page_by_page(t: &mut Bench) {
    let mut started = Vec::new();
    for number in 1..=9 {
        let place = ["order", "shipping", "order@us-east"][usize::from(number) % 3];
        let id = t.started(start(place, number)).await;
        started.push((t.now(), id));
        t.advance_ms(u64::from(number % 2)); // some of them at one instant
    }
    started.sort();
    let expected: Vec<RunId> = started.into_iter().rev().map(|(_, id)| id).collect();
    for limit in [1, 2, 3, 8, 9, 200] {
        assert_eq!(ids(&t.all_runs(&RunFilter::default(), limit).await), expected, "{limit} at a time");
    }
    t.terminate_run(&expected[4]).await;
    assert_eq!(ids(&t.all_runs(&RunFilter::default(), 4).await), expected, "a list is by creation, whatever becomes of a run");
}

/// Runs that differ in all that a filter can ask for.
async fn assorted(t: &Bench) -> Vec<RunId> {
    let parent = t.started(start("order", 1).known_as("o-1")).await;
    let mut execution = t.execute("w1").await;
    let (children, posts): (Vec<_>, Vec<_>) = [1, 2].map(|number| child(&parent, number, 9, ClosePolicy::Cancel)).into_iter().unzip();
    let mut all: Vec<RunId> = children.iter().map(|child| child.run_id.clone()).collect();
    let park = Commit { children, posts, ..execution.commit(Vec::new(), waits_for_children(9, 2)) };
    t.committed(&mut execution, park).await;
    t.send_posts().await;
    t.advance_s(10);
    all.push(t.started(start("order@us-east", 2).known_as("o-2")).await);
    let mut completed = t.claim_runs_of("w1", 1, &["order@us-east"]).await.remove(0);
    let close = completed.commit(vec![done(1, "7")], completes());
    t.committed(&mut completed, close).await;
    all.push(t.started(StartRun { reuse: Reuse::AfterClosed, ..start("order@us-east", 3).known_as("o-2") }).await);
    t.advance_s(10);
    all.push(t.started(start("order:2.0.0", 4)).await);
    let mut blocked = t.claim_runs_of("w1", 1, &["order:2.0.0"]).await.remove(0);
    let block = blocked.commit(Vec::new(), does_not_fit("a"));
    t.committed(&mut blocked, block).await;
    all.push(t.started(start("order:2.0.0@eu-west", 5).known_as("o-1b")).await);
    let mut backs_off = t.claim_runs_of("w1", 1, &["order:2.0.0@eu-west"]).await.remove(0);
    let back_off = Then::BackOff { cause: BlockCause::Panicked, build: None, delay: seconds(500) };
    let commit = backs_off.commit(Vec::new(), back_off);
    t.committed(&mut backs_off, commit).await;
    t.advance_s(10);
    all.push(t.started(StartRun { delay: seconds(500), ..start("shipping", 6).known_as("o-2") }).await);
    all.extend([parent]);
    all
}

pub async fn a_list_has_exactly_what_its_filter_means(t: &mut Bench) {
    let begun = t.now();
    let all = assorted(t).await;
    let mut views = Vec::new();
    for id in &all {
        views.push(RunView { outcome: None, ..t.run(id).await });
    }
    views.sort_by_key(|view| std::cmp::Reverse((view.run.created_at, view.run.run_id.clone())));
    let any = RunFilter::default;
    let place = run_place("order:2.0.0@eu-west");
    let parent = Some(all[all.len() - 1].clone());
    let filters = [
        RunFilter { workflow: Some(place.workflow.clone()), ..any() },
        RunFilter { version: Some(place.version.clone()), ..any() },
        RunFilter { shard: place.shard.clone(), ..any() },
        RunFilter { workflow: Some(place.workflow.clone()), version: Some(place.version.clone()), shard: place.shard.clone(), ..any() },
        RunFilter { states: vec![RunState::Ready], ..any() },
        RunFilter { states: vec![RunState::Waiting, RunState::Completed, RunState::Waiting], ..any() },
        RunFilter { workflow: Some(place.workflow.clone()), states: vec![RunState::Ready, RunState::Blocked], ..any() },
        RunFilter { cause: Some(BlockCause::Nondeterminism), ..any() },
        RunFilter { cause: Some(BlockCause::Panicked), states: vec![RunState::Waiting], ..any() },
        RunFilter { parent: parent.clone(), ..any() },
        RunFilter { reference: Some(reference("o-2")), ..any() },
        RunFilter { reference: Some(reference("o-2")), workflow: Some(place.workflow.clone()), states: vec![RunState::Ready], ..any() },
        RunFilter { since: Some(begun + seconds(10)), ..any() },
        RunFilter { until: Some(begun + seconds(10)), ..any() },
        RunFilter { since: Some(begun + seconds(10)), until: Some(begun + seconds(11)), workflow: Some(place.workflow), ..any() },
        RunFilter { since: Some(begun), until: Some(begun + seconds(1)), parent, ..any() },
    ];
    for filter in filters {
        let meant: Vec<RunView> = views.iter().filter(|view| filter.takes(view)).cloned().collect();
        assert!(!meant.is_empty() && meant.len() < views.len(), "this filter would prove nothing: {filter:?}");
        for limit in [1, 200] {
            assert_eq!(t.all_runs(&filter, limit).await, meant, "{limit} at a time: {filter:?}");
        }
    }
    let none = [
        RunFilter { workflow: Some(run_place("orde").workflow), ..any() },
        RunFilter { cause: Some(BlockCause::Poisoned), ..any() },
        RunFilter { reference: Some(reference("o")), ..any() },
        RunFilter { cause: Some(BlockCause::Nondeterminism), states: vec![RunState::Ready], ..any() },
    ];
    for filter in none {
        assert_eq!(t.all_runs(&filter, 200).await, [], "{filter:?}");
    }
}

pub async fn a_list_carries_no_payloads_and_no_gone_runs(t: &mut Bench) {
    let gone = t.started(start("order", 1)).await;
    t.terminate_run(&gone).await;
    t.advance_s(1);
    let kept = t.started(start("order", 2)).await;
    t.terminate_run(&kept).await;
    let listed = t.all_runs(&RunFilter::default(), 10).await;
    assert_eq!((ids(&listed), listed[0].outcome.is_none()), (vec![kept.clone(), gone], true));
    t.advance(RUN_RETAIN - seconds(1));
    let filters = [
        RunFilter::default(),
        RunFilter { states: vec![RunState::Terminated], ..RunFilter::default() },
        RunFilter { workflow: Some(run_place("order").workflow), ..RunFilter::default() },
    ];
    for filter in filters {
        assert_eq!(ids(&t.all_runs(&filter, 10).await), std::slice::from_ref(&kept), "{filter:?}");
    }
}

pub async fn a_reference_leads_to_the_latest_run_that_it_was_given_to(t: &mut Bench) {
    let runs = t.runs();
    let order = run_place("order").workflow;
    let (o_1, o_2) = (reference("o-1"), reference("o-2"));
    assert_eq!(runs.run_referenced(&order, &o_1).await, Ok(None));
    let first = t.started(start("order@us-east", 1).known_as("o-1")).await;
    assert_eq!(runs.run_referenced(&order, &o_1).await, Ok(Some(first.clone())));
    assert_eq!(runs.run_referenced(&order, &o_2).await, Ok(None));
    assert_eq!(runs.run_referenced(&run_place("shipping").workflow, &o_1).await, Ok(None), "a reference belongs to its workflow");
    t.terminate_run(&first).await;
    assert_eq!(runs.run_referenced(&order, &o_1).await, Ok(Some(first)), "it can still be read");
    t.advance_s(1);
    let second = t.started(StartRun { reuse: Reuse::AfterClosed, ..start("order", 2).known_as("o-1") }).await;
    assert_eq!(runs.run_referenced(&order, &o_1).await, Ok(Some(second.clone())));
    t.advance(RUN_RETAIN);
    assert_eq!(runs.run_referenced(&order, &o_1).await, Ok(Some(second.clone())), "the first one is gone");
    t.terminate_run(&second).await;
    t.advance(RUN_RETAIN);
    assert_eq!(runs.run_referenced(&order, &o_1).await, Ok(None));
}

async fn places(t: &Bench) -> Vec<(String, Vec<(RunState, u64)>, Option<u64>)> {
    let views: Vec<RunPlaceView> = t.runs().run_places().await.expect("the store answers");
    let waits_for = |view: &RunPlaceView| view.oldest_ready.map(|since| t.now().since(since).as_secs());
    views.iter().map(|view| (view.place.stream(), view.counts.clone(), waits_for(view))).collect()
}

pub async fn places_are_counted_by_state_and_say_since_when_a_run_waits(t: &mut Bench) {
    use RunState::{Completed, Ready, Running, Terminated, Waiting};
    assert_eq!(places(t).await, []);
    for number in 1..=3 {
        t.started(start("order", number)).await;
        t.advance_s(10);
    }
    let east = t.started(start("order@us-east", 4)).await;
    let (order, shard) = ("workflow/order/1.0.0".to_owned(), "workflow/order/1.0.0/us-east".to_owned());
    assert_eq!(places(t).await, [(order.clone(), vec![(Ready, 3)], Some(30)), (shard.clone(), vec![(Ready, 1)], Some(0))]);
    let mut executions = t.claim_runs_of("w1", 2, &["order"]).await;
    let park = executions[0].commit(Vec::new(), waits_for(&["paid"]));
    t.committed(&mut executions[0], park).await;
    t.terminate_run(&east).await;
    let counts = vec![(Ready, 1), (Running, 1), (Waiting, 1)];
    assert_eq!(places(t).await, [(order.clone(), counts, Some(10)), (shard.clone(), vec![(Terminated, 1)], None)]);
    let close = executions[1].commit(vec![done(1, "7")], completes());
    t.committed(&mut executions[1], close).await;
    t.ask_run(&start("order", 3).run_id, RunRequest::Pause).await;
    let counts = vec![(Ready, 1), (Waiting, 1), (Completed, 1)];
    assert_eq!(places(t).await, [(order, counts, None), (shard, vec![(Terminated, 1)], None)], "a paused run waits for no worker");
}

pub async fn places_are_counted_as_before_after_a_restart(t: &mut Bench) {
    assorted(t).await;
    let before = places(t).await;
    assert!(before.len() > 4, "{before:?}");
    t.reopen().await;
    assert_eq!(places(t).await, before);
}
