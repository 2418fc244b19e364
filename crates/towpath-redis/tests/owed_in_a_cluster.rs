//! In a Cluster a call and the reply list of its legacy caller lie on different nodes. The reply is owed until it is pushed (A11).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use towpath::{CallContext, RunningWorker, SystemClock, Towpath};
use towpath_redis::{RedisOptions, RedisStore, Timing};
use towpath_redis_testing::{ClusterRig, RedisServer, until};

const STREAM: &str = "function:stream:__global__:add";
const OWED: &str = "towpath:owed:{function:stream:__global__:add}";
const SOON: Duration = Duration::from_secs(30);

/// A process of Towpath: when its runtime ends, nothing that it was about to do is done.
struct Process {
    runtime: Runtime,
    began: Arc<Semaphore>,
    gate: Arc<Semaphore>,
    _worker: RunningWorker,
}

impl Process {
    /// Its worker says that a call began, and ends the call when the gate opens.
    fn start(rig: &ClusterRig) -> Self {
        let runtime = Runtime::new().expect("threads can be started");
        let (began, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (begins, waits) = (Arc::clone(&began), Arc::clone(&gate));
        let handler = move |number: u64, _: CallContext| {
            begins.add_permits(1);
            let waits = Arc::clone(&waits);
            async move {
                waits.acquire().await.expect("it is never closed").forget();
                Ok(number + 1)
            }
        };
        let url = rig.url();
        let worker = runtime.block_on(async {
            let mut options = RedisOptions::parse(&url).expect("the rig names itself");
            let (legacy_tick, look_for_legacy_every) = (Duration::from_millis(100), Duration::from_millis(500));
            options.timing = Timing { legacy_tick, look_for_legacy_every, ..Timing::default() };
            let store = RedisStore::open(options, Arc::new(SystemClock::new())).await.expect("the Cluster is up");
            let towpath = Towpath::builder().clock(store.clock()).with_store(Arc::new(store));
            towpath.worker().function("add", handler).start().await.expect("the Cluster is up")
        });
        Self { runtime, began, gate, _worker: worker }
    }

    fn until_a_call_begins(&self) {
        self.runtime.block_on(async {
            let began = tokio::time::timeout(SOON, self.began.acquire()).await;
            began.expect("no call begins").expect("it is never closed").forget();
        });
    }

    /// Ends it as `kill -9` does: its tasks stop where they are, and its connections close.
    fn kill(self) {
        self.runtime.shutdown_timeout(Duration::from_secs(10));
    }
}

struct Legacy<'a> {
    of_call: &'a RedisServer,
    of_list: &'a RedisServer,
    list: String,
}

impl<'a> Legacy<'a> {
    /// A legacy caller whose reply list lies on another node than its call.
    fn call(rig: &'a ClusterRig) -> Self {
        let of_call = rig.owner_of(STREAM);
        let lists = (0..).map(|number| format!("function:response:old-{number}"));
        let list = lists.into_iter().find(|list| rig.owner_of(list) != of_call).expect("slots are spread evenly");
        let call_id = list.strip_prefix("function:response:").expect("it begins so");
        let (of_call, of_list) = (&rig.nodes[of_call], &rig.nodes[rig.owner_of(&list)]);
        of_call.cli(&["XADD", STREAM, "*", "callId", call_id, "params", "41", "responseChannel", &list]);
        Self { of_call, of_list, list }
    }

    fn is_owed(&self) -> bool {
        self.of_call.cli(&["SCARD", OWED]).trim() == "1"
    }

    fn replies(&self) -> String {
        self.of_list.cli(&["LLEN", &self.list]).trim().to_owned()
    }

    /// Waits for the one reply.
    fn check_answered(&self) {
        until("the caller is answered", SOON, || self.replies() != "0");
        let reply: Value = serde_json::from_str(&self.of_list.cli(&["LINDEX", &self.list, "0"])).expect("a reply is JSON");
        assert_eq!((&reply["success"], &reply["data"]), (&Value::Bool(true), &Value::from(42)), "{reply}");
        until("nothing is owed any more", SOON, || !self.is_owed());
        assert_eq!(self.replies(), "1");
    }
}

#[test]
fn a_reply_is_given_although_the_process_dies_between_the_end_of_the_call_and_its_push() {
    let rig = ClusterRig::start();
    let first = Process::start(&rig);
    let caller = Legacy::call(&rig);
    first.until_a_call_begins();
    // Nothing can be written where the list is, so the process stays between the end and the push.
    caller.of_list.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    first.gate.add_permits(1);
    until("the call has ended", SOON, || caller.of_call.cli(&["KEYS", "towpath:ended:*"]).contains("towpath:ended:"));
    assert!(caller.is_owed(), "since the same instant");
    first.kill();
    // Commands that wait at the node go with their connections. The one that is left asks for the list.
    until("the process is gone", SOON, || caller.of_list.cli(&["CLIENT", "LIST"]).trim().lines().count() == 1);
    caller.of_list.cli(&["CLIENT", "UNPAUSE"]);
    assert_eq!(caller.replies(), "0");
    let _second = Process::start(&rig);
    caller.check_answered();
}

#[test]
fn a_reply_that_the_node_of_its_list_refuses_for_now_is_given_later() {
    let rig = ClusterRig::start();
    let process = Process::start(&rig);
    let caller = Legacy::call(&rig);
    process.until_a_call_begins();
    caller.of_list.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    process.gate.add_permits(1);
    until("the call has ended", SOON, || caller.of_call.cli(&["KEYS", "towpath:ended:*"]).contains("towpath:ended:"));
    until("the push was refused", SOON, || {
        let refused = caller.of_list.cli(&["INFO", "commandstats"]);
        refused.lines().any(|line| line.starts_with("cmdstat_lpush:") && !line.contains("rejected_calls=0"))
    });
    caller.of_list.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    caller.check_answered();
}

#[test]
fn a_key_of_another_program_under_the_name_of_a_reply_list_does_not_expire() {
    let rig = ClusterRig::start();
    let process = Process::start(&rig);
    let caller = Legacy::call(&rig);
    process.until_a_call_begins();
    caller.of_list.cli(&["SET", &caller.list, "a text"]);
    process.gate.add_permits(1);
    until("the call has ended", SOON, || caller.of_call.cli(&["KEYS", "towpath:ended:*"]).contains("towpath:ended:"));
    until("nothing is owed any more", SOON, || !caller.is_owed());
    assert_eq!(caller.of_list.cli(&["TTL", &caller.list]).trim(), "-1");
}
