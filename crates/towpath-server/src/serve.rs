//! Puts the server together, runs it, and takes it apart in good order.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use towpath::batches::ServingBatches;
use towpath::{OpenError, RunningWorker, Towpath, WorkerError};
use towpath_core::store::StoreError;

use crate::batches::ServerReceiver;
use crate::demo;
use crate::http::app::App;
use crate::http::{layers, listener};
use crate::metrics::Metrics;
use crate::push::{Poster, Pushed, Supervisor, WebhookSecret, keep_secret};
use crate::settings::{RefusedSettings, Settings};

/// A request that is given up while it waits is answered within this time.
const LAST_WORDS: Duration = Duration::from_secs(2);
const WARN_EVERY: Duration = Duration::from_secs(60);
const SECRET_FILE: &str = "webhook-secret";

/// Why a server did not start, or stopped by itself.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Settings that would do harm.
    #[error(transparent)]
    Settings(#[from] RefusedSettings),
    /// The store could not be opened; another server on the same file is one reason.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store was opened but does not work.
    #[error("the store does not work: {0}")]
    Store(#[from] StoreError),
    /// The address is taken or not this machine's.
    #[error("cannot listen on {addr}: {error}; choose another address with --listen")]
    Listen {
        /// Which address.
        addr: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The secret that pushed calls are signed with could not be read or kept.
    #[error("the webhook secret cannot be used: {0}; set TOWPATH_WEBHOOK_SECRET to bring your own")]
    Secret(io::Error),
    /// The client for pushed calls could not be made.
    #[error("the client for pushed calls cannot be made: {0}")]
    Push(#[from] reqwest::Error),
    /// The demo functions could not be served.
    #[error("the demo functions cannot be served: {0}")]
    Demo(#[from] WorkerError),
    /// The disk failed while the server ran. What was accepted before is on it.
    #[error("the store broke: {0}")]
    Broken(String),
}

impl ServeError {
    /// The exit code of a server that ends with this.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Settings(_) | Self::Open(OpenError::UnknownStore { .. } | OpenError::Refused { .. }) | Self::Secret(_) => 78,
            Self::Broken(_) => 74,
            Self::Open(_) | Self::Store(_) => 7,
            _ => 1,
        }
    }
}

/// Runs a server until `shutdown`, then drains. Dropping the future stops at once: what was accepted is in the store.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> Result<(), ServeError> {
    let running = start(settings).await?;
    tokio::select! {
        () = shutdown.cancelled() => {
            running.stop().await;
            Ok(())
        }
        cause = running.towpath.broken() => Err(ServeError::Broken(cause)),
    }
}

/// Opens the store and starts a server on it.
pub async fn start(settings: Settings) -> Result<Running, ServeError> {
    settings.check()?;
    let metrics = Arc::new(Metrics::new());
    let owner = format!("towpath serve on {}", settings.listen);
    let mut builder = Towpath::builder().observer(metrics.clone()).owner(owner).retention(settings.retention);
    if let Some(durability) = settings.durability {
        builder = builder.durability(durability);
    }
    if settings.refuse_lossy {
        builder = builder.strict();
    }
    let towpath = builder.open(&settings.store).await?;
    start_on(towpath, metrics, settings).await
}

/// Starts a server on a store that is open already, which `metrics` observe. The server closes the store when it stops.
pub async fn start_on(towpath: Towpath, metrics: Arc<Metrics>, settings: Settings) -> Result<Running, ServeError> {
    settings.check()?;
    let (socket, addr) = listener::bind(settings.listen).map_err(|error| ServeError::Listen { addr: settings.listen, error })?;
    let settings = Settings { listen: addr, ..settings };
    let secrets = secrets(&towpath, &settings).await?;
    let receiver = ServerReceiver::new(&towpath, settings.target_policy(), secrets.clone());
    let poster = Poster::new(settings.target_policy(), secrets, towpath.clock().clone())?;
    let (supervisor, pushed) = Supervisor::new(towpath.clone(), poster, settings.drain_timeout);
    let demo = if settings.demo { Some(demo::start(&towpath, settings.drain_timeout).await?) } else { None };
    let stop_pushing = CancellationToken::new();
    let pushing = AbortOnDropHandle::new(tokio::spawn(supervisor.run(stop_pushing.clone())));
    for batcher in &settings.config.batchers {
        towpath.batchers().define_here(batcher);
    }
    let batches = towpath.serve_batches(Arc::new(receiver), settings.drain_timeout);
    let app = App::new(towpath.clone(), &settings, metrics, pushed);
    let handle = Handle::new();
    let serving = listener::serve(socket, layers::router(app.clone()), settings.clone(), handle.clone());
    let serving = AbortOnDropHandle::new(tokio::spawn(serving));
    let warning = settings.is_open_to_all().then(|| AbortOnDropHandle::new(tokio::spawn(warn_of_open_door(towpath.clone(), addr))));
    tracing::info!(%addr, store = towpath::shown(&settings.store), "listening");
    Ok(Running { addr, towpath, app, handle, serving, demo, pushing, stop_pushing, batches, settings, _warning: warning })
}

/// The API as a service, for programs that speak to their own store through it. Nothing listens, nothing is pushed, no demo.
pub fn router(towpath: Towpath, settings: &Settings) -> Router {
    layers::router(App::new(towpath, settings, Arc::new(Metrics::new()), Pushed::nothing()))
}

/// What pushed calls are signed with: the operator's secrets, or one that is made once and kept beside the store.
async fn secrets(towpath: &Towpath, settings: &Settings) -> Result<Vec<WebhookSecret>, ServeError> {
    if !settings.webhook_secrets.is_empty() {
        return Ok(settings.webhook_secrets.clone());
    }
    let location = towpath.store().probe().await?.location;
    let folder = location.strip_prefix("sqlite:").map(PathBuf::from).and_then(|file| file.parent().map(|folder| folder.join(SECRET_FILE)));
    let secret = match folder {
        // Reading a few bytes at start is not worth a thread.
        Some(path) => {
            if !path.exists() {
                tracing::info!(path = %path.display(), "made a secret that pushed calls are signed with");
            }
            keep_secret(&path)
        }
        None => {
            // Nothing outlives a store in memory; a Redis is no place for secrets.
            if location.starts_with("redis") {
                tracing::warn!(
                    "pushed calls are signed with a secret of this process alone: set TOWPATH_WEBHOOK_SECRET to one of your own"
                );
            }
            WebhookSecret::generate()
        }
    };
    Ok(vec![secret.map_err(ServeError::Secret)?])
}

async fn warn_of_open_door(towpath: Towpath, addr: SocketAddr) {
    loop {
        tracing::warn!(%addr, "everyone on the network may call and serve functions: give the server a key with --api-key");
        towpath.clock().sleep_until(towpath.clock().now() + WARN_EVERY).await;
    }
}

/// A server that runs. Dropping it stops it at once.
pub struct Running {
    addr: SocketAddr,
    towpath: Towpath,
    app: App,
    handle: Handle<SocketAddr>,
    serving: AbortOnDropHandle<io::Result<()>>,
    demo: Option<RunningWorker>,
    pushing: AbortOnDropHandle<()>,
    stop_pushing: CancellationToken,
    batches: ServingBatches,
    settings: Settings,
    _warning: Option<AbortOnDropHandle<()>>,
}

impl Running {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The store behind it.
    pub fn towpath(&self) -> &Towpath {
        &self.towpath
    }

    /// Stops in good order: not ready at once, no new deliveries, open waits answered or given up, workers drained, store closed.
    pub async fn stop(self) {
        let Self { towpath, app, handle, serving, demo, pushing, stop_pushing, batches, settings, .. } = self;
        tracing::info!("stopping");
        app.drain().begin();
        stop_pushing.cancel();
        let workers = async {
            if let Some(worker) = demo {
                worker.drain().await;
            }
            if let Err(error) = pushing.await {
                tracing::error!(%error, "pushed functions did not stop in good order");
            }
        };
        let requests = async {
            pause(&towpath, settings.drain_grace).await;
            app.drain().close();
            tokio::select! {
                () = app.drain().all_answered() => {}
                () = pause(&towpath, settings.drain_timeout) => {}
            }
            app.drain().give_up();
            handle.graceful_shutdown(Some(LAST_WORDS));
            if let Ok(Err(error)) = serving.await {
                tracing::error!(%error, "the listener did not stop in good order");
            }
        };
        tokio::join!(workers, requests, batches.stop());
        towpath.close().await;
        tracing::info!("stopped");
    }
}

async fn pause(towpath: &Towpath, length: Duration) {
    if !length.is_zero() {
        towpath.clock().sleep_until(towpath.clock().now() + length).await;
    }
}
