//! A Cluster of three masters.

use std::time::Duration;

use crate::process::output_of;
use crate::server::{RedisServer, ServerBuilder};
use crate::waiting::until;

/// Three masters that share all slots.
pub struct ClusterRig {
    /// The masters.
    pub nodes: Vec<RedisServer>,
}

impl ClusterRig {
    /// Starts them, joins them, and waits until each says that the Cluster is whole.
    pub fn start() -> Self {
        Self::start_as(RedisServer::build())
    }

    /// The same with masters that keep their data when they are killed, and that go on when another one is away.
    pub fn start_partial() -> Self {
        Self::start_as(RedisServer::build().append_only("always").line("cluster-require-full-coverage no"))
    }

    fn start_as(kind: ServerBuilder) -> Self {
        let kind = kind.line("cluster-enabled yes").line("cluster-node-timeout 2000");
        let nodes: Vec<RedisServer> = (0..3).map(|_| kind.clone().start()).collect();
        let addresses: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let mut args = vec!["--cluster", "create"];
        args.extend(addresses.iter().map(String::as_str));
        args.push("--cluster-yes");
        output_of("redis-cli", &args).unwrap_or_else(|failure| panic!("{failure}"));
        let is_whole = |node: &RedisServer| node.cli(&["cluster", "info"]).contains("cluster_state:ok");
        until("each node says that the Cluster is whole", Duration::from_secs(30), || nodes.iter().all(is_whole));
        Self { nodes }
    }

    /// How to reach it, entering through any of its nodes.
    pub fn url(&self) -> String {
        let list: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", list.join(","))
    }

    /// Which of `nodes` has this key.
    pub fn owner_of(&self, key: &str) -> usize {
        let answers = |node: &RedisServer| !node.cli(&["exists", key]).starts_with("MOVED");
        self.nodes.iter().position(answers).unwrap_or_else(|| panic!("no node has the slot of '{key}'"))
    }

    /// Moves the slot of a key to another node, as an operator does, and waits until all know.
    pub fn move_slot_of(&self, key: &str, to: usize) {
        let from = self.owner_of(key);
        let id = |node: usize| self.nodes[node].cli(&["cluster", "myid"]);
        let slot = self.nodes[from].cli(&["cluster", "keyslot", key]);
        self.nodes[to].cli(&["cluster", "setslot", &slot, "importing", &id(from)]);
        self.nodes[from].cli(&["cluster", "setslot", &slot, "migrating", &id(to)]);
        let port = self.nodes[to].port().to_string();
        let keys = self.nodes[from].cli(&["cluster", "getkeysinslot", &slot, "1000"]);
        for moved in keys.lines().filter(|line| !line.is_empty()) {
            self.nodes[from].cli(&["migrate", "127.0.0.1", &port, moved, "0", "5000"]);
        }
        let order = [to, from].into_iter().chain((0..self.nodes.len()).filter(|node| *node != to && *node != from));
        for node in order {
            self.nodes[node].cli(&["cluster", "setslot", &slot, "node", &id(to)]);
        }
    }
}
