//! Clients in processes of their own, which can be killed and stopped, and the resource that all of them write to.
//!
//! A client is this test program, started again for one test that finds its role in the environment.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ROLE: &str = "TOWPATH_TEST_LOCK_CLIENT";
const ENTRANCE: &str = "client::a_client_that_does_not_know_its_role_ends_with_an_error";

/// What the clients of a role are told: the role, where the server is, where the resource is, and a number.
pub(crate) struct Orders {
    pub(crate) url: String,
    pub(crate) resource: u16,
    pub(crate) number: u32,
}

/// A process with clients. It is killed when this is dropped.
pub(crate) struct Client {
    child: Child,
}

impl Client {
    pub(crate) fn start(role: &str, orders: &Orders) -> Self {
        let program = std::env::current_exe().expect("this program has a file");
        let mut command = Command::new(program);
        command.args([ENTRANCE, "--exact", "--nocapture"]);
        command.env(ROLE, format!("{role} {} {} {}", orders.url, orders.resource, orders.number));
        // The end of its input tells it that the test is gone, however that ended.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
        Self { child: command.spawn().expect("this program starts again") }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        kill(pid, signal).expect("it is our child");
    }

    /// It stands still from now on.
    pub(crate) fn stop(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// It goes on as if nothing had been.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn succeeds(mut self) -> bool {
        // Its input stays open: its end would end the client.
        let _input = self.child.stdin.take();
        self.child.wait().expect("it is our child").success()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Entered by processes that [`Client::start`] has started; their role is in the environment.
#[test]
fn a_client_that_does_not_know_its_role_ends_with_an_error() {
    let Ok(orders) = std::env::var(ROLE) else {
        let orders = Orders { url: "redis://127.0.0.1:1".to_owned(), resource: 0, number: 0 };
        assert!(!Client::start("nonsense", &orders).succeeds());
        return;
    };
    std::thread::spawn(|| {
        let _the_test_is_gone = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    let words: Vec<&str> = orders.split(' ').collect();
    let [role, url, resource, number] = words[..] else { panic!("no orders: {orders}") };
    let orders = Orders { url: url.to_owned(), resource: resource.parse().expect("a port"), number: number.parse().expect("a number") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match role {
            "stubborn" => crate::fenced::write_whatever_happens(orders).await,
            "crowd" => crate::crowd::contend(orders).await,
            _ => panic!("no such role: {role}"),
        }
    });
}

/// What stands in the way of two holders: it knows the highest fence of each scope, and refuses what is lower.
#[derive(Clone)]
pub(crate) struct Resource {
    port: u16,
    shared: Arc<Mutex<Scopes>>,
}

type Scopes = HashMap<String, Book>;

/// What was written under one scope.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    pub(crate) highest: u64,
    pub(crate) accepted: u32,
    /// Writes under a fence that was too low.
    pub(crate) refused: u32,
    /// Who is inside: fence, and until when its lease lasts as far as it has told.
    inside: HashMap<u64, i64>,
    /// What should never have happened.
    pub(crate) wrong: Vec<String>,
}

impl Resource {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port of the loopback");
        let resource = Self { port: listener.local_addr().expect("it listens").port(), shared: Arc::default() };
        let serving = resource.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let serving = serving.clone();
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        resource
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn book(&self, scope: &str) -> Book {
        self.scopes().get(scope).cloned().unwrap_or_default()
    }

    fn scopes(&self) -> MutexGuard<'_, Scopes> {
        self.shared.lock().expect("nobody panics with it")
    }

    fn serve(&self, stream: TcpStream) {
        let Ok(mut answers) = stream.try_clone() else { return };
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let answer = self.scopes_answer(&line);
            if answers.write_all(format!("{answer}\n").as_bytes()).is_err() {
                return;
            }
        }
    }

    /// `enter scope fence granted_at lease_end`, `renewed scope fence lease_end`, `write scope fence`, `leave scope fence`.
    fn scopes_answer(&self, line: &str) -> &'static str {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<i64>().ok()).expect("a number");
        let mut scopes = self.scopes();
        let book = scopes.entry(words[1].to_owned()).or_default();
        let fence = u64::try_from(number(2)).expect("a fence");
        match words[0] {
            "enter" => book.enter(fence, number(3), number(4)),
            "renewed" => {
                book.inside.entry(fence).and_modify(|until| *until = number(3));
                "ok"
            }
            "leave" => {
                book.inside.remove(&fence);
                "ok"
            }
            _ => book.write(fence),
        }
    }
}

impl Book {
    /// Nobody may be inside whose lease, by the very numbers that were compared, lasted when the newcomer was let in.
    fn enter(&mut self, fence: u64, granted_at: i64, lease_end: i64) -> &'static str {
        if fence < self.highest {
            self.refused += 1;
            return "stale";
        }
        if fence == self.highest {
            self.wrong.push(format!("fence {fence} was given twice"));
        }
        for (other, until) in &self.inside {
            if *until > granted_at {
                self.wrong.push(format!("{fence} was let in at {granted_at} while {other} was inside until {until}"));
            }
        }
        self.inside.retain(|_, until| *until > granted_at);
        self.inside.insert(fence, lease_end);
        (self.highest, self.accepted) = (fence, self.accepted + 1);
        "ok"
    }

    fn write(&mut self, fence: u64) -> &'static str {
        if fence < self.highest {
            self.refused += 1;
            return "stale";
        }
        (self.highest, self.accepted) = (fence, self.accepted + 1);
        "ok"
    }
}

/// A way to the resource.
pub(crate) struct ResourceLink {
    stream: BufReader<TcpStream>,
}

impl ResourceLink {
    pub(crate) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the resource is there");
        stream.set_nodelay(true).expect("a socket");
        Self { stream: BufReader::new(stream) }
    }

    /// Tells it something and hears whether it accepts.
    pub(crate) fn tell(&mut self, line: &str) -> bool {
        let mut answer = String::new();
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).expect("the resource is there");
        self.stream.read_line(&mut answer).expect("the resource is there");
        answer.trim() == "ok"
    }
}
