//! One redis-server.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::ports::free_port;
use crate::process::{Process, output_of};

const READY: &str = "Ready to accept connections";
const PORTS_TO_TRY: usize = 20;

/// A redis-server with a folder and a port of its own.
pub struct RedisServer {
    folder: TempDir,
    port: u16,
    password: Option<String>,
    certificates: Option<Certificates>,
    process: Process,
}

/// What a server shall be like.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ServerBuilder {
    lines: Vec<String>,
    password: Option<String>,
    encrypted: bool,
}

impl ServerBuilder {
    /// Writes each change to a file and asks for it to be on disk: `always`, `everysec` or `no`.
    pub fn append_only(self, fsync: &str) -> Self {
        self.line("appendonly yes").line(format!("appendfsync {fsync}"))
    }

    /// Everybody needs this password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.line(format!("requirepass {password}"))
    }

    /// A user, by the rules of `ACL SETUSER`: `("app", "on >secret ~* +@all -config")`.
    pub fn user(self, name: &str, rules: &str) -> Self {
        self.line(format!("user {name} {rules}"))
    }

    /// Speaks TLS only, with a certificate of [`RedisServer::ca_file`] for 127.0.0.1 and localhost.
    pub fn tls(mut self) -> Self {
        self.encrypted = true;
        self
    }

    /// So many databases.
    pub fn databases(self, count: u32) -> Self {
        self.line(format!("databases {count}"))
    }

    /// Any line of a redis.conf.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Starts it and waits until it takes connections.
    pub fn start(self) -> RedisServer {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let certificates = self.encrypted.then(|| Certificates::make(folder.path()));
        let mut log = String::new();
        for _ in 0..PORTS_TO_TRY {
            let port = free_port();
            fs::write(folder.path().join("redis.conf"), self.file(folder.path(), port, certificates.as_ref()))
                .expect("a folder of our own");
            match start_in(folder.path()) {
                Ok(process) => return RedisServer { folder, port, password: self.password, certificates, process },
                Err(failed) if failed.contains("ddress already in use") => log = failed,
                Err(failed) => panic!("redis-server did not start:\n{failed}"),
            }
        }
        panic!("redis-server found no port:\n{log}");
    }

    fn file(&self, folder: &Path, port: u16, certificates: Option<&Certificates>) -> String {
        let folder = folder.display();
        let mut lines = vec!["bind 127.0.0.1".to_owned(), "save \"\"".to_owned(), format!("dir {folder}")];
        match certificates {
            None => lines.push(format!("port {port}")),
            Some(certificates) => {
                lines.push(format!("port 0\ntls-port {port}\ntls-auth-clients no"));
                lines.push(format!("tls-ca-cert-file {}", certificates.authority.display()));
                lines.push(format!("tls-cert-file {}", certificates.certificate.display()));
                lines.push(format!("tls-key-file {}", certificates.key.display()));
            }
        }
        lines.extend(self.lines.iter().cloned());
        lines.join("\n") + "\n"
    }
}

/// The program: the machine's `redis-server`, or the one that `TOWPATH_TEST_REDIS_SERVER` names, so that all tests can run on another
/// version, or on Valkey.
fn program() -> String {
    std::env::var("TOWPATH_TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

fn start_in(folder: &Path) -> Result<Process, String> {
    let file = folder.join("redis.conf");
    Process::start(&program(), &[file.to_str().expect("a folder with a plain name")], READY)
}

impl RedisServer {
    /// A server with nothing special.
    pub fn start() -> Self {
        Self::build().start()
    }

    /// A server with something special.
    pub fn build() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How to reach it, without credentials: `redis://127.0.0.1:12345`, or `rediss://` with its authority.
    pub fn url(&self) -> String {
        match &self.certificates {
            None => format!("redis://127.0.0.1:{}", self.port),
            Some(certificates) => format!("rediss://127.0.0.1:{}?tls_ca={}", self.port, certificates.authority.display()),
        }
    }

    /// The authority that signed its certificate, if it speaks TLS.
    pub fn ca_file(&self) -> Option<&Path> {
        self.certificates.as_ref().map(|certificates| certificates.authority.as_path())
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The number of its process, which is another one after a restart.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// What it has written about itself.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// What redis-cli says, as the user that may do everything.
    pub fn cli(&self, args: &[&str]) -> String {
        self.try_cli(args).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// The same, when the server may be away.
    pub fn try_cli(&self, args: &[&str]) -> Result<String, String> {
        let port = self.port.to_string();
        let mut all = vec!["-h", "127.0.0.1", "-p", &port, "--no-auth-warning"];
        if let Some(password) = &self.password {
            all.extend(["-a", password]);
        }
        if let Some(file) = self.ca_file().and_then(Path::to_str) {
            all.extend(["--tls", "--cacert", file]);
        }
        all.extend(args);
        output_of("redis-cli", &all)
    }

    /// Ends it as `kill -9` does.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Ends it as an operator does.
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Starts it again after [`kill`](Self::kill) or [`stop`](Self::stop): same port, same folder.
    pub fn start_again(&mut self) {
        self.process = start_in(self.folder.path()).unwrap_or_else(|log| panic!("redis-server did not start again:\n{log}"));
    }

    /// Stops it and starts it again.
    pub fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    /// It stands still, as with SIGSTOP, until [`resume`](Self::resume).
    pub fn pause(&self) {
        self.process.pause();
    }

    /// It goes on.
    pub fn resume(&self) {
        self.process.signal(Signal::SIGCONT);
    }
}
