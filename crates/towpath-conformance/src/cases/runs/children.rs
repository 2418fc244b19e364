//! The promises about children of a run.

use futures_util::future::join_all;
use towpath_core::run::{ClosePolicy, Commit, EVENTS_MAX, FactKind, Post, RunState, Then};

use crate::bench::{Bench, Execution};
use crate::words::{child, completes, done, event, event_name, json, reference, start, step, waits_for, waits_for_children};

/// Starts two children of one step and parks.
async fn with_two_children(t: &Bench, on_close: ClosePolicy) -> Execution {
    let id = t.started(start("order", 1)).await;
    let mut parent = t.execute("w1").await;
    let (children, posts) = [1, 2].map(|number| child(&id, number, 9, on_close)).into_iter().unzip();
    let park = Commit { children, posts, ..parent.commit(Vec::new(), waits_for_children(9, 2)) };
    t.committed(&mut parent, park).await;
    t.send_posts().await;
    parent
}

pub async fn children_start_with_the_commit_and_their_ends_wake_the_parent_together(t: &mut Bench) {
    let parent = with_two_children(t, ClosePolicy::Cancel).await;
    let mut children = t.claim_runs("w2", 10).await;
    assert_eq!(children.len(), 2);
    for (number, execution) in children.iter_mut().enumerate() {
        assert_eq!(t.run_state(&parent.run.run_id).await, RunState::Waiting, "{number} of two have ended");
        let close = execution.commit(vec![done(1, "7")], completes());
        t.committed(execution, close).await;
        t.send_posts().await;
    }
    let parent = t.execute("w1").await;
    let outcome = |kind: &FactKind| matches!(kind, FactKind::ChildClosed { completed: true, outcome, .. } if *outcome == json("7"));
    assert!(parent.facts.len() == 2 && parent.facts.iter().all(|fact| outcome(&fact.kind)));
}

pub async fn a_child_starts_once_although_its_parent_commits_again(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut parent = t.execute("w1").await;
    let (one, post) = child(&id, 1, 9, ClosePolicy::Cancel);
    let commit = Commit { children: vec![one], posts: vec![post], ..parent.commit(vec![done(5, "1")], Then::Stay) };
    t.committed(&mut parent, commit.clone()).await;
    t.send_posts().await;
    // The same step, executed again by another owner after the first one died before it heard that its commit was taken.
    t.advance_s(15);
    let mut again = t.taken_over("w2").await;
    let repeat = Commit { children: commit.children, posts: commit.posts, ..again.commit(Vec::new(), Then::Stay) };
    t.committed(&mut again, repeat).await;
    t.send_posts().await;
    assert_eq!(t.claim_runs("w3", 10).await.len(), 1);
}

pub async fn a_child_that_is_terminated_tells_its_parent(t: &mut Bench) {
    let parent = with_two_children(t, ClosePolicy::Cancel).await;
    for execution in t.claim_runs("w2", 10).await {
        t.terminate_run(&execution.run.run_id).await;
    }
    t.send_posts().await;
    assert_eq!(t.run_state(&parent.run.run_id).await, RunState::Ready);
    let failed = |kind: &FactKind| matches!(kind, FactKind::ChildClosed { completed: false, .. });
    assert!(t.execute("w1").await.facts.iter().all(|fact| failed(&fact.kind)));
}

pub async fn open_children_follow_their_policy_when_their_parent_closes(t: &mut Bench) {
    let states = [
        (ClosePolicy::Cancel, RunState::Cancelled),
        (ClosePolicy::Terminate, RunState::Terminated),
        (ClosePolicy::Abandon, RunState::Ready),
    ];
    for (number, (policy, state)) in (1..).zip(states) {
        let id = t.started(start("order", number)).await;
        let mut parent = t.claim_runs_of("w1", 1, &["order"]).await.remove(0);
        let (one, post) = child(&id, 1, 9, policy);
        let child_id = one.run_id.clone();
        let commit = Commit { children: vec![one], posts: vec![post], ..parent.commit(vec![done(5, "1")], Then::Stay) };
        t.committed(&mut parent, commit).await;
        t.send_posts().await;
        t.terminate_run(&id).await;
        t.send_posts().await;
        assert_eq!(t.run_state(&child_id).await, state, "{policy:?}");
    }
}

pub async fn a_post_is_sent_after_a_restart(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut parent = t.execute("w1").await;
    let (one, post) = child(&id, 1, 9, ClosePolicy::Cancel);
    let commit = Commit { children: vec![one], posts: vec![post], ..parent.commit(Vec::new(), waits_for_children(9, 1)) };
    t.committed(&mut parent, commit).await;
    t.reopen().await;
    t.send_posts().await;
    let mut execution = t.execute("w2").await;
    let close = execution.commit(vec![done(1, "7")], completes());
    t.committed(&mut execution, close).await;
    t.reopen().await;
    t.send_posts().await;
    let facts = t.execute("w1").await.facts;
    assert!(matches!(&facts[0].kind, FactKind::ChildClosed { step: of, .. } if *of == step(1)));
}

pub async fn a_post_that_its_run_refuses_holds_up_no_post_to_another(t: &mut Bench) {
    let full = t.started(start("order", 8)).await;
    let mut owner = t.execute("w0").await;
    let park = owner.commit(Vec::new(), waits_for(&["never"]));
    t.committed(&mut owner, park).await;
    join_all((0..EVENTS_MAX).map(|_| t.send(&full, event("other", "1")))).await;
    let id = t.started(start("order", 1)).await;
    let mut sender = t.execute("w1").await;
    let refused = Post::Send { to: full.clone(), name: event_name("other"), data: json("1"), reference: reference("r") };
    let cancel = Post::Cancel { to: full.clone(), reason: std::sync::Arc::from("a case") };
    let (one, create) = child(&id, 1, 9, ClosePolicy::Cancel);
    let commit = Commit { children: vec![one], posts: vec![refused, cancel, create], ..sender.commit(vec![done(5, "1")], Then::Stay) };
    t.committed(&mut sender, commit).await;
    assert_eq!(t.runs().send_posts(2).await, Ok(0), "the cancel waits behind the event");
    assert!(!t.run(&full).await.run.cancel_requested);
    assert_eq!(t.runs().send_posts(2).await, Ok(1), "the child is created");
    t.advance_s(86_400);
    t.send_posts().await;
    assert!(t.run(&full).await.run.cancel_requested, "after a day the event is given up, and the cancel arrives");
}
