//! What legacy peers leave behind in months, and what they put into a stream at once, costs Towpath and Redis a bounded effort, and runs nothing again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use towpath::{CallError, Towpath};
use towpath_redis::Timing;
use towpath_redis_testing::until;

use crate::rig::{ADD, Add, GROUP, Ours, Rig, SOON, STREAM, Sum, TIMING, let_pass, own, reply_list};

const MINUTE_MS: u64 = 60_000;
/// Longer than a few ticks, than an answer may take after its acknowledgement, and than a silent worker is believed to live.
const LONG: Duration = Duration::from_secs(5);
/// Adds entries: from which one on (ms, or `*`), how many, how many bytes of parameters each.
const ADD_ENTRIES: &str = "for i = 1, tonumber(ARGV[2]) do
    local place = ARGV[1] == '*' and '*' or string.format('%.0f-0', tonumber(ARGV[1]) + i)
    local params = '{\"a\":2,\"b\":40,\"c\":\"' .. string.rep('x', tonumber(ARGV[3])) .. '\"}'
    redis.call('XADD', KEYS[1], place, 'callId', 'many-' .. i, 'params', params, 'responseChannel', 'function:response:many-' .. i)
end";
/// A consumer reads entries, and acknowledges them if the last word says so.
const READ: &str = "local read = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', 10000, 'STREAMS', KEYS[1], '>')
    for _, entry in ipairs(read and read[1][2] or {}) do
        if ARGV[3] == 'acknowledge' then redis.call('XACK', KEYS[1], ARGV[1], entry[1]) end
    end
    return read and #read[1][2] or 0";

fn add_entries(rig: &Rig, from: &str, count: usize, bytes: usize) {
    rig.cli(&["EVAL", ADD_ENTRIES, "1", STREAM, from, &count.to_string(), &bytes.to_string()]);
}

fn read(rig: &Rig, consumer: &str, what: &str) -> String {
    rig.cli(&["EVAL", READ, "1", STREAM, GROUP, consumer, what])
}

fn call(towpath: &Towpath) -> JoinHandle<Result<Sum, CallError>> {
    tokio::spawn(towpath.call(ADD, &Add { a: 2, b: 40 }).timeout(Duration::from_secs(120)).into_future())
}

/// Registers a legacy worker by hand, which says nothing else.
fn seems_to_serve(rig: &Rig, worker: &str, heartbeat: u64) {
    rig.cli(&["HSET", &format!("function:meta:{worker}:{ADD}"), "executionId", "__global__", "lastHeartbeat", &heartbeat.to_string()]);
    rig.cli(&["SADD", &format!("function:{ADD}"), worker]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_is_not_given_to_a_legacy_worker() {
    for watermark in [None, Some(9_000 * MINUTE_MS)] {
        let rig = Rig::start();
        let now = rig.now_ms();
        // Legacy peers never remove the entries of finished calls. The last one has a caller that waits.
        add_entries(&rig, &(now - 8_000 * MINUTE_MS).to_string(), 500, 1);
        add_entries(&rig, &(now - 10 * MINUTE_MS).to_string(), 500, 1);
        if let Some(ago) = watermark {
            rig.cli(&["HSET", &own("legacy"), "watermark", &format!("{}-0", now - ago)]);
        }
        rig.legacy_entry("waits", &[]);
        let towpath = rig.towpath().await;
        rig.define(&towpath).await;
        let mut legacy = rig.legacy_worker(&[]).await;
        assert_eq!(rig.legacy_answer("waits")["data"]["sum"], 42);
        legacy.order("leave").await;
        assert_eq!(legacy.took().await, ["waits"], "watermark {watermark:?} ms ago");
    }
}

/// An entry of the past with a timeout of its own.
fn entry_ago(rig: &Rig, id: &str, ago_ms: u64, timeout_ms: u64) {
    let place = format!("{}-0", rig.now_ms() - ago_ms);
    let (list, timeout) = (reply_list(id), timeout_ms.to_string());
    rig.cli(&["XADD", STREAM, &place, "callId", id, "params", "{\"a\":2,\"b\":40}", "responseChannel", &list, "timeout", &timeout]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_entry_is_run_while_its_own_timeout_runs_and_removed_when_that_is_over() {
    for watermark in [None, Some(100 * MINUTE_MS)] {
        let rig = Rig::start();
        // An hour of history whose callers have left, and among it one that waits for two hours; the last one is answered already.
        entry_ago(&rig, "over", 90 * MINUTE_MS, 10 * MINUTE_MS);
        entry_ago(&rig, "waits", 60 * MINUTE_MS, 120 * MINUTE_MS);
        add_entries(&rig, &(rig.now_ms() - 50 * MINUTE_MS).to_string(), 300, 1);
        entry_ago(&rig, "answered", 8 * MINUTE_MS, 120 * MINUTE_MS);
        rig.cli(&["SET", "function:response:sent:answered", "1"]);
        entry_ago(&rig, "waits-too", 7 * MINUTE_MS, 120 * MINUTE_MS);
        if let Some(ago) = watermark {
            rig.cli(&["HSET", &own("legacy"), "watermark", &format!("{}-0", rig.now_ms() - ago)]);
        }
        let towpath = rig.towpath().await;
        let ours = Ours::new();
        let runs = ours.runs.clone();
        let _worker = ours.start(&towpath).await;
        assert_eq!(rig.legacy_answer("waits")["data"]["sum"], 42, "watermark {watermark:?}");
        assert_eq!(rig.legacy_answer("waits-too")["data"]["sum"], 42);
        until("the rest is removed", SOON, || rig.cli(&["XLEN", STREAM]) == "0");
        assert_eq!(runs.ids(), ["waits", "waits-too"], "each once, and nothing else");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_too_large_is_answered_with_an_error_and_never_delivered() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    const ADD_LARGE: &str = "local params = '{\"c\":\"' .. string.rep('x', 1100000) .. '\"}'
        redis.call('XADD', KEYS[1], '*', 'callId', 'large', 'params', params, 'responseChannel', 'function:response:large')";
    rig.cli(&["EVAL", ADD_LARGE, "1", STREAM]);
    let answer = rig.legacy_answer("large");
    assert_eq!(answer["success"], false, "{answer}");
    assert!(answer["error"].as_str().is_some_and(|error| error.contains("max_payload_bytes") && error.contains("1048576")), "{answer}");
    rig.legacy_entry("small", &[]);
    assert_eq!(rig.legacy_answer("small")["data"]["sum"], 42);
    assert_eq!(runs.ids(), ["small"]);
    let view = towpath.store().call(&"large".parse().expect("an id")).await.expect("the server is there").expect("its outcome is kept");
    assert_eq!(view.call.state.as_str(), "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_not_set_backwards_under_a_worker_that_reads_from_it() {
    let rig = Rig::start();
    let old = rig.now_ms() - 20 * MINUTE_MS;
    rig.cli(&["HSET", &own("legacy"), "watermark", &format!("{old}-0")]);
    add_entries(&rig, &old.to_string(), 1_500, 1);
    rig.cli(&["XGROUP", "CREATE", STREAM, GROUP, "$"]);
    let begins = rig.last_delivered();
    let towpath = rig.towpath().await;
    rig.define(&towpath).await;
    let mut legacy = rig.legacy_worker(&[]).await;
    until("the stream is looked at", SOON, || rig.cli(&["HGET", &own("legacy"), "watermark"]) == begins);
    rig.legacy_entry("new", &[]);
    assert_eq!(rig.legacy_answer("new")["data"]["sum"], 42);
    legacy.order("leave").await;
    assert_eq!(legacy.took().await, ["new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_a_new_group_begins_behind_are_imported_however_many() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    rig.define(&towpath).await;
    add_entries(&rig, "*", 40, 1);
    rig.cli(&["XGROUP", "DESTROY", STREAM, GROUP]);
    rig.cli(&["XGROUP", "CREATE", STREAM, GROUP, "$"]);
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    runs.reach(40).await;
    rig.legacy_answer("many-40");
    until("the ranges are dealt with", SOON, || rig.cli(&["HEXISTS", &own("legacy"), "missed"]) == "0");
    let mut ids = runs.ids();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), runs.ids().len()), (40, 40), "each ran once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_beyond_the_pending_entries_that_are_looked_at_is_left_to_its_worker() {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&["--hold-all"]).await;
    add_entries(&rig, "*", 1_100, 1);
    for _ in 0..1_100 {
        legacy.hear("took").await;
    }
    let towpath = rig.towpath().await;
    let calling = call(&towpath);
    let call_id = legacy.hear("took").await["fields"]["callId"].take();
    let call_id = call_id.as_str().expect("an id");
    let_pass(LONG).await;
    rig.cli(&["LPUSH", &reply_list(call_id), "{\"success\":true,\"data\":{\"sum\":42}}"]);
    assert_eq!(calling.await.expect("it does not panic"), Ok(Sum { sum: 42 }));
    legacy.order("leave").await;
    assert_eq!(legacy.took().await, Vec::<String>::new(), "its worker holds it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_hundred_calls_are_exported_at_once_and_the_others_follow() {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath().await;
    let calls: Vec<_> = (0..400).map(|_| call(&towpath)).collect();
    legacy.hear("took").await;
    until("all wait", SOON, || rig.waiting() == 399);
    let_pass(Duration::from_secs(1)).await;
    let exported: usize = rig.cli(&["ZCARD", &own("exported")]).parse().expect("a number");
    assert!((200..300).contains(&exported), "{exported} of 400 are in the stream, too");
    // Towpath workers run what is not exported, and import what is.
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    runs.reach(399).await;
    legacy.order("answer").await;
    for call in calls {
        assert_eq!(call.await.expect("it does not panic"), Ok(Sum { sum: 42 }));
    }
    assert_eq!(runs.ids().len(), 399);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_not_exported_while_memory_is_full() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let gate = Arc::new(Semaphore::new(0));
    let ours = Ours::new().behind(&gate).concurrency(1);
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let busy = call(&towpath);
    runs.reach(1).await;
    seems_to_serve(&rig, "worker-1", rig.now_ms());
    until("the legacy worker is seen", SOON, || !rig.cli(&["ZSCORE", &own("workers"), "legacy:worker-1"]).is_empty());
    let calls: Vec<_> = (0..5).map(|_| call(&towpath)).collect();
    until("they wait", SOON, || rig.waiting() == 5);
    rig.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let_pass(Duration::from_millis(2_500)).await;
    assert_eq!(rig.cli(&["XLEN", STREAM]), "0", "an exported call stands in Redis twice");
    rig.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    until("they are exported", SOON, || rig.cli(&["XLEN", STREAM]) == "5");
    calls.iter().chain([&busy]).for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_entries_are_not_read_only_to_look_at_their_ids() {
    let rig = Rig::start();
    // Reading a hundred of them takes longer, also on a busy machine.
    rig.cli(&["CONFIG", "SET", "slowlog-log-slower-than", "300000"]);
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath_with(Timing { abandoned_after: Duration::from_secs(600), ..TIMING }).await;
    rig.define(&towpath).await;
    let calling = call(&towpath);
    legacy.hear("took").await;
    // Held by a worker that lives, and waiting.
    add_entries(&rig, "*", 100, 1_000_000);
    read(&rig, "worker-1794767286013-elno0oaxhp6", "keep");
    add_entries(&rig, "*", 100, 1_000_000);
    rig.cli(&["SLOWLOG", "RESET"]);
    for _ in 0..5 {
        towpath.store().functions().await.expect("the server is there");
        let_pass(Duration::from_millis(300)).await;
    }
    let slow = rig.cli(&["SLOWLOG", "GET", "100"]);
    assert_eq!(slow.lines().filter(|line| line.eq_ignore_ascii_case("evalsha")).count(), 0, "{}", &slow[..slow.len().min(500)]);
    let function = &towpath.store().functions().await.expect("the server is there")[0];
    assert_eq!((function.counts.queued, function.counts.running), (100, 101));
    legacy.order("answer").await;
    assert_eq!(calling.await.expect("it does not panic"), Ok(Sum { sum: 42 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlines_of_many_exported_calls_need_one_look_at_the_stream() {
    let rig = Rig::start();
    let _legacy = rig.legacy_worker(&["--hold", "--heartbeat-s", "60"]).await;
    // No tick looks at the stream.
    let towpath = rig.towpath_with(Timing { legacy_tick: Duration::from_secs(3_600), ..TIMING }).await;
    let call = || tokio::spawn(towpath.call::<Sum, _>(ADD, &Add { a: 2, b: 40 }).timeout(Duration::from_secs(2)).into_future());
    let calls: Vec<_> = (0..40).map(|_| call()).collect();
    until("they are exported", SOON, || rig.cli(&["XLEN", STREAM]) == "40");
    // All of them are due when the server answers again.
    rig.cli(&["CLIENT", "PAUSE", "2500", "ALL"]);
    let looks = rig.times_run("xinfo|groups");
    for call in calls {
        call.await.expect("it does not panic").expect_err("it times out");
    }
    let looks = rig.times_run("xinfo|groups") - looks;
    assert!(looks < 15, "{looks} looks at the stream for 40 calls");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_looks_at_some_of_the_calls_that_legacy_workers_run() {
    const NOTES: &str = "local record = redis.call('HGET', KEYS[1], ARGV[1])
        local entry = redis.call('HGET', KEYS[2], 'r:' .. ARGV[1])
        for i = 1, 5000 do
            redis.call('HSET', KEYS[1], 'copy-' .. i, record)
            redis.call('HSET', KEYS[2], 'r:copy-' .. i, entry)
        end";
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath().await;
    let calling = call(&towpath);
    let call_id = legacy.hear("took").await["fields"]["callId"].take();
    let call_id = call_id.as_str().expect("an id");
    until("it runs", SOON, || rig.cli(&["HEXISTS", &own("legacy"), &format!("r:{call_id}")]) == "1");
    rig.cli(&["EVAL", NOTES, "2", &own("calls"), &own("legacy"), call_id]);
    let (reads, ticks) = (rig.times_run("hget"), rig.times_run("srandmember"));
    until("there are some ticks", SOON, || rig.times_run("srandmember") >= ticks + 10);
    let per_tick = (rig.times_run("hget") - reads) / (rig.times_run("srandmember") - ticks);
    assert!(per_tick < 1_000, "{per_tick} records are read by one tick");
    calling.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_are_asked_for_only_when_an_entry_idles_for_long() {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath_with(Timing { abandoned_after: Duration::from_secs(600), ..TIMING }).await;
    let calling = call(&towpath);
    legacy.hear("took").await;
    let_pass(Duration::from_secs(1)).await;
    assert_eq!(rig.times_run("xinfo|consumers"), 0);
    legacy.order("answer").await;
    assert_eq!(calling.await.expect("it does not panic"), Ok(Sum { sum: 42 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_legacy_workers_finish_while_a_function_is_registered_do_not_run_again() {
    let rig = Rig::start();
    rig.cli(&["XGROUP", "CREATE", STREAM, GROUP, "$", "MKSTREAM"]);
    // It looks at the stream much later.
    let first = rig.towpath_with(Timing { legacy_tick: Duration::from_secs(3_600), ..TIMING }).await;
    rig.define(&first).await;
    add_entries(&rig, "*", 20, 1);
    assert_eq!(read(&rig, "consumer-1", "acknowledge"), "20");
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    rig.legacy_entry("last", &[]);
    rig.legacy_answer("last");
    let_pass(Duration::from_secs(1)).await;
    assert_eq!(runs.ids(), ["last"]);
}
