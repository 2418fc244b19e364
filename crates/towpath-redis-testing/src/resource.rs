//! What a lock protects: it is told who enters, writes and leaves under which fence, refuses an old fence, and notes whatever should never
//! have happened.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

/// What stands in the way of two holders: it knows the highest fence of each scope, and refuses what is lower.
#[derive(Clone)]
pub struct Resource {
    port: u16,
    shared: Arc<Mutex<Scopes>>,
}

type Scopes = HashMap<String, Book>;

/// What was written under one scope.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// The highest fence that was seen.
    pub highest: u64,
    /// Entries and writes that were let through.
    pub accepted: u32,
    /// Writes under a fence that was too low.
    pub refused: u32,
    /// Who is inside: fence, and until when its lease lasts as far as it has told.
    inside: HashMap<u64, i64>,
    /// What should never have happened.
    pub wrong: Vec<String>,
}

impl Resource {
    /// Listens at a port of its own.
    pub fn start() -> Self {
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

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What was written under a scope so far.
    pub fn book(&self, scope: &str) -> Book {
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
pub struct ResourceLink {
    stream: BufReader<TcpStream>,
}

impl ResourceLink {
    /// Connects to the resource at this port.
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the resource is there");
        stream.set_nodelay(true).expect("a socket");
        Self { stream: BufReader::new(stream) }
    }

    /// Tells it something and hears whether it accepts.
    pub fn tell(&mut self, line: &str) -> bool {
        let mut answer = String::new();
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).expect("the resource is there");
        self.stream.read_line(&mut answer).expect("the resource is there");
        answer.trim() == "ok"
    }
}
