//! What is true of every run, whatever has happened to it.

use proptest::prelude::*;

use super::*;

/// A move of a history. The owner's moves are made by whichever worker has the run, or by one that had it.
#[derive(Clone, Debug)]
enum Move {
    Claim(&'static str),
    TakeOver(&'static str),
    Renew(&'static str),
    Stay,
    Consume,
    Park,
    Sleep(u8),
    StartChild(u8),
    ChildCloses(u8, bool),
    Close,
    Continue,
    Release,
    Block,
    BackOff,
    LateCommit,
    RepeatCommit,
    Send(&'static str),
    TimerDue(u8),
    BackOffEnds,
    Cancel,
    Terminate,
    Pause,
    Resume,
    Build(&'static str),
}

fn a_move() -> impl Strategy<Value = Move> {
    let workers = || prop::sample::select(vec!["w1", "w2"]);
    prop_oneof![
        6 => workers().prop_map(Move::Claim),
        2 => workers().prop_map(Move::TakeOver),
        1 => workers().prop_map(Move::Renew),
        2 => Just(Move::Stay),
        3 => Just(Move::Consume),
        4 => Just(Move::Park),
        2 => (0..3_u8).prop_map(Move::Sleep),
        2 => (0..3_u8).prop_map(Move::StartChild),
        2 => (0..3_u8, any::<bool>()).prop_map(|(number, completed)| Move::ChildCloses(number, completed)),
        1 => Just(Move::Close),
        1 => Just(Move::Continue),
        1 => Just(Move::Release),
        1 => Just(Move::Block),
        1 => Just(Move::BackOff),
        1 => Just(Move::LateCommit),
        1 => Just(Move::RepeatCommit),
        4 => prop::sample::select(vec!["paid", "other"]).prop_map(Move::Send),
        3 => (0..3_u8).prop_map(Move::TimerDue),
        1 => Just(Move::BackOffEnds),
        1 => Just(Move::Cancel),
        1 => Just(Move::Terminate),
        1 => Just(Move::Pause),
        2 => Just(Move::Resume),
        1 => prop::sample::select(vec!["a", "b"]).prop_map(Move::Build),
    ]
}

/// The run, and what its owners remember.
struct Trial {
    kept: Kept,
    /// A commit that was made up and not sent, and the latest one that was.
    late: Option<Commit>,
    last: Option<Commit>,
}

impl Trial {
    fn commit(&mut self, change: impl FnOnce(&mut Commit), then: Then, now: Timestamp) -> RunReply {
        let mut commit = self.kept.commit(then);
        change(&mut commit);
        self.late.get_or_insert_with(|| commit.clone());
        self.last = Some(commit.clone());
        self.kept.put_commit(commit, now)
    }

    fn park(&mut self, now: Timestamp) -> RunReply {
        let open = u32::try_from(self.kept.children.len()).unwrap();
        let groups = if open == 0 { BTreeMap::new() } else { BTreeMap::from([(step_id(9), Group { open, fail_fast: false })]) };
        let wait = WaitSet { events: BTreeSet::from([event("paid")]), groups, ..WaitSet::default() };
        self.commit(|_| {}, Then::Park { wait }, now)
    }

    fn put(&mut self, a_move: &Move, now: Timestamp) -> RunReply {
        let kept = &mut self.kept;
        match *a_move {
            Move::Claim(name) => kept.claim(name, now),
            Move::TakeOver(name) => kept.take_over(name, now),
            Move::Renew(name) => kept.put(RunCommand::Renew { owner: worker(name), epoch: kept.run.epoch }, now),
            Move::Stay => self.commit(|commit| commit.entries = vec![entry(EntryKind::Open)], Then::Stay, now),
            Move::Consume => {
                let first = kept.inbox.keys().next().copied();
                let consume = |commit: &mut Commit| {
                    commit.entries = vec![entry(EntryKind::Done)];
                    commit.consumed = first.into_iter().collect();
                };
                self.commit(consume, Then::Stay, now)
            }
            Move::Park => self.park(now),
            Move::Sleep(number) => {
                let arm = |commit: &mut Commit| commit.armed = vec![(step_id(number), TimerAt::After(Duration::from_secs(5)))];
                self.commit(arm, Then::Stay, now)
            }
            Move::StartChild(number) => self.commit(|commit| commit.children = vec![child(number, 9)], Then::Stay, now),
            Move::ChildCloses(number, completed) => {
                let open = kept.children.get(&step_id(number)).cloned();
                kept.put(RunCommand::ChildClosed(ChildEnd { run_id: child(number, 9).run_id, open, completed }), now)
            }
            Move::Close => self.commit(|commit| commit.entries = vec![entry(EntryKind::Close)], Then::Close(RunEnd::Completed), now),
            Move::Continue => self.commit(|_| {}, Then::Continue(entry(EntryKind::Begin)), now),
            Move::Release => self.commit(|_| {}, Then::Release, now),
            Move::Block => self.commit(|_| {}, Then::Block { cause: BlockCause::Nondeterminism, build: Some(build("a")) }, now),
            Move::BackOff => {
                let then = Then::BackOff { cause: BlockCause::Panicked, build: Some(build("a")), delay: Duration::from_secs(5) };
                self.commit(|_| {}, then, now)
            }
            Move::LateCommit => match self.late.take() {
                Some(late) => kept.put_commit(late, now),
                None => RunReply::Dropped,
            },
            Move::RepeatCommit => match self.last.clone() {
                Some(last) => kept.put_commit(last, now),
                None => RunReply::Dropped,
            },
            Move::Send(name) => kept.send(name, now),
            Move::TimerDue(number) => kept.put(RunCommand::TimerDue(RunTimer::Step(step_id(number))), now),
            Move::BackOffEnds => kept.put(RunCommand::TimerDue(RunTimer::BackOff), now),
            Move::Cancel => kept.put(RunCommand::Cancel { entry: Payload::null() }, now),
            Move::Terminate => kept.put(RunCommand::Terminate { entry: Payload::null() }, now),
            Move::Pause => kept.put(RunCommand::Pause, now),
            Move::Resume => kept.put(RunCommand::Resume, now),
            Move::Build(name) => kept.put(RunCommand::BuildRegistered(build(name)), now),
        }
    }
}

fn says_that_nothing_changed(reply: &RunReply) -> bool {
    use RunReply::{Closed, Dropped, Duplicate, HistoryFull, Lost, MailboxFull, NothingToWaitFor, Stale, WaitSetTooLarge};
    matches!(
        reply,
        Lost { .. }
            | Stale { .. }
            | HistoryFull
            | WaitSetTooLarge
            | NothingToWaitFor
            | Duplicate { .. }
            | MailboxFull
            | Closed(_)
            | Dropped
    )
}

/// The header says what the rows say.
fn check_rows(kept: &Kept) {
    let run = &kept.run;
    assert_eq!(run.entries, kept.journal.len() as u64, "entries");
    assert_eq!(run.events as usize, kept.inbox.values().filter(|kind| **kind == Kind::Event).count(), "events that are not consumed");
    assert!(kept.inbox.keys().all(|number| *number <= run.facts));
    let cancels: Vec<u64> = kept.inbox.iter().filter(|(_, kind)| **kind == Kind::Cancel).map(|(number, _)| *number).collect();
    if !run.state.is_closed() {
        assert_eq!(cancels, run.cancel_fact.into_iter().collect::<Vec<_>>(), "the fact that says that it is cancelled");
        assert!(!run.cancel_requested || run.entries > 1 || !cancels.is_empty(), "a generation that begins hears of a cancel");
    }
    let armed: BTreeSet<StepId> = run.wait.timers.keys().cloned().collect();
    assert_eq!(armed, kept.timers, "timers");
    if run.state.is_closed() {
        assert!(kept.inbox.is_empty() && kept.timers.is_empty() && kept.children.is_empty());
    }
}

/// A run that is open can always go on, or says what it needs.
fn check_standing(run: &Run) {
    match run.standing() {
        Standing::Claimed(_) => assert!(run.owner.is_some() && run.expires_at.is_some()),
        Standing::Parked => {
            let set = &run.wait;
            assert!(!(set.events.is_empty() && set.timers.is_empty() && set.groups.is_empty()), "nothing could wake it");
        }
        Standing::Blocked => assert!(run.cause.is_some()),
        Standing::BacksOff(_) => assert!(run.state == RunState::Waiting && run.cause.is_some()),
        Standing::Closed => assert!(run.closed_at.is_some()),
        Standing::Start(_) | Standing::Queued(_) | Standing::Paused => {}
    }
    assert_eq!(run.owner.is_some(), run.state == RunState::Running);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_nothing_is_lost_and_nothing_goes_back(
        history in prop::collection::vec((prop::sample::select(vec![0, 0, 1, 5, 20]), a_move()), 0..60)
    ) {
        let mut trial = Trial { kept: Kept::new(new_run()), late: None, last: None };
        let mut seconds = 0;
        for (passes, a_move) in history {
            seconds += passes;
            let before = trial.kept.run.clone();
            let reply = trial.put(&a_move, at(seconds));
            let run = &trial.kept.run;
            if says_that_nothing_changed(&reply) {
                prop_assert_eq!(run, &before);
            }
            if matches!(reply, RunReply::Claimed { .. }) {
                prop_assert!(run.epoch > before.epoch, "each claim has an epoch of its own");
            }
            if before.state.is_closed() {
                prop_assert_eq!(run, &before, "nothing leaves a closed state");
            }
            prop_assert!(run.epoch >= before.epoch && run.revision >= before.revision && run.facts >= before.facts);
            prop_assert!(run.generation > before.generation || run.entries >= before.entries, "a journal only grows");
            check_rows(&trial.kept);
            check_standing(run);
        }
    }
}
