//! Clients in processes of their own, which can be killed and stopped.
//!
//! A client is this test program, started again for one test that finds its role in the environment.

use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
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
        command.env(ROLE, format!("{role};{};{};{}", orders.url, orders.resource, orders.number));
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

    /// It stands still from now on.
    pub(crate) fn stop(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// It goes on as if nothing had been.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Whether it has stopped since this was last asked.
    pub(crate) fn stands_still(&self) -> bool {
        let asked = WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG;
        matches!(waitpid(self.pid(), Some(asked)).expect("it is our child"), WaitStatus::Stopped(..))
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
    let words: Vec<&str> = orders.split(';').collect();
    let [role, url, resource, number] = words[..] else { panic!("no orders: {orders}") };
    let orders = Orders { url: url.to_owned(), resource: resource.parse().expect("a port"), number: number.parse().expect("a number") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match role {
            "stubborn" => crate::fenced::write_whatever_happens(orders).await,
            "crowd" => crate::crowd::contend(orders).await,
            "drowsy crowd" => crate::crowd::contend_and_fall_asleep(orders).await,
            _ => panic!("no such role: {role}"),
        }
    });
}
