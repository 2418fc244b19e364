//! Turns: what a policy lets through, for those who take work from a queue.
//!
//! Whoever is about to take work asks for [`room`](Turns::room), and leaves the work where it is when there is none. Whoever has work in hand
//! draws a turn for it with [`take`](Turns::take), and puts it back when that is too far away. Nobody asks again before the moment it was told.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towpath_core::batch::BatchRate;
use towpath_core::limit::{Algorithm, Rules};
use towpath_core::names::{BatcherName, FunctionKey, LimitScope, RuleName};
use towpath_core::store::StoreError;
use towpath_core::time::{Micros, Timestamp};
use towpath_core::worker::FunctionRate;

use super::{LimitError, Verdict, not_before};
use crate::Towpath;

/// A turn that comes within this is waited for with the work in hand; for a later one the work is better left in its queue.
const IN_HAND_MAX: Duration = Duration::from_millis(250);
/// When nobody can say whose turn it is (no such policy, no store), it is asked again after this.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// Nobody looks away for longer: the policy may be changed, or something given back.
const LOOK_AWAY_MAX: Duration = Duration::from_secs(10);

/// The turns of a scope under a policy. Clones, and whoever in this process asks for the same, share what is known of them.
///
/// ```
/// use std::time::Duration;
/// use towpath::Towpath;
/// use towpath::limits::{Room, Rule, RuleName, Rules, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let towpath = Towpath::open("memory:").await?;
/// let once_a_minute = Rules::one(Rule::gcra("r", 1, Duration::from_secs(60))?);
/// towpath.limit_policies().put(None, &RuleName::new("calm")?, &once_a_minute).await?;
///
/// let turns = towpath.turns("smtp", "calm")?;
/// assert_eq!(turns.room().await, Room::Now(1));
/// let Turn::Yours(verdict) = turns.take(1, Duration::from_secs(1)).await else { panic!() };
/// assert!(verdict.wait.is_zero(), "the work may begin after this");
/// let Turn::NotBefore(at) = turns.take(1, Duration::from_secs(1)).await else { panic!() };
/// assert_eq!(turns.room().await, Room::NotBefore(at), "until then nobody needs to ask");
/// # towpath.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Turns {
    towpath: Towpath,
    scope: LimitScope,
    policy: RuleName,
    known: SharedKnown,
}

/// Whether it is worth taking work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// For so many, as far as is known.
    Now(u32),
    /// Not before then, by this process's clock.
    NotBefore(Timestamp),
}

/// What became of a turn that was asked for.
#[derive(Clone, Debug)]
#[must_use = "work without a turn must be put back"]
pub enum Turn {
    /// The work may begin after [`Verdict::wait`]; [`Verdict::refund`] gives an unused turn back.
    Yours(Verdict),
    /// Not before then, by this process's clock; nothing was taken. Put the work back.
    NotBefore(Timestamp),
    /// It asks for more than the policy can ever let through at once. Nothing was taken.
    Never,
}

/// What this process knows of a policy's room without asking.
#[derive(Default)]
struct Known {
    room: u64,
    not_before: Option<Timestamp>,
    /// Why nobody can say whose turn it is; told once.
    unknown: Option<&'static str>,
}

type SharedKnown = Arc<Mutex<Known>>;

/// What is known of every policy and scope in use.
#[derive(Default)]
pub(crate) struct TurnBook {
    known: Mutex<HashMap<(LimitScope, RuleName), SharedKnown>>,
}

impl TurnBook {
    fn of(&self, scope: &LimitScope, policy: &RuleName) -> SharedKnown {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, turns| Arc::strong_count(turns) > 1); // few, and rarely asked for
        Arc::clone(known.entry((scope.clone(), policy.clone())).or_default())
    }
}

impl Towpath {
    /// The turns of a scope under a policy: the scope's own of that name, else the one for all. For those who take work from a queue.
    pub fn turns(&self, scope: impl AsRef<str>, policy: impl AsRef<str>) -> Result<Turns, LimitError> {
        Ok(self.turns_under(LimitScope::new(scope)?, RuleName::new(policy)?))
    }

    /// The turns of a function, if it has a rate. What is known of the function may be a few seconds old.
    pub async fn turns_of(&self, function: &FunctionKey) -> Result<Option<Turns>, StoreError> {
        let known = self.known_function(function).await?;
        let rate = known.as_ref().and_then(|known| known.definition.limits.rate.as_ref());
        Ok(rate.and_then(|rate| self.turns_at(function, rate)))
    }

    /// The turns of a function with this rate. `None`: its name cannot be a scope, and it was let register all the same by an older version.
    pub(crate) fn turns_at(&self, function: &FunctionKey, rate: &FunctionRate) -> Option<Turns> {
        rate.scope_of(function).ok().map(|scope| self.turns_under(scope, rate.policy.clone()))
    }

    /// The turns of a batcher with this rate. `None`: its name cannot be a scope, which is refused when its settings are made.
    pub(crate) fn turns_of_batches(&self, batcher: &BatcherName, rate: &BatchRate) -> Option<Turns> {
        rate.scope_of(batcher).ok().map(|scope| self.turns_under(scope, rate.policy.clone()))
    }

    /// Refuses a rate whose policy is not there: what has that rate would wait for it.
    pub async fn check_rate(&self, scope: &LimitScope, policy: &RuleName) -> Result<(), LimitError> {
        match self.limit_policies().has(scope, policy).await? {
            true => Ok(()),
            false => Err(LimitError::NoPolicy { scope: scope.to_string(), policy: policy.to_string() }),
        }
    }

    fn turns_under(&self, scope: LimitScope, policy: RuleName) -> Turns {
        let known = self.limits().turns.of(&scope, &policy);
        Turns { towpath: self.clone(), scope, policy, known }
    }
}

impl Turns {
    /// Whether it is worth taking work, and how much. It promises nothing: others may be faster.
    pub async fn room(&self) -> Room {
        let now = self.towpath.clock().now();
        {
            let mut known = self.lock();
            match known.not_before {
                Some(at) if now < at => return Room::NotBefore(at),
                _ => known.not_before = None,
            }
            if known.room > 0 {
                return Room::Now(u32::try_from(known.room).unwrap_or(u32::MAX));
            }
        }
        let asked = self.towpath.clock().now_us();
        match self.look().await {
            Ok((_, verdict)) if verdict.allowed => {
                self.towpath.limits().denied.forget(&self.scope); // a refusal kept in mind would contradict what was just seen
                self.there_is_room(verdict.remaining.saturating_add(1))
            }
            Ok((rules, verdict)) => {
                let patience = if has_gcra(&rules) { IN_HAND_MAX } else { Duration::ZERO };
                match verdict.retry_after.map(|after| after.saturating_sub(patience)) {
                    Some(rest) if rest.is_zero() => self.there_is_room(1),
                    rest => Room::NotBefore(self.not_before(asked, rest)),
                }
            }
            Err(error) => Room::NotBefore(self.nobody_knows(&error)),
        }
    }

    /// Draws a turn for work in hand that costs so much and can be kept for `patience`, of which at most a quarter of a second is used. Rules
    /// other than `gcra` cannot promise a turn that is still to come. When the store is out of reach, the rules' `on_error` decides.
    pub async fn take(&self, cost: u64, patience: Duration) -> Turn {
        let (now, asked) = (self.towpath.clock().now(), self.towpath.clock().now_us());
        if let Some(at) = self.lock().not_before.filter(|at| now < *at) {
            return Turn::NotBefore(at);
        }
        let patience = patience.min(IN_HAND_MAX);
        match self.draw(cost, patience).await {
            Ok((_, verdict)) if verdict.allowed => {
                self.there_is_room(verdict.remaining);
                Turn::Yours(verdict)
            }
            Ok((_, verdict)) if verdict.never => Turn::Never,
            Ok((rules, verdict)) => {
                let patience = if has_gcra(&rules) { patience } else { Duration::ZERO };
                Turn::NotBefore(self.not_before(asked, verdict.retry_after.map(|after| after.saturating_sub(patience))))
            }
            Err(error) => Turn::NotBefore(self.nobody_knows(&error)),
        }
    }

    /// Gives back a turn that was not used, so that the next one need not wait for it. Should the store not hear of it, it is lost.
    pub async fn give_back(&self, unused: Verdict) {
        if let Err(error) = unused.refund().await {
            tracing::debug!(%error, scope = %self.scope, policy = %self.policy, "a turn could not be given back");
        }
        // What was known was known without it.
        let mut known = self.lock();
        (known.room, known.not_before) = (0, None);
    }

    async fn look(&self) -> Result<(Rules, Verdict), LimitError> {
        let rules = self.rules().await?;
        let verdict = self.towpath.limit(self.scope.as_str()).rules(&rules).peek().await?;
        Ok((rules, verdict))
    }

    async fn draw(&self, cost: u64, patience: Duration) -> Result<(Rules, Verdict), LimitError> {
        let rules = self.rules().await?;
        let mut ask = self.towpath.limit(self.scope.as_str()).rules(&rules).cost(cost);
        if has_gcra(&rules) {
            ask = ask.max_wait(patience);
        }
        Ok((rules, ask.reserve().await?))
    }

    async fn rules(&self) -> Result<Rules, LimitError> {
        let found = self.towpath.limit_policies().find(&self.scope, &self.policy).await?;
        found.ok_or_else(|| LimitError::NoPolicy { scope: self.scope.to_string(), policy: self.policy.to_string() })
    }

    fn there_is_room(&self, room: u64) -> Room {
        let mut known = self.lock();
        (known.room, known.not_before, known.unknown) = (room, None, None);
        Room::Now(u32::try_from(room).unwrap_or(u32::MAX))
    }

    /// The first millisecond at which asking may be worth it.
    fn not_before(&self, asked: Micros, rest: Option<Duration>) -> Timestamp {
        let rest = rest.unwrap_or(UNKNOWN_FOR).clamp(Duration::from_millis(1), LOOK_AWAY_MAX);
        let at = not_before(asked + rest);
        let mut known = self.lock();
        (known.room, known.not_before, known.unknown) = (0, Some(at), None);
        at
    }

    fn nobody_knows(&self, error: &LimitError) -> Timestamp {
        let at = self.towpath.clock().now() + UNKNOWN_FOR;
        let mut known = self.lock();
        if known.unknown != Some(error.code()) {
            tracing::warn!(%error, scope = %self.scope, policy = %self.policy, "work waits because nobody can say whose turn it is");
        }
        (known.room, known.not_before, known.unknown) = (0, Some(at), Some(error.code()));
        at
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing in here can panic half way.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("scope", &self.scope).field("policy", &self.policy).finish_non_exhaustive()
    }
}

fn has_gcra(rules: &Rules) -> bool {
    rules.iter().any(|rule| rule.algorithm() == Algorithm::Gcra)
}
