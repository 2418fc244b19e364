//! Posts: what a place has to tell runs of other slots. Kept by the move that makes them, sent at least once, in the order in which they were
//! written for each run.

use std::collections::HashMap;
use std::sync::Arc;

use redis::{Cmd, Value};
use towpath_core::run::{Post, RunId, RunReply};
use towpath_core::store::{NewEvent, POST_KEPT_FOR, RunRequest, StartRun, StoreError, post_again_after};
use towpath_core::time::Timestamp;

use super::moves::{Made, Move, Outcome, What};
use super::places::Place;
use super::request_of;
use super::rows::{read_post, read_reference_end};
use super::scripts;
use super::timers::PUT_OFF;
use crate::registry::reply::{command, done};
use crate::store::RedisStore;
use crate::value;

/// About this many references get their ends at once.
const ENDS_AT_ONCE: u32 = 100;

/// A post that may be sent now.
struct Stored {
    /// Where it was written.
    place: Arc<Place>,
    number: String,
    not_before: i64,
    written_at: Timestamp,
    tries: u32,
    post: Post,
}

/// Runs that have refused a post of a place, by the stream of that place, and until when its posts to them wait.
type Refused = HashMap<(String, RunId), Timestamp>;

/// A post on its way.
struct Sent {
    stored: Stored,
    to: RunId,
    /// Where its run is. `None`: there is no such run.
    target: Option<Arc<Place>>,
    what: What,
}

impl RedisStore {
    /// Sends posts that are due. Returns how many have arrived, or never can.
    pub(super) async fn send_due_posts(&self, limit: u32) -> Result<u64, StoreError> {
        let now = self.shared.now();
        let due = self.due_posts(limit as usize, now).await?;
        let (mut arrived, mut refused, mut together) = (0, Refused::default(), Vec::new());
        for stored in due {
            let sent = self.address_post(stored).await?;
            // A run may refuse an event: what follows it waits for the answer.
            let waits = |earlier: &Sent| earlier.to == sent.to && matches!(earlier.what, What::Send(_));
            if together.iter().any(waits) {
                arrived += self.deliver_posts(std::mem::take(&mut together), &mut refused, now).await?;
            }
            match refused.get(&(sent.stored.place.keys.stream.clone(), sent.to.clone())) {
                Some(until) => self.put_off(&sent.stored.place.keys.of("posts"), &sent.stored.number, *until).await?,
                None => together.push(sent),
            }
        }
        Ok(arrived + self.deliver_posts(together, &mut refused, now).await?)
    }

    /// The posts of all places that may be sent now, in order.
    async fn due_posts(&self, limit: usize, now: Timestamp) -> Result<Vec<Stored>, StoreError> {
        let places = self.known_places().await?;
        let asks: Vec<Cmd> = places.iter().flat_map(|place| [first_post(place), command("HLEN", &[place.keys.of("refs")])]).collect();
        let mut due = Vec::new();
        for (place, replies) in places.iter().zip(self.ask_places(&asks).await?.chunks_exact(2)) {
            if value::number(&replies[1]).is_some_and(|ends| ends > 0) {
                self.shared.or_pass_over(&place.keys.of("refs"), self.end_references(place).await, ())?;
            }
            let first = value::array("ZRANGE", replies[0].clone())?;
            #[expect(clippy::cast_precision_loss, reason = "instants are far below 2^53")]
            let has_due = first.get(1).and_then(value::score).is_some_and(|at| at <= now.as_millis() as f64);
            if has_due {
                due.extend(self.due_posts_of(place, limit, now).await?);
            }
        }
        due.sort_by(|one, other| (one.not_before, one.written_at, &one.number).cmp(&(other.not_before, other.written_at, &other.number)));
        due.truncate(limit);
        Ok(due)
    }

    async fn due_posts_of(&self, place: &Arc<Place>, limit: usize, now: Timestamp) -> Result<Vec<Stored>, StoreError> {
        let mut args = self.run_args(place, 2);
        args.number(now.as_millis());
        args.number(limit);
        let out = place.keys.of("out");
        let reply = self.run_script(&scripts::POSTS, place, &[], &args).await.and_then(|reply| value::array("posts", reply));
        let parts = self.shared.or_pass_over(&out, reply, Vec::new())?;
        let mut due = Vec::new();
        for part in parts.chunks_exact(4) {
            let number = value::text(&part[0]).unwrap_or_default().to_owned();
            let tries = value::number(&part[3]).and_then(|tries| u32::try_from(tries).ok()).unwrap_or(0);
            match read_post(value::bytes(&part[2]).unwrap_or_default()) {
                Ok((written_at, post)) => {
                    let not_before = value::number(&part[1]).unwrap_or_default();
                    due.push(Stored { place: Arc::clone(place), number, not_before, written_at, tries, post });
                }
                Err(error) => {
                    self.shared.pass_over(&out, number.as_bytes(), error);
                    self.put_off(&place.keys.of("posts"), &number, now + PUT_OFF).await?;
                }
            }
        }
        Ok(due)
    }

    /// Where a post goes.
    async fn address_post(&self, stored: Stored) -> Result<Sent, StoreError> {
        let post = stored.post.clone();
        let to = post.to().clone();
        let (target, what) = match post {
            Post::Create(child) => {
                let (start, parent) = StartRun::of_child(*child);
                let target = self.registered_place(&start.place).await?;
                (Some(target), What::Create { start: Box::new(start), parent: Some(parent), event: None })
            }
            Post::ChildClosed { step, run_id, completed, outcome, .. } => {
                (self.place_of_run(&to).await?, What::ChildClosed { step, run_id, completed, outcome })
            }
            Post::Cancel { reason, .. } => (self.place_of_run(&to).await?, request_of(RunRequest::Cancel { reason })),
            Post::Terminate { reason, .. } => (self.place_of_run(&to).await?, request_of(RunRequest::Terminate { reason })),
            Post::Send { name, data, reference, .. } => {
                (self.place_of_run(&to).await?, What::Send(NewEvent { name, data, reference: Some(reference) }))
            }
        };
        Ok(Sent { stored, to, target, what })
    }

    /// Delivers posts, those to one place together. Returns how many have arrived, or never can.
    async fn deliver_posts(&self, mut posts: Vec<Sent>, refused: &mut Refused, now: Timestamp) -> Result<u64, StoreError> {
        let mut arrived = 0;
        while let Some(first) = posts.first() {
            let target = first.target.clone();
            let is_there = |sent: &mut Sent| match (&sent.target, &target) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (None, None) => true,
                _elsewhere => false,
            };
            let some: Vec<Sent> = posts.extract_if(.., is_there).collect();
            let made = match &target {
                Some(place) => {
                    let moves = some.iter().map(|sent| Move { run_id: sent.to.clone(), what: sent.what.clone(), is_post: true });
                    self.put_all(place, moves.collect()).await
                }
                None => some.iter().map(|_| Ok(Outcome::None)).collect(),
            };
            for (sent, made) in some.into_iter().zip(made) {
                match self.settle_post(&sent, made, now).await? {
                    None => arrived += 1,
                    Some(until) => drop(refused.insert((sent.stored.place.keys.stream.clone(), sent.to), until)),
                }
            }
        }
        Ok(arrived)
    }

    /// Removes a post that has arrived or never can, or puts off all posts of its place to that run. Returns until when.
    async fn settle_post(&self, sent: &Sent, made: Made, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let Stored { place, number, written_at, tries, .. } = &sent.stored;
        let is_taken = match made {
            Ok(outcome) => outcome.reply() != Some(RunReply::MailboxFull),
            // A run that cannot be read takes it later, if a person mends that.
            Err(error) if self.shared.is_local(&error) => {
                self.shared.pass_over(&place.keys.of("out"), number.as_bytes(), error);
                false
            }
            Err(error) => return Err(error),
        };
        let held = place.keys.of("held");
        if is_taken || now >= *written_at + POST_KEPT_FOR {
            self.remove_posts(place, &[number.as_str()]).await?;
            if *tries > 0 {
                self.shared.link.ask(&command("HDEL", &[held.as_str(), sent.to.as_str()])).await?;
            }
            return Ok(None);
        }
        let until = now + post_again_after(*tries);
        let put_off = format!("{} {}", until.as_millis(), tries + 1);
        done(self.shared.link.insist(&[command("HSET", &[held.as_str(), sent.to.as_str(), &put_off])]).await?)?;
        self.put_off(&place.keys.of("posts"), number, until).await?;
        self.shared.agenda.note_lease(until);
        Ok(Some(until))
    }

    /// References of some runs that have closed get their ends.
    pub(super) async fn end_references(&self, place: &Place) -> Result<(), StoreError> {
        let refs = place.keys.of("refs");
        let mut scan = command("HSCAN", &[refs.as_str(), "0"]);
        scan.arg("COUNT").arg(ENDS_AT_ONCE);
        let found = value::array("HSCAN", self.shared.link.ask(&scan).await?)?.pop();
        for pair in value::array("HSCAN", found.unwrap_or(Value::Nil))?.chunks_exact(2) {
            let run_id = value::text(&pair[0]).unwrap_or_default();
            match (RunId::parse(run_id), read_reference_end(value::bytes(&pair[1]).unwrap_or_default())) {
                (Ok(run_id), Ok((workflow, reference, lives_ms))) => {
                    let ended = self.expire_reference(&run_id, &workflow, &reference, lives_ms).await;
                    self.shared.or_pass_over(&refs, ended, ())?;
                }
                _odd => self.shared.pass_over(&refs, run_id.as_bytes(), "it is not the end of a reference"),
            }
            self.shared.link.ask(&command("HDEL", &[refs.as_str(), run_id])).await?;
        }
        Ok(())
    }

    /// The text goes first: a number without a text is removed when it is met.
    async fn remove_posts(&self, place: &Place, numbers: &[&str]) -> Result<(), StoreError> {
        let remove = |name: &str, key: &str| {
            let mut remove = command(name, &[place.keys.of(key)]);
            remove.arg(numbers);
            remove
        };
        done(self.shared.link.ask_all(&[remove("HDEL", "out"), remove("ZREM", "posts")]).await?)
    }
}

fn first_post(place: &Place) -> Cmd {
    let mut first = command("ZRANGE", &[place.keys.of("posts")]);
    first.arg(0).arg(0).arg("WITHSCORES");
    first
}
