//! Many clients in several processes contend over HTTP for few locks of an embedded store, while processes are killed and stopped and the
//! server is killed. Nobody is let in while another's lease lasts, no fence is given twice or goes back, and old fences are refused.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::blocking::Client as HttpClient;
use serde_json::{Value, json};
use towpath_redis_testing::{Resource, ResourceLink};

use crate::support::{Server, wait_for};

const ROLE: &str = "TOWPATH_TEST_LOCK_CROWD";
const ENTRANCE: &str = "crash::lock_crowd::clients_of_a_process_that_have_nobody_to_ask_end_with_an_error";
const PROCESSES: usize = 7;
const CLIENTS_EACH: usize = 8;
const SCOPES: usize = 3;
const LEASE_MS: i64 = 1_000;

/// Rounds of faults, unless the environment asks for another number: `TOWPATH_LOCK_ROUNDS=50`.
fn rounds() -> usize {
    std::env::var("TOWPATH_LOCK_ROUNDS").ok().and_then(|count| count.parse().ok()).unwrap_or(3)
}

/// A process with clients. It is killed when this is dropped.
struct Clients {
    child: Child,
}

impl Clients {
    fn start(url: &str, resource: u16, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
        command.args([ENTRANCE, "--exact", "--nocapture"]).env(ROLE, format!("{url} {resource} {name}"));
        // The end of its input tells it that the test is gone, however that ended.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
        Self { child: command.spawn().expect("this program starts again") }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).expect("a process id")), signal).expect("it is our child");
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Entered by processes that [`Clients::start`] has started; what they are to do is in the environment.
#[test]
fn clients_of_a_process_that_have_nobody_to_ask_end_with_an_error() {
    let Ok(orders) = std::env::var(ROLE) else {
        let mut lost = Clients::start("http://127.0.0.1:1", 1, "lost");
        let _input = lost.child.stdin.take(); // its end would end them, too
        assert!(!wait_for("them to end", || lost.child.try_wait().expect("it is our child")).success());
        return;
    };
    std::thread::spawn(|| {
        let _the_test_is_gone = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let words: Vec<&str> = orders.split(' ').collect();
    let [url, resource, name] = words[..] else { panic!("no orders: {orders}") };
    let resource: u16 = resource.parse().expect("a port");
    // Without the resource there is nothing to contend for.
    drop(ResourceLink::connect(resource));
    std::thread::scope(|clients| {
        for number in 0..CLIENTS_EACH {
            clients.spawn(move || Contender::new(url, resource, format!("{name}-{number}")).go_on_and_on(number));
        }
    });
}

/// One client: takes locks, renews them, writes under them and leaves, for ever.
struct Contender {
    http: HttpClient,
    url: String,
    resource: ResourceLink,
    name: String,
}

impl Contender {
    fn new(url: &str, resource: u16, name: String) -> Self {
        towpath_server::push::install_tls();
        let http = HttpClient::builder().no_proxy().tls_certs_only([]).timeout(Duration::from_secs(20)).build();
        let (http, resource) = (http.expect("a client can be made"), ResourceLink::connect(resource));
        Self { http, url: url.to_owned(), resource, name }
    }

    fn go_on_and_on(&mut self, number: usize) {
        for turn in 0.. {
            let scope = format!("s{}", (turn + number) % SCOPES);
            if let Some((fence, lease_end)) = self.granted(&scope, turn) {
                self.hold(&scope, fence, lease_end, turn + number);
            }
        }
    }

    /// `None` while there is no answer.
    fn post(&self, scope: &str, verb: &str, body: &Value) -> Option<(u16, Value)> {
        let response = self.http.post(format!("{}/v1/locks/{scope}/{verb}", self.url)).json(body).send().ok()?;
        let status = response.status().as_u16();
        Some((status, response.json().ok()?))
    }

    /// Asks the same until it is granted; `None` when the question was spent, which can only be when nobody knew of its grant.
    fn granted(&self, scope: &str, turn: usize) -> Option<(u64, i64)> {
        let asked_as = format!("{}-{turn}", self.name);
        let body = json!({ "lock_id": asked_as, "request_id": asked_as, "lease_ms": LEASE_MS, "ttl_seconds": 60, "max_wait_seconds": 10 });
        loop {
            match self.post(scope, "acquire", &body) {
                Some((200, granted)) => return Some((granted["fence"].as_u64()?, granted["lease_end"].as_i64()?)),
                Some((409, refused)) if refused["error"]["details"]["outcome"] == "spent" => return None,
                Some((202 | 409, _)) => {}
                Some((503 | 504, _)) | None => std::thread::park_timeout(Duration::from_millis(50)),
                Some((status, body)) => panic!("{status}: {body}"),
            }
        }
    }

    /// Enters, renews now and then, and leaves.
    fn hold(&mut self, scope: &str, fence: u64, lease_end: i64, dice: usize) {
        if !self.resource.tell(&format!("enter {scope} {fence} {} {lease_end}", lease_end - LEASE_MS)) {
            return;
        }
        for _ in 0..dice % 3 {
            std::thread::park_timeout(Duration::from_millis((dice % 7) as u64));
            match self.post(scope, "renew", &json!({ "fence": fence, "lease_ms": LEASE_MS })) {
                Some((200, renewed)) => {
                    self.resource.tell(&format!("renewed {scope} {fence} {}", renewed["lease_end"]));
                    self.resource.tell(&format!("write {scope} {fence}"));
                }
                Some((409, _lost)) => {
                    // It should stop here. The resource is what stands in the way of one that does not.
                    self.resource.tell(&format!("write {scope} {fence}"));
                    return;
                }
                // Its lease lasts as long as it was told: others wait for that.
                _no_answer => return,
            }
        }
        self.resource.tell(&format!("leave {scope} {fence}"));
        // A release that is lost is made up for by the end of the lease.
        let _released_or_not = self.post(scope, "release", &json!({ "fence": fence }));
    }
}

fn total(resource: &Resource, count: impl Fn(&towpath_redis_testing::Book) -> u32) -> u32 {
    (0..SCOPES).map(|number| count(&resource.book(&format!("s{number}")))).sum()
}

fn goes_on(resource: &Resource) {
    let accepted = || total(resource, |book| book.accepted);
    let before = accepted();
    wait_for("the others to go on", || (accepted() > before + 30).then_some(()));
}

/// Each round kills a process, stops one for twice its lease, and kills the server. At least one stale write must have been tried in the end.
#[test]
fn among_clients_that_are_killed_and_stopped_and_a_server_that_is_killed_nobody_is_let_in_beside_another() {
    let mut server = Server::start();
    let resource = Resource::start();
    let start = |url: &str, name: usize| Clients::start(url, resource.port(), &format!("p{name}"));
    let mut clients: Vec<Clients> = (0..PROCESSES).map(|name| start(&server.url, name)).collect();
    let stale = || total(&resource, |book| book.refused);
    goes_on(&resource);
    let mut round = 0;
    while round < rounds() || (stale() == 0 && round < 20) {
        clients[round % PROCESSES] = start(&server.url, 100 + round);
        goes_on(&resource);
        let stopped = &clients[(round + 3) % PROCESSES];
        stopped.signal(Signal::SIGSTOP);
        std::thread::park_timeout(Duration::from_millis(2 * LEASE_MS.unsigned_abs()));
        goes_on(&resource);
        stopped.signal(Signal::SIGCONT);
        goes_on(&resource);
        let (folder, address) = server.crash();
        server = Server::start_in(folder, &address);
        goes_on(&resource);
        round += 1;
    }
    drop(clients);
    for number in 0..SCOPES {
        let book = resource.book(&format!("s{number}"));
        assert_eq!(book.wrong, Vec::<String>::new(), "s{number}");
        assert!(book.accepted > 50, "s{number}: a history in which nobody gets anything proves nothing: {book:?}");
    }
    let (all, accepted) = (PROCESSES * CLIENTS_EACH, total(&resource, |book| book.accepted));
    println!("{all} clients, {round} kills of a process, of the server, and stops past the lease each:");
    println!("{accepted} writes and grants, {} stale ones refused, nobody let in beside another, no fence twice or lower", stale());
    assert!(stale() > 0, "nobody tried to write under an old fence: this run proved nothing");
}
