//! Who executes a run: claims from the two queues, take-overs from silent owners, and renewals.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::lock::Fence;
use towpath_core::names::{BuildId, WorkerId};
use towpath_core::run::{Fact, Run, RunCommand, RunId, RunPlace, RunQueue, RunReply};
use towpath_core::store::{ClaimRuns, ClaimedRun, RunRenewal, StoreError, TakeOverRuns, TakenOver};
use towpath_core::time::Timestamp;

use super::keys::{QUEUES, letter};
use super::moves::{Made, Move, Outcome, What};
use super::places::Place;
use super::rows::Loaded;
use super::scripts;
use crate::pause::pause;
use crate::registry::reply::{command, instant};
use crate::store::RedisStore;
use crate::unreadable::{is_odd, of_key};
use crate::value;

/// One claim of this number looks at new runs first.
const NEW_FIRST_EVERY: u64 = 8;
/// Entries that one look delivers at most beyond those of runs that are ready: after its group was made again, a stream delivers all.
const ENTRIES_BEYOND: u32 = 1_000;
/// A claim that waits looks again after this: a notification may be lost.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Number of claims that are looked at beyond those that a worker asked for, and of runs when a build registers.
const AT_ONCE: usize = 256;

impl RedisStore {
    pub(super) async fn claim_ready_runs(&self, want: &ClaimRuns) -> Result<Vec<ClaimedRun>, StoreError> {
        let until = self.shared.now() + want.wait;
        let places = self.registered_places(&want.places).await?;
        let mut queued = self.shared.runs.queued.subscribe();
        if !want.wait.is_zero() {
            places.iter().for_each(|place| self.listen_to_place(place));
        }
        loop {
            queued.mark_unchanged();
            let claimed = self.claim_now(want, &places).await?;
            if !claimed.is_empty() || self.shared.now() >= until {
                return Ok(claimed);
            }
            tokio::select! {
                // The sender lives as long as the store.
                _changed = queued.changed() => {}
                () = self.shared.clock.sleep_until(until) => {}
                () = pause(LOOK_AGAIN) => {}
            }
        }
    }

    async fn registered_places(&self, places: &[RunPlace]) -> Result<Vec<Arc<Place>>, StoreError> {
        let mut registered = Vec::with_capacity(places.len());
        for place in places {
            registered.push(self.registered_place(place).await?);
        }
        Ok(registered)
    }

    /// What is ready now. If runs are ready and none is delivered, their entries are missing: they are put back, and one more look is taken.
    async fn claim_now(&self, want: &ClaimRuns, places: &[Arc<Place>]) -> Result<Vec<ClaimedRun>, StoreError> {
        let claimed = self.claim_delivered(want, places).await?;
        if !claimed.is_empty() || want.max == 0 {
            return Ok(claimed);
        }
        let count = |place: &Arc<Place>| QUEUES.map(|queue| command("ZCARD", &[place.keys.ready(queue)]));
        let asks: Vec<Cmd> = places.iter().flat_map(count).collect();
        let mut back = 0;
        for (place, ready) in places.iter().zip(self.ask_places(&asks).await?.chunks_exact(QUEUES.len())) {
            if ready.iter().any(|ready| value::number(ready).is_some_and(|ready| ready > 0)) {
                back += self.shared.or_pass_over(&place.keys.stream, self.repair_place(place).await, 0)?;
            }
        }
        if back > 0 { self.claim_delivered(want, places).await } else { Ok(claimed) }
    }

    async fn claim_delivered(&self, want: &ClaimRuns, places: &[Arc<Place>]) -> Result<Vec<ClaimedRun>, StoreError> {
        let claims = &self.shared.runs.claims;
        let new_first = (claims.load(Ordering::Relaxed) + 1).is_multiple_of(NEW_FIRST_EVERY);
        let queues = if new_first { [RunQueue::New, RunQueue::First] } else { [RunQueue::First, RunQueue::New] };
        let looks: Vec<(RunQueue, &Arc<Place>)> = queues.iter().flat_map(|queue| places.iter().map(move |place| (*queue, place))).collect();
        let asks: Vec<Cmd> = looks.iter().map(|(queue, place)| command("XLEN", &[place.keys.queue(*queue)])).collect();
        let lengths = self.ask_places(&asks).await?;
        let mut claimed = Vec::new();
        for ((queue, place), length) in looks.into_iter().zip(lengths) {
            let left = want.max.saturating_sub(u32::try_from(claimed.len()).unwrap_or(u32::MAX));
            if left > 0 && value::number(&length).is_some_and(|length| length > 0) {
                match self.claim_from(want, place, queue, left).await {
                    Ok(some) => claimed.extend(some),
                    Err(error) if claimed.is_empty() => return Err(error),
                    Err(error) => {
                        tracing::debug!(place = place.keys.stream, %error, "runs of this place were not claimed; the next claim tries again");
                        break;
                    }
                }
            }
        }
        if !claimed.is_empty() {
            claims.fetch_add(1, Ordering::Relaxed);
        }
        Ok(claimed)
    }

    async fn claim_from(&self, want: &ClaimRuns, place: &Arc<Place>, queue: RunQueue, max: u32) -> Result<Vec<ClaimedRun>, StoreError> {
        let mut args = self.run_args(place, 3);
        args.push(letter(queue));
        args.number(max);
        args.number(max.saturating_add(ENTRIES_BEYOND));
        let stream = place.keys.queue(queue);
        let fetched = self.run_script(&scripts::FETCH, place, &[], &args).await.and_then(|reply| value::array("a claim", reply));
        let fetched = self.shared.or_pass_over(&stream, fetched, Vec::new())?;
        let mut moves = Vec::with_capacity(fetched.len());
        for reply in fetched {
            let parts = value::array("a claim", reply)?;
            match read_fetched(&parts) {
                Ok(Some((run_id, seen))) => {
                    let command = RunCommand::Claim { worker: want.worker.clone(), idle: want.idle };
                    moves.push(Move::of(run_id, What::Claim { command, seen: Box::new(seen) }));
                }
                Ok(None) => {}
                Err(error) => self.shared.pass_over(&stream, parts.first().and_then(value::bytes).unwrap_or_default(), error),
            }
        }
        let made = self.put_all(place, moves).await;
        self.with_facts(place, self.claimed_of(place, made)?).await
    }

    /// The runs that a worker was given. The trouble of one run is its own.
    fn claimed_of(&self, place: &Place, made: Vec<Made>) -> Result<Vec<Run>, StoreError> {
        let (mut claimed, mut trouble) = (Vec::new(), None);
        for made in made {
            match made {
                Ok(Outcome::Replied { reply: RunReply::Claimed { .. }, run, .. }) => claimed.push(*run),
                Ok(_not_claimed) => {}
                Err(error) if self.shared.is_local(&error) => self.shared.pass_over(&place.keys.stream, b"", error),
                Err(error) => trouble = Some(error),
            }
        }
        match trouble {
            Some(error) if claimed.is_empty() => Err(error),
            _none => Ok(claimed),
        }
    }

    async fn with_facts(&self, place: &Place, runs: Vec<Run>) -> Result<Vec<ClaimedRun>, StoreError> {
        let asked: Vec<(RunId, u64)> = runs.iter().filter(|run| run.facts > 0).map(|run| (run.run_id.clone(), 0)).collect();
        let mut pages: BTreeMap<RunId, Option<Vec<Fact>>> = BTreeMap::new();
        for ((run_id, _), page) in asked.iter().zip(self.pages_of_facts(place, &asked).await?) {
            let page = self.shared.or_pass_over(&place.keys.run(run_id), page.map(Some), None)?;
            pages.insert(run_id.clone(), page);
        }
        // A run whose facts cannot be read is executed by no worker: its claim ends.
        let with_facts = |run: Run| Some(ClaimedRun { facts: pages.remove(&run.run_id).unwrap_or(Some(Vec::new()))?, run });
        Ok(runs.into_iter().filter_map(with_facts).collect())
    }

    pub(super) async fn take_over_silent(&self, want: &TakeOverRuns) -> Result<TakenOver, StoreError> {
        let places = self.registered_places(&want.places).await?;
        let now = self.shared.now();
        let mut taken = TakenOver::default();
        if let Some(until) = self.no_take_over_until(want.idle, now) {
            taken.next_due = Some(until);
            return Ok(taken);
        }
        let executing: HashSet<&RunId> = want.executing.iter().collect();
        let limit = (want.max as usize).saturating_add(executing.len()).saturating_add(AT_ONCE);
        let mut silent = self.ended_claims(&places, limit, now).await?;
        silent.retain(|(_, run_id, _)| !executing.contains(run_id));
        let mut silent = silent.into_iter().peekable();
        while silent.peek().is_some() && taken.claimed.len() < want.max as usize {
            let some: Vec<_> = silent.by_ref().take(want.max as usize - taken.claimed.len()).collect();
            if let Err(error) = self.take_over_some(want, &some, &mut taken).await {
                return or_taken(taken, error);
            }
        }
        match self.next_claim_end(&places, now).await {
            Ok(next_due) => taken.next_due = next_due,
            Err(error) => return or_taken(taken, error),
        }
        Ok(taken)
    }

    async fn take_over_some(
        &self,
        want: &TakeOverRuns,
        silent: &[(Timestamp, RunId, Arc<Place>)],
        taken: &mut TakenOver,
    ) -> Result<(), StoreError> {
        for (_, run_id, place) in silent {
            let command = RunCommand::TakeOver { worker: want.worker.clone(), idle: want.idle, max_deliveries: want.max_deliveries };
            match self.put_one(place, Move::plain(run_id.clone(), command, None)).await {
                Ok(Outcome::Replied { reply: RunReply::Claimed { .. }, run, .. }) => {
                    taken.claimed.extend(self.with_facts(place, vec![*run]).await?);
                }
                Ok(Outcome::Replied { reply: RunReply::Poisoned, .. }) => taken.poisoned.push(run_id.clone()),
                Ok(Outcome::None) => self.correct_line(place, ("claims", run_id.as_str()), (run_id, ""), None).await?,
                // A run that no worker executes has no claim.
                Ok(Outcome::Replied { run, version, .. }) if run.expires_at.is_none() => {
                    self.correct_line(place, ("claims", run_id.as_str()), (run_id, &version), None).await?;
                }
                Ok(_not_silent) => {}
                Err(error) if self.shared.is_local(&error) => self.shared.pass_over(&place.keys.run(run_id), b"", error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Claims that have ended, the earliest first.
    async fn ended_claims(
        &self,
        places: &[Arc<Place>],
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<(Timestamp, RunId, Arc<Place>)>, StoreError> {
        let ask = |place: &Arc<Place>| {
            let mut ask = command("ZRANGEBYSCORE", &[place.keys.of("claims")]);
            ask.arg("-inf").arg(now.as_millis()).arg("WITHSCORES").arg("LIMIT").arg(0).arg(limit);
            ask
        };
        let asks: Vec<Cmd> = places.iter().map(ask).collect();
        let mut ended = Vec::new();
        for (place, reply) in places.iter().zip(self.ask_places(&asks).await?) {
            for pair in value::array("ZRANGEBYSCORE", reply)?.chunks_exact(2) {
                let run_id = value::text(&pair[0]).and_then(|text| RunId::parse(text).ok());
                if let (Some(run_id), Some(until)) = (run_id, value::score(&pair[1])) {
                    ended.push((instant(until), run_id, Arc::clone(place)));
                }
            }
        }
        ended.sort_by(|(at, run_id, _), (other_at, other, _)| (at, run_id).cmp(&(other_at, other)));
        Ok(ended)
    }

    async fn next_claim_end(&self, places: &[Arc<Place>], now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let ask = |place: &Arc<Place>| {
            let mut ask = command("ZRANGEBYSCORE", &[place.keys.of("claims")]);
            ask.arg(format!("({}", now.as_millis())).arg("+inf").arg("WITHSCORES").arg("LIMIT").arg(0).arg(1);
            ask
        };
        let asks: Vec<Cmd> = places.iter().map(ask).collect();
        let first = |reply: Value| match reply {
            Value::Array(parts) => parts.get(1).and_then(value::score).map(instant),
            _nothing => None,
        };
        Ok(self.ask_places(&asks).await?.into_iter().filter_map(first).min())
    }

    pub(super) async fn renew_run_claims(&self, owner: &WorkerId, claims: Vec<(RunId, Fence)>) -> Result<Vec<RunRenewal>, StoreError> {
        let mut by_place: BTreeMap<String, (Arc<Place>, Vec<usize>)> = BTreeMap::new();
        for (number, (run_id, _)) in claims.iter().enumerate() {
            if let Some(place) = self.place_of_run(run_id).await? {
                by_place.entry(run_id.code().to_owned()).or_insert_with(|| (place, Vec::new())).1.push(number);
            }
        }
        let mut renewals = vec![RunRenewal::Lost; claims.len()];
        let mut trouble = None;
        for (place, numbers) in by_place.into_values() {
            let renew = |number: &usize| {
                let (run_id, epoch) = &claims[*number];
                Move::plain(run_id.clone(), RunCommand::Renew { owner: owner.clone(), epoch: *epoch }, None)
            };
            let made = self.put_all(&place, numbers.iter().map(renew).collect()).await;
            for (number, made) in numbers.into_iter().zip(made) {
                match made {
                    Ok(made) => {
                        if let Some(RunReply::Held { until, facts, cancel_requested, paused }) = made.reply() {
                            renewals[number] = RunRenewal::Held { until, facts, cancel_requested, paused };
                        }
                    }
                    // A run that cannot be read has no owner: its worker cannot go on with it.
                    Err(error) if is_odd(&error) => self.shared.pass_over(&place.keys.run(&claims[number].0), b"", error),
                    // Whether the claim holds is not known. The other claims are renewed all the same.
                    Err(error) => trouble = Some(error),
                }
            }
        }
        trouble.map_or(Ok(renewals), Err)
    }

    /// Runs that did not fit another build are ready again. A look takes some at a time: other moves go in between.
    pub(super) async fn build_registered(&self, build: &BuildId, places: &[RunPlace]) -> Result<u64, StoreError> {
        let mut unblocked = 0;
        for place in self.registered_places(places).await? {
            let (unfit, mut cursor) = (place.keys.of("unfit"), 0_i64);
            loop {
                let mut scan = command("ZSCAN", &[&unfit]);
                scan.arg(cursor).arg("COUNT").arg(AT_ONCE);
                let mut reply =
                    value::array("ZSCAN", self.shared.link.ask(&scan).await.map_err(|error| of_key(error, &unfit))?)?.into_iter();
                cursor = reply.next().as_ref().and_then(value::number).unwrap_or(0);
                let found = value::array("ZSCAN", reply.next().unwrap_or(Value::Nil))?;
                let mut ids: Vec<RunId> =
                    found.iter().step_by(2).filter_map(value::text).filter_map(|text| RunId::parse(text).ok()).collect();
                ids.sort();
                let registered = |run_id: RunId| Move::plain(run_id, RunCommand::BuildRegistered(build.clone()), None);
                for made in self.put_all(&place, ids.into_iter().map(registered).collect()).await {
                    let made = self.shared.or_pass_over(&unfit, made, Outcome::None)?;
                    unblocked += u64::from(matches!(made.reply(), Some(RunReply::Done(_))));
                }
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(unblocked)
    }
}

/// What was taken over before an error is not lost: its worker executes it, and looks again later.
fn or_taken(taken: TakenOver, error: StoreError) -> Result<TakenOver, StoreError> {
    if taken.claimed.is_empty() && taken.poisoned.is_empty() {
        return Err(error);
    }
    tracing::debug!(%error, "some runs of silent owners were not taken over; the next look tries again");
    Ok(taken)
}

/// A run that an entry was delivered of, and what its hash holds. `None`: it is not there any more.
fn read_fetched(parts: &[Value]) -> Result<Option<(RunId, Loaded)>, StoreError> {
    let [run_id, kept @ ..] = parts else { return Ok(None) };
    let run_id = value::text(run_id).and_then(|text| RunId::parse(text).ok());
    if let [why] = kept {
        return Err(crate::calls::sections::refused(value::text(why).unwrap_or("it cannot be read")));
    }
    Ok(run_id.zip(Loaded::read(kept)?))
}
