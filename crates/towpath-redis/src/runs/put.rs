//! Load, decide, compare and apply. All moves of a place that wait go with one script; those of one run are decided one after the other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use redis::Value;
use towpath_core::names::WorkerId;
use towpath_core::run::{Child, Effects, Run, RunId, RunReply, Standing, StepId, step};
use towpath_core::store::{Durability, NewEvent, StoreError, StoreTrouble};
use towpath_core::time::{Timestamp, millis};

use super::change::Change;
use super::keys;
use super::moves::{Made, Move, Outcome, What};
use super::places::Place;
use super::rows::{Loaded, corrupt, read_children, read_json, read_known};
use super::scripts;
use crate::calls::sections;
use crate::lane::heard;
use crate::link::trouble;
use crate::registry::reply::command;
use crate::store::RedisStore;
use crate::unreadable::of_key;
use crate::value;

/// A run that another process changes each time before this one has decided is given up after this many tries.
const TRIES_MAX: usize = 100;
/// Where time is moved by hand, the keys of a closed run stay for so long by the server's own clock: no test takes longer.
const KEPT_BY_HAND_MS: i64 = 86_400_000;

/// Moves of one run, by their numbers.
type Group = (RunId, Vec<usize>);
/// Steps and events that were looked up with a run.
type Asked = (Vec<StepId>, Vec<String>);

impl RedisStore {
    /// Makes one move.
    pub(super) async fn put_one(&self, place: &Arc<Place>, one: Move) -> Made {
        let mut made = self.put_all(place, vec![one]).await;
        made.pop().unwrap_or(Ok(Outcome::None))
    }

    /// Makes one move of a run that is wherever its id says.
    pub(super) async fn put_to(&self, run_id: &RunId, what: What) -> Made {
        match self.place_of_run(run_id).await? {
            Some(place) => self.put_one(&place, Move::of(run_id.clone(), what)).await,
            None => Ok(Outcome::None),
        }
    }

    /// Makes moves of runs of one place, in order.
    pub(super) async fn put_all(&self, place: &Arc<Place>, moves: Vec<Move>) -> Vec<Made> {
        let (store, at) = (self.clone(), Arc::clone(place));
        let waiting = place.lane.ask(moves, move |moves| {
            let (store, at) = (store.clone(), Arc::clone(&at));
            async move { Ok(store.make_moves(&at, &moves).await) }
        });
        let mut made = Vec::with_capacity(waiting.len());
        for one in waiting {
            made.push(heard(one).await.and_then(|made| made));
        }
        made
    }

    async fn make_moves(&self, place: &Place, moves: &[Move]) -> Vec<Made> {
        let mut made: Vec<Option<Made>> = moves.iter().map(|_| None).collect();
        let (mut left, mut tries, mut is_first): (Vec<usize>, usize, bool) = ((0..moves.len()).collect(), 0, true);
        while !left.is_empty() && tries < TRIES_MAX {
            if let Err(error) = self.make_round(place, moves, &left, is_first, &mut made).await {
                made.iter_mut().filter(|one| one.is_none()).for_each(|one| *one = Some(Err(error.clone())));
            }
            let before = left.len();
            left.retain(|number| made[*number].is_none());
            tries = if left.len() < before { 0 } else { tries + 1 };
            is_first = false;
        }
        let busy = || Err(trouble("the run is changed by other processes again and again; nothing was written, try again".to_owned()));
        made.into_iter().map(|one| one.unwrap_or_else(busy)).collect()
    }

    /// Decides and applies what it can. Moves that it has not come to are left without an outcome.
    async fn make_round(
        &self,
        place: &Place,
        moves: &[Move],
        left: &[usize],
        is_first: bool,
        made: &mut [Option<Made>],
    ) -> Result<(), StoreError> {
        let groups = by_run(moves, left);
        let loaded = self.load_runs(place, moves, &groups, is_first).await?;
        let now = self.shared.now();
        let mut changes = Vec::with_capacity(groups.len());
        for ((_, numbers), loaded) in groups.iter().zip(loaded) {
            let decided = match loaded {
                Ok(change) => self.decide_moves(place, moves, numbers, change, now).await,
                Err(error) => Err(error),
            };
            match decided {
                Ok(change) if change.is_one() => changes.push(change),
                // The script compares only what it writes: an answer that changes nothing must come from the store.
                Ok(change) if change.is_remembered => {}
                Ok(change) => change.outcomes.into_iter().for_each(|(number, outcome)| made[number] = Some(Ok(outcome))),
                Err(error) => numbers.iter().for_each(|number| made[*number] = Some(Err(error.clone()))),
            }
        }
        changes.sort_by_key(|change| change.turn);
        self.apply_all_runs(place, moves, changes, now, made).await?;
        self.confirm_promises(place, moves, left, made).await;
        Ok(())
    }

    /// Makes sure that what these answers promise is kept as well as was asked for, also where an earlier attempt has written it.
    async fn confirm_promises(&self, place: &Place, moves: &[Move], left: &[usize], made: &mut [Option<Made>]) {
        let is_promise = |number: &&usize| moves[**number].promises() && matches!(made[**number], Some(Ok(_)));
        let promises: Vec<usize> = left.iter().filter(is_promise).copied().collect();
        if promises.is_empty() {
            return;
        }
        if let Err(error) = self.shared.confirm(&place.keys.stream).await {
            promises.into_iter().for_each(|number| made[number] = Some(Err(error.clone())));
        }
    }

    /// The runs of these moves: as this process remembers them where that is enough, and as the store has them.
    async fn load_runs(
        &self,
        place: &Place,
        moves: &[Move],
        groups: &[Group],
        is_first: bool,
    ) -> Result<Vec<Result<Change, StoreError>>, StoreError> {
        let now = self.shared.now();
        let mut changes: Vec<Option<Result<Change, StoreError>>> = Vec::with_capacity(groups.len());
        for (run_id, numbers) in groups {
            let may_be_old = is_first && !numbers.iter().any(|number| moves[*number].needs_rows());
            let seen = match &moves[numbers[0]].what {
                What::Claim { seen, .. } if may_be_old => Some((**seen).clone()),
                _other if may_be_old => place.remembered.get(run_id),
                _other => None,
            };
            let remembered = |seen| Ok(Change::new(run_id.clone(), Some(seen), now).remembered());
            changes.push(seen.map(remembered));
        }
        let missing: Vec<&Group> = groups.iter().zip(&changes).filter(|(_, change)| change.is_none()).map(|(group, _)| group).collect();
        let mut loaded = self.load_from_store(place, moves, &missing, now).await?.into_iter();
        let nothing = || Err(corrupt("what the server says", "a run is missing"));
        Ok(changes.into_iter().map(|change| change.or_else(|| loaded.next()).unwrap_or_else(nothing)).collect())
    }

    async fn load_from_store(
        &self,
        place: &Place,
        moves: &[Move],
        groups: &[&Group],
        now: Timestamp,
    ) -> Result<Vec<Result<Change, StoreError>>, StoreError> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let mut args = self.run_args(place, 1 + groups.len() * 4);
        args.number(groups.len());
        let mut asked = Vec::with_capacity(groups.len());
        for (run_id, numbers) in groups {
            let first = &moves[numbers[0]];
            let events: Vec<String> = numbers.iter().filter_map(|number| moves[*number].event()).collect();
            let steps: Vec<StepId> = numbers.iter().filter_map(|number| moves[*number].step().cloned()).collect();
            args.push(run_id.as_str());
            args.number(events.len());
            events.iter().for_each(|event| args.push(event));
            args.number(steps.len());
            steps.iter().for_each(|step| args.push(step.as_str()));
            args.number(first.consumed().len());
            first.consumed().iter().for_each(|number| args.number(*number));
            asked.push((steps, events));
        }
        let ids: Vec<RunId> = groups.iter().map(|(run_id, _)| run_id.clone()).collect();
        let reply = self.run_script(&scripts::LOAD, place, &ids, &args).await?;
        let read = sections::read("a look at runs", reply, groups.len())?;
        let change = |((run_id, asked), reply): ((&RunId, Asked), Result<Value, StoreError>)| {
            let read = reply.and_then(|reply| read_change(run_id, asked, reply, now));
            read.map_err(|error| of_key(error, &place.keys.run(run_id)))
        };
        Ok(ids.iter().zip(asked).zip(read).map(change).collect())
    }

    /// Decides moves of one run one after the other, up to one that must be the first of the next round.
    async fn decide_moves(
        &self,
        place: &Place,
        moves: &[Move],
        numbers: &[usize],
        mut change: Change,
        now: Timestamp,
    ) -> Result<Change, StoreError> {
        for number in numbers {
            let one = &moves[*number];
            let waits = one.goes_first() && !change.outcomes.is_empty() || one.step().is_some() && change.opens_children;
            if waits || !self.decide_move(place, one, *number, &mut change, now).await? {
                break;
            }
        }
        let has_closed = change.is_one() && change.run.as_ref().is_some_and(|run| run.state.is_closed());
        if let Some(run) = change.run.clone().filter(|_| has_closed) {
            change.close(self.lives_ms(&run), now)?;
            change.tell(&keys::closed(&self.shared.options.prefix, self.shared.options.database, &run.run_id), "");
        }
        Ok(change)
    }

    /// Decides one move. `false`: it waits for the next round.
    async fn decide_move(&self, place: &Place, one: &Move, number: usize, change: &mut Change, now: Timestamp) -> Result<bool, StoreError> {
        if let What::Create { start, parent, event } = &one.what {
            let outcome = match &change.run {
                Some(run) => Outcome::Exists { state: run.state, input_hash: change.input_hash.clone() },
                None => {
                    change.create(start, parent.clone(), now);
                    change.turn = number;
                    if let Some(event) = event {
                        send_to_new(change, event, now)?;
                    }
                    Outcome::Created
                }
            };
            change.outcomes.push((number, outcome));
            return Ok(true);
        }
        let (Some(before), Some((command, fact))) = (change.run.clone(), change.command(&one.what, now)) else {
            change.outcomes.push((number, Outcome::None));
            return Ok(true);
        };
        let (run, effects, reply) = step(before.clone(), command, now);
        if run != before {
            if effects.children_follow && change.changes_children() {
                return Ok(false);
            }
            let children = if effects.children_follow { self.open_children(place, &run.run_id).await? } else { Vec::new() };
            if before.standing() != run.standing() && matches!(run.standing(), Standing::Queued(_)) {
                change.turn = number;
            }
            self.notify_owner(change, &before, &effects);
            change.add(run.clone(), effects, fact.as_ref(), &children, now)?;
        }
        if let (What::Send(event), RunReply::Accepted { number: known_as }) = (&one.what, &reply) {
            change.know(event, *known_as, now);
        }
        change.outcomes.push((number, Outcome::Replied { reply, run: Box::new(run), version: change.version.clone() }));
        Ok(true)
    }

    fn notify_owner(&self, change: &mut Change, before: &Run, effects: &Effects) {
        let owner: Option<&WorkerId> = before.owner.as_ref().filter(|_| effects.notifies_owner);
        if let Some(owner) = owner {
            let options = &self.shared.options;
            change.tell(&keys::notified(&options.prefix, options.database, owner), before.run_id.as_str());
        }
    }

    async fn open_children(&self, place: &Place, run_id: &RunId) -> Result<Vec<Child>, StoreError> {
        let key = format!("{}:kids", place.keys.run(run_id));
        let reply = self.shared.link.ask(&command("HGETALL", &[&key])).await.map_err(|error| of_key(error, &key))?;
        read_children(&value::array("HGETALL", reply)?)
    }

    /// How long the keys of a closed run live by the server's own clock.
    fn lives_ms(&self, run: &Run) -> i64 {
        if self.shared.lives_by_the_server { millis(run.retain).max(1) } else { KEPT_BY_HAND_MS }
    }

    async fn apply_all_runs(
        &self,
        place: &Place,
        moves: &[Move],
        mut changes: Vec<Change>,
        now: Timestamp,
        made: &mut [Option<Made>],
    ) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let is_new = |change: &Change| change.outcomes.iter().any(|(number, _)| moves[*number].is_new());
        let takes = changes.iter().any(is_new);
        match self.apply_runs(place, &mut changes, takes, now).await {
            // What finishes work is done all the same.
            Err(full @ StoreError::Unavailable(StoreTrouble::Full(_))) if takes => {
                let (new, mut others): (Vec<Change>, Vec<Change>) = changes.into_iter().partition(is_new);
                for (number, _) in new.into_iter().flat_map(|change| change.outcomes) {
                    made[number] = Some(Err(full.clone()));
                }
                let replies = if others.is_empty() { Vec::new() } else { self.apply_runs(place, &mut others, false, now).await? };
                note(place, moves, others, replies, made);
            }
            Err(error) => return Err(error),
            Ok(replies) => note(place, moves, changes, replies, made),
        }
        Ok(())
    }

    /// Applies changes, each for itself. `true`: it is made; `false`: its run has changed meanwhile.
    async fn apply_runs(
        &self,
        place: &Place,
        changes: &mut [Change],
        takes: bool,
        now: Timestamp,
    ) -> Result<Vec<Result<bool, StoreError>>, StoreError> {
        let mut args = self.run_args(place, 1 + changes.len() * 16);
        args.number(changes.len());
        let mut next_due = None;
        for change in changes.iter_mut() {
            let next_timer = change.write(&mut args, self.next_run_version(), |run| self.lives_ms(run))?;
            let post = change.has_posts.then_some(now);
            next_due = next_due.into_iter().chain(next_timer).chain(post).min();
        }
        let keys = self.declared_keys(place, changes.iter().map(|change| &change.run_id));
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let script = if takes { &scripts::TAKE } else { &scripts::APPLY };
        let reply = self.shared.link.run_args(script, &keys, &args).await?;
        let replies = sections::read("a change of runs", reply, changes.len())?;
        if let Some(due) = next_due {
            self.shared.agenda.note_lease(due);
        }
        let is_made = |reply: Result<Value, StoreError>| reply.map(|reply| value::text(&reply) == Some("ok"));
        Ok(replies.into_iter().map(is_made).collect())
    }

    /// A version that no run has had, also not one that a restored copy of the data has.
    fn next_run_version(&self) -> String {
        let number = self.shared.runs.versions.fetch_add(1, Ordering::Relaxed);
        format!("{}{number:x}", self.shared.runs.name)
    }

    /// What an acknowledgement is worth here.
    pub(super) fn run_durability(&self) -> Durability {
        self.shared.durability()
    }
}

/// Moves by their runs, in the order in which the runs appear.
fn by_run(moves: &[Move], left: &[usize]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut places: HashMap<&RunId, usize> = HashMap::new();
    for number in left {
        let run_id = &moves[*number].run_id;
        match places.get(run_id) {
            Some(place) => groups[*place].1.push(*number),
            None => {
                places.insert(run_id, groups.len());
                groups.push((run_id.clone(), vec![*number]));
            }
        }
    }
    groups
}

/// Notes the outcomes of changes that are made, and of those that cannot be. The others are decided again.
fn note(place: &Place, moves: &[Move], changes: Vec<Change>, replies: Vec<Result<bool, StoreError>>, made: &mut [Option<Made>]) {
    for (change, reply) in changes.into_iter().zip(replies) {
        match reply {
            Ok(true) => {
                let mut change = change;
                let is_owners = change.outcomes.iter().any(|(number, _)| moves[*number].is_owners());
                for (number, outcome) in std::mem::take(&mut change.outcomes) {
                    made[number] = Some(Ok(outcome));
                }
                place.remembered.note(change.into_loaded(), is_owners);
            }
            Ok(false) => place.remembered.forget(&change.run_id),
            Err(error) => {
                place.remembered.forget(&change.run_id);
                let error = of_key(error, &place.keys.run(&change.run_id));
                change.outcomes.iter().for_each(|(number, _)| made[*number] = Some(Err(error.clone())));
            }
        }
    }
}

/// A new run receives the event that its start brought.
fn send_to_new(change: &mut Change, event: &NewEvent, now: Timestamp) -> Result<(), StoreError> {
    let what = What::Send(event.clone());
    let (Some(run), Some((command, fact))) = (change.run.clone(), change.command(&what, now)) else { return Ok(()) };
    let (run, effects, reply) = step(run, command, now);
    change.add(run, effects, fact.as_ref(), &[], now)?;
    if let RunReply::Accepted { number } = reply {
        change.know(event, number, now);
    }
    Ok(())
}

/// What `load.lua` says of one run.
fn read_change(run_id: &RunId, (steps, events): Asked, reply: Value, now: Timestamp) -> Result<Change, StoreError> {
    const HEAD: usize = 6;
    let parts = value::array("a look at a run", reply)?;
    if parts.len() != HEAD + steps.len() + events.len() {
        return Err(corrupt("what the server says", format!("{} parts", parts.len())));
    }
    let mut change = Change::new(run_id.clone(), Loaded::read(&parts[..5])?, now);
    change.events_consumed = value::number(&parts[5]).and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
    if change.run.is_none() {
        return Ok(change);
    }
    let (children, known) = parts[HEAD..].split_at(steps.len());
    for (step, child) in steps.into_iter().zip(children) {
        if let Some(text) = value::bytes(child) {
            change.children.insert(step, read_json("a child", text)?);
        }
    }
    let known = events.into_iter().zip(known).filter_map(|(event, kept)| Some((event, value::text(kept).and_then(read_known)?)));
    change.known = known.collect();
    Ok(change)
}
