//! The moves that matter, one by one.

use super::*;

fn claimed() -> Kept {
    let mut kept = Kept::new(new_run());
    assert!(matches!(kept.claim("w1", at(0)), RunReply::Claimed { .. }));
    kept
}

#[test]
fn an_event_is_received_whether_it_comes_before_or_after_the_run_is_parked() {
    // Before the owner has read its inbox, between that and the commit, and after the commit.
    for moment in 0..3 {
        let mut kept = claimed();
        if moment == 0 {
            kept.send("paid", at(1));
        }
        let park = kept.commit(wait_for(&["paid"]));
        if moment == 1 {
            kept.send("paid", at(1));
        }
        let reply = kept.put_commit(park, at(2));
        let RunReply::Committed(committed) = reply else { panic!("{reply:?}") };
        assert_eq!(committed.has_facts, moment == 1, "the owner reads on only if it has not seen all");
        if moment == 2 {
            kept.send("paid", at(3));
            assert_eq!(kept.run.standing(), Standing::Queued(RunQueue::First), "the event wakes the run");
        }
        assert_eq!(kept.inbox.len(), 1, "and it is there");
    }
}

#[test]
fn an_event_that_the_run_does_not_wait_for_stays_and_wakes_nothing() {
    let mut kept = claimed();
    let _ = kept.commit_now(wait_for(&["paid"]), at(1));
    assert_eq!(kept.send("other", at(2)), RunReply::Accepted { number: 1 });
    assert_eq!((kept.run.standing(), kept.run.events), (Standing::Parked, 1));
}

#[test]
fn a_commit_that_is_repeated_gets_the_first_answer_and_writes_nothing() {
    for then in [Then::Stay, wait_for(&["paid"]), Then::Close(RunEnd::Completed), Then::Release] {
        let mut kept = claimed();
        let mut commit = kept.commit(then);
        commit.entries = vec![entry(EntryKind::Open), entry(EntryKind::Done)];
        let first = kept.put_commit(commit.clone(), at(1));
        let after = (kept.run.clone(), kept.journal.clone());
        assert_eq!(kept.put_commit(commit, at(9)), first);
        assert_eq!((kept.run, kept.journal), after);
    }
}

#[test]
fn an_owner_that_was_taken_over_is_refused_and_so_is_one_ahead_of_the_store() {
    let mut kept = claimed();
    let late = kept.commit(Then::Close(RunEnd::Completed));
    let old_epoch = kept.run.epoch;
    assert_eq!(kept.take_over("w2", at(14)), RunReply::NotClaimed, "its owner is not silent for long enough");
    assert!(matches!(kept.take_over("w2", at(15)), RunReply::Claimed { .. }));
    let epoch = kept.run.epoch;
    assert_eq!(kept.put_commit(late, at(16)), RunReply::Lost { epoch });
    assert_eq!(kept.put(RunCommand::Renew { owner: worker("w1"), epoch: old_epoch }, at(16)), RunReply::Lost { epoch });
    let ahead = Commit { revision: 7, ..kept.commit(Then::Stay) };
    assert_eq!(kept.put_commit(ahead, at(16)), RunReply::Stale { revision: 0 });
}

#[test]
fn the_longer_patience_of_two_workers_counts() {
    let mut kept = claimed();
    let patient = RunCommand::TakeOver { worker: worker("w2"), idle: Duration::from_secs(180), max_deliveries: MAX_DELIVERIES };
    assert_eq!(kept.put(patient.clone(), at(179)), RunReply::NotClaimed);
    assert!(matches!(kept.put(patient, at(180)), RunReply::Claimed { .. }));
    let hasty = RunCommand::TakeOver { worker: worker("w3"), idle: Duration::from_secs(1), max_deliveries: MAX_DELIVERIES };
    assert_eq!(kept.put(hasty.clone(), at(180 + 179)), RunReply::NotClaimed, "its owner has said that it may be silent for longer");
    assert!(matches!(kept.put(hasty, at(180 + 180)), RunReply::Claimed { .. }));
}

#[test]
fn a_run_that_kills_its_workers_is_blocked_and_a_result_starts_the_count_again() {
    let mut kept = claimed();
    for number in 1..=i64::from(MAX_DELIVERIES) {
        assert!(matches!(kept.take_over("w2", at(number * 20)), RunReply::Claimed { .. }));
    }
    let mut result = kept.commit(Then::Stay);
    result.entries = vec![entry(EntryKind::Done)];
    let _ = kept.put_commit(result, at(61));
    assert_eq!(kept.run.deliveries, 0);
    for number in 0..i64::from(MAX_DELIVERIES) {
        assert!(matches!(kept.take_over("w2", at(100 + number * 20)), RunReply::Claimed { .. }));
    }
    assert_eq!(kept.take_over("w2", at(200)), RunReply::Poisoned);
    assert_eq!((kept.run.standing(), kept.run.cause), (Standing::Blocked, Some(BlockCause::Poisoned)));
    assert_eq!(kept.put(RunCommand::Resume, at(201)), RunReply::Done(RunState::Ready));
    assert_eq!(kept.run.deliveries, 0);
}

#[test]
fn a_timer_wakes_the_run_once_and_one_that_was_disarmed_does_nothing() {
    let mut kept = claimed();
    let mut park = kept.commit(Then::Park { wait: WaitSet::default() });
    park.armed = vec![(step_id(1), TimerAt::After(Duration::from_secs(10))), (step_id(2), TimerAt::At(at(20)))];
    let _ = kept.put_commit(park, at(1));
    let due = |number| RunCommand::TimerDue(RunTimer::Step(step_id(number)));
    assert_eq!(kept.put(due(1), at(10)), RunReply::Dropped, "it is due ten seconds after the commit");
    assert_eq!(kept.put(due(1), at(11)), RunReply::Done(RunState::Ready));
    assert_eq!(kept.put(due(1), at(12)), RunReply::Dropped, "it has fired");
    let _ = kept.claim("w1", at(12));
    let mut drops = kept.commit(Then::Stay);
    drops.disarmed = vec![step_id(2)];
    let _ = kept.put_commit(drops, at(13));
    assert_eq!(kept.put(due(2), at(30)), RunReply::Dropped, "the code has dropped that step");
    assert!(kept.timers.is_empty());
}

#[test]
fn a_run_is_not_parked_without_anything_that_could_wake_it() {
    let mut kept = claimed();
    assert_eq!(kept.commit_now(Then::Park { wait: WaitSet::default() }, at(1)), RunReply::NothingToWaitFor);
    assert_eq!(kept.run.state, RunState::Running);
}

#[test]
fn children_are_waited_for_together_and_only_a_child_that_is_open_counts() {
    let mut kept = claimed();
    let groups = BTreeMap::from([(step_id(9), Group { open: 2, fail_fast: false })]);
    let mut park = kept.commit(Then::Park { wait: WaitSet { groups, ..WaitSet::default() } });
    park.children = vec![child(1, 9), child(2, 9)];
    let _ = kept.put_commit(park, at(1));
    let mut ends = |number: u8, run_id: RunId| {
        let open = kept.children.get(&step_id(number)).cloned();
        kept.put(RunCommand::ChildClosed(ChildEnd { run_id, open, completed: true }), at(2))
    };
    assert_eq!(ends(1, child(5, 9).run_id), RunReply::Dropped, "that is another run");
    assert_eq!(ends(1, child(1, 9).run_id), RunReply::Done(RunState::Waiting));
    assert_eq!(ends(1, child(1, 9).run_id), RunReply::Dropped, "it came before");
    assert_eq!(ends(2, child(2, 9).run_id), RunReply::Done(RunState::Ready));
    assert_eq!(kept.run.facts, 2);
}

#[test]
fn a_child_that_fails_wakes_a_group_that_does_not_want_to_wait_for_the_others() {
    let mut kept = claimed();
    let groups = BTreeMap::from([(step_id(9), Group { open: 2, fail_fast: true })]);
    let mut park = kept.commit(Then::Park { wait: WaitSet { groups, ..WaitSet::default() } });
    park.children = vec![child(1, 9), child(2, 9)];
    let _ = kept.put_commit(park, at(1));
    let end = ChildEnd { run_id: child(1, 9).run_id, open: Some(child(1, 9)), completed: false };
    assert_eq!(kept.put(RunCommand::ChildClosed(end), at(2)), RunReply::Done(RunState::Ready));
}

#[test]
fn a_cancel_reaches_the_code_of_a_run_that_has_begun_and_ends_one_that_has_not() {
    let mut kept = Kept::new(new_run());
    assert_eq!(kept.put(RunCommand::Cancel { entry: Payload::null() }, at(1)), RunReply::Done(RunState::Cancelled));
    assert_eq!(kept.put(RunCommand::Cancel { entry: Payload::null() }, at(2)), RunReply::Closed(RunState::Cancelled));

    let mut kept = claimed();
    let _ = kept.commit_now(wait_for(&["paid"]), at(1));
    assert_eq!(kept.put(RunCommand::Cancel { entry: Payload::null() }, at(2)), RunReply::Done(RunState::Ready));
    assert_eq!(kept.put(RunCommand::Cancel { entry: Payload::null() }, at(3)), RunReply::Done(RunState::Ready));
    assert_eq!(kept.inbox.len(), 1, "a second cancel adds nothing");
}

#[test]
fn a_terminated_run_takes_its_children_along_and_tells_its_parent() {
    let mut kept = claimed();
    kept.run.parent = Some(Parent { run_id: kept.run.run_id.clone(), step: step_id(7) });
    let mut opens = kept.commit(Then::Stay);
    opens.children = vec![child(1, 1), child(2, 2)];
    let _ = kept.put_commit(opens, at(1));
    let _ = kept.send("paid", at(1));
    assert_eq!(kept.put(RunCommand::Terminate { entry: Payload::null() }, at(2)), RunReply::Done(RunState::Terminated));
    assert_eq!((kept.posts, kept.parent_told, kept.children.len(), kept.inbox.len()), (2, 1, 0, 0));
    assert_eq!(kept.journal.last(), Some(&EntryKind::Close));
    assert_eq!(kept.send("paid", at(3)), RunReply::Closed(RunState::Terminated));
    assert!(kept.run.is_gone(at(2) + RETAIN) && !kept.run.is_gone(at(3_600)));
}

#[test]
fn a_paused_run_waits_for_no_worker_and_facts_pile_up() {
    let mut kept = claimed();
    let _ = kept.commit_now(wait_for(&["paid"]), at(1));
    let _ = kept.put(RunCommand::Pause, at(2));
    let _ = kept.send("paid", at(3));
    assert_eq!(kept.run.standing(), Standing::Paused);
    assert_eq!(kept.claim("w1", at(4)), RunReply::NotClaimed);
    let _ = kept.put(RunCommand::Resume, at(5));
    assert_eq!(kept.run.standing(), Standing::Queued(RunQueue::First));
    assert!(matches!(kept.claim("w1", at(6)), RunReply::Claimed { .. }));
}

#[test]
fn a_run_that_does_not_fit_a_build_waits_for_another_one() {
    let mut kept = claimed();
    let block = |name: &str| Then::Block { cause: BlockCause::Nondeterminism, build: Some(build(name)) };
    let _ = kept.commit_now(block("a"), at(1));
    assert_eq!(kept.put(RunCommand::BuildRegistered(build("a")), at(2)), RunReply::Dropped);
    assert_eq!(kept.put(RunCommand::BuildRegistered(build("b")), at(3)), RunReply::Done(RunState::Ready));
    let _ = kept.claim("w1", at(4));
    let _ = kept.commit_now(Then::BackOff { cause: BlockCause::Panicked, build: Some(build("b")), delay: Duration::from_secs(5) }, at(5));
    assert_eq!(kept.run.standing(), Standing::BacksOff(at(10)));
    assert_eq!(kept.send("paid", at(6)), RunReply::Accepted { number: 1 }, "an event does not end a back-off");
    assert_eq!(kept.run.standing(), Standing::BacksOff(at(10)));
    assert_eq!(kept.put(RunCommand::TimerDue(RunTimer::BackOff), at(9)), RunReply::Dropped);
    assert_eq!(kept.put(RunCommand::TimerDue(RunTimer::BackOff), at(10)), RunReply::Done(RunState::Ready));
}

#[test]
fn a_run_that_continues_keeps_its_events_and_nothing_of_its_steps() {
    let mut kept = claimed();
    let mut opens = kept.commit(Then::Stay);
    opens.armed = vec![(step_id(1), TimerAt::At(at(5)))];
    opens.children = vec![child(1, 1)];
    let _ = kept.put_commit(opens, at(1));
    let _ = kept.send("paid", at(2));
    let _ = kept.put(RunCommand::TimerDue(RunTimer::Step(step_id(1))), at(5));
    assert_eq!(kept.inbox.len(), 2);
    let _ = kept.commit_now(Then::Continue(entry(EntryKind::Begin)), at(6));
    assert_eq!((kept.run.generation, kept.run.entries, kept.run.events), (1, 1, 1));
    assert_eq!((kept.inbox.len(), kept.timers.len(), kept.children.len(), kept.posts), (1, 0, 0, 1));
    assert_eq!(kept.run.standing(), Standing::Queued(RunQueue::First));
}

#[test]
fn a_full_journal_takes_results_and_no_new_work() {
    let mut kept = claimed();
    kept.run.entries = ENTRIES_MAX;
    let with = |kept: &Kept, kind, then| Commit { entries: vec![entry(kind)], ..kept.commit(then) };
    let open = with(&kept, EntryKind::Open, Then::Stay);
    assert_eq!(kept.put_commit(open, at(1)), RunReply::HistoryFull);
    let done = with(&kept, EntryKind::Done, Then::Stay);
    assert!(matches!(kept.put_commit(done, at(1)), RunReply::Committed(_)));
    kept.run.entries = ENTRIES_MAX + RESULTS_BEYOND_MAX;
    let done = with(&kept, EntryKind::Done, Then::Stay);
    assert_eq!(kept.put_commit(done, at(1)), RunReply::HistoryFull);
    let end = with(&kept, EntryKind::Close, Then::Close(RunEnd::Failed));
    assert!(matches!(kept.put_commit(end, at(1)), RunReply::Committed(_)), "what ends the run always fits");
}

#[test]
fn an_inbox_is_bounded_and_an_event_with_a_known_reference_is_not_added() {
    let mut kept = claimed();
    kept.run.events = EVENTS_MAX;
    assert_eq!(kept.send("paid", at(1)), RunReply::MailboxFull);
    let again = RunCommand::Send { name: event("paid"), known_as: Some(3) };
    assert_eq!(kept.put(again, at(1)), RunReply::Duplicate { number: 3 });
    assert!(kept.inbox.is_empty());
}

#[test]
fn a_delayed_run_starts_at_its_instant_and_a_deadline_ends_it() {
    let place = place("order", "1", None).unwrap();
    let run_id = RunId::new(&place, 1);
    let new = NewRun { run_id, place, start_at: Some(at(10)), deadline: Some(at(20)), retain: RETAIN, parent: None, begin_bytes: 0 };
    let mut kept = Kept::new(Run::created(new, at(0)));
    assert_eq!(kept.run.standing(), Standing::Start(at(10)));
    assert_eq!(kept.claim("w1", at(5)), RunReply::NotClaimed);
    assert_eq!(kept.put(RunCommand::TimerDue(RunTimer::Start), at(9)), RunReply::Dropped);
    assert_eq!(kept.put(RunCommand::TimerDue(RunTimer::Start), at(10)), RunReply::Done(RunState::Ready));
    let _ = kept.claim("w1", at(11));
    assert_eq!(kept.put(RunCommand::TimerDue(RunTimer::Deadline { entry: Payload::null() }), at(19)), RunReply::Dropped);
    assert_eq!(kept.put(RunCommand::TimerDue(RunTimer::Deadline { entry: Payload::null() }), at(20)), RunReply::Done(RunState::Running));
    assert!(kept.run.cancel_requested, "its code is asked to end");
    let after = |entry| RunCommand::TimerDue(RunTimer::AfterDeadline { entry });
    assert_eq!(kept.put(after(Payload::null()), at(79)), RunReply::Dropped);
    assert_eq!(kept.put(after(Payload::null()), at(80)), RunReply::Done(RunState::Terminated));
}

#[test]
fn a_header_survives_its_json_with_all_that_is_in_it() {
    let mut kept = claimed();
    kept.run.parent = Some(Parent { run_id: kept.run.run_id.clone(), step: step_id(7) });
    let groups = BTreeMap::from([(step_id(9), Group { open: 2, fail_fast: true })]);
    let wait = WaitSet { events: BTreeSet::from([event("paid")]), groups, ..WaitSet::default() };
    let mut park = kept.commit(Then::Park { wait });
    park.armed = vec![(step_id(1), TimerAt::At(at(5)))];
    let _ = kept.put_commit(park, at(1));
    kept.run.unfit_builds.push(build("a"));
    let text = serde_json::to_string(&kept.run).unwrap();
    assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), kept.run);
}

#[test]
fn posts_and_facts_survive_their_json_byte_for_byte() {
    let (to, reason) = (new_run().run_id, Arc::from("why"));
    let outcome = Payload::from_json("1e400");
    let closed = Post::ChildClosed { to: to.clone(), step: step_id(1), run_id: to.clone(), completed: true, outcome };
    for post in [closed, Post::Cancel { to, reason }] {
        let text = serde_json::to_string(&post).unwrap();
        assert_eq!(serde_json::from_str::<Post>(&text).unwrap(), post);
    }
    let fact = FactKind::Event { name: event("paid"), data: Payload::from_json(r#"{"a":-0,"b":1.0}"#) };
    let text = serde_json::to_string(&fact).unwrap();
    assert_eq!(serde_json::from_str::<FactKind>(&text).unwrap(), fact);
}

#[test]
fn a_run_that_was_cancelled_and_continues_is_told_again() {
    let mut kept = claimed();
    let _ = kept.put(RunCommand::Cancel { entry: Payload::null() }, at(1));
    let mut heeds = kept.commit(Then::Stay);
    heeds.consumed = vec![1];
    let _ = kept.put_commit(heeds, at(2));
    assert!(kept.inbox.is_empty());
    let _ = kept.commit_now(Then::Continue(entry(EntryKind::Begin)), at(3));
    assert_eq!(kept.inbox, BTreeMap::from([(2, Kind::Cancel)]));
    let _ = kept.claim("w1", at(4));
    let _ = kept.commit_now(Then::Continue(entry(EntryKind::Begin)), at(5));
    assert_eq!(kept.inbox.len(), 1, "one that was not consumed moves along");
}

#[test]
fn a_run_is_not_parked_for_a_group_without_an_open_child() {
    let mut kept = claimed();
    let groups = BTreeMap::from([(step_id(9), Group { open: 0, fail_fast: false })]);
    let wait = WaitSet { events: BTreeSet::from([event("paid")]), groups, ..WaitSet::default() };
    assert_eq!(kept.commit_now(Then::Park { wait }, at(1)), RunReply::NothingToWaitFor);
}

#[test]
fn no_more_timers_are_armed_than_a_run_can_carry() {
    let mut kept = claimed();
    let mut arms = kept.commit(Then::Stay);
    arms.armed = (0..=TIMERS_MAX).map(|number| (StepId::parse(&format!("{number:032x}")).unwrap(), TimerAt::At(at(9)))).collect();
    assert_eq!(kept.put_commit(arms, at(1)), RunReply::WaitSetTooLarge);
}
