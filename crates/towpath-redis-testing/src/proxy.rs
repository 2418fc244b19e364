//! A proxy before a server that fails on command, as networks do.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Passes bytes between clients and one server until told otherwise.
pub struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    server: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    mode: Mode,
    cuts_before_answer: usize,
    closed: bool,
    /// Both ends of every connection.
    open: Vec<TcpStream>,
    accepted: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Pass,
    Stall,
    Swallow,
    Refuse,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

impl FaultProxy {
    /// Listens on a port of its own and passes everything to this one.
    pub fn before(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port of the loopback");
        let port = listener.local_addr().expect("it listens").port();
        let shared = Arc::new(Shared { server: server_port, state: Mutex::default(), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, &accepting));
        Self { port, shared }
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How to reach the server through it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many connections it has seen.
    pub fn accepted(&self) -> usize {
        self.shared.state().accepted
    }

    /// From now on everything passes, also what [`stall`](Self::stall) held back.
    pub fn pass(&self) {
        self.shared.set(Mode::Pass);
    }

    /// Bytes are held back in both directions, as when packets are lost and sent again; [`pass`](Self::pass) delivers them.
    pub fn stall(&self) {
        self.shared.set(Mode::Stall);
    }

    /// Bytes vanish, as behind a router that forgot the connection. A connection that lost some stays mute for good; new ones are fine
    /// after [`pass`](Self::pass).
    pub fn swallow(&self) {
        self.shared.set(Mode::Swallow);
    }

    /// New connections are closed at once, as when no server is there. Those that exist go on.
    pub fn refuse(&self) {
        self.shared.set(Mode::Refuse);
    }

    /// Closes all connections. New ones are welcome.
    pub fn cut(&self) {
        for stream in self.shared.state().open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The next answer of the server is not delivered: the connection is closed instead. The server has done what it was asked.
    pub fn cut_before_answer(&self) {
        self.shared.state().cuts_before_answer += 1;
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.cut();
        self.shared.changed.notify_all();
        // Wakes the thread that accepts, which then sees that it is over.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, mode: Mode) {
        self.state().mode = mode;
        self.changed.notify_all();
    }

    /// What becomes of some bytes: `None` ends the connection. Waits as long as bytes are held back.
    fn verdict(&self, direction: Direction) -> Option<Verdict> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            match state.mode {
                Mode::Stall => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Mode::Swallow => return Some(Verdict::Swallow),
                Mode::Pass | Mode::Refuse if direction == Direction::ToClient && state.cuts_before_answer > 0 => {
                    state.cuts_before_answer -= 1;
                    return None;
                }
                Mode::Pass | Mode::Refuse => return Some(Verdict::Pass),
            }
        }
    }
}

enum Verdict {
    Pass,
    Swallow,
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().map_while(Result::ok) {
        let mode = {
            let mut state = shared.state();
            if state.closed {
                return;
            }
            state.accepted += 1;
            state.mode
        };
        if mode == Mode::Refuse {
            continue; // dropped, and so closed
        }
        // A server that is away is seen by the client as a connection that closes.
        if let Ok(server) = TcpStream::connect(("127.0.0.1", shared.server)) {
            join(&client, &server, shared);
        }
    }
}

fn join(client: &TcpStream, server: &TcpStream, shared: &Arc<Shared>) {
    let twin = |stream: &TcpStream| {
        let _ = stream.set_nodelay(true);
        stream.try_clone().expect("a socket can be cloned")
    };
    shared.state().open.extend([twin(client), twin(server)]);
    let ways = [(twin(client), twin(server), Direction::ToServer), (twin(server), twin(client), Direction::ToClient)];
    for (from, to, direction) in ways {
        let shared = Arc::clone(shared);
        std::thread::spawn(move || pump(from, to, direction, &shared));
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, direction: Direction, shared: &Shared) {
    let mut bytes = [0; 64 * 1024];
    let mut is_mute = false;
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 {
            break;
        }
        match shared.verdict(direction) {
            None => break,
            Some(Verdict::Swallow) => is_mute = true,
            Some(Verdict::Pass) if is_mute => {}
            Some(Verdict::Pass) if to.write_all(&bytes[..count]).is_ok() => {}
            Some(Verdict::Pass) => break,
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
