//! Limits with one bug: each flaw is a few lines in the move that it spoils.

use std::time::Duration;

use async_trait::async_trait;
use towpath_core::limit::{Algorithm, Check, LimitReply, Retry, Rule, Rules};
use towpath_core::names::LimitScope;
use towpath_core::store::{LimitStore, StoreError};

use super::flawed::{Flaw, FlawedStore};

#[async_trait]
impl LimitStore for FlawedStore {
    async fn take(&self, check: &Check) -> Result<LimitReply, StoreError> {
        let check = &self.spoilt(check);
        let mut reply = self.inner.take(check).await?;
        if self.has(Flaw::CountsWhereOneRuleDenies) && !reply.allowed && check.writes() {
            for (rule, said) in check.rules().iter().zip(&reply.rules) {
                if said.ok {
                    self.inner.take(&again(check, vec![rule.clone()])).await.map(drop)?;
                }
            }
        }
        for (rule, said) in check.rules().iter().zip(&mut reply.rules) {
            if let (true, Algorithm::Gcra, Retry::After(after)) = (self.has(Flaw::AddsAMicrosecond), rule.algorithm(), said.retry) {
                said.retry = Retry::After(after + Duration::from_micros(1));
            }
        }
        Ok(reply)
    }

    async fn reset(&self, scope: &LimitScope, rules: &Rules) -> Result<u64, StoreError> {
        if self.has(Flaw::ResetsNothing) {
            return Ok(u64::from(self.inner.take(&look(scope, rules)).await?.rules.iter().any(|said| said.count > 0)));
        }
        self.inner.reset(scope, rules).await
    }
}

impl FlawedStore {
    fn spoilt(&self, check: &Check) -> Check {
        let rules = || check.rules().to_vec();
        match self.flaw {
            Some(Flaw::ForgetsRefunds) if check.cost() < 0 => look(check.scope(), check.rules()),
            Some(Flaw::DeniesByShadowRules) => {
                again(check, rules().iter().map(|rule| parsed(&rule.to_string().replace(",shadow", ""))).collect())
            }
            Some(Flaw::MixesKeysOfARule) => match Rules::new(rules().iter().map(without_key).collect()) {
                Ok(rules) => again(check, rules.to_vec()),
                Err(_same_rule_twice) => check.clone(),
            },
            _ => check.clone(),
        }
    }
}

fn without_key(rule: &Rule) -> Rule {
    let text = rule.to_string();
    let parts: Vec<&str> = text.split(',').filter(|part| !part.starts_with("key=")).collect();
    parsed(&parts.join(","))
}

fn parsed(text: &str) -> Rule {
    text.parse().expect("it was a rule before")
}

fn look(scope: &LimitScope, rules: &Rules) -> Check {
    Check::peek(scope.clone(), rules.clone(), 0).expect("anything may be looked at")
}

/// The same question of other rules.
fn again(check: &Check, rules: Vec<Rule>) -> Check {
    let (scope, rules, cost) = (check.scope().clone(), Rules::new(rules).expect("fewer rules go together"), check.cost().unsigned_abs());
    let wait = Duration::from_micros(u64::try_from(check.max_wait_us()).unwrap_or(0));
    let made = match (check.writes(), check.cost() < 0) {
        (false, _) => Check::peek(scope, rules, cost),
        (true, true) => Check::refund(scope, rules, cost),
        (true, false) if rules.iter().any(|rule| rule.algorithm() == Algorithm::Gcra) => Check::take(scope, rules, cost, wait),
        (true, false) => Check::take(scope, rules, cost, Duration::ZERO),
    };
    made.expect("it could be asked before")
}
