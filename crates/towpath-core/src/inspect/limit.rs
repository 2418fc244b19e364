//! What people get to see of limits.

use crate::limit::{Check, LimitState, NotedRule, RuleReply, Rules, take};
use crate::time::Micros;

/// A rule of a scope that has something in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitView {
    /// Which.
    pub limit: NotedRule,
    /// How it stands.
    pub said: RuleReply,
}

impl LimitView {
    /// The limit as it stands now; `None` when nothing of it is in use.
    pub fn of(limit: NotedRule, state: Option<LimitState>, now: Micros) -> Option<Self> {
        let (_, reply) = take(&Self::look(&limit)?, &[state], now);
        reply.rules.first().copied().and_then(|said| Self::in_use(limit, said))
    }

    /// The same from what a store has said to [`look`](Self::look).
    pub fn in_use(limit: NotedRule, said: RuleReply) -> Option<Self> {
        (!said.reset.is_zero()).then_some(Self { limit, said })
    }

    /// The question that tells how a limit stands, and takes nothing.
    pub fn look(limit: &NotedRule) -> Option<Check> {
        Check::peek(limit.scope().clone(), Rules::one(limit.rule().clone()), 0).ok()
    }
}

/// Which limits, and how many at a time: by scope and name, in byte order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitQuery {
    /// Only scopes that begin so.
    pub prefix: String,
    /// Only those after this one; `None` for the first page.
    pub after: Option<NotedRule>,
    /// At most this many.
    pub limit: u32,
}

impl LimitQuery {
    /// Whether a limit is one of those that are asked for.
    pub fn means(&self, limit: &NotedRule) -> bool {
        limit.scope().as_str().starts_with(&self.prefix) && self.after.as_ref().is_none_or(|after| limit > after)
    }
}

/// A page of limits that have something in use. It may be shorter than was asked for though there is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitPage {
    /// The limits.
    pub items: Vec<LimitView>,
    /// Ask for the next page after this one; `None` when this was the last.
    pub next: Option<NotedRule>,
}
