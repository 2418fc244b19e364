//! A check as words of the script, and the script's reply back.

use std::time::Duration;

use redis::Value;
use towpath_core::limit::{Algorithm, Check, LimitReply, Retry, Rule, RuleReply, StateName};
use towpath_core::store::StoreError;
use towpath_core::time::Micros;

use crate::keys::Keys;
use crate::script::Args;
use crate::value;

/// What is done with a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Commit,
    Peek,
    Reset,
}

/// A check with the keys that its rules have at an instant.
pub(super) struct Question {
    check: Check,
    verb: Verb,
    now: Micros,
    keys: Vec<String>,
}

/// What the script says to one check.
pub(super) enum Said {
    Reply(LimitReply),
    /// The window in a key is not the one that the server is in: it is now this late there.
    Rebucket(Micros),
}

/// What the script says to one check, where a key may hold something else.
pub(super) enum Answer {
    Said(Said),
    Corrupt(String),
}

impl Question {
    pub(super) fn new(check: &Check, verb: Verb, now: Micros, keys: &Keys, cluster: bool) -> Self {
        let key = |rule: &Rule| keys.limit(check.scope(), &StateName::of(rule, now), shares_the_seeds_bucket(rule) && !cluster);
        Self { keys: check.rules().iter().map(key).collect(), check: check.clone(), verb, now }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// Any of its keys: they share a slot.
    pub(super) fn any_key(&self) -> &str {
        self.keys.first().map_or("", String::as_str)
    }

    pub(super) fn write(&self, args: &mut Args) {
        args.push(match self.verb {
            Verb::Commit => "commit",
            Verb::Peek => "peek",
            Verb::Reset => "reset",
        });
        let rules = self.check.rules();
        args.number(rules.len());
        args.number(self.check.cost());
        args.number(self.check.max_wait_us());
        for rule in rules.iter() {
            let (letter, a, b) = match rule.algorithm() {
                Algorithm::Gcra => ("g", rule.interval().0, rule.interval().1),
                Algorithm::FixedWindow => ("w", rule.window_us(), self.now.get().div_euclid(rule.window_us())),
                Algorithm::SlidingCounter => ("c", rule.window_us(), 0),
                Algorithm::SlidingLog => ("l", rule.window_us(), 0),
            };
            args.push(letter);
            args.number(a);
            args.number(b);
            args.number(rule.capacity());
            args.push(match (rule.counts_denied(), rule.is_shadow()) {
                (false, false) => "",
                (true, false) => "d",
                (false, true) => "s",
                (true, true) => "ds",
            });
        }
    }
}

/// A fixed window without a key is the one that old callers know.
fn shares_the_seeds_bucket(rule: &Rule) -> bool {
    rule.algorithm() == Algorithm::FixedWindow && rule.counted_for().is_none()
}

/// Reads what was said to each check, in order.
pub(super) fn read(crowd: &[Question], reply: Value) -> Result<Vec<Answer>, StoreError> {
    let words = value::array("the check of limits", reply)?;
    let odd = || value::strange("the check of limits", &Value::Array(words.clone()));
    let mut words_left = words.iter();
    let now = Micros::new(words_left.next().and_then(value::number).ok_or_else(odd)?);
    let mut answers = Vec::with_capacity(crowd.len());
    let first_keys: Vec<&str> = crowd.iter().flat_map(Question::keys).collect();
    for question in crowd {
        let word = words_left.next().and_then(value::text).ok_or_else(odd)?;
        answers.push(match word {
            "rebucket" => Answer::Said(Said::Rebucket(now)),
            "corrupt" => {
                let place = words_left.next().and_then(value::number).and_then(|place| usize::try_from(place - 1).ok());
                let key = place.and_then(|place| first_keys.get(place)).ok_or_else(odd)?;
                Answer::Corrupt(format!("the key '{key}' holds something else than a limit: look at it, and DEL it if nobody needs it"))
            }
            "allowed" | "denied" => {
                let mut number = || words_left.next().and_then(value::number);
                let rules: Option<Vec<RuleReply>> = question.keys.iter().map(|_| read_rule(&mut number)).collect();
                Answer::Said(Said::Reply(LimitReply { allowed: word == "allowed", now, rules: rules.ok_or_else(odd)? }))
            }
            _ => return Err(odd()),
        });
    }
    Ok(answers)
}

fn read_rule(number: &mut impl FnMut() -> Option<i64>) -> Option<RuleReply> {
    let (ok, remaining, retry, reset, wait, count) = (number()? == 1, number()?, number()?, number()?, number()?, number()?);
    let length = |us: i64| Duration::from_micros(u64::try_from(us).unwrap_or(0));
    Some(RuleReply {
        ok,
        remaining: u64::try_from(remaining).unwrap_or(0),
        retry: match retry {
            -1 => Retry::NotNeeded,
            -2 => Retry::Never,
            us => Retry::After(length(us)),
        },
        reset: length(reset),
        wait: length(wait),
        count: u64::try_from(count).unwrap_or(0),
    })
}

impl Answer {
    pub(super) fn checked(self) -> Result<Said, StoreError> {
        match self {
            Self::Said(said) => Ok(said),
            Self::Corrupt(why) => Err(StoreError::Corrupt(why)),
        }
    }
}
