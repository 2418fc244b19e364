//! A question to a limit: scope, rules or policy, cost, wait.

use std::time::Duration;

use towpath_core::limit::{Check, Rule, Rules};
use towpath_core::names::{LimitScope, RuleName};
use towpath_core::store::StoreError;
use towpath_core::time::{Micros, Timestamp};

use super::verdict::Taken;
use super::{LimitError, Verdict};
use crate::Towpath;

/// A question to be. [`take`](Self::take), [`reserve`](Self::reserve), [`peek`](Self::peek), [`refund`](Self::refund) or
/// [`reset`](Self::reset) puts it.
#[derive(Clone, Debug)]
#[must_use = "a question that is not put gets no verdict"]
pub struct LimitBuilder {
    towpath: Towpath,
    scope: String,
    rules: Vec<Rule>,
    policy: Option<String>,
    cost: u64,
    max_wait: Duration,
    nodes: u64,
}

impl LimitBuilder {
    pub(super) fn new(towpath: Towpath, scope: String) -> Self {
        Self { towpath, scope, rules: Vec::new(), policy: None, cost: 1, max_wait: Duration::ZERO, nodes: 1 }
    }

    /// One more rule. All of them allow, or nothing is taken.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// These rules as well.
    pub fn rules(mut self, rules: &Rules) -> Self {
        self.rules.extend(rules.iter().cloned());
        self
    }

    /// The rules of a policy: the scope's own of that name, else the one for all.
    pub fn policy(mut self, name: impl Into<String>) -> Self {
        self.policy = Some(name.into());
        self
    }

    /// How much is taken; 1 unless said.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// A `gcra` rule may promise room that comes within so long.
    pub fn max_wait(mut self, longest: Duration) -> Self {
        self.max_wait = longest;
        self
    }

    /// So many processes share the limit while the store is out of reach; 1 unless said. For rules whose `on_error` is `local`.
    pub fn nodes(mut self, count: u64) -> Self {
        self.nodes = count;
        self
    }

    /// Takes, or says when there will be room. What was reserved with a wait is waited for; whoever stops waiting gives it back.
    pub async fn take(self) -> Result<Verdict, LimitError> {
        let clock = std::sync::Arc::clone(self.towpath.clock());
        let asked = clock.now_us();
        let verdict = self.reserve().await?;
        if !verdict.wait.is_zero() {
            let unused = GiveBack(Some(verdict.clone()));
            clock.sleep_until(not_before(asked + verdict.wait)).await;
            unused.keep();
        }
        Ok(verdict)
    }

    /// As [`take`](Self::take), but answers at once: what was reserved must not be used before [`Verdict::wait`] is over.
    pub async fn reserve(self) -> Result<Verdict, LimitError> {
        let (scope, rules) = self.resolved().await?;
        let check = Check::take(scope, rules.clone(), self.cost, self.max_wait)?;
        let (limits, now) = (self.towpath.limits(), self.towpath.clock().now_us());
        if let Some(reply) = limits.denied.recall(&check, now).filter(|_| self.max_wait.is_zero()) {
            limits.answered_here(&check, &reply, false);
            return Ok(Verdict::of(&check, &reply, false));
        }
        let mut verdict = match self.towpath.store().take(&check).await {
            Ok(reply) => {
                limits.denied.note(&check, &reply, self.towpath.clock().now_us());
                Verdict::of(&check, &reply, false)
            }
            Err(error) => return self.without_the_store(&check, error, now),
        };
        if verdict.allowed {
            verdict.taken = Some(Taken { towpath: self.towpath.clone(), rules, cost: self.cost });
        }
        Ok(verdict)
    }

    /// What taking would be answered now; nothing is taken. A cost of 0 just looks.
    pub async fn peek(self) -> Result<Verdict, LimitError> {
        let (scope, rules) = self.resolved().await?;
        let check = Check::peek(scope, rules, self.cost)?;
        match self.towpath.store().take(&check).await {
            Ok(reply) => Ok(Verdict::of(&check, &reply, false)),
            Err(error) => self.without_the_store(&check, error, self.towpath.clock().now_us()),
        }
    }

    /// Gives units back, never beyond an empty limit. Says how things stand then.
    pub async fn refund(self) -> Result<Verdict, LimitError> {
        let (scope, rules) = self.resolved().await?;
        let check = Check::refund(scope, rules, self.cost)?;
        self.towpath.limits().denied.forget(check.scope());
        let reply = self.towpath.store().take(&check).await?;
        Ok(Verdict::of(&check, &reply, false))
    }

    /// Forgets what the rules have counted; of a fixed window, the present one. Returns how many rules had anything in use.
    pub async fn reset(self) -> Result<u64, LimitError> {
        let (scope, rules) = self.resolved().await?;
        self.towpath.limits().denied.forget(&scope);
        Ok(self.towpath.store().reset(&scope, &rules).await?)
    }

    async fn resolved(&self) -> Result<(LimitScope, Rules), LimitError> {
        let scope = LimitScope::new(&self.scope)?;
        let rules = match (&self.policy, self.rules.is_empty()) {
            (Some(policy), false) => return Err(LimitError::Ambiguous { policy: policy.clone() }),
            (None, true) => return Err(LimitError::NoRules { scope: self.scope.clone() }),
            (None, false) => Rules::new(self.rules.clone())?,
            (Some(policy), true) => {
                let found = self.towpath.limit_policies().find(&scope, &RuleName::new(policy)?).await?;
                found.ok_or_else(|| LimitError::NoPolicy { scope: self.scope.clone(), policy: policy.clone() })?
            }
        };
        Ok((scope, rules))
    }

    /// The store is out of reach: each rule says what to do. What cannot be read is no such case, for an operator must look at it.
    fn without_the_store(&self, check: &Check, error: StoreError, now: Micros) -> Result<Verdict, LimitError> {
        if matches!(error, StoreError::Corrupt(_)) {
            return Err(error.into());
        }
        match self.towpath.limits().local.judge(check, self.nodes, now) {
            Some(reply) => {
                self.towpath.limits().answered_here(check, &reply, true);
                Ok(Verdict::of(check, &reply, true))
            }
            None => Err(error.into()),
        }
    }
}

/// The first whole millisecond that is not before an instant: clocks wake by milliseconds.
pub(crate) fn not_before(at: Micros) -> Timestamp {
    Micros::new(at.get().saturating_add(999)).to_millis()
}

/// Gives a reservation back when nobody waits for it any more.
struct GiveBack(Option<Verdict>);

impl GiveBack {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for GiveBack {
    fn drop(&mut self) {
        let Some(unused) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = unused.refund().await {
                    tracing::debug!(%error, "a reservation could not be given back");
                }
            });
        }
    }
}
