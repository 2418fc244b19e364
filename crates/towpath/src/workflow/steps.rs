//! What happens to the steps of an execution: issued or bound, resolved, dropped, cancelled.

use std::sync::Arc;
use std::task::Waker;

use towpath_core::payload::Payload;
use towpath_core::run::{BlockCause, RunId, StepId, StepKey, StepKind, StepParts, idempotency_key};

use super::body::{Done, Open};
use super::execution::{Command, Identity, Request, Standing, State, Step, Trouble};
use super::recorded::{Recorded, differs_by_members_only};

impl State {
    /// Whether the code's command may be written later, with its result: a task that runs meanwhile.
    pub(crate) fn is_lazy(&self, command: &Command) -> bool {
        match command {
            Command::Step(id) => {
                let is_lazy = |step: &Step| matches!(step.open.k, StepKind::Task | StepKind::Call) && !step.open.once;
                self.steps.get(id).is_some_and(is_lazy)
            }
            Command::Mark(..) => false,
        }
    }

    pub(super) fn is_cancelled_here(&self) -> bool {
        self.cancelled.is_some() && self.shields == 0
    }

    pub(super) fn issue(&mut self, identity: &Identity, request: Request) -> StepId {
        let Request { parts, mut open, input, launch, needs, child, .. } = request;
        let use_number = self.count_use(&parts);
        let mut id = self.next_id(&parts, &mut open);
        let idempotency_key: Arc<str> = Arc::from(key_of(identity, &parts, use_number));
        if parts.kind == StepKind::Call {
            open.call = Some(Arc::clone(&idempotency_key));
        }
        if let Some(like) = self.recorded_like(&id, &open, input.as_ref()) {
            self.warnings.push(format!("input_changed: the input of {} is not the recorded one", open.title()));
            id = like;
        }
        if let (StepKind::Child, Some(place)) = (parts.kind, &child) {
            open.run = Some(RunId::of_child(place, &identity.run_id, identity.generation, &id));
        }
        let order = self.orders;
        self.orders += 1;
        let mut step = Step {
            order,
            open,
            input,
            launch,
            needs,
            child,
            idempotency_key,
            standing: Standing::Fresh,
            attempts: 0,
            started: 0,
            shielded: self.shields > 0,
            waker: None,
        };
        match self.recorded.get_mut(&id) {
            Some(recorded) => {
                recorded.is_bound = true;
                self.unbound -= 1;
                // What was said when it was opened holds; the code may have changed.
                step.open = recorded.open.clone();
                step.input = None;
                (step.attempts, step.started) = (recorded.attempts, recorded.started);
                step.standing = recorded.revealed.take().map_or(Standing::Open, Standing::Resolved);
            }
            None => self.fresh.push(Command::Step(id.clone())),
        }
        if step.is_pending() {
            self.pending.insert(order, id.clone());
        }
        self.steps.insert(id.clone(), step);
        id
    }

    /// How often a step of this branch, kind and name came before, whatever its input.
    fn count_use(&mut self, parts: &StepParts) -> u64 {
        let uses = self.uses.entry(StepParts { key: StepKey::None, ..parts.clone() }).or_insert(0);
        *uses += 1;
        *uses - 1
    }

    fn next_id(&mut self, parts: &StepParts, open: &mut Open) -> StepId {
        let count = self.occurrences.entry(parts.clone()).or_insert(0);
        loop {
            let (ordinal, id) = (*count, parts.id(*count));
            *count += 1;
            // A step whose input has changed may have taken the id of a recorded one.
            if !self.steps.contains_key(&id) {
                open.n = ordinal;
                return id;
            }
        }
    }

    /// The first recorded step that was not asked for and differs from this one only by members of its input.
    fn recorded_like(&self, id: &StepId, open: &Open, input: Option<&Payload>) -> Option<StepId> {
        let has_input_key = open.key.as_ref().is_some_and(|key| key.starts_with("h1:"));
        if self.unbound == 0 || !has_input_key || self.recorded.contains_key(id) {
            return None;
        }
        let input = input?;
        let is_like = |recorded: &Recorded| {
            let known = &recorded.open;
            let is_same = !recorded.is_bound && known.k == open.k && known.name == open.name && known.br == open.br;
            is_same && known.v.as_ref().is_some_and(|v| differs_by_members_only(v, input))
        };
        let like = self.recorded.iter().filter(|(_, recorded)| is_like(recorded)).min_by_key(|(_, recorded)| recorded.number);
        like.map(|(id, _)| id.clone())
    }

    pub(super) fn drop_step(&mut self, id: &StepId) {
        let Some(step) = self.steps.get_mut(id) else { return };
        if !step.is_pending() {
            return;
        }
        let was_fresh = matches!(step.standing, Standing::Fresh);
        step.standing = Standing::Dropped;
        step.waker = None;
        self.pending.remove(&step.order);
        self.dropped.push(id.clone());
        if was_fresh {
            self.fresh.retain(|command| !matches!(command, Command::Step(fresh) if fresh == id));
        }
    }

    pub(super) fn resolve(&mut self, id: &StepId, done: Done) -> Vec<Waker> {
        let Some(step) = self.steps.get_mut(id) else {
            // Changed code may ask for it later.
            if let Some(recorded) = self.recorded.get_mut(id) {
                recorded.revealed = Some(done);
            }
            return Vec::new();
        };
        if !step.is_pending() {
            return Vec::new();
        }
        self.pending.remove(&step.order);
        step.standing = Standing::Resolved(done);
        (step.input, step.launch) = (None, None);
        step.waker.take().into_iter().collect()
    }

    pub(super) fn cancel(&mut self, reason: Arc<str>) -> Vec<Waker> {
        self.cancelled.get_or_insert(reason);
        let mut wakers = std::mem::take(&mut self.cancel_wakers);
        for id in self.pending.values() {
            let Some(step) = self.steps.get_mut(id).filter(|step| !step.shielded) else { continue };
            wakers.extend(step.waker.clone());
        }
        wakers
    }

    pub(super) fn cannot_read(&mut self, message: &str) -> Vec<Waker> {
        let message = format!("an entry of the journal cannot be read: {message}");
        self.trouble.get_or_insert(Trouble::new(BlockCause::Decode, message));
        Vec::new()
    }
}

fn key_of(identity: &Identity, parts: &StepParts, use_number: u64) -> String {
    if parts.kind == StepKind::Call {
        let parts = StepParts { name: Arc::from(format!("call/{}", parts.name)), ..parts.clone() };
        return idempotency_key(&identity.run_id, identity.generation, &parts, use_number);
    }
    idempotency_key(&identity.run_id, identity.generation, parts, use_number)
}
