//! Starting runs: by id, and by a reference that is reserved in a slot of its own before the run is created.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use towpath_core::names::{EventName, Reference, WorkflowName};
use towpath_core::payload::Payload;
use towpath_core::run::{Entry, RunId, RunPlace, RunState};
use towpath_core::store::{EventSent, NewEvent, OnConflict, Reuse, StartRun, Started, StoreError, event_of_start};
use towpath_core::time::{from_millis, millis};

use super::moves::{Move, Outcome, What};
use super::places::Place;
use super::rows::{Loaded, corrupt, read_json, write_json};
use super::{keys, scripts};
use crate::link::{Script, trouble};
use crate::registry::reply::command;
use crate::script::Args;
use crate::store::RedisStore;
use crate::unreadable::of_key;
use crate::value;

/// A reservation whose run was never created is kept for this long.
const RESERVED_FOR: Duration = Duration::from_secs(86_400);
/// So often a start looks again after another process was faster.
const TRIES_MAX: usize = 100;

/// What a reference leads to.
struct Reservation {
    run_id: RunId,
    /// The start, until its run exists.
    request: Option<Request>,
}

/// A start as it is kept with a reservation: all that another process needs to complete it.
#[derive(Serialize, Deserialize)]
struct Request {
    run_id: RunId,
    place: RunPlace,
    begin: Entry,
    input_hash: Arc<str>,
    reference: Option<Reference>,
    delay_ms: i64,
    timeout_ms: Option<i64>,
    retain_ms: i64,
    event: Option<(EventName, Payload, Option<Reference>)>,
}

impl Request {
    fn of(start: &StartRun) -> Self {
        Self {
            run_id: start.run_id.clone(),
            place: start.place.clone(),
            begin: start.begin.clone(),
            input_hash: Arc::clone(&start.input_hash),
            reference: start.reference.clone(),
            delay_ms: millis(start.delay),
            timeout_ms: start.timeout.map(millis),
            retain_ms: millis(start.retain),
            event: event_of_start(start).map(|event| (event.name, event.data, event.reference)),
        }
    }

    fn into_start(self) -> StartRun {
        StartRun {
            run_id: self.run_id,
            place: self.place,
            begin: self.begin,
            input_hash: self.input_hash,
            reference: self.reference,
            on_conflict: OnConflict::Refuse,
            reuse: Reuse::Never,
            delay: from_millis(self.delay_ms),
            timeout: self.timeout_ms.map(from_millis),
            retain: from_millis(self.retain_ms),
            event: self.event.map(|(name, data, reference)| NewEvent { name, data, reference }),
        }
    }
}

/// A run that a start may be about.
struct Found {
    run_id: RunId,
    state: RunState,
    input_hash: String,
    reference: Option<Reference>,
}

impl RedisStore {
    pub(super) async fn begin_run(&self, start: StartRun) -> Result<Started, StoreError> {
        self.shared.guarantee.admit()?;
        let place = self.registered_place(&start.place).await?;
        match start.reference.clone() {
            None => self.start_by_id(&place, start).await,
            Some(reference) => self.start_by_reference(&place, start, &reference).await,
        }
    }

    async fn start_by_id(&self, place: &Arc<Place>, start: StartRun) -> Result<Started, StoreError> {
        match self.create_run(place, &start).await? {
            None => Ok(Started::Created { durability: self.run_durability() }),
            Some(found) => self.answer_existing(start, found).await,
        }
    }

    /// Reserves, creates, confirms. A start that died in between is completed by the next one with its reference, under the same run id.
    async fn start_by_reference(&self, place: &Arc<Place>, start: StartRun, reference: &Reference) -> Result<Started, StoreError> {
        let key = keys::reference(&self.shared.options.prefix, &start.place.workflow, reference);
        for _ in 0..TRIES_MAX {
            let reservation = self.read_reservation(&key).await?;
            if let Some(found) = self.find_started(&start.run_id).await? {
                self.confirm_if_open(&key, reservation.as_ref(), &found.run_id).await;
                return self.answer_existing(start, found).await;
            }
            let taken_by = match &reservation {
                Some(reservation) => self.find_started(&reservation.run_id).await?,
                None => None,
            };
            // A run that was started again under the same id may have no reference, or another one.
            let taken_by = taken_by.filter(|found| found.reference.as_ref() == Some(reference));
            let is_replaced = |found: &Found| start.reuse == Reuse::AfterClosed && found.state.is_closed();
            if let Some(found) = taken_by.filter(|found| !is_replaced(found)) {
                self.confirm_if_open(&key, reservation.as_ref(), &found.run_id).await;
                return self.answer_existing(start, found).await;
            }
            let expected = reservation.as_ref().map(|reservation| reservation.run_id.clone());
            let died = reservation.and_then(|reservation| reservation.request).filter(|request| request.run_id != start.run_id);
            if let Some(request) = died {
                self.complete_start(&key, request.into_start()).await?;
            } else if self.reserve_reference(&key, expected.as_ref(), &start).await? {
                let created = self.start_by_id(place, start.clone()).await?;
                self.confirm_reference(&key, &start.run_id).await;
                return Ok(created);
            }
        }
        Err(trouble(format!("the reference '{reference}' is started by other processes again and again; try again")))
    }

    /// Creates the run of a start that has reserved its reference and died.
    async fn complete_start(&self, key: &str, start: StartRun) -> Result<(), StoreError> {
        let place = self.registered_place(&start.place).await?;
        self.create_run(&place, &start).await?;
        self.confirm_reference(key, &start.run_id).await;
        Ok(())
    }

    /// Creates a run. Returns the one that was there before.
    async fn create_run(&self, place: &Arc<Place>, start: &StartRun) -> Result<Option<Found>, StoreError> {
        let event = event_of_start(start);
        let create = What::Create { start: Box::new(start.clone()), parent: None, event };
        match self.put_one(place, Move::of(start.run_id.clone(), create)).await? {
            Outcome::Exists { state, input_hash } => Ok(Some(Found { run_id: start.run_id.clone(), state, input_hash, reference: None })),
            _created => Ok(None),
        }
    }

    /// A start is about a run that exists.
    async fn answer_existing(&self, start: StartRun, found: Found) -> Result<Started, StoreError> {
        // A start that brings an event is about the run that has the reference, whatever that began with.
        let is_same = start.event.is_some() || found.input_hash == *start.input_hash;
        if !is_same && start.on_conflict == OnConflict::Refuse {
            return Ok(Started::Conflict { run_id: found.run_id });
        }
        let event: Option<EventSent> = match event_of_start(&start) {
            Some(event) => Some(self.send_to_run(&found.run_id, event).await?),
            None => None,
        };
        Ok(Started::Existing { run_id: found.run_id, state: found.state, event })
    }

    /// A run that exists, unless its retention is over.
    async fn find_started(&self, run_id: &RunId) -> Result<Option<Found>, StoreError> {
        let loaded = self.load_run(run_id).await?;
        Ok(loaded.map(|Loaded { run, input_hash, reference, .. }| Found { run_id: run.run_id, state: run.state, input_hash, reference }))
    }

    /// What a run's hash holds, unless its retention is over.
    pub(super) async fn load_run(&self, run_id: &RunId) -> Result<Option<Loaded>, StoreError> {
        let Some(place) = self.place_of_run(run_id).await? else { return Ok(None) };
        let key = place.keys.run(run_id);
        let reply = self.shared.link.ask(&command("HMGET", &[key.as_str(), "v", "h", "a", "r", "i"])).await;
        let loaded = reply.and_then(|reply| Loaded::read(&value::array("HMGET", reply)?)).map_err(|error| of_key(error, &key))?;
        Ok(loaded.filter(|loaded| !loaded.run.is_gone(self.shared.now())))
    }

    async fn read_reservation(&self, key: &str) -> Result<Option<Reservation>, StoreError> {
        let reply = self.shared.link.ask(&command("HMGET", &[key, "run", "request"])).await.map_err(|error| of_key(error, key))?;
        let parts = value::array("HMGET", reply)?;
        let [run_id, request] = &parts[..] else { return Err(corrupt("the reference", "fields are missing")) };
        let Some(run_id) = value::text(run_id) else { return Ok(None) };
        let run_id = RunId::parse(run_id).map_err(|cause| of_key(corrupt("the reference", cause), key))?;
        let request = value::bytes(request).map(|text| read_json("the start", text)).transpose().map_err(|error| of_key(error, key))?;
        Ok(Some(Reservation { run_id, request }))
    }

    /// The latest run of a reference, if it can be read.
    pub(super) async fn find_referenced(&self, workflow: &WorkflowName, reference: &Reference) -> Result<Option<RunId>, StoreError> {
        let key = keys::reference(&self.shared.options.prefix, workflow, reference);
        let Some(reservation) = self.read_reservation(&key).await? else { return Ok(None) };
        let found = self.find_started(&reservation.run_id).await?.filter(|found| found.reference.as_ref() == Some(reference));
        Ok(found.map(|found| found.run_id))
    }

    /// Reserves a reference, if it still leads where it did.
    async fn reserve_reference(&self, key: &str, expected: Option<&RunId>, start: &StartRun) -> Result<bool, StoreError> {
        let mut args = Args::with_capacity(6);
        args.push(expected.map_or("", RunId::as_str));
        args.push("reserve");
        args.number(millis(RESERVED_FOR));
        args.push(start.run_id.as_str());
        args.push(start.input_hash.as_bytes());
        args.push(write_json(&Request::of(start))?);
        self.run_reference(&scripts::RESERVE, key, &args).await
    }

    /// Confirms a reservation whose run exists: the start that made both has died in between, or its confirmation was lost.
    async fn confirm_if_open(&self, key: &str, reservation: Option<&Reservation>, run_id: &RunId) {
        if reservation.is_some_and(|reservation| reservation.run_id == *run_id && reservation.request.is_some()) {
            self.confirm_reference(key, run_id).await;
        }
    }

    /// The run exists. If this fails, the next start with the reference finds it all the same.
    async fn confirm_reference(&self, key: &str, run_id: &RunId) {
        let mut args = Args::with_capacity(3);
        args.push(run_id.as_str());
        args.push("confirm");
        args.push("");
        if let Err(error) = self.run_reference(&scripts::REFERENCE, key, &args).await {
            tracing::debug!(%error, %run_id, "the reference of a run is not confirmed");
        }
    }

    /// The run has closed: its reference goes with it.
    pub(super) async fn expire_reference(&self, run_id: &RunId, workflow: &str, known_as: &str, lives_ms: i64) -> Result<(), StoreError> {
        let (Ok(workflow), Ok(reference)) = (WorkflowName::new(workflow), Reference::new(known_as)) else { return Ok(()) };
        let mut args = Args::with_capacity(3);
        args.push(run_id.as_str());
        args.push("expire");
        args.number(lives_ms);
        let key = keys::reference(&self.shared.options.prefix, &workflow, &reference);
        self.run_reference(&scripts::REFERENCE, &key, &args).await.map(drop)
    }

    async fn run_reference(&self, script: &Script, key: &str, args: &Args) -> Result<bool, StoreError> {
        let (reply, _durability) = self.shared.run_durably(script, &[key], args).await.map_err(|error| of_key(error, key))?;
        Ok(value::number(&reply) == Some(1))
    }
}
