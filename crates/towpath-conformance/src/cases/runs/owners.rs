//! The promises about what the owner of a run hears.

use towpath_core::run::{Commit, RunState, Then, TimerAt};
use towpath_core::store::{EventSent, RunRequest, RunRequested};

use crate::bench::Bench;
use crate::words::{done, event, seconds, start, step};

pub async fn an_owner_hears_of_all_that_comes_for_its_run(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let armed = vec![(step(1), TimerAt::After(seconds(5)))];
    let commit = Commit { armed, ..execution.commit(vec![done(9, "1")], Then::Stay) };
    t.committed(&mut execution, commit).await;
    for happening in 0..5 {
        let waits = t.start_listening("w1").await;
        t.check_waits(&waits).await;
        match happening {
            0 => assert_eq!(t.send(&id, event("paid", "1")).await, EventSent::Accepted { number: 1 }),
            1 => assert_eq!(t.ask_run(&id, RunRequest::Pause).await, RunRequested::Done(RunState::Running)),
            2 => assert_eq!(t.cancel_run(&id).await, RunRequested::Done(RunState::Running)),
            3 => {
                t.advance_s(5);
                assert_eq!(t.fire_runs().await, 1);
            }
            _last => assert_eq!(t.terminate_run(&id).await, RunRequested::Done(RunState::Terminated)),
        }
        assert_eq!(waits.end().await, std::slice::from_ref(&id), "happening {happening}");
    }
}

pub async fn an_owner_hears_nothing_of_runs_of_others_and_of_its_own_commits(t: &mut Bench) {
    let own = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let other = t.started(start("order", 2)).await;
    t.execute("w2").await;
    let ready = t.started(start("order", 3)).await;
    let waits = t.start_listening("w1").await;
    t.send(&other, event("paid", "1")).await;
    t.send(&ready, event("paid", "1")).await;
    let commit = execution.commit(vec![done(9, "1")], Then::Stay);
    t.committed(&mut execution, commit).await;
    t.renew_run(&execution).await;
    t.check_waits(&waits).await;
    t.send(&own, event("paid", "1")).await;
    assert_eq!(waits.end().await, [own]);
}

pub async fn an_owner_that_waits_hears_of_nothing_when_its_time_is_over(t: &mut Bench) {
    let waits = t.start_listening("w1").await;
    t.advance_s(59);
    t.check_waits(&waits).await;
    t.advance_s(1);
    assert!(waits.end().await.is_empty());
}
