//! The doctor on real servers: what it finds when one is well, when it is set up to lose calls, and when it may hardly look.

use std::sync::Arc;
use std::time::Duration;

use towpath_conformance::words::{new_call, offer, worker_id};
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::store::{CallStore, Durability, RegistryStore};
use towpath_core::time::Timestamp;
use towpath_core::worker::RegisterWorker;
use towpath_redis::doctor::{Check, Demand, Examination, Verdict, admit, examine};
use towpath_redis::{RedisOptions, RedisStore, Unfit, acl_options, acl_rule};
use towpath_redis_testing::{ClusterRig, RedisServer, SentinelRig, ServerBuilder, until};

const PATIENCE: Duration = Duration::from_secs(30);

/// A server that nothing is wrong with.
fn well() -> ServerBuilder {
    RedisServer::build().append_only("everysec").line("maxmemory 100mb")
}

/// A clock that agrees with the server's.
fn clock_of(server: &RedisServer) -> Arc<dyn Clock> {
    let time = server.cli(&["time"]);
    let seconds: i64 = time.lines().next().and_then(|line| line.trim().parse().ok()).expect("TIME begins with the seconds");
    Arc::new(VirtualClock::starting_at(Timestamp::from_millis(seconds * 1_000 + 500)))
}

async fn examined(server: &RedisServer, change: impl FnOnce(&mut RedisOptions)) -> Examination {
    let mut options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    change(&mut options);
    examine(&options, clock_of(server)).await
}

fn found<'a>(examination: &'a Examination, name: &str) -> &'a Check {
    let check = examination.checks.iter().find(|check| check.name == name);
    check.unwrap_or_else(|| panic!("no check {name} in {:#?}", examination.checks))
}

/// What is not as it should be, but for how busy this machine is.
fn troubles(examination: &Examination) -> Vec<(&str, Verdict)> {
    let of_the_machine = ["latency", "clock", "slow commands", "machine"];
    let checks = examination.checks.iter().filter(|check| check.verdict != Verdict::Ok && !of_the_machine.contains(&check.name));
    checks.map(|check| (check.name, check.verdict)).collect()
}

#[tokio::test]
async fn a_server_that_is_well_is_found_so_and_left_as_it_was() {
    let server = well().start();
    let examination = examined(&server, |_| ()).await;
    assert_eq!(troubles(&examination), [], "{examination:#?}");
    assert_eq!(examination.durability, Some(Durability::Everysec));
    assert_eq!(server.cli(&["dbsize"]).trim(), "0", "the doctor leaves nothing behind");
}

#[tokio::test]
async fn settings_that_lose_calls_or_cut_connections_are_each_named() {
    let bad = ["maxmemory-policy allkeys-lru", "timeout 3", "tcp-keepalive 0"];
    let server = bad.iter().fold(RedisServer::build(), |server, line| server.line(*line)).start();
    let examination = examined(&server, |options| options.durability = Some(Durability::Always)).await;
    assert_eq!(examination.durability, None);
    let expected = [
        ("durability", Verdict::Fail),
        ("eviction", Verdict::Fail),
        ("memory", Verdict::Warn),
        ("timeout", Verdict::Warn),
        ("tcp-keepalive", Verdict::Warn),
    ];
    assert_eq!(troubles(&examination), expected);
    assert!(found(&examination, "eviction").says.contains("accepted calls are thrown away"));
    assert!(found(&examination, "durability").advice.as_ref().unwrap().contains("appendfsync always"));
}

#[tokio::test]
async fn memory_that_is_nearly_full_is_a_failure() {
    let server = well().start();
    let info = server.cli(&["info", "memory"]);
    let used = info.lines().find_map(|line| line.trim().strip_prefix("used_memory:")?.parse::<u64>().ok()).expect("INFO says it");
    server.cli(&["config", "set", "maxmemory", &(used + 1_000).to_string()]);
    let examination = examined(&server, |_| ()).await;
    assert_eq!(found(&examination, "memory").verdict, Verdict::Fail);
}

#[tokio::test]
async fn a_server_whose_clock_is_off_is_told() {
    let server = well().start();
    let options = RedisOptions::parse(&server.url()).unwrap();
    let an_hour_ago = clock_of(&server).now().as_millis() - 3_600_000;
    let examination = examine(&options, Arc::new(VirtualClock::starting_at(Timestamp::from_millis(an_hour_ago)))).await;
    let clock = found(&examination, "clock");
    assert_eq!(clock.verdict, Verdict::Warn);
    assert!(clock.says.contains("ahead"), "{}", clock.says);
}

#[tokio::test]
async fn replicas_count_for_what_they_are_asked_to_confirm() {
    let primary = well().start();
    let replica = well().line(format!("replicaof 127.0.0.1 {}", primary.port())).start();
    until("the replica is in step", PATIENCE, || primary.cli(&["info", "replication"]).contains("state=online"));
    let replicated = |wanted| {
        move |options: &mut RedisOptions| {
            options.durability = Some(Durability::Replicated);
            options.replicas = wanted;
        }
    };
    let enough = examined(&primary, replicated(1)).await;
    assert_eq!((troubles(&enough), enough.durability), (vec![], Some(Durability::Replicated)));
    let few = examined(&primary, replicated(2)).await;
    assert_eq!(troubles(&few), [("durability", Verdict::Fail), ("replicas", Verdict::Fail)]);
    let on_replica = examined(&replica, |_| ()).await;
    assert_eq!(found(&on_replica, "role").verdict, Verdict::Fail);
    primary.cli(&["config", "set", "appendonly", "no"]);
    let would_be_emptied = examined(&primary, |_| ()).await;
    assert_eq!(found(&would_be_emptied, "replicas").verdict, Verdict::Fail);
}

#[tokio::test]
async fn only_what_can_work_is_admitted_and_the_rest_says_what_to_change() {
    let server = RedisServer::build().line("maxmemory-policy allkeys-lru").start();
    let options = RedisOptions::parse(&server.url()).unwrap();
    let warned = async |options: &RedisOptions, demand| {
        let checks = admit(options, demand).await.unwrap();
        checks.iter().map(|check| check.name).collect::<Vec<_>>()
    };
    assert_eq!(warned(&options, Demand::Works).await, ["durability", "eviction"]);
    let refusal_of = async |options: RedisOptions, demand| match admit(&options, demand).await {
        Err(Unfit::Refused(says)) => says,
        other => panic!("{other:?}"),
    };
    let says = refusal_of(options.clone(), Demand::Keeps).await;
    assert!(says.contains("appendonly yes") && says.contains("noeviction"), "{says}");
    let memory = RedisOptions { durability: Some(Durability::Memory), ..options.clone() };
    assert_eq!(warned(&memory, Demand::Keeps).await, ["durability", "eviction", "memory"]);
    let refusal = async |options: RedisOptions| refusal_of(options, Demand::Works).await;
    let more = RedisOptions { durability: Some(Durability::Everysec), ..options.clone() };
    assert!(refusal(more).await.contains("appendonly yes"));
    let replica = RedisServer::build().line(format!("replicaof 127.0.0.1 {}", server.port())).start();
    assert!(refusal(RedisOptions::parse(&replica.url()).unwrap()).await.contains("replica"));
    drop(server);
    assert!(matches!(admit(&options, Demand::Keeps).await, Err(Unfit::Store(_))), "a server that is away is no wrong setting");
}

#[tokio::test]
async fn a_server_that_refuses_us_is_told_from_one_that_is_away() {
    let server = well().password("open-sesame").start();
    let wrong = examined(&server, |options| options.password = Some("hunter2".to_owned())).await;
    let connection = found(&wrong, "connection");
    assert_eq!(connection.verdict, Verdict::Fail);
    assert!(connection.advice.as_ref().unwrap().contains("password") && !connection.says.contains("hunter2"), "{connection:?}");
    let right = examined(&server, |options| options.password = Some("open-sesame".to_owned())).await;
    assert_eq!(troubles(&right), []);
    let options = RedisOptions::parse(&server.url()).unwrap();
    let clock = clock_of(&server);
    drop(server);
    let away = examine(&options, clock).await;
    assert!(found(&away, "connection").advice.as_ref().unwrap().contains("start it"), "{away:?}");
    assert_eq!(away.checks.len(), 1, "there is nothing else to look at");
}

/// The rule as a line of redis.conf knows it: without `ACL SETUSER name`.
fn rules(prefix: &str) -> String {
    let rule = acl_rule("app", "secret", prefix);
    rule.strip_prefix("ACL SETUSER app ").expect("it makes the user").to_owned()
}

fn as_app(options: &mut RedisOptions) {
    options.username = Some("app".to_owned());
    options.password = Some("secret".to_owned());
}

#[tokio::test]
async fn the_printed_user_has_every_right_that_is_needed_and_no_other() {
    let server = well().start();
    let rule = acl_rule("app", "secret", "mine");
    assert_eq!(server.cli(&rule.split(' ').collect::<Vec<_>>()).trim(), "OK", "the line can be sent as it is");
    let as_app_with_prefix = |options: &mut RedisOptions| {
        as_app(options);
        options.prefix = "mine".to_owned();
    };
    assert_eq!(troubles(&examined(&server, as_app_with_prefix).await), []);
    let dry = |command: &str| {
        let words: Vec<&str> = ["acl", "dryrun", "app"].into_iter().chain(command.split(' ')).collect();
        server.cli(&words).trim().to_owned()
    };
    assert_eq!(dry("get mine:x"), "OK");
    for forbidden in ["flushall", "keys *", "config set save 1", "get others", "xgroup destroy function:a b", "eval return 0", "acl list"] {
        assert_ne!(dry(forbidden), "OK", "{forbidden}");
    }
}

#[tokio::test]
async fn rights_that_are_missing_are_named_with_what_they_are_for() {
    let lacking = format!("{} -xadd -publish resetkeys ~function:*", rules("towpath"));
    let deaf = format!("{} resetchannels", rules("towpath"));
    let server = well().user("app", &lacking).user("deaf", &deaf).start();
    let examination = examined(&server, as_app).await;
    let (rights, keys) = (found(&examination, "rights"), found(&examination, "keys"));
    assert_eq!((rights.verdict, keys.verdict), (Verdict::Fail, Verdict::Fail));
    assert!(rights.says.contains("user app") && rights.says.contains("xadd (calls as they come in)"), "{}", rights.says);
    assert!(keys.says.contains("towpath:") && !keys.says.contains("the channel"), "{}", keys.says);
    let as_deaf = |options: &mut RedisOptions| {
        as_app(options);
        options.username = Some("deaf".to_owned());
    };
    let examination = examined(&server, as_deaf).await;
    assert!(found(&examination, "keys").says.contains("the channel"), "{:?}", found(&examination, "keys"));
}

#[tokio::test]
async fn a_key_of_another_program_is_left_alone_whatever_its_name() {
    let server = well().start();
    let names = ["n8n-lock-towpath-doctor", "n8n-ratelimit-towpath-doctor-0", "queue:towpath-doctor-nobody", "towpath:probe:{doctor}"];
    for name in names {
        server.cli(&["SET", name, "1"]);
    }
    examined(&server, |_| {}).await;
    for name in names {
        assert_eq!(server.cli(&["GET", name]).trim(), "1", "{name}");
    }
}

#[tokio::test]
async fn keys_of_locks_and_of_batches_that_a_user_may_not_reach_are_named() {
    const NAME: &str = "keys of locks and batches";
    let without = |pattern: &str| {
        assert!(rules("towpath").contains(pattern), "{pattern}");
        rules("towpath").replace(pattern, "")
    };
    let server = well().user("app", &without("~n8n-lock-* ")).user("gatherer", &without("~batch:* ")).start();
    let of_locks = examined(&server, as_app).await;
    assert_eq!(troubles(&of_locks), [(NAME, Verdict::Fail)]);
    assert!(found(&of_locks, NAME).says.contains("n8n-lock-* of locks"), "{}", found(&of_locks, NAME).says);
    let of_batches = examined(&server, |options| {
        as_app(options);
        options.username = Some("gatherer".to_owned());
    })
    .await;
    assert_eq!(troubles(&of_batches), [(NAME, Verdict::Fail)]);
    let says = &found(&of_batches, NAME).says;
    assert!(says.contains("batch:* of batches") && !says.contains("locks,"), "{says}");
    // A server without locks and batches works all the same, and is warned of it.
    let mut options = RedisOptions::parse(&server.url()).unwrap();
    as_app(&mut options);
    assert_eq!(admit(&options, Demand::Keeps).await.unwrap().iter().map(|check| check.name).collect::<Vec<_>>(), [NAME]);
}

#[tokio::test]
async fn the_size_of_our_keys_is_told_by_what_they_are_for() {
    let server = well().user("app", &rules("towpath")).start();
    let store = at_work(&server).await;
    store.submit(new_call("c-1", "f")).await.unwrap();
    server.cli(&["set", "n8n-lock-excel", "1"]);
    server.cli(&["rpush", "queue:batch:anna", "{}"]);
    let examination = examined(&server, |_| ()).await;
    let says = &found(&examination, "size").says;
    for part in ["calls ", "locks ", "batches ", "in 1 key(s)", " KiB in "] {
        assert!(says.contains(part), "{part} in {says}");
    }
    let examination = examined(&server, as_app).await;
    assert!(found(&examination, "size").says.contains("must not go through all keys"));
}

#[tokio::test]
async fn what_may_not_be_looked_at_is_a_warning_and_no_crash() {
    let half_blind = format!("{} -config", rules("towpath"));
    let blind = format!("{half_blind} -info");
    let server = well().user("app", &half_blind).user("blind", &blind).start();
    let examination = examined(&server, as_app).await;
    let expected = [
        ("durability", Verdict::Warn),
        ("timeout", Verdict::Unknown),
        ("tcp-keepalive", Verdict::Unknown),
        ("client memory", Verdict::Unknown),
    ];
    assert_eq!(troubles(&examination), expected);
    assert_eq!(examination.durability, Some(Durability::Everysec), "the least that an append-only file can mean");
    let as_blind = |options: &mut RedisOptions| {
        as_app(options);
        options.username = Some("blind".to_owned());
    };
    let examination = examined(&server, as_blind).await;
    assert_eq!(found(&examination, "version").verdict, Verdict::Unknown);
    assert_eq!(found(&examination, "eviction").verdict, Verdict::Unknown);
    assert_eq!(found(&examination, "scripts").verdict, Verdict::Ok, "the rest is looked at");
}

#[tokio::test]
async fn ghosts_lost_bodies_and_missing_groups_are_found_in_functions_that_are_ours() {
    let server = well().start();
    let now = clock_of(&server).now().as_millis();
    server.cli(&["eval", "redis.call('SADD', 'towpath:functions', '__global__\\nadd', '__global__\\nlost')", "0"]);
    // Three workers: one alive, one silent for a minute, one whose record has expired. And one of a function that is not ours.
    server.cli(&["sadd", "function:add", "alive", "silent", "gone"]);
    server.cli(&["sadd", "function:others", "nobody"]);
    server.cli(&["hset", "function:meta:alive:add", "lastHeartbeat", &now.to_string()]);
    server.cli(&["hset", "function:meta:silent:add", "lastHeartbeat", &(now - 60_000).to_string()]);
    let stream = "function:stream:__global__:add";
    server.cli(&["xgroup", "create", stream, "group:add", "0", "mkstream"]);
    for id in ["1-1", "1-2"] {
        server.cli(&["xadd", stream, id, "callId", "x"]);
    }
    server.cli(&["xreadgroup", "group", "group:add", "silent", "streams", stream, ">"]);
    server.cli(&["xclaim", stream, "group:add", "silent", "0", "1-1", "idle", "300000", "justid"]);
    server.cli(&["xdel", stream, "1-2"]);
    server.cli(&["xadd", "function:stream:__global__:lost", "1-1", "callId", "y"]);

    let examination = examined(&server, |_| ()).await;
    let says = |name| found(&examination, name).says.clone();
    assert_eq!(troubles(&examination), ["registry", "old peers", "groups", "deliveries", "bodies"].map(|name| (name, Verdict::Warn)));
    assert!(says("registry").contains("2 worker(s)"), "{}", says("registry"));
    assert!(says("registry").contains("silent (add)") && says("registry").contains("gone (add)"), "{}", says("registry"));
    assert!(says("groups").contains("lost"), "{}", says("groups"));
    assert!(says("deliveries").contains("2 under way") && says("deliveries").contains("300 s"), "{}", says("deliveries"));
    assert!(says("bodies").contains("1-2"), "{}", says("bodies"));
}

#[tokio::test]
async fn workers_that_know_nothing_of_us_are_told_from_ours() {
    let server = well().start();
    let now = clock_of(&server).now().as_millis().to_string();
    server.cli(&["eval", "redis.call('SADD', 'towpath:functions', '__global__\\nadd')", "0"]);
    server.cli(&["sadd", "function:add", "ours"]);
    server.cli(&["hset", "function:meta:ours:add", "lastHeartbeat", &now, "proto", "1"]);
    assert_eq!(troubles(&examined(&server, |_| ()).await), []);
    server.cli(&["sadd", "function:add", "worker-1-elno"]);
    server.cli(&["hset", "function:meta:worker-1-elno:add", "lastHeartbeat", &now]);
    let examination = examined(&server, |_| ()).await;
    assert_eq!(troubles(&examination), [("old peers", Verdict::Warn)]);
    assert!(found(&examination, "old peers").says.contains("1 worker(s) know nothing of Towpath: worker-1-elno (add)"));
}

#[tokio::test]
async fn a_server_that_hangs_up_on_greedy_clients_is_told() {
    let server = well().start();
    let set = |name: &str, value: &str| server.cli(&["config", "set", name, value]);
    for (name, bad, good) in [
        ("maxmemory-clients", "10mb", "0"),
        ("client-output-buffer-limit", "normal 1mb 0 0", "normal 0 0 0"),
        ("client-output-buffer-limit", "pubsub 10kb 0 0", "pubsub 32mb 8mb 60"),
    ] {
        set(name, bad);
        assert_eq!(troubles(&examined(&server, |_| ()).await), [("client memory", Verdict::Warn)], "{name} {bad}");
        set(name, good);
        assert_eq!(troubles(&examined(&server, |_| ()).await), [], "{name} {good}");
    }
}

#[tokio::test]
async fn a_command_that_kept_others_waiting_is_told() {
    let server = well().start();
    server.cli(&["slowlog", "reset"]);
    server.cli(&["latency", "reset"]);
    let examination = examined(&server, |_| ()).await;
    assert_eq!(found(&examination, "slow commands").verdict, Verdict::Ok, "{:?}", found(&examination, "slow commands"));
    let busy = "for _ = 1, 60000000 do end";
    server.cli(&["eval", busy, "0"]);
    let examination = examined(&server, |_| ()).await;
    let slow = found(&examination, "slow commands");
    assert_eq!(slow.verdict, Verdict::Warn);
    assert!(slow.says.contains("EVAL took "), "{}", slow.says);
}

#[tokio::test]
async fn a_key_of_ours_that_holds_something_else_is_a_failure() {
    let server = well().start();
    server.cli(&["hset", "towpath:calls:{function:stream:__global__:add}", "c1", "1"]);
    server.cli(&["set", "towpath:heartbeats:mine", "of nobody we know"]);
    assert_eq!(found(&examined(&server, |_| ()).await, "kinds of keys").verdict, Verdict::Ok);
    server.cli(&["set", "towpath:queue:{function:stream:__global__:add}", "1"]);
    server.cli(&["hset", "function:stream:__global__:add", "a", "1"]);
    let examination = examined(&server, |_| ()).await;
    let kinds = found(&examination, "kinds of keys");
    assert_eq!(kinds.verdict, Verdict::Fail);
    assert!(kinds.says.contains("towpath:queue:{function:stream:__global__:add} is a string and should be a zset"), "{}", kinds.says);
    assert!(kinds.says.contains("function:stream:__global__:add is a hash and should be a stream"), "{}", kinds.says);
    server.cli(&["del", "function:stream:__global__:add"]);
    server.cli(&["hset", "n8n-lock-orders", "a", "1"]);
    let of_locks = found(&examined(&server, |_| ()).await, "kinds of keys").says.clone();
    assert!(of_locks.contains("n8n-lock-orders is a hash and should be a string"), "{of_locks}");
    // Whoever must not go through all keys looks at those of the functions that are known.
    server.cli(&acl_rule("app", "secret", "towpath").split(' ').collect::<Vec<_>>());
    assert_eq!(found(&examined(&server, as_app).await, "kinds of keys").verdict, Verdict::Ok, "nobody knows the function");
    server.cli(&["eval", "redis.call('SADD', 'towpath:functions', '__global__\\nadd')", "0"]);
    assert_eq!(found(&examined(&server, as_app).await, "kinds of keys").verdict, Verdict::Fail);
}

#[tokio::test]
async fn a_lock_that_never_ends_is_told() {
    let server = well().start();
    server.cli(&["set", "n8n-lock-orders", "1", "px", "60000"]);
    assert_eq!(found(&examined(&server, |_| ()).await, "locks").verdict, Verdict::Ok);
    server.cli(&["incr", "n8n-lock-invoices"]);
    let examination = examined(&server, |_| ()).await;
    assert_eq!(troubles(&examination), [("locks", Verdict::Warn)]);
    let says = "1 lock(s) never end by themselves: n8n-lock-invoices";
    assert_eq!(found(&examination, "locks").says, says);
    // So it is to a user that has no more than the printed rights, if the optional ones are among them.
    server.cli(&acl_rule("app", "secret", "towpath").split(' ').collect::<Vec<_>>());
    assert_ne!(found(&examined(&server, as_app).await, "locks").says, says);
    for (rule, _) in acl_options("app") {
        server.cli(&rule.split(' ').collect::<Vec<_>>());
    }
    assert_eq!(found(&examined(&server, as_app).await, "locks").says, says);
}

/// A store in which somebody works.
async fn at_work(server: &RedisServer) -> RedisStore {
    let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    let store = RedisStore::open_by_clock(options, clock_of(server)).await.expect("the server is there");
    let worker = RegisterWorker { worker_id: worker_id("w1"), kind: "rust".to_owned(), offers: vec![offer("add")] };
    store.register(worker).await.expect("the server is there");
    store.submit(new_call("c1", "add")).await.expect("the server is there");
    store
}

#[tokio::test]
async fn records_of_a_version_that_is_newer_are_a_failure() {
    let server = well().start();
    let _store = at_work(&server).await;
    let records = async || examined(&server, |_| ()).await.checks.into_iter().find(|check| check.name == "records").expect("it is looked");
    let fine = records().await;
    assert_eq!((fine.verdict, fine.says.as_str()), (Verdict::Ok, "3 looked at, and each can be read"), "a worker, a function, a call");
    server.cli(&["hset", "towpath:calls:{function:stream:__global__:add}", "c1", "format 9"]);
    server.cli(&["hset", "towpath:workers", "w2", "[9]"]);
    let newer = records().await;
    assert_eq!(newer.verdict, Verdict::Fail);
    assert!(newer.says.starts_with("2 of 4 cannot be read") && newer.says.contains("call c1 (add)"), "{}", newer.says);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_that_a_server_noticed_is_shown_to_whoever_looks_later() {
    let server = well().start();
    let store = at_work(&server).await;
    assert_eq!(found(&examined(&server, |_| ()).await, "losses").verdict, Verdict::Ok);
    server.cli(&["flushall"]);
    until("somebody notices", PATIENCE, || server.cli(&["exists", "towpath:losses"]).trim() == "1");
    drop(store);
    let examination = examined(&server, |_| ()).await;
    let losses = found(&examination, "losses");
    assert_eq!(losses.verdict, Verdict::Fail);
    assert!(losses.says.contains("it was flushed"), "{}", losses.says);
}

#[tokio::test]
async fn a_master_that_too_few_sentinels_watch_is_told() {
    let sentinels = SentinelRig::start();
    let options = RedisOptions::parse(&sentinels.url()).unwrap();
    let clock = clock_of(&sentinels.servers[0]);
    let fine = examine(&options, Arc::clone(&clock)).await;
    assert_eq!(found(&fine, "sentinels").verdict, Verdict::Ok, "{:?}", found(&fine, "sentinels"));
    // One of those that the URL names is not there.
    let more = RedisOptions::parse(&sentinels.url().replacen("127.0.0.1:", "127.0.0.1:1,127.0.0.1:", 1)).unwrap();
    let lacks = examine(&more, clock).await;
    assert_eq!(found(&lacks, "sentinels").verdict, Verdict::Warn);
    assert!(found(&lacks, "sentinels").says.starts_with("1 of 4 do not answer"), "{}", found(&lacks, "sentinels").says);
}

#[tokio::test]
async fn every_master_of_a_cluster_is_looked_at_and_every_slot_must_be_served() {
    let cluster = ClusterRig::start();
    let options = RedisOptions::parse(&cluster.url()).unwrap();
    let clock = clock_of(&cluster.nodes[0]);
    let look = async || examine(&options, Arc::clone(&clock)).await;
    let fine = look().await;
    let alone = found(&fine, "cluster");
    assert_eq!(alone.verdict, Verdict::Warn, "{alone:?}");
    assert!(alone.says.contains("3 of 3 masters have no replica"), "{}", alone.says);
    for (node, name, bad, check) in [
        (1, "maxmemory-policy", "allkeys-lru", "eviction"),
        (2, "timeout", "3", "timeout"),
        (0, "tcp-keepalive", "0", "tcp-keepalive"),
        (1, "maxmemory-clients", "10mb", "client memory"),
    ] {
        assert_eq!(found(&fine, check).verdict, Verdict::Ok, "{check}");
        cluster.nodes[node].cli(&["config", "set", name, bad]);
        assert_ne!(found(&look().await, check).verdict, Verdict::Ok, "{check}, when one of three is set so");
    }
    cluster.nodes[2].cli(&["acl", "setuser", "default", "-xadd"]);
    assert!(found(&look().await, "rights").says.contains("xadd"), "each master has users of its own");
    cluster.nodes[0].cli(&["cluster", "delslots", "0"]);
    until("somebody misses a slot", PATIENCE, || cluster.nodes[0].cli(&["cluster", "info"]).contains("cluster_state:fail"));
    let broken = look().await;
    assert_eq!(found(&broken, "cluster").verdict, Verdict::Fail, "{:?}", found(&broken, "cluster"));
}

#[tokio::test]
async fn a_cluster_and_a_master_behind_sentinels_are_looked_at_too() {
    let cluster = ClusterRig::start();
    let sentinels = SentinelRig::start();
    for url in [cluster.url(), sentinels.url()] {
        let options = RedisOptions::parse(&url).unwrap();
        let examination = examine(&options, clock_of(&sentinels.servers[0])).await;
        for check in ["connection", "version", "role", "rights", "keys", "scripts", "registry"] {
            assert_eq!(found(&examination, check).verdict, Verdict::Ok, "{url}: {:?}", found(&examination, check));
        }
    }
}
