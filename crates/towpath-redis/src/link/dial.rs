//! Making one connection to one server: reach it, encrypt, say who we are.

use std::io;
use std::time::Duration;

use redis::Cmd;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use towpath_core::store::StoreError;

use super::{error, tls};
use crate::options::{Address, RedisOptions};

const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// A peer that is silently gone is noticed after about 11 s, also by a read that waits for ever.
const SILENT_AFTER: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_secs(2);
const ASK_TIMES: u32 = 3;
#[cfg(target_os = "linux")]
const UNHEARD_FOR: Duration = Duration::from_secs(11);

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection on which we have said who we are.
pub(super) struct Greeted {
    pub(super) stream: Box<dyn Stream>,
    /// How the server calls this connection; 0 if it does not say.
    pub(super) client_id: i64,
}

/// All that a connection needs but the address.
pub(super) struct Dialer {
    credentials: Option<Credentials>,
    database: i64,
    name: String,
    tls: Option<TlsConnector>,
}

struct Credentials {
    username: Option<String>,
    password: String,
}

impl Dialer {
    pub(super) fn new(options: &RedisOptions) -> Result<Self, StoreError> {
        let given = options.username.is_some() || options.password.is_some();
        let credentials =
            given.then(|| Credentials { username: options.username.clone(), password: options.password.clone().unwrap_or_default() });
        let plain: String = options.owner.chars().map(|letter| if letter.is_ascii_graphic() { letter } else { '-' }).collect();
        let tls = options.tls.as_ref().map(tls::connector).transpose()?;
        Ok(Self { credentials, database: options.database, name: format!("towpath:{plain}"), tls })
    }

    /// A connection to a server with data.
    pub(super) async fn data(&self, address: &Address) -> Result<Greeted, StoreError> {
        let mut greeting = self.authentication();
        if self.database != 0 {
            greeting.push(Must::Succeed(command(&["SELECT", &self.database.to_string()])));
        }
        // A server that wants a password or still reads its data says so here, and not in the middle of work.
        greeting.push(Must::SucceedIfAllowed(command(&["PING"])));
        self.dial(address, greeting).await
    }

    /// A connection to a Sentinel. Many have no password, and then refuse one.
    pub(super) async fn sentinel(&self, address: &Address, with_credentials: bool) -> Result<Greeted, StoreError> {
        let greeting = if with_credentials { self.authentication() } else { Vec::new() };
        self.dial(address, greeting).await
    }

    pub(super) fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    fn authentication(&self) -> Vec<Must> {
        let Some(credentials) = &self.credentials else { return Vec::new() };
        let username = credentials.username.as_deref();
        let words: Vec<&str> = ["AUTH"].into_iter().chain(username).chain([credentials.password.as_str()]).collect();
        vec![Must::Succeed(command(&words))]
    }

    async fn dial(&self, address: &Address, mut greeting: Vec<Must>) -> Result<Greeted, StoreError> {
        // Neither is needed to work, and a user may lack the right to either.
        greeting.push(Must::BeTried(command(&["CLIENT", "SETNAME", &self.name])));
        greeting.push(Must::BeTried(command(&["CLIENT", "ID"])));
        let reached = timeout(CONNECT_WITHIN, async {
            let mut stream = self.stream(address).await?;
            let replies = greet(&mut stream, &greeting).await?;
            Ok::<_, io::Error>((stream, replies))
        });
        let reached = reached.await.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")));
        let (stream, replies) = reached.map_err(|failure| error::not_reached(address, &failure.to_string()))?;
        for (asked, reply) in greeting.iter().zip(&replies) {
            let Some(refusal) = reply.strip_prefix('-') else { continue };
            let (code, detail) = refusal.split_once(' ').unwrap_or((refusal, ""));
            match asked {
                Must::BeTried(_) => {}
                Must::SucceedIfAllowed(_) if code == "NOPERM" => {}
                Must::SucceedIfAllowed(_) | Must::Succeed(_) => return Err(error::refusal(code, detail)),
            }
        }
        let client_id = replies.last().and_then(|reply| reply.strip_prefix(':')).and_then(|id| id.parse().ok()).unwrap_or(0);
        Ok(Greeted { stream, client_id })
    }

    async fn stream(&self, address: &Address) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENT_AFTER).with_interval(ASK_EVERY).with_retries(ASK_TIMES))?;
        // Without it, bytes under way when the peer dies are sent again for a quarter of an hour.
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(UNHEARD_FOR))?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
        Ok(Box::new(tls.connect(name, stream).await?))
    }
}

/// What a part of the greeting must do, or the connection is of no use.
enum Must {
    Succeed(Cmd),
    /// Or the user may not do it.
    SucceedIfAllowed(Cmd),
    BeTried(Cmd),
}

fn command(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}

/// Says all at once and reads one line for each. None of these commands is answered with more than a line.
async fn greet(stream: &mut Box<dyn Stream>, greeting: &[Must]) -> io::Result<Vec<String>> {
    let said: Vec<u8> = greeting
        .iter()
        .flat_map(|said| match said {
            Must::Succeed(command) | Must::SucceedIfAllowed(command) | Must::BeTried(command) => command.get_packed_command(),
        })
        .collect();
    stream.write_all(&said).await?;
    stream.flush().await?;
    let mut reader = BufReader::new(stream);
    let mut replies = Vec::with_capacity(greeting.len());
    for _ in greeting {
        let mut line = String::new();
        if reader.read_line(&mut line).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"));
        }
        replies.push(line.trim_end().to_owned());
    }
    Ok(replies)
}
