//! `towpath limit`: how many in how long, for scripts.

use std::time::Duration;

use clap::{Args, Subcommand};
use comfy_table::Cell;
use towpath::limits::Rule;
use towpath_server::http::wire::limits::{
    CheckBody, LimitList, LimitListQuery, PolicyBody, PutPolicyBody, RefundBody, ResetBody, RuleBody, VerdictBody, WhichRules,
};

use super::client::{Ask, Client, routes};
use super::exit::Exit;
use super::failure::Failure;
use super::output::{self, Output};
use super::{time, words};

/// Lists are read so many at a time.
const PAGE: u32 = 200;

const EXAMPLES: &str = "\
Examples:
  towpath limit check mail --rule 'per_minute=gcra:100/60s,burst=20' && send
  towpath limit check mail --rule r=gcra:10/1s --max-wait 5s && send
                                     waits for its turn; exits 4 if none comes
  towpath limit check mail --limit 10 --window 60s
                                     the counter that n8n workflows share
  towpath limit put mail --rule 'day=sliding_log:500/1d'
  towpath limit check mail           by the policy that was put
  towpath limit put mail --remove    gives the policy up
  towpath limit peek mail
  towpath limit refund mail          it was not sent after all
  towpath limit reset mail
  towpath limit ls --prefix mail     what is in use; --policies lists those

A rule is NAME=ALGORITHM:LIMIT/WINDOW and options behind commas. A window
without a unit is seconds.
  burst=N  key=WHO  count_denied  shadow  on_error=closed|open|local
Algorithms: gcra, fixed_window, sliding_counter, sliding_log.";

/// Take from a limit, look at it, give back or reset it
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LimitArgs {
    #[command(subcommand)]
    command: LimitCommand,
}

#[derive(Subcommand, Debug)]
enum LimitCommand {
    /// Take, or exit 4 and say when there will be room
    Check {
        #[command(flatten)]
        which: Which,
        /// How much is taken
        #[arg(long, default_value_t = 1)]
        cost: u64,
        /// Wait for room that a gcra rule can promise within this
        #[arg(long, value_name = "LENGTH", default_value = "0", value_parser = words::parse_length)]
        max_wait: Duration,
    },
    /// Say what a check would be told, and take nothing; exit 4 if it would be denied
    Peek {
        #[command(flatten)]
        which: Which,
        /// How much would be taken; 0 just looks
        #[arg(long, default_value_t = 0)]
        cost: u64,
    },
    /// Give back what was taken and not used
    Refund {
        #[command(flatten)]
        which: Which,
        /// How much
        #[arg(long, default_value_t = 1)]
        cost: u64,
    },
    /// Forget what was counted
    Reset {
        /// What is limited
        scope: String,
        /// A rule; may be given more than once
        #[arg(long = "rule", value_name = "RULE")]
        rules: Vec<Rule>,
        /// A policy instead of rules [default: default]
        #[arg(long, value_name = "NAME", conflicts_with = "rules")]
        policy: Option<String>,
    },
    /// Keep rules as the policy of a scope, or remove it
    Put {
        /// What is limited
        scope: String,
        /// A rule; may be given more than once
        #[arg(long = "rule", value_name = "RULE")]
        rules: Vec<Rule>,
        /// The policy's name
        #[arg(long, value_name = "NAME", default_value = "default")]
        policy: String,
        /// Remove the policy
        #[arg(long, conflicts_with = "rules")]
        remove: bool,
    },
    /// List limits that have something in use, or the policies
    #[command(alias = "list")]
    Ls {
        /// Only scopes that begin so
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
        /// The policies instead
        #[arg(long)]
        policies: bool,
    },
}

/// Which limit is meant.
#[derive(Args, Debug)]
struct Which {
    /// What is limited: a tenant, a service, a file
    scope: String,
    /// A rule; may be given more than once
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<Rule>,
    /// A policy instead of rules
    #[arg(long, value_name = "NAME", conflicts_with = "rules")]
    policy: Option<String>,
    /// So many in a fixed window that counts denied calls too, as n8n workflows do
    #[arg(long, value_name = "N", conflicts_with_all = ["rules", "policy"])]
    limit: Option<u64>,
    /// The length of that window, in whole seconds
    #[arg(long, value_name = "LENGTH", value_parser = words::parse_length, conflicts_with_all = ["rules", "policy"])]
    window: Option<Duration>,
}

impl Which {
    fn rules(&self) -> Vec<RuleBody> {
        self.rules.iter().map(RuleBody::from).collect()
    }

    fn window_seconds(&self) -> Result<Option<u64>, Failure> {
        let Some(window) = self.window else { return Ok(None) };
        if window.subsec_nanos() > 0 {
            return Err(Failure::usage("out_of_range", "--window has a fraction of a second: write whole seconds").field("window"));
        }
        Ok(Some(window.as_secs()))
    }
}

impl LimitArgs {
    /// Whether a store may begin with it.
    pub(crate) fn puts_something(&self) -> bool {
        matches!(self.command, LimitCommand::Put { remove: false, .. } | LimitCommand::Check { .. })
    }
}

pub(crate) async fn run(client: &Client, out: Output, args: LimitArgs) -> Result<Exit, Failure> {
    match args.command {
        LimitCommand::Check { which, cost, max_wait } => check(client, out, &which, cost, Some(max_wait)).await,
        LimitCommand::Peek { which, cost } => check(client, out, &which, cost, None).await,
        LimitCommand::Refund { which, cost } => {
            let body = RefundBody {
                rules: which.rules(),
                policy: which.policy.clone(),
                limit: which.limit.map(Into::into),
                window_seconds: which.window_seconds()?.map(Into::into),
                cost: Some(cost.into()),
            };
            let verdict: VerdictBody = client.ask(Ask::post(&routes::limit_verb(&which.scope, "refund"), &body)).await?;
            show(out, &verdict);
            Ok(Exit::Done)
        }
        LimitCommand::Reset { scope, rules, policy } => {
            let texts: Vec<String> = rules.iter().map(ToString::to_string).collect();
            let query = WhichRules { policy, rules: (!texts.is_empty()).then(|| texts.join(";")) };
            let reset: ResetBody = client.ask(Ask::delete(&routes::with_query(&routes::limit(&scope), &query))).await?;
            if out.is_json() {
                out.json(&reset);
            } else {
                out.note(&format!("{} had something in use", words::plural(reset.reset, "rule")));
            }
            Ok(Exit::Done)
        }
        LimitCommand::Put { scope, rules, policy, remove } => {
            match (rules.is_empty(), remove) {
                (true, false) => return Err(no_choice(&scope)),
                (_, true) => find_policy(client, &scope, &policy).await?,
                (false, false) => {}
            }
            put(client, out, &scope, &rules, policy).await
        }
        LimitCommand::Ls { prefix, policies } => list(client, out, prefix, policies).await,
    }
}

/// Keeps rules as a policy; without rules, removes it.
async fn put(client: &Client, out: Output, scope: &str, rules: &[Rule], policy: String) -> Result<Exit, Failure> {
    let body = PutPolicyBody { rules: rules.iter().map(RuleBody::from).collect(), policy: Some(policy) };
    let kept: PolicyBody = client.ask(Ask::put(&routes::limit(scope), &body)).await?;
    let word = if kept.rules.is_empty() { "removed" } else { "kept" };
    if out.is_json() {
        out.json(&kept);
    } else {
        out.note(&format!("policy '{}' of scope '{scope}' is {word}", kept.policy));
    }
    Ok(Exit::Done)
}

fn no_choice(scope: &str) -> Failure {
    let hint =
        format!("keep a rule with `towpath limit put '{scope}' --rule r=gcra:10/1s`; `towpath limit ls --policies` lists the policies");
    Failure::usage("missing_choice", "which rules? give --rule, or --remove to remove the policy").field("rule").hint(hint)
}

/// Fails if the scope has no policy of this name.
async fn find_policy(client: &Client, scope: &str, policy: &str) -> Result<(), Failure> {
    let query = LimitListQuery { prefix: Some(scope.to_owned()), cursor: None, limit: Some(1) };
    let list: LimitList = client.get(&routes::with_query(routes::LIMITS, &query)).await?;
    if list.policies.iter().any(|kept| kept.scope.as_deref() == Some(scope) && kept.policy == policy) {
        return Ok(());
    }
    let message = format!("scope '{scope}' has no policy '{policy}': nothing was removed");
    Err(Failure::new(Exit::NotFound, "policy_not_found", message).field("policy").hint("`towpath limit ls --policies` lists the policies"))
}

/// Takes, or with no wait at all just looks.
async fn check(client: &Client, out: Output, which: &Which, cost: u64, max_wait: Option<Duration>) -> Result<Exit, Failure> {
    let body = CheckBody {
        rules: which.rules(),
        policy: which.policy.clone(),
        limit: which.limit.map(Into::into),
        window_seconds: which.window_seconds()?.map(Into::into),
        cost: Some(cost.into()),
        max_wait_ms: max_wait.filter(|wait| !wait.is_zero()).map(|wait| words::millis(wait).into()),
        mode: max_wait.is_none().then(|| "peek".to_owned()),
    };
    let verdict: VerdictBody = client.ask(Ask::post(&routes::limit_verb(&which.scope, "check"), &body)).await?;
    if verdict.allowed && verdict.wait_ms > 0 {
        out.note(&format!("waiting {} for its turn", words::length(Duration::from_millis(verdict.wait_ms))));
        time::sleep(Duration::from_millis(verdict.wait_ms)).await;
    }
    show(out, &verdict);
    Ok(if verdict.allowed { Exit::Done } else { Exit::NotNow })
}

fn show(out: Output, verdict: &VerdictBody) {
    if out.is_json() {
        return out.json(verdict);
    }
    let VerdictBody { remaining, rule, scope, .. } = verdict;
    let degraded = if verdict.degraded { ", counted without the store" } else { "" };
    match (verdict.allowed, verdict.never, verdict.retry_after_ms) {
        (true, ..) => out.line(&format!("allowed: {remaining} more by '{rule}'{degraded}")),
        (false, true, _) => out.line(&format!("denied: '{rule}' of scope '{scope}' never allows that much at once")),
        (false, false, retry) => {
            let after = words::length(Duration::from_millis(retry.unwrap_or_default()));
            out.line(&format!("denied: '{rule}' of scope '{scope}' has room in {after}{degraded}"));
        }
    }
}

async fn list(client: &Client, out: Output, prefix: Option<String>, only_policies: bool) -> Result<Exit, Failure> {
    let page = |cursor| LimitListQuery { prefix: prefix.clone(), cursor, limit: Some(PAGE) };
    let mut list: LimitList = client.get(&routes::with_query(routes::LIMITS, &page(None))).await?;
    while let Some(cursor) = list.next.take().filter(|_| !only_policies) {
        let more: LimitList = client.get(&routes::with_query(routes::LIMITS, &page(Some(cursor)))).await?;
        list.limits.extend(more.limits);
        list.next = more.next;
    }
    if out.is_json() {
        out.json(&list);
    } else if only_policies {
        show_policies(out, &list);
    } else {
        show_limits(out, &list);
    }
    Ok(Exit::Done)
}

fn show_limits(out: Output, list: &LimitList) {
    if list.limits.is_empty() {
        return out.note("no limit has anything in use; `towpath limit ls --policies` lists the policies");
    }
    let mut table = output::table(["scope", "rule", "key", "by", "in use", "limit", "left", "as new in"]);
    for limit in &list.limits {
        let rule = &limit.rule;
        table.add_row(vec![
            Cell::new(&limit.scope),
            Cell::new(&rule.name),
            Cell::new(rule.key.as_deref().unwrap_or_default()),
            Cell::new(&rule.algorithm),
            output::count(rule.count),
            Cell::new(format!("{} in {}", rule.limit, words::length(Duration::from_millis(rule.window_ms)))),
            output::count(rule.remaining),
            Cell::new(words::length(Duration::from_millis(rule.reset_ms))),
        ]);
    }
    out.table(&table);
}

fn show_policies(out: Output, list: &LimitList) {
    if list.policies.is_empty() {
        return out.note("there are no policies: put one with `towpath limit put SCOPE --rule RULE`");
    }
    let mut table = output::table(["scope", "policy", "rules"]);
    for policy in &list.policies {
        let rules: Vec<String> = policy.rules.iter().map(brief).collect();
        let scope = policy.scope.as_deref().unwrap_or("(all)");
        table.add_row(vec![Cell::new(scope), Cell::new(&policy.policy), Cell::new(rules.join("  "))]);
    }
    out.table(&table);
}

/// `per_minute: 100 in 1 min by gcra`
fn brief(rule: &RuleBody) -> String {
    let number = |count: &towpath_server::http::wire::count::Count| count.get().unwrap_or_default();
    let window = words::length(Duration::from_millis(number(&rule.window_ms)));
    format!("{}: {} in {window} by {}", rule.name, number(&rule.limit), rule.algorithm.as_deref().unwrap_or("gcra"))
}
