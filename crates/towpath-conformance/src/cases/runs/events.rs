//! The promises about events.

use towpath_core::run::{FactKind, RunState};
use towpath_core::store::{EVENT_KNOWN_FOR, EventSent, FACTS_BYTES_MAX, NewEvent};

use crate::bench::Bench;
use crate::words::{completes, done, event, event_name, json, reference, run_id, start, waits_for};

pub async fn an_event_is_received_at_every_moment_of_a_park(t: &mut Bench) {
    // Before the owner claims, after that, and after the commit that parks.
    for moment in 0..3_u8 {
        let id = t.started(start("order", moment)).await;
        if moment == 0 {
            t.send(&id, event("paid", "1")).await;
        }
        let mut execution = t.execute("w1").await;
        if moment == 1 {
            t.send(&id, event("paid", "1")).await;
        }
        let park = execution.commit(Vec::new(), waits_for(&["paid"]));
        let committed = t.committed(&mut execution, park).await;
        assert_eq!(committed.has_facts, moment == 1, "the owner goes on if there is a fact that it has not seen");
        if moment == 2 {
            t.send(&id, event("paid", "1")).await;
            execution = t.execute("w2").await;
        }
        assert_eq!(execution.facts.len(), 1, "moment {moment}");
        t.terminate_run(&id).await;
    }
}

pub async fn events_are_kept_in_order_until_they_are_consumed(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    for (number, data) in [(1, "1"), (2, "2"), (3, "3")] {
        assert_eq!(t.send(&id, event("paid", data)).await, EventSent::Accepted { number });
    }
    let mut execution = t.execute("w1").await;
    let data = |kind: &FactKind| matches!(kind, FactKind::Event { name, .. } if *name == event_name("paid"));
    assert!(execution.facts.iter().all(|fact| data(&fact.kind)));
    let commit = execution.consuming(vec![done(1, "1")], waits_for(&["paid"]));
    t.committed(&mut execution, commit).await;
    assert_eq!(t.runs().facts(&id, 0).await.map(|facts| facts.len()), Ok(0));
    assert_eq!(t.send(&id, event("paid", "4")).await, EventSent::Accepted { number: 4 });
    assert_eq!(
        t.execute("w1").await.facts.first().map(|fact| fact.kind.clone()),
        Some(FactKind::Event { name: event_name("paid"), data: json("4") })
    );
}

pub async fn the_same_reference_is_the_same_event_for_a_day(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let click = |name: &str| NewEvent { reference: Some(reference("click")), ..event(name, "1") };
    assert_eq!(t.send(&id, click("paid")).await, EventSent::Accepted { number: 1 });
    assert_eq!(t.send(&id, click("paid")).await, EventSent::Duplicate { number: 1 });
    assert_eq!(t.send(&id, click("refunded")).await, EventSent::Accepted { number: 2 }, "another name is another event");
    let mut execution = t.execute("w1").await;
    let commit = execution.consuming(vec![done(1, "1")], waits_for(&["paid"]));
    t.committed(&mut execution, commit).await;
    assert_eq!(t.send(&id, click("paid")).await, EventSent::Duplicate { number: 1 });
    assert_eq!(t.run_state(&id).await, RunState::Waiting);
    t.advance(EVENT_KNOWN_FOR);
    assert_eq!(t.send(&id, click("paid")).await, EventSent::Accepted { number: 3 });
}

pub async fn an_event_that_a_run_does_not_wait_for_wakes_nothing(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let park = execution.commit(Vec::new(), waits_for(&["paid", "refunded"]));
    t.committed(&mut execution, park).await;
    t.send(&id, event("other", "1")).await;
    assert_eq!(t.run_state(&id).await, RunState::Waiting);
    t.send(&id, event("refunded", "1")).await;
    assert_eq!(t.execute("w1").await.facts.len(), 2, "all that came is there");
}

pub async fn a_closed_run_and_one_that_does_not_exist_take_no_event(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let close = execution.commit(vec![done(1, "1")], completes());
    t.committed(&mut execution, close).await;
    assert_eq!(t.send(&id, event("paid", "1")).await, EventSent::Closed(RunState::Completed));
    assert_eq!(t.send(&run_id("order", 9), event("paid", "1")).await, EventSent::NotFound);
}

pub async fn a_page_of_facts_is_bounded_in_bytes(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let large = format!("\"{}\"", "x".repeat(FACTS_BYTES_MAX / 2));
    for _ in 0..4 {
        t.send(&id, event("paid", &large)).await;
    }
    let execution = t.execute("w1").await;
    assert_eq!(execution.facts.len(), 2);
    assert_eq!(t.runs().facts(&id, 2).await.map(|facts| facts.len()), Ok(2), "the rest is read page by page");
}
