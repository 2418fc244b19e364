//! The promises about timers of runs.

use std::time::Duration;

use towpath_core::run::{ClosePolicy, Commit, FactKind, RunState, Then, TimerAt};
use towpath_core::store::StartRun;

use crate::bench::Bench;
use crate::words::{child, done, seconds, start, step, waits_for, waits_for_timers};

pub async fn a_sleep_counts_from_its_commit_and_wakes_the_run_once(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    t.advance_s(3);
    let armed = vec![(step(1), TimerAt::After(seconds(10)))];
    let park = Commit { armed, ..execution.commit(Vec::new(), waits_for_timers()) };
    t.committed(&mut execution, park).await;
    t.advance(seconds(10) - Duration::from_millis(1));
    assert_eq!(t.fire_runs().await, 0);
    t.advance_ms(1);
    assert_eq!((t.fire_runs().await, t.fire_runs().await), (1, 0));
    assert_eq!(t.run_state(&id).await, RunState::Ready);
    let kinds: Vec<_> = t.execute("w1").await.facts.into_iter().map(|fact| fact.kind).collect();
    assert_eq!(kinds, [FactKind::TimerDue(step(1))]);
}

pub async fn a_timer_that_comes_while_the_run_is_executed_is_a_fact(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let armed = vec![(step(1), TimerAt::After(seconds(1)))];
    let commit = Commit { armed, ..execution.commit(vec![done(9, "1")], Then::Stay) };
    t.committed(&mut execution, commit).await;
    t.advance_s(1);
    assert_eq!(t.fire_runs().await, 1);
    let park = execution.commit(Vec::new(), waits_for(&["paid"]));
    assert!(t.committed(&mut execution, park).await.has_facts, "the owner has not seen it");
    assert_eq!((execution.facts.len(), t.run_state(&id).await), (1, RunState::Running));
}

pub async fn a_timer_that_was_disarmed_does_not_fire(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let armed = vec![(step(1), TimerAt::After(seconds(1)))];
    let commit = Commit { armed, ..execution.commit(vec![done(9, "1")], Then::Stay) };
    t.committed(&mut execution, commit).await;
    let drops = Commit { disarmed: vec![step(1)], ..execution.commit(Vec::new(), waits_for(&["paid"])) };
    t.committed(&mut execution, drops).await;
    t.advance_s(5);
    assert_eq!((t.fire_runs().await, t.run_state(&id).await), (0, RunState::Waiting));
}

pub async fn a_timer_that_one_commit_arms_and_disarms_does_not_fire(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let armed = vec![(step(1), TimerAt::After(seconds(1)))];
    let commit = Commit { armed, disarmed: vec![step(1)], ..execution.commit(vec![done(1, "1")], waits_for(&["paid"])) };
    t.committed(&mut execution, commit).await;
    assert!(t.run(&id).await.run.wait.timers.is_empty());
    t.advance_s(5);
    assert_eq!((t.fire_runs().await, t.run_state(&id).await), (0, RunState::Waiting));
}

pub async fn an_owner_that_parks_after_its_last_timer_has_fired_is_given_the_fact(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let armed = vec![(step(1), TimerAt::After(seconds(1)))];
    let commit = Commit { armed, ..execution.commit(vec![done(9, "1")], Then::Stay) };
    t.committed(&mut execution, commit).await;
    t.advance_s(1);
    assert_eq!(t.fire_runs().await, 1);
    let park = execution.commit(Vec::new(), waits_for_timers());
    assert!(t.committed(&mut execution, park).await.has_facts, "no timer is armed any more, but the owner has not seen that");
    assert_eq!((execution.facts.len(), t.run_state(&id).await), (1, RunState::Running));
}

pub async fn a_deadline_asks_the_code_to_end_and_ends_the_run_a_minute_later(t: &mut Bench) {
    let id = t.started(StartRun { timeout: Some(seconds(10)), ..start("order", 1) }).await;
    t.execute("w1").await;
    t.advance_s(10);
    assert_eq!(t.fire_runs().await, 1);
    let view = t.run(&id).await;
    assert_eq!((view.run.state, view.run.cancel_requested), (RunState::Running, true));
    t.advance_s(59);
    assert_eq!(t.fire_runs().await, 0);
    t.advance_s(1);
    assert_eq!((t.fire_runs().await, t.run_state(&id).await), (1, RunState::Terminated));
}

pub async fn timers_survive_a_restart(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let armed = vec![(step(1), TimerAt::After(seconds(10)))];
    let park = Commit { armed, ..execution.commit(Vec::new(), waits_for_timers()) };
    t.committed(&mut execution, park).await;
    t.reopen().await;
    t.advance_s(10);
    assert_eq!((t.fire_runs().await, t.run_state(&id).await), (1, RunState::Ready));
}

pub async fn the_timekeeper_hears_of_a_timer_of_a_run_and_of_an_earlier_one(t: &mut Bench) {
    t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let waits = t.start_timekeeping().await;
    t.check_waits(&waits).await;
    let armed = vec![(step(1), TimerAt::After(seconds(10)))];
    let park = Commit { armed, ..execution.commit(Vec::new(), waits_for_timers()) };
    t.committed(&mut execution, park).await;
    let due = waits.end().await;
    assert_eq!(due, t.now() + seconds(10));
    let earlier = t.start(move |store| async move { store.due_before(Some(due)).await }).await;
    t.check_waits(&earlier).await;
    t.started(StartRun { delay: seconds(5), ..start("order", 2) }).await;
    assert_eq!(earlier.end().await, t.now() + seconds(5));
}

pub async fn the_timekeeper_hears_of_a_post_that_a_commit_has_written(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut parent = t.execute("w1").await;
    let waits = t.start_timekeeping().await;
    t.check_waits(&waits).await;
    let (one, post) = child(&id, 1, 9, ClosePolicy::Cancel);
    let commit = Commit { children: vec![one], posts: vec![post], ..parent.commit(vec![done(5, "1")], Then::Stay) };
    t.committed(&mut parent, commit).await;
    assert!(waits.end().await <= t.now(), "it is due at once");
    t.send_posts().await;
    let quiet = t.start_timekeeping().await;
    t.check_waits(&quiet).await;
}

pub async fn a_post_that_waits_is_among_what_is_due_next(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut parent = t.execute("w1").await;
    let (one, post) = child(&id, 1, 9, ClosePolicy::Cancel);
    let armed = vec![(step(1), TimerAt::After(seconds(10)))];
    let commit = Commit { children: vec![one], posts: vec![post], armed, ..parent.commit(vec![done(5, "1")], Then::Stay) };
    t.committed(&mut parent, commit).await;
    let next_due = async || t.runs().fire_runs(100).await.map(|fired| fired.next_due);
    assert_eq!(next_due().await, Ok(Some(t.now())));
    t.send_posts().await;
    assert_eq!(next_due().await, Ok(Some(t.now() + seconds(10))), "the timer alone is left");
}

pub async fn the_timers_of_one_look_are_bounded_and_what_is_left_is_due_at_once(t: &mut Bench) {
    for number in 1..=3 {
        t.started(StartRun { delay: seconds(u64::from(number)), ..start("order", number) }).await;
    }
    t.advance_s(10);
    let first = t.runs().fire_runs(2).await;
    assert!(matches!(&first, Ok(fired) if fired.fired == 2 && fired.next_due.is_some_and(|at| at <= t.now())), "{first:?}");
    assert_eq!(t.runs().fire_runs(2).await.map(|fired| (fired.fired, fired.next_due)), Ok((1, None)));
}
