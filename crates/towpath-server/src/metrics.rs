//! What Prometheus gets to see. Counters rise as things happen; what stands in the store is read when somebody asks.

mod batches;
mod streams;

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::Method;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use towpath::Observer;
use towpath_core::batch::{ClaimedBatch, IngestReply};
use towpath_core::call::LostLease;
use towpath_core::inspect::FunctionView;
use towpath_core::limit::{Check, LimitReply};
use towpath_core::lock::{LostLock, Previous};
use towpath_core::names::{BatcherName, FunctionKey};
use towpath_core::permit::PermitKind;
use towpath_core::store::{Ended, Forgotten, StoreError};
use towpath_core::time::Timestamp;

use self::batches::BatchMetrics;
use self::streams::StreamMetrics;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FunctionLabels {
    scope: String,
    function: String,
}

impl From<&FunctionKey> for FunctionLabels {
    fn from(key: &FunctionKey) -> Self {
        Self { scope: key.scope.to_string(), function: key.name.to_string() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    scope: String,
    function: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PreviousLabels {
    previous: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    rule: String,
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    status: u16,
}

/// So many rules are told apart; the others share a label.
const RULES_MAX: usize = 200;

type PerFunction<M> = Family<FunctionLabels, M>;

/// Everything that is counted.
pub struct Metrics {
    // Held while the gauges are set and written out, so that two scrapes at once do not mix.
    registry: Mutex<Registry>,
    backlog: PerFunction<Gauge>,
    running: PerFunction<Gauge>,
    parked: PerFunction<Gauge>,
    dead: PerFunction<Gauge>,
    healthy_workers: PerFunction<Gauge>,
    oldest_queued_seconds: PerFunction<Gauge<f64, std::sync::atomic::AtomicU64>>,
    streams: StreamMetrics,
    submitted: PerFunction<Counter>,
    ended: Family<EndLabels, Counter>,
    duration_seconds: Family<FunctionLabels, Histogram, fn() -> Histogram>,
    retries: PerFunction<Counter>,
    lost_leases: Family<ReasonLabels, Counter>,
    reclaims: Counter,
    store_errors: Family<ReasonLabels, Counter>,
    forgotten: Family<KindLabels, Counter>,
    lock_grants: Family<PreviousLabels, Counter>,
    permit_grants: Family<KindLabels, Counter>,
    lock_wait_seconds: Family<KindLabels, Histogram, fn() -> Histogram>,
    lock_hold_seconds: Family<KindLabels, Histogram, fn() -> Histogram>,
    locks_lost: Family<ReasonLabels, Counter>,
    lock_attempts_of_old_workflows: Counter,
    limit_checks: Family<RuleLabels, Counter>,
    /// Rules that have a label of their own.
    rules_seen: Mutex<HashSet<String>>,
    batches: BatchMetrics,
    http_requests: Family<RequestLabels, Counter>,
    http_requests_open: Gauge,
}

/// A request that is being answered. Counted until it is dropped, also when its client went away first.
pub(crate) struct OpenRequest(Gauge);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All counters at zero.
    pub fn new() -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix("towpath")),
            backlog: Family::default(),
            running: Family::default(),
            parked: Family::default(),
            dead: Family::default(),
            healthy_workers: Family::default(),
            oldest_queued_seconds: Family::default(),
            streams: StreamMetrics::default(),
            submitted: Family::default(),
            ended: Family::default(),
            // From a millisecond to about an hour and a quarter, four times as long from one to the next.
            duration_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 12))),
            retries: Family::default(),
            lost_leases: Family::default(),
            reclaims: Counter::default(),
            store_errors: Family::default(),
            forgotten: Family::default(),
            lock_grants: Family::default(),
            permit_grants: Family::default(),
            lock_wait_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 12))),
            lock_hold_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 12))),
            locks_lost: Family::default(),
            lock_attempts_of_old_workflows: Counter::default(),
            limit_checks: Family::default(),
            rules_seen: Mutex::default(),
            batches: BatchMetrics::default(),
            http_requests: Family::default(),
            http_requests_open: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let registry = &mut *self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register("backlog", "Calls that wait for a worker or for their next attempt", self.backlog.clone());
        registry.register("running", "Calls that workers hold", self.running.clone());
        registry.register("parked", "Running calls that wait for a nested call", self.parked.clone());
        registry.register("dead_letters", "Calls that were given up and wait for somebody to deal with them", self.dead.clone());
        registry.register("healthy_workers", "Workers heard of in the last 30 seconds", self.healthy_workers.clone());
        let help = "How long the longest-waiting queued call has waited";
        registry.register("oldest_queued_seconds", help, self.oldest_queued_seconds.clone());
        self.streams.register(registry);
        let help = "Calls taken by this server, and entries of legacy callers that it made calls of";
        registry.register("calls_submitted", help, self.submitted.clone());
        registry.register("calls_ended", "Calls that ended through this server, by the state in which they ended", self.ended.clone());
        registry.register("call_duration_seconds", "From submit to end", self.duration_seconds.clone());
        registry.register("retries", "Attempts that failed and will be repeated", self.retries.clone());
        let help = "Deliveries that were no longer their worker's when it spoke of them";
        registry.register("lost_leases", help, self.lost_leases.clone());
        registry.register("reclaims", "Leases that ran out; their calls went to another worker", self.reclaims.clone());
        registry.register("store_errors", "Moves that the store did not answer well", self.store_errors.clone());
        let help = "Removed because it was too old or too much: dead_letter, batch_dead_letter, audit, outcome";
        registry.register("forgotten", help, self.forgotten.clone());
        registry.register("lock_grants", "Locks granted, by how the tenure before ended", self.lock_grants.clone());
        registry.register("permit_grants", "Grants of units of semaphores and read/write locks", self.permit_grants.clone());
        let help = "How long those who were granted a lock or units had waited";
        registry.register("lock_wait_seconds", help, self.lock_wait_seconds.clone());
        let help = "How long a lock or units were held that were taken and released through this server";
        registry.register("lock_hold_seconds", help, self.lock_hold_seconds.clone());
        registry.register("locks_lost", "Holders that learnt that what they held is not theirs any more", self.locks_lost.clone());
        let help = "How often old workflows tried to get in beside a holder of ours";
        registry.register("lock_attempts_of_old_workflows", help, self.lock_attempts_of_old_workflows.clone());
        registry.register(
            "limit_checks",
            "Checks of limits by rule and verdict: allowed, denied, would_deny, or degraded when the store was out of reach",
            self.limit_checks.clone(),
        );
        self.batches.register(registry);
        registry.register("http_requests", "Requests answered, by route and status", self.http_requests.clone());
        registry.register("http_requests_open", "Requests being answered now, this one included", self.http_requests_open.clone());
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Which server this is", version);
    }

    pub(crate) fn batches(&self) -> &BatchMetrics {
        &self.batches
    }

    /// Calls that the store made of entries of legacy callers.
    pub(crate) fn count_imported(&self, imported: &[(FunctionKey, u64)]) {
        for (function, count) in imported {
            self.submitted.get_or_create(&function.into()).inc_by(*count);
        }
    }

    /// A request was answered.
    pub(crate) fn count_request(&self, method: &Method, route: &str, status: u16) {
        // Only methods that HTTP itself knows: a client could invent any number of others.
        let known = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::HEAD, Method::OPTIONS, Method::PATCH];
        let method = if known.contains(method) { method.to_string() } else { "other".to_owned() };
        self.http_requests.get_or_create(&RequestLabels { method, route: route.to_owned(), status }).inc();
    }

    /// A request came.
    pub(crate) fn open_request(&self) -> OpenRequest {
        self.http_requests_open.inc();
        OpenRequest(self.http_requests_open.clone())
    }

    /// All of it as OpenMetrics text, with what stands in the store now.
    pub(crate) fn render(&self, functions: &[FunctionView], now: Timestamp) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        self.set_gauges(functions, now);
        let mut text = String::new();
        match encode(&mut text, &registry) {
            Ok(()) => text,
            Err(std::fmt::Error) => String::new(), // a String takes whatever is written
        }
    }

    /// The name of a rule, as long as there are few: a client could invent any number of them.
    fn rule_label(&self, name: &str) -> String {
        let mut seen = self.rules_seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = seen.contains(name) || (seen.len() < RULES_MAX && seen.insert(name.to_owned()));
        if is_known { name.to_owned() } else { "other".to_owned() }
    }

    fn count_checks(&self, check: &Check, reply: &LimitReply, when_allowed: &'static str) {
        for (rule, said) in check.rules().iter().zip(&reply.rules) {
            let verdict = match (said.ok, rule.is_shadow()) {
                (true, _) => when_allowed,
                (false, false) => "denied",
                (false, true) => "would_deny",
            };
            let rule = self.rule_label(rule.name().as_str());
            self.limit_checks.get_or_create(&RuleLabels { rule, verdict }).inc();
        }
    }

    fn set_gauges(&self, functions: &[FunctionView], now: Timestamp) {
        for gauges in [&self.backlog, &self.running, &self.parked, &self.dead, &self.healthy_workers] {
            gauges.clear(); // a function that was forgotten must not stand there for ever
        }
        self.oldest_queued_seconds.clear();
        self.streams.set(functions, now);
        for view in functions {
            let (labels, counts) = (FunctionLabels::from(&view.definition.key), &view.counts);
            let set = |gauges: &PerFunction<Gauge>, count: u64| {
                gauges.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
            };
            set(&self.backlog, counts.backlog());
            set(&self.running, counts.running);
            set(&self.parked, counts.parked);
            set(&self.dead, counts.dead);
            set(&self.healthy_workers, view.healthy_workers);
            let age = view.oldest_queued_at.map(|at| now.since(at)).unwrap_or_default();
            self.oldest_queued_seconds.get_or_create(&labels).set(age.as_secs_f64());
        }
    }
}

fn kind_label(kind: Option<PermitKind>) -> &'static str {
    kind.map_or("lock", PermitKind::as_str)
}

impl Observer for Metrics {
    fn submitted(&self, function: &FunctionKey) {
        self.submitted.get_or_create(&function.into()).inc();
    }

    fn ended(&self, ended: &Ended) {
        let FunctionLabels { scope, function } = (&ended.function).into();
        self.ended.get_or_create(&EndLabels { scope, function, state: ended.state.as_str() }).inc();
        self.duration_seconds.get_or_create(&(&ended.function).into()).observe(ended.took.as_secs_f64());
    }

    fn lost_lease(&self, why: LostLease) {
        self.lost_leases.get_or_create(&ReasonLabels { reason: why.as_str() }).inc();
    }

    fn reclaimed(&self, count: u64) {
        self.reclaims.inc_by(count);
    }

    fn retried(&self, function: &FunctionKey) {
        self.retries.get_or_create(&function.into()).inc();
    }

    fn lock_granted(&self, previous: Previous) {
        self.lock_grants.get_or_create(&PreviousLabels { previous: previous.as_str() }).inc();
    }

    fn permits_granted(&self, kind: PermitKind) {
        self.permit_grants.get_or_create(&KindLabels { kind: kind.as_str() }).inc();
    }

    fn lock_waited(&self, kind: Option<PermitKind>, for_long: Duration) {
        self.lock_wait_seconds.get_or_create(&KindLabels { kind: kind_label(kind) }).observe(for_long.as_secs_f64());
    }

    fn lock_held(&self, kind: Option<PermitKind>, for_long: Duration) {
        self.lock_hold_seconds.get_or_create(&KindLabels { kind: kind_label(kind) }).observe(for_long.as_secs_f64());
    }

    fn lock_lost(&self, why: LostLock) {
        self.locks_lost.get_or_create(&ReasonLabels { reason: why.as_str() }).inc();
    }

    fn old_attempts(&self, count: u64) {
        self.lock_attempts_of_old_workflows.inc_by(count);
    }

    fn limit_checked(&self, check: &Check, reply: &LimitReply) {
        self.count_checks(check, reply, "allowed");
    }

    fn limit_answered_here(&self, check: &Check, reply: &LimitReply, degraded: bool) {
        self.count_checks(check, reply, if degraded { "degraded" } else { "allowed" });
    }

    fn batch_ingested(&self, batcher: &BatcherName, reply: &IngestReply) {
        self.batches.ingested(batcher, reply);
    }

    fn batch_closed(&self, batcher: &BatcherName, batch: &ClaimedBatch) {
        self.batches.closed(batcher, batch.reason);
    }

    fn batch_late(&self, batcher: &BatcherName, late: Duration) {
        self.batches.late(batcher, late);
    }

    fn batch_reclaimed(&self, batcher: &BatcherName) {
        self.batches.reclaimed(batcher);
    }

    fn batch_attempted(&self, batcher: &BatcherName, label: &'static str) {
        self.batches.attempted(batcher, label);
    }

    fn batch_retried(&self, batcher: &BatcherName) {
        self.batches.retried(batcher);
    }

    fn batch_token_stale(&self, batcher: &BatcherName) {
        self.batches.token_stale(batcher);
    }

    fn forgot(&self, what: &Forgotten) {
        let dead_letters = what.dead_letters.len() as u64;
        for (kind, count) in [("dead_letter", dead_letters), ("audit", what.audits), ("outcome", what.outcomes), ("run", what.runs)] {
            if count > 0 {
                self.forgotten.get_or_create(&KindLabels { kind }).inc_by(count);
            }
        }
    }

    fn batch_dead_forgotten(&self, _batcher: &BatcherName, count: u64) {
        self.forgotten.get_or_create(&KindLabels { kind: "batch_dead_letter" }).inc_by(count);
    }

    fn batch_dead(&self, batcher: &BatcherName, reason: &str) {
        self.batches.dead(batcher, reason);
    }

    fn store_error(&self, error: &StoreError) {
        self.store_errors.get_or_create(&ReasonLabels { reason: towpath::store_error_code(error) }).inc();
    }
}

#[cfg(test)]
mod tests {
    use towpath_core::call::CallState;
    use towpath_core::inspect::{FunctionCounts, StreamView};
    use towpath_core::names::{CallId, FunctionName};
    use towpath_core::worker::FunctionDefinition;

    use super::*;

    fn key() -> FunctionKey {
        FunctionKey::global(FunctionName::new("add \"x\"\n".trim()).unwrap())
    }

    fn view(queued: u64) -> FunctionView {
        FunctionView {
            definition: FunctionDefinition::new(key()),
            counts: FunctionCounts { queued, running: 2, ..FunctionCounts::default() },
            workers: 1,
            healthy_workers: 1,
            oldest_queued_at: Some(Timestamp::from_millis(500)),
            stream: Some(StreamView {
                length: 9,
                pending: 2,
                oldest_at: Some(Timestamp::from_millis(0)),
                oldest_pending_at: Some(Timestamp::from_millis(1_000)),
                groups: Vec::new(),
            }),
            problems: Vec::new(),
        }
    }

    #[test]
    fn what_happened_and_what_stands_are_both_shown() {
        let metrics = Metrics::new();
        metrics.submitted(&key());
        let ended =
            Ended { call_id: CallId::new("c").unwrap(), function: key(), state: CallState::Completed, took: Duration::from_millis(20) };
        metrics.ended(&ended);
        metrics.lost_lease(LostLease::Replaced);
        metrics.reclaimed(3);
        metrics.count_request(&Method::GET, "/v1/calls/{call_id}", 200);
        let text = metrics.render(&[view(7)], Timestamp::from_millis(2_000));
        let labels = r#"scope="__global__",function="add \"x\"""#;
        for line in [
            &format!("towpath_backlog{{{labels}}} 7"),
            &format!("towpath_running{{{labels}}} 2"),
            &format!("towpath_oldest_queued_seconds{{{labels}}} 1.5"),
            &format!("towpath_legacy_stream_length{{{labels}}} 9"),
            &format!("towpath_legacy_stream_pending{{{labels}}} 2"),
            &format!("towpath_legacy_stream_oldest_seconds{{{labels}}} 2.0"),
            &format!("towpath_legacy_stream_oldest_pending_seconds{{{labels}}} 1.0"),
            &format!("towpath_calls_submitted_total{{{labels}}} 1"),
            &format!("towpath_calls_ended_total{{{labels},state=\"completed\"}} 1"),
            &format!("towpath_call_duration_seconds_bucket{{le=\"0.064\",{labels}}} 1"),
            "towpath_lost_leases_total{reason=\"replaced\"} 1",
            "towpath_reclaims_total 3",
            "towpath_http_requests_total{method=\"GET\",route=\"/v1/calls/{call_id}\",status=\"200\"} 1",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_forgotten_function_is_no_longer_shown() {
        let metrics = Metrics::new();
        let now = Timestamp::from_millis(2_000);
        assert!(metrics.render(&[view(7)], now).contains("towpath_backlog{"));
        assert!(!metrics.render(&[], now).contains("towpath_backlog{"));
    }

    #[test]
    fn checks_are_counted_by_rule_and_invented_rules_share_one_label() {
        let metrics = Metrics::new();
        for number in 0..RULES_MAX + 5 {
            let rule = format!("r{number}=gcra:1/1s").parse().unwrap();
            let scope = towpath_core::names::LimitScope::new("acme").unwrap();
            let check = Check::take(scope, towpath_core::limit::Rules::one(rule), 1, Duration::ZERO).unwrap();
            let (_, reply) = towpath_core::limit::take(&check, &[None], towpath_core::time::Micros::new(0));
            metrics.limit_checked(&check, &reply);
            if number == 0 {
                metrics.limit_answered_here(&check, &reply, true);
            }
        }
        let text = metrics.render(&[], Timestamp::from_millis(0));
        assert!(text.contains(r#"towpath_limit_checks_total{rule="r0",verdict="allowed"} 1"#), "{text}");
        assert!(text.contains(r#"towpath_limit_checks_total{rule="r0",verdict="degraded"} 1"#), "{text}");
        assert!(text.contains(r#"towpath_limit_checks_total{rule="other",verdict="allowed"} 5"#), "{text}");
    }

    #[test]
    fn invented_methods_share_one_label() {
        let metrics = Metrics::new();
        for name in ["ABC", "DEF"] {
            metrics.count_request(&Method::from_bytes(name.as_bytes()).unwrap(), "none", 405);
        }
        let text = metrics.render(&[], Timestamp::from_millis(0));
        assert!(text.contains(r#"towpath_http_requests_total{method="other",route="none",status="405"} 2"#), "{text}");
    }
}
