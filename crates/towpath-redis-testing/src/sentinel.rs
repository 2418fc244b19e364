//! A master, a replica and three Sentinels that watch them.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use crate::ports::free_port;
use crate::process::{Process, output_of};
use crate::server::{RedisServer, ServerBuilder};
use crate::waiting::until;

const SENTINELS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(30);

/// Two servers, one of them a replica, and three Sentinels that notice a dead master after half a second.
pub struct SentinelRig {
    /// The two servers. Which of them is the master is for the Sentinels to say.
    pub servers: Vec<RedisServer>,
    sentinels: Vec<Sentinel>,
}

struct Sentinel {
    port: u16,
    // Both live as long as the rig.
    _folder: TempDir,
    _process: Process,
}

impl SentinelRig {
    /// The name under which the Sentinels know the master.
    pub const MASTER: &str = "towpath";

    /// Starts all and waits until every Sentinel knows every other and the replica.
    pub fn start() -> Self {
        Self::with(RedisServer::build())
    }

    /// The same, with servers of this kind.
    pub fn with(kind: ServerBuilder) -> Self {
        let master = kind.clone().start();
        let replica = kind.line(format!("replicaof 127.0.0.1 {}", master.port())).start();
        until("the replica is in step", PATIENCE, || master.cli(&["info", "replication"]).contains("state=online"));
        let sentinels = (0..SENTINELS).map(|_| Sentinel::watching(master.port())).collect();
        let rig = Self { servers: vec![master, replica], sentinels };
        until("the Sentinels know each other and the replica", PATIENCE, || rig.sentinels.iter().all(Sentinel::knows_all));
        rig
    }

    /// How to reach the master through the Sentinels.
    pub fn url(&self) -> String {
        let list: Vec<String> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{}/{}", list.join(","), Self::MASTER)
    }

    /// Which of `servers` the Sentinels call the master right now.
    pub fn master(&self) -> usize {
        let address = self.sentinels[0].ask(&["get-master-addr-by-name", Self::MASTER]);
        let port = address.lines().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0);
        self.servers.iter().position(|server| server.port() == port).unwrap_or_else(|| panic!("the Sentinels say '{address}'"))
    }

    /// Kills the master with `kill -9` and returns which of `servers` it was.
    pub fn kill_master(&mut self) -> usize {
        let master = self.master();
        self.servers[master].kill();
        master
    }

    /// Waits until the Sentinels call another server the master than this one.
    pub fn wait_for_other_master(&self, than: usize) {
        until("another server is the master", PATIENCE, || self.master() != than);
    }

    /// Asks the Sentinels to swap the roles of two healthy servers, and does not wait for it.
    pub fn ask_for_failover(&self) {
        self.sentinels[0].ask(&["failover", Self::MASTER]);
    }
}

impl Sentinel {
    fn watching(master: u16) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("sentinel.conf");
        let name = SentinelRig::MASTER;
        for _ in 0..SENTINELS * 5 {
            let port = free_port();
            let settings = format!(
                "bind 127.0.0.1\nport {port}\ndir {}\nsentinel monitor {name} 127.0.0.1 {master} 2\n\
                 sentinel down-after-milliseconds {name} 500\nsentinel failover-timeout {name} 3000\n",
                folder.path().display(),
            );
            fs::write(&file, settings).expect("a folder of our own");
            let started = Process::start("redis-sentinel", &[file.to_str().expect("a folder with a plain name")], "+monitor");
            match started {
                Ok(process) => return Self { port, _folder: folder, _process: process },
                Err(log) if log.contains("ddress already in use") => {}
                Err(log) => panic!("redis-sentinel did not start:\n{log}"),
            }
        }
        panic!("redis-sentinel found no port");
    }

    fn ask(&self, words: &[&str]) -> String {
        let port = self.port.to_string();
        let mut args = vec!["-h", "127.0.0.1", "-p", &port, "sentinel"];
        args.extend(words);
        output_of("redis-cli", &args).unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn knows_all(&self) -> bool {
        let said = self.ask(&["master", SentinelRig::MASTER]);
        let lines: Vec<&str> = said.lines().collect();
        let number = |name: &str| {
            let at = lines.iter().position(|line| *line == name);
            at.and_then(|at| lines.get(at + 1)).and_then(|value| value.parse::<usize>().ok())
        };
        number("num-slaves") == Some(1) && number("num-other-sentinels") == Some(SENTINELS - 1)
    }
}
