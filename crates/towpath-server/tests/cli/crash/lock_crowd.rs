//! Many clients in several processes contend over HTTP for few locks of an embedded store, while processes are killed and stopped and the
//! server is killed. Nobody is let in while another's lease lasts, no fence is given twice or goes back, and old fences are refused.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use reqwest::blocking::Client as HttpClient;
use serde_json::{Value, json};
use towpath_redis_testing::{Book, Resource, ResourceLink};

use crate::support::{Server, wait_for};

const ROLE: &str = "TOWPATH_TEST_LOCK_CROWD";
const ENTRANCE: &str = "crash::lock_crowd::clients_of_a_process_that_have_nobody_to_ask_end_with_an_error";
const PROCESSES: usize = 7;
const CLIENTS_EACH: usize = 8;
const SCOPES: usize = 3;
const LEASE_MS: i64 = 1_000;
/// How the names of processes begin that stop themselves.
const DROWSY: &str = "drowsy";
/// Whether the next client of this process that gets in is to stop the whole process, once.
static IS_DROWSY: AtomicBool = AtomicBool::new(false);

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

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it is our child");
    }

    /// Something, if they have stopped since this was last asked.
    fn stand_still(&self) -> Option<()> {
        let asked = WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG;
        let state = waitpid(self.pid(), Some(asked)).expect("it is our child");
        matches!(state, WaitStatus::Stopped(..)).then_some(())
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
    IS_DROWSY.store(name.starts_with(DROWSY), Ordering::Relaxed);
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
        if IS_DROWSY.swap(false, Ordering::Relaxed) {
            raise(Signal::SIGSTOP).expect("a process may stop itself");
            // It does not know how long it slept, and does not ask.
            self.resource.tell(&format!("write {scope} {fence}"));
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

fn books(resource: &Resource) -> Vec<Book> {
    (0..SCOPES).map(|number| resource.book(&format!("s{number}"))).collect()
}

fn stale(resource: &Resource) -> u32 {
    books(resource).iter().map(|book| book.refused).sum()
}

/// Until every scope has been entered or written to by somebody several times more.
fn goes_on(resource: &Resource) {
    let before = books(resource);
    let is_further = |(now, before): (&Book, &Book)| now.accepted > before.accepted + 10;
    wait_for("the others to go on", || books(resource).iter().zip(&before).all(is_further).then_some(()));
}

/// Each round kills a process, has one stopped for twice its lease wherever it is, another as soon as it is inside, and kills the server.
#[test]
fn among_clients_that_are_killed_and_stopped_and_a_server_that_is_killed_nobody_is_let_in_beside_another() {
    let mut server = Server::start();
    let resource = Resource::start();
    let start = |url: &str, name: &str| Clients::start(url, resource.port(), name);
    let mut clients: Vec<Clients> = (0..PROCESSES).map(|number| start(&server.url, &format!("p{number}"))).collect();
    goes_on(&resource);
    for round in 0..rounds() {
        let stale_before = stale(&resource);
        clients[round % PROCESSES] = start(&server.url, &format!("{DROWSY}{round}"));
        let (drowsy, stopped) = (&clients[round % PROCESSES], &clients[(round + 3) % PROCESSES]);
        wait_for("it to stop while it is inside", || drowsy.stand_still());
        stopped.signal(Signal::SIGSTOP);
        std::thread::park_timeout(Duration::from_millis(2 * LEASE_MS.unsigned_abs()));
        goes_on(&resource);
        drowsy.signal(Signal::SIGCONT);
        stopped.signal(Signal::SIGCONT);
        wait_for("it to write under its old fence", || (stale(&resource) > stale_before).then_some(()));
        let (folder, address) = server.crash();
        server = Server::start_in(folder, &address);
        goes_on(&resource);
    }
    drop(clients);
    for (number, book) in books(&resource).into_iter().enumerate() {
        assert_eq!(book.wrong, Vec::<String>::new(), "s{number}");
    }
    let (all, accepted) = (PROCESSES * CLIENTS_EACH, books(&resource).iter().map(|book| book.accepted).sum::<u32>());
    println!("{all} clients, {} kills of a process, of the server, and stops past the lease each:", rounds());
    println!(
        "{accepted} writes and grants, {} stale ones refused, nobody let in beside another, no fence twice or lower",
        stale(&resource)
    );
}
