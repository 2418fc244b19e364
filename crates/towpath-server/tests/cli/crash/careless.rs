//! The worker of `careless_worker.py`, which lets its lease run out.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Beside, Server};

pub(crate) struct Careless {
    pub(crate) process: Beside,
}

impl Careless {
    pub(crate) fn start(server: &Server, function: &str) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("careless_worker.py"), &server.url, function]).arg(server.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { process: Beside::start(command) }
    }

    /// The delivery it holds, as soon as it has one.
    pub(crate) fn claimed(&self, server: &Server) -> String {
        server.line_of("claimed")
    }

    /// Lets it answer, and gives what became of the answer.
    pub(crate) fn answers(&self, server: &Server) -> Value {
        server.write("go", "");
        self.process.event("answered", |_| true)
    }
}
