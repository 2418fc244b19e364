//! Which rules of which scopes are asked, for people who want a list. A store writes a rule down when it is new to the process, and again now
//! and then; what is in use is asked of the rule itself.

use std::fmt;
use std::time::Duration;

use super::{Algorithm, Check, InvalidLimit, LimitReply, OnError, Recent, Rule};
use crate::names::LimitScope;
use crate::time::Micros;

/// A rule that goes on being asked is written down again after this.
const NOTED_FOR: Duration = Duration::from_secs(300);
/// What was written down is kept so much longer than anything of it can be in use. After that a rule that nobody asks any more is not listed,
/// though another rule may go on counting in the same place.
const KEPT_FOR: Duration = Duration::from_secs(3_600);
/// So many rules are remembered, each key of a rule for itself. One that is not remembered is written down again, which is only slower.
const REMEMBERED_MAX: usize = 100_000;

/// A rule of a scope, as it stands in a list. Ordered by scope, then by the rule's name.
///
/// ```
/// use towpath_core::limit::NotedRule;
/// use towpath_core::names::LimitScope;
///
/// let noted = NotedRule::new(LimitScope::new("acme").unwrap(), "per_user=gcra:5/1s,burst=2,key=u17".parse().unwrap());
/// assert_eq!(noted.text(), "acme\nper_user\ngcra\n5\n1000\n2\n\nu17");
/// assert_eq!(NotedRule::from_text(&noted.text()), Some(noted));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NotedRule {
    scope: LimitScope,
    rule: Rule,
}

impl NotedRule {
    /// A rule of a scope. What it does when the store is out of reach makes no difference here.
    pub fn new(scope: LimitScope, rule: Rule) -> Self {
        Self { scope, rule: rule.on_error(OnError::Closed) }
    }

    /// What is limited.
    pub fn scope(&self) -> &LimitScope {
        &self.scope
    }

    /// How.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// As one text, whose bytes are in the same order as the rules. No name has a line break, so it can be taken apart again.
    pub fn text(&self) -> String {
        let Self { scope, rule } = self;
        let flags = match (rule.counts_denied(), rule.is_shadow()) {
            (false, false) => "",
            (true, false) => "d",
            (false, true) => "s",
            (true, true) => "ds",
        };
        let (name, algorithm, limit, window_ms) = (rule.name(), rule.algorithm().as_str(), rule.limit(), rule.window().as_millis());
        let burst = if rule.algorithm() == Algorithm::Gcra { rule.capacity() } else { 1 };
        let key = rule.counted_for().map_or("", |key| key.as_str());
        format!("{scope}\n{name}\n{algorithm}\n{limit}\n{window_ms}\n{burst}\n{flags}\n{key}")
    }

    /// The other way round; `None` when that is no such text.
    pub fn from_text(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('\n').collect();
        let [scope, name, algorithm, limit, window_ms, burst, flags, key] = *parts.as_slice() else { return None };
        let rule = read_rule(name, Algorithm::from_word(algorithm)?, [limit, window_ms, burst], flags, key).ok()?;
        Some(Self { scope: LimitScope::new(scope).ok()?, rule })
    }

    /// How long it can be in use after a check, so that nobody forgets it earlier.
    fn longest(&self, max_wait: Duration) -> Duration {
        let rule = &self.rule;
        match rule.algorithm() {
            Algorithm::Gcra => {
                let units = u32::try_from(rule.capacity() / rule.limit() + 1).unwrap_or(u32::MAX);
                rule.window().saturating_mul(units).saturating_add(max_wait)
            }
            Algorithm::SlidingCounter => rule.window() * 2,
            Algorithm::FixedWindow | Algorithm::SlidingLog => rule.window(),
        }
    }
}

fn read_rule(name: &str, algorithm: Algorithm, numbers: [&str; 3], flags: &str, key: &str) -> Result<Rule, InvalidLimit> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| InvalidLimit::bad("no number"));
    let [limit, window_ms, burst] = numbers;
    let mut rule = Rule::new(name, algorithm, number(limit)?, Duration::from_millis(number(window_ms)?))?;
    if algorithm == Algorithm::Gcra {
        rule = rule.burst(number(burst)?)?;
    }
    if flags.contains('d') {
        rule = rule.count_denied()?;
    }
    if flags.contains('s') {
        rule = rule.shadow();
    }
    if key.is_empty() { Ok(rule) } else { rule.key(key) }
}

impl PartialOrd for NotedRule {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NotedRule {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text().cmp(&other.text())
    }
}

impl fmt::Debug for NotedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.scope, self.rule)
    }
}

/// A rule to write down, and until when it must not be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Which.
    pub noted: NotedRule,
    /// It can be forgotten after this.
    pub keep_until: Micros,
}

/// What a process has written down, so that a check that is made again and again costs nothing more.
#[derive(Debug)]
pub struct Noted {
    /// Until when each need not be written down again.
    known: Recent<Rule, Micros>,
}

impl Default for Noted {
    fn default() -> Self {
        Self { known: Recent::holding(REMEMBERED_MAX) }
    }
}

impl Noted {
    /// What is to be written down because of a check and what was said to it. A check that has counted nothing leaves no trace here either.
    pub fn news(&self, check: &Check, reply: &LimitReply, now: Micros) -> Vec<Note> {
        let is_known = |rule: &Rule| self.known.get(check.scope(), rule).is_some_and(|until| now < *until);
        let note = |rule: &Rule| {
            let noted = NotedRule::new(check.scope().clone(), rule.clone());
            let max_wait = Duration::from_micros(u64::try_from(check.max_wait_us()).unwrap_or(0));
            let keep_until = now + noted.longest(max_wait).saturating_add(KEPT_FOR);
            Note { noted, keep_until }
        };
        counted(check, reply).filter(|rule| !is_known(rule)).map(note).collect()
    }

    /// The rules that a check has counted for were written down.
    pub fn keep(&mut self, check: &Check, reply: &LimitReply, now: Micros) {
        for rule in counted(check, reply) {
            self.known.put(check.scope(), rule.clone(), now + NOTED_FOR);
        }
    }

    /// Number of rules that this process remembers.
    pub fn remembered(&self) -> usize {
        self.known.len()
    }
}

/// The rules that have counted something because of a check: all of those that may deny, all of those that watch, or none of either; and
/// whoever counts what is denied.
pub fn counted<'a>(check: &'a Check, reply: &'a LimitReply) -> impl Iterator<Item = &'a Rule> {
    let watchers_allow = check.rules().iter().zip(&reply.rules).all(|(rule, said)| said.ok || !rule.is_shadow());
    let takes = check.writes() && check.cost() > 0;
    let counts = move |rule: &&Rule| takes && (rule.counts_denied() || if rule.is_shadow() { watchers_allow } else { reply.allowed });
    check.rules().iter().filter(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Rules, take};

    fn check(rule: &str) -> Check {
        Check::take(LimitScope::new("acme").unwrap(), Rules::one(rule.parse().unwrap()), 1, Duration::ZERO).unwrap()
    }

    #[test]
    fn every_rule_comes_back_as_it_was() {
        let odd_name = Rule::sliding_log("ü, x=", 5, Duration::from_secs(1)).unwrap();
        let typed = ["a=gcra:5/1s,burst=9,key=u17", "a=fixed_window:5/1s,count_denied", "a=sliding_counter:5/700ms,shadow"];
        for rule in typed.iter().map(|text| text.parse().unwrap()).chain([odd_name]) {
            let noted = NotedRule::new(LimitScope::new("a/b:c {1}").unwrap(), rule);
            assert_eq!(NotedRule::from_text(&noted.text()), Some(noted));
        }
        for text in ["", "acme", "acme\nr\ngcra\n0\n1000\n1\n\n", "acme\nr\nleaky\n1\n1000\n1\n\n", "\nr\ngcra\n1\n1000\n1\n\n"] {
            assert_eq!(NotedRule::from_text(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_rule_is_written_down_once_in_five_minutes_and_kept_for_longer_than_it_can_be_in_use() {
        let (mut noted, start) = (Noted::default(), Micros::new(1_000_000_000_000));
        let asked = check("a=gcra:5/1h,burst=10");
        let (states, reply) = take(&asked, &[None], start);
        let [note] = &noted.news(&asked, &reply, start)[..] else { panic!("one rule") };
        assert_eq!(note.keep_until, start + Duration::from_secs(4 * 3_600));
        noted.keep(&asked, &reply, start);
        assert_eq!(noted.news(&asked, &reply, start + Duration::from_secs(299)), []);
        assert_eq!(noted.news(&asked, &reply, start + Duration::from_secs(300)).len(), 1);
        let changed = check("a=gcra:6/1h,burst=10");
        assert_eq!(noted.news(&changed, &take(&changed, &states, start).1, start).len(), 1, "a changed rule is another one");
    }

    #[test]
    fn a_flood_of_keys_in_one_scope_is_remembered_up_to_a_bound() {
        let (mut noted, start) = (Noted::default(), Micros::new(1_000_000_000_000));
        let mut last = None;
        for user in 0..250_000 {
            let asked = check(&format!("a=gcra:5/1h,key=u{user}"));
            let (_, reply) = take(&asked, &[None], start);
            noted.keep(&asked, &reply, start);
            last = Some((asked, reply));
        }
        assert!(noted.remembered() <= REMEMBERED_MAX, "{} rules are in memory", noted.remembered());
        let (asked, reply) = last.unwrap();
        assert_eq!(noted.news(&asked, &reply, start), [], "the latest are remembered");
    }

    #[test]
    fn what_counts_nothing_leaves_no_trace() {
        let start = Micros::new(1_000_000_000_000);
        let asked = check("a=sliding_log:1/1h");
        let (states, _) = take(&asked, &[None], start);
        assert_eq!(Noted::default().news(&asked, &take(&asked, &states, start).1, start), [], "a denial");
        let look = Check::peek(asked.scope().clone(), asked.rules().clone(), 1).unwrap();
        assert_eq!(Noted::default().news(&look, &take(&look, &[None], start).1, start), [], "a look");
        let (seed, watched) = (check("a=fixed_window:1/1h,count_denied"), check("a=sliding_log:1/1h,shadow"));
        let denied = LimitReply { allowed: false, ..take(&seed, &[None], start).1 };
        assert_eq!(Noted::default().news(&seed, &denied, start).len(), 1, "denied calls count too");
        let (states, _) = take(&watched, &[None], start);
        assert_eq!(Noted::default().news(&watched, &take(&watched, &states, start).1, start), [], "it would have denied");
    }
}
