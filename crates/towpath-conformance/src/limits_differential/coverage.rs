//! What random checks have reached. Agreement on what never happened proves nothing.

use std::collections::BTreeSet;

use towpath_core::limit::{Algorithm, Check, LimitReply, Retry};

use super::{Op, Reply};

/// All that has been seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    seen: BTreeSet<String>,
}

/// Ends that every algorithm must have come to, for each verb.
const OF_EACH_ALGORITHM: [&str; 10] = [
    "take: allowed",
    "take: denied",
    "take: never",
    "take: allowed, but another denied",
    "look: allowed",
    "look: denied",
    "look: nothing in use",
    "refund: some left",
    "refund: none left",
    "together with others",
];
const OTHERS: [&str; 11] = [
    "reserve: to wait",
    "reserve: not to wait",
    "reserve: denied",
    "seed: counted though denied",
    "shadow: would deny",
    "reset: some",
    "reset: none",
    "list: none",
    "list: some",
    "list: more",
    "reopen",
];

impl Coverage {
    pub(super) fn note(&mut self, op: &Op, reply: &Reply) {
        match (op, reply) {
            (Op::Take(check), Reply::Said(said)) => self.note_check(check, said),
            (Op::Reset(..), Reply::InUse(count)) => self.see(if *count > 0 { "reset: some" } else { "reset: none" }),
            (Op::List(_), Reply::Listed(page)) if page.next.is_some() => self.see("list: more"),
            (Op::List(_), Reply::Listed(page)) => self.see(if page.items.is_empty() { "list: none" } else { "list: some" }),
            (Op::Reopen, _) => self.see("reopen"),
            _ => {}
        }
    }

    fn note_check(&mut self, check: &Check, said: &LimitReply) {
        for (rule, reply) in check.rules().iter().zip(&said.rules) {
            let end = match (check.writes(), check.cost() < 0, reply.ok) {
                (_, true, _) if reply.count > 0 => "refund: some left",
                (_, true, _) => "refund: none left",
                (true, _, true) if !said.allowed && !rule.is_shadow() => "take: allowed, but another denied",
                (true, _, true) => "take: allowed",
                (true, _, false) if reply.retry == Retry::Never => "take: never",
                (true, _, false) => "take: denied",
                (false, _, true) if reply.count == 0 => "look: nothing in use",
                (false, _, true) => "look: allowed",
                (false, _, false) => "look: denied",
            };
            self.see(&format!("{} {end}", rule.algorithm().as_str()));
            if check.rules().len() > 1 {
                self.see(&format!("{} together with others", rule.algorithm().as_str()));
            }
            if rule.is_shadow() && !reply.ok {
                self.see("shadow: would deny");
            }
            if rule.counts_denied() && check.writes() && !reply.ok && reply.count > rule.limit() {
                self.see("seed: counted though denied");
            }
            if check.max_wait_us() > 0 && rule.algorithm() == Algorithm::Gcra {
                self.see(match (reply.ok, reply.wait.is_zero()) {
                    (true, false) => "reserve: to wait",
                    (true, true) => "reserve: not to wait",
                    (false, _) => "reserve: denied",
                });
            }
        }
    }

    fn see(&mut self, what: &str) {
        self.seen.insert(what.to_owned());
    }

    /// What should have been seen and was not.
    pub(super) fn missing(&self) -> Vec<String> {
        let of_algorithms =
            Algorithm::ALL.iter().flat_map(|algorithm| OF_EACH_ALGORITHM.map(|end| format!("{} {end}", algorithm.as_str())));
        let others = OTHERS.map(str::to_owned);
        of_algorithms.chain(others).filter(|must| !self.seen.contains(must)).collect()
    }
}
