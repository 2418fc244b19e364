//! Limits on the wire. Numbers may be written as decimal text, as workflows often have them.

use serde::{Deserialize, Serialize};
use towpath::limits::{Algorithm, OnError, Rule};
use utoipa::{IntoParams, ToSchema};

use super::count::Count;
use super::object;

/// A rule: so many in so long.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleBody {
    /// What it is called among the others.
    pub name: String,
    /// `gcra` (default), `fixed_window`, `sliding_counter` or `sliding_log`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// How many.
    #[schema(value_type = u64)]
    pub limit: Count,
    /// In how many milliseconds.
    #[schema(value_type = u64)]
    pub window_ms: Count,
    /// How many at once, of a `gcra`. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub burst: Option<Count>,
    /// Whom it counts apart from all others under the same scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Denied calls count too, of a single `fixed_window`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_denied: Option<bool>,
    /// What to answer when the store is out of reach: `closed` (default, an error), `open` or `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<String>,
    /// It only watches: it counts, and never denies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<bool>,
}

impl From<&Rule> for RuleBody {
    fn from(rule: &Rule) -> Self {
        let is_gcra = rule.algorithm() == Algorithm::Gcra;
        Self {
            name: rule.name().to_string(),
            algorithm: Some(rule.algorithm().as_str().to_owned()),
            limit: rule.limit().into(),
            window_ms: u64::try_from(rule.window().as_millis()).unwrap_or(u64::MAX).into(),
            burst: is_gcra.then(|| rule.capacity().into()),
            key: rule.counted_for().map(ToString::to_string),
            count_denied: rule.counts_denied().then_some(true),
            on_error: (rule.when_unreachable() != OnError::Closed).then(|| rule.when_unreachable().as_str().to_owned()),
            shadow: rule.is_shadow().then_some(true),
        }
    }
}

/// A check: rules, or the name of a policy, or the two numbers of the seed's check. Without any of them the scope's policy `default`
/// counts, and where there is none the seed's own: 10 in 60 seconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckBody {
    /// One to eight rules; all of them allow, or nothing is taken.
    #[serde(default, deserialize_with = "object::list", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleBody>,
    /// The name of a policy instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// How many in a fixed window that counts denied calls too, as the seed does. Default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub limit: Option<Count>,
    /// The length of that window. Default 60.
    #[serde(default, rename = "windowSeconds", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub window_seconds: Option<Count>,
    /// How much is taken. Default 1; 0 only with the mode `peek`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub cost: Option<Count>,
    /// A `gcra` rule may promise room that comes within so long; `wait_ms` of the answer says when. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_wait_ms: Option<Count>,
    /// `commit` (default), or `peek`: the same answer, and nothing is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// How a denial is told.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CheckQuery {
    /// 429: a denial has that status, `Retry-After` and a problem document. Default 200, with `allowed` false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny_status: Option<u64>,
    /// Whether the answer has the older headers `X-RateLimit-Limit`, `-Remaining` and `-Reset` too. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_ratelimit: Option<bool>,
}

/// What is given back.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RefundBody {
    /// As in the check that took it.
    #[serde(default, deserialize_with = "object::list", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleBody>,
    /// As in the check that took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// As in the check that took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub limit: Option<Count>,
    /// As in the check that took it.
    #[serde(default, rename = "windowSeconds", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub window_seconds: Option<Count>,
    /// How much. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub cost: Option<Count>,
}

/// Whose rules are meant.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WhichRules {
    /// The name of a policy. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Rules instead, as `NAME=ALGORITHM:LIMIT/WINDOW[,OPTION..]`, with semicolons between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
}

/// A verdict. `count`, `limit` and `remaining` are those of the binding rule: the violated one with the longest retry, else the one with
/// the least remaining.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct VerdictBody {
    /// Whether it is allowed.
    pub allowed: bool,
    /// What is limited.
    pub scope: String,
    /// Units in use.
    pub count: u64,
    /// How many there may be.
    pub limit: u64,
    /// How many more would be allowed now.
    pub remaining: u64,
    /// After this long it is allowed, if no other check comes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Until all rules are as good as new, if nothing more is taken.
    pub reset_ms: u64,
    /// What was reserved may be used after so long.
    pub wait_ms: u64,
    /// It asks for more than there can ever be at once.
    pub never: bool,
    /// The binding rule.
    pub rule: String,
    /// The rules that denied.
    pub violated: Vec<String>,
    /// Whether some rule only watches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    /// Whether a rule that only watches would have denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_deny: Option<bool>,
    /// The store is out of reach, and the rules say what to do then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
    /// What each rule says.
    pub rules: Vec<RuleVerdictBody>,
}

/// What one rule says.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RuleVerdictBody {
    /// Its name.
    pub name: String,
    /// How it counts.
    pub algorithm: String,
    /// Whom it counts apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How many there may be.
    pub limit: u64,
    /// In how long.
    pub window_ms: u64,
    /// Whether it allows.
    pub ok: bool,
    /// Units in use.
    pub count: u64,
    /// How many more it would allow now.
    pub remaining: u64,
    /// After this long it allows, if no other check comes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Until it is as good as new.
    pub reset_ms: u64,
    /// Whether it only watches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
}

/// A policy to keep.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutPolicyBody {
    /// Its rules; an empty list removes it.
    #[serde(deserialize_with = "object::list")]
    pub rules: Vec<RuleBody>,
    /// Its name. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// A policy.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PolicyBody {
    /// Whose; absent where it is any scope's that has none of that name itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Its name.
    pub policy: String,
    /// Its rules; empty where it was removed.
    pub rules: Vec<RuleBody>,
}

/// A limit that has something in use.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LimitBody {
    /// What is limited.
    pub scope: String,
    /// The rule, and how it stands.
    #[serde(flatten)]
    pub rule: RuleVerdictBody,
}

/// A page of limits that have something in use.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LimitList {
    /// By scope and rule. Rules that were asked here, or by others of ours on the same store; not counters of old workflows alone.
    pub limits: Vec<LimitBody>,
    /// The policies, on the first page: those for all first, then by scope and name.
    pub policies: Vec<PolicyBody>,
    /// Send it as `cursor` for the next page; absent on the last. A page may be short though another one follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which limits to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LimitListQuery {
    /// Only scopes that begin so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Where the page before ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most this many, 1 to 200. Default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// What a reset did.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ResetBody {
    /// What was limited.
    pub scope: String,
    /// How many rules had anything in use.
    pub reset: u64,
}
