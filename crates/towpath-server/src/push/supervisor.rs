//! Keeps one worker per function with a target, and follows the definitions as they change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use towpath::{FunctionKey, FunctionOptions, RunningWorker, Towpath};
use towpath_core::worker::{FunctionDefinition, PushTarget};

use super::post::{Poster, PushHandler};

/// What sort of worker a server is for functions with a target.
pub(crate) const KIND: &str = "push";

/// After an error of the store, the next look waits so long.
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(1);

/// What changes of definitions wait for. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Pushed {
    /// Held while a definition is read and registered with its worker, and while one is changed: registering writes the definition
    /// again, and must not write an old one over a new one.
    definitions: Arc<Mutex<()>>,
}

impl Pushed {
    /// For a server that pushes nothing.
    pub(crate) fn nothing() -> Self {
        Self { definitions: Arc::default() }
    }

    /// Definitions do not move while this is held.
    pub(crate) async fn definitions(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.definitions.lock().await
    }
}

/// Keeps the workers.
pub(crate) struct Supervisor {
    towpath: Towpath,
    poster: Arc<Poster>,
    drain_timeout: Duration,
    definitions: Arc<Mutex<()>>,
}

struct Served {
    definition: FunctionDefinition,
    worker: RunningWorker,
}

/// Workers that stop in the background.
#[derive(Default)]
struct Stopping(JoinSet<()>);

impl Stopping {
    /// Lets a worker finish what it has under way, without waiting for it here.
    fn retire(&mut self, one: Served) {
        self.0.spawn(async move {
            one.worker.drain().await;
        });
    }

    /// Ends when one of them has stopped; never, when none stops.
    async fn next(&mut self) {
        if self.0.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    async fn all(mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

impl Supervisor {
    pub(crate) fn new(towpath: Towpath, poster: Poster, drain_timeout: Duration) -> (Self, Pushed) {
        let definitions: Arc<Mutex<()>> = Arc::default();
        let pushed = Pushed { definitions: definitions.clone() };
        (Self { towpath, poster: Arc::new(poster), drain_timeout, definitions }, pushed)
    }

    /// Follows the definitions until the server stops, then drains.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let (mut served, mut stopping, mut seen) = (HashMap::new(), Stopping::default(), 0);
        loop {
            if let Err(error) = self.follow(&mut served, &mut stopping).await {
                tracing::warn!(%error, "pushed functions could not be followed");
            }
            tokio::select! {
                () = stop.cancelled() => break,
                changes = self.towpath.store().functions_changed(seen) => match changes {
                    Ok(count) => seen = count,
                    Err(_) => self.pause().await,
                },
                () = stopping.next() => {}
            }
        }
        for (_, one) in served.drain() {
            stopping.retire(one);
        }
        stopping.all().await;
    }

    /// Starts, replaces and stops workers until they are what the definitions say.
    async fn follow(&self, served: &mut HashMap<FunctionKey, Served>, stopping: &mut Stopping) -> Result<(), towpath::StoreError> {
        let _still = self.definitions.lock().await;
        let views = self.towpath.store().functions().await?;
        let wanted: HashMap<FunctionKey, FunctionDefinition> = views
            .into_iter()
            .filter(|view| view.definition.target.is_some())
            .map(|view| (view.definition.key.clone(), view.definition))
            .collect();
        let outdated: Vec<FunctionKey> =
            served.iter().filter(|(key, one)| wanted.get(key) != Some(&one.definition)).map(|(key, _)| key.clone()).collect();
        for key in outdated {
            if let Some(one) = served.remove(&key) {
                stopping.retire(one);
            }
        }
        for (key, definition) in wanted {
            if served.contains_key(&key) {
                continue;
            }
            match self.start(&definition).await {
                Ok(worker) => drop(served.insert(key, Served { definition, worker })),
                Err(error) => tracing::warn!(function = %key, %error, "a pushed function could not be served"),
            }
        }
        Ok(())
    }

    async fn start(&self, definition: &FunctionDefinition) -> Result<RunningWorker, towpath::WorkerError> {
        let PushTarget { url, concurrency } = definition.target.clone().unwrap_or(PushTarget { url: String::new(), concurrency: 1 });
        let handler = PushHandler { poster: self.poster.clone(), url };
        self.towpath
            .worker()
            .kind(KIND)
            .concurrency(concurrency)
            .drain_timeout(self.drain_timeout)
            .raw_function(FunctionOptions::for_definition(definition), Arc::new(handler))
            .start()
            .await
    }

    async fn pause(&self) {
        let clock = self.towpath.clock();
        clock.sleep_until(clock.now() + PAUSE_AFTER_ERROR).await;
    }
}
