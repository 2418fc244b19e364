//! Checks as words of the script, and the script's reply back.

use std::time::Duration;

use redis::Value;
use towpath_core::limit::{Algorithm, Check, LimitReply, LimitState, Retry, Rule, RuleReply, StateName, told};
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

impl crate::lane::Kind for Question {}

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

    /// Whether another asks the same of another scope: the script reads such questions as one.
    fn asks_the_same(&self, other: &Self) -> bool {
        let (mine, theirs) = (&self.check, &other.check);
        self.verb == other.verb
            && (mine.cost(), mine.max_wait_us()) == (theirs.cost(), theirs.max_wait_us())
            && mine.rules() == theirs.rules()
            && mine.rules().iter().all(|rule| self.window(rule) == other.window(rule))
    }

    /// The number of the window in a rule's key, where there is one.
    fn window(&self, rule: &Rule) -> i64 {
        if rule.algorithm() == Algorithm::FixedWindow { self.now.get().div_euclid(rule.window_us()) } else { 0 }
    }

    /// What this and as many others in all ask.
    fn write_run(&self, checks: usize, args: &mut Args) {
        args.push(match self.verb {
            Verb::Commit => "commit",
            Verb::Peek => "peek",
            Verb::Reset => "reset",
        });
        let rules = self.check.rules();
        args.number(checks);
        args.number(rules.len());
        args.number(self.check.cost());
        args.number(self.check.max_wait_us());
        for rule in rules.iter() {
            let (letter, a, b) = match rule.algorithm() {
                Algorithm::Gcra => ("g", rule.interval().0, rule.interval().1),
                Algorithm::FixedWindow => ("w", rule.window_us(), self.window(rule)),
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

/// Writes what a crowd asks. Those that ask the same one after the other are a run, and written once; none changes its place.
pub(super) fn write(crowd: &[Question], args: &mut Args) {
    for run in crowd.chunk_by(Question::asks_the_same) {
        run[0].write_run(run.len(), args);
    }
}

/// A fixed window without a key is the one that old callers know.
fn shares_the_seeds_bucket(rule: &Rule) -> bool {
    rule.algorithm() == Algorithm::FixedWindow && rule.counted_for().is_none()
}

/// Reads what was said to each check, in order.
pub(super) fn read(crowd: &[Question], reply: Value) -> Result<Vec<Answer>, StoreError> {
    let words = value::array("the check of limits", reply)?;
    let mut words_left = words.iter();
    let now = words_left.next().and_then(value::number).map(Micros::new);
    let read = now.and_then(|now| crowd.iter().map(|question| read_answer(crowd, question, &mut words_left, now)).collect());
    read.ok_or_else(|| value::strange("the check of limits", &Value::Array(words.clone())))
}

/// What was said to one check of a crowd.
fn read_answer<'a>(crowd: &[Question], question: &Question, words: &mut impl Iterator<Item = &'a Value>, now: Micros) -> Option<Answer> {
    let allowed = match words.next().and_then(value::text)? {
        "allowed" => true,
        "denied" => false,
        "rebucket" => return Some(Answer::Said(Said::Rebucket(now))),
        "corrupt" => {
            let place = words.next().and_then(value::number).and_then(|place| usize::try_from(place - 1).ok())?;
            let key = crowd.iter().flat_map(Question::keys).nth(place)?;
            let why = format!("the key '{key}' holds something else than a limit: look at it, and DEL it if nobody needs it");
            return Some(Answer::Corrupt(why));
        }
        _ => return None,
    };
    let check = &question.check;
    let rules: Option<Vec<RuleReply>> = check
        .rules()
        .iter()
        .map(|rule| match rule.algorithm() {
            Algorithm::Gcra => Some(told(check, rule, read_gcra(words.next()?)?.as_ref(), now)),
            _ => read_rule(&mut || words.next().and_then(value::number)),
        })
        .collect();
    // The script has decided, and what is told was computed here: were they not of one mind, nothing of it could be believed.
    let rules = rules.filter(|said| allowed == check.rules().iter().zip(said).all(|(rule, said)| said.ok || rule.is_shadow()))?;
    Some(Answer::Said(Said::Reply(LimitReply { allowed, now, rules })))
}

/// What a `gcra` rule's key held.
#[expect(clippy::option_option, reason = "no answer, nothing held, or this")]
fn read_gcra(word: &Value) -> Option<Option<LimitState>> {
    if *word == Value::Nil {
        return Some(None);
    }
    let mut numbers = value::text(word)?.split(' ').map(str::parse::<i64>);
    let (at_us, part, parts) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(Some(LimitState::Gcra { at_us, part, parts }))
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
