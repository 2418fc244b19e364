//! Who delivers: claims what is due, posts it, settles it, and may die or fall asleep anywhere in between.

use std::time::Duration;

use towpath_core::batch::{ClaimReply, ClaimedBatch, DeadLetter, ExtendReply, FinishReply, NewDeadLetter, Verb, merge};
use towpath_core::payload::Payload;

use super::World;
use crate::words::{batch_token, claim_batch};

/// A batch is given up after so many attempts.
const ATTEMPTS_MAX: u32 = 4;

/// What a dispatcher believes.
pub(super) enum Dispatcher {
    Idle,
    /// It has a batch, and has not posted it.
    Holds(ClaimedBatch),
    /// It has posted a batch, and knows how that went.
    Posted(ClaimedBatch, bool),
    /// It fell asleep with a batch.
    Asleep(ClaimedBatch),
}

impl Dispatcher {
    pub(super) async fn act(self, world: &mut World<'_>) -> Self {
        match self {
            Self::Idle => look(world).await,
            Self::Holds(batch) => deliver(world, batch).await,
            Self::Posted(batch, went_well) => settle(world, batch, went_well).await,
            Self::Asleep(batch) => wake_up(world, batch).await,
        }
    }
}

async fn look(world: &mut World<'_>) -> Dispatcher {
    let due = world.t.due_batches().await;
    world.claims += 1;
    let token = format!("t-{}", world.claims);
    let claimed = match (due.flights.first(), due.keys.first()) {
        (Some(id), None) => world.t.try_take_over(id.as_str(), &token).await,
        (Some(id), Some(_)) if world.dice.percent() < 50 => world.t.try_take_over(id.as_str(), &token).await,
        (_, Some(key)) => {
            let mut want = claim_batch(&world.t.orders(), key.as_str(), &format!("b-{}", world.claims), &world.rules);
            want.token = batch_token(&token);
            world.t.try_claim_batch(want).await
        }
        (None, None) => return Dispatcher::Idle,
    };
    match claimed {
        ClaimReply::Claimed(batch) => {
            world.judge.claimed(&batch, world.rules.max_messages, world.dice.seed);
            Dispatcher::Holds(batch)
        }
        ClaimReply::Skip(why) => panic!("seed {}: what was due a moment ago was skipped: {why:?}", world.dice.seed),
    }
}

async fn deliver(world: &mut World<'_>, batch: ClaimedBatch) -> Dispatcher {
    let percent = if world.calm { 99 } else { world.dice.percent() };
    match percent {
        0..8 => Dispatcher::Idle, // it died with the batch
        8..17 => Dispatcher::Asleep(batch),
        17..21 => {
            assert!(matches!(world.t.extend_batch(&batch).await, ExtendReply::Extended { .. } | ExtendReply::Lost));
            Dispatcher::Holds(batch)
        }
        21..36 => Dispatcher::Posted(batch, false), // it never arrived
        percent => {
            let body = body(world, &batch);
            world.judge.arrived(&batch, &body, world.dice.seed);
            match percent {
                36..46 => Dispatcher::Posted(batch, false), // it arrived, and the answer was lost
                46..52 => Dispatcher::Idle,                 // the dispatcher died before it could settle
                52..60 => Dispatcher::Asleep(batch),
                _ => Dispatcher::Posted(batch, true),
            }
        }
    }
}

/// What is posted: the same every time.
fn body(world: &World<'_>, batch: &ClaimedBatch) -> Payload {
    merge(&world.settings, batch).unwrap_or_else(|why| panic!("seed {}: {why}", world.dice.seed))
}

async fn settle(world: &mut World<'_>, batch: ClaimedBatch, went_well: bool) -> Dispatcher {
    let verb = if went_well {
        Verb::Ack
    } else if batch.attempt >= ATTEMPTS_MAX || world.dice.percent() < 20 {
        Verb::Dead(given_up(world, &batch))
    } else {
        Verb::Retry { delay: Duration::from_millis([0, 900, 4_000][world.dice.below(3)]) }
    };
    let reply = world.t.finish_batch(&batch, verb.clone()).await;
    world.judge.settled(&batch, &verb, reply, world.dice.seed);
    Dispatcher::Idle
}

fn given_up(world: &World<'_>, batch: &ClaimedBatch) -> DeadLetter {
    let (payload, orders) = (body(world, batch), world.t.orders());
    let reason = if batch.attempt >= ATTEMPTS_MAX { "max_retries_exceeded" } else { "rejected_400" };
    DeadLetter::of_batch(NewDeadLetter { batcher: &orders.name, batch, payload: Some(&payload), reason, error: "no", at: world.t.now() })
}

/// It settles as if nothing had happened. If another has the batch by now, that must be refused.
async fn wake_up(world: &mut World<'_>, batch: ClaimedBatch) -> Dispatcher {
    if !world.calm && world.dice.percent() < 85 {
        return Dispatcher::Asleep(batch);
    }
    // Before it settles as delivered it makes sure that it was.
    let body = body(world, &batch);
    world.judge.arrived(&batch, &body, world.dice.seed);
    let reply = world.t.finish_batch(&batch, Verb::Ack).await;
    world.judge.tally.zombies_refused += u64::from(reply == FinishReply::Lost);
    world.judge.settled(&batch, &Verb::Ack, reply, world.dice.seed);
    Dispatcher::Idle
}
