//! The listening socket: how many connections, how long and how large a request's head may be.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum_server::Handle;
use axum_server::accept::Accept;
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::settings::Settings;

const HEADERS_MAX: usize = 100;
/// A longer head is answered 431 and the connection closed. One read may go beyond it, so that up to twice as much gets through.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Binds a socket, and says which address it got.
pub(crate) fn bind(listen: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

/// Answers requests until the handle says stop.
pub(crate) async fn serve(listener: TcpListener, router: Router, settings: Settings, handle: Handle<SocketAddr>) -> io::Result<()> {
    let slots = Arc::new(Semaphore::new(settings.max_connections));
    let mut server = axum_server::from_tcp(listener)?.acceptor(Capped { slots }).handle(handle);
    server
        .http_builder()
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.head_time_max)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    server.http1_only().serve(router.into_make_service_with_connect_info::<SocketAddr>()).await
}

/// Takes so many connections at once, and tells the others to come back.
#[derive(Clone)]
struct Capped {
    slots: Arc<Semaphore>,
}

type Accepting<S> = Pin<Box<dyn Future<Output = io::Result<(Connection, S)>> + Send>>;

impl<S: Send + 'static> Accept<TcpStream, S> for Capped {
    type Stream = Connection;
    type Service = S;
    type Future = Accepting<S>;

    fn accept(&self, stream: TcpStream, service: S) -> Accepting<S> {
        let slot = self.slots.clone().try_acquire_owned();
        Box::pin(async move {
            stream.set_nodelay(true)?;
            match slot {
                Ok(slot) => Ok((Connection { stream, _slot: slot }, service)),
                Err(_none_left) => Err(turn_away(stream).await),
            }
        })
    }
}

/// Says why before the connection is closed. Nothing is read, so that turning away costs next to nothing.
async fn turn_away(mut stream: TcpStream) -> io::Error {
    const BODY: &str = r#"{"error":{"code":"overloaded_server","message":"the server has as many connections as it takes","hint":"try again with back-off","effect":"none","request_id":"none"}}"#;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    // A client that does not even take this is gone.
    let _gone = stream.write_all(answer.as_bytes()).await;
    let _gone = stream.shutdown().await;
    io::Error::other("as many connections as are taken")
}

/// A connection and its place among those that are taken.
struct Connection {
    stream: TcpStream,
    _slot: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
