//! Forgets a function that only servers serve, because it has a target: first its target goes, and every server hears of it and stops pushing.

use std::time::Duration;

use towpath_core::names::FunctionKey;
use towpath_core::store::{StoreError, StoreTrouble};
use towpath_core::worker::FunctionDefinition;

use crate::http::app::App;
use crate::http::codes::Code;
use crate::http::error::ApiError;
use crate::push;

/// All servers have this long to stop pushing.
const RETIRE_TIME_MAX: Duration = Duration::from_secs(10);
/// A worker that leaves sends no notification, so this server looks again until all have left.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// A store that fails has this long to take the target back.
const GIVE_BACK_TIME_MAX: Duration = Duration::from_secs(30);
const GIVE_BACK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// The kind of a worker that registers no definition.
const LEGACY: &str = "legacy";

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forgetting {
    Forgotten,
    /// It has workers or calls, and its target as before.
    InUse,
    /// A caller or a worker has defined it anew meanwhile. That definition counts.
    Redefined,
}

/// Forgets the function, or leaves it with its target.
///
/// It goes on when the client leaves. A process that dies on the way leaves a function without a target: define it again, or forget it
/// again. A definition that comes through another server in the moment between the last look and the forgetting is forgotten, too, as if
/// it had come just before.
pub(super) async fn forget(app: &App, key: &FunctionKey) -> Result<Forgetting, ApiError> {
    let (app, key) = (app.clone(), key.clone());
    match tokio::spawn(async move { Retirement::begin(app, &key).await }).await {
        Ok(ended) => Ok(ended?),
        Err(_panicked) => Err(ApiError::new(Code::Internal, "the server ran into a bug of its own while it forgot a function")),
    }
}

struct Retirement {
    app: App,
    before: FunctionDefinition,
    without_target: FunctionDefinition,
}

impl Retirement {
    async fn begin(app: App, key: &FunctionKey) -> Result<Forgetting, StoreError> {
        let Some(before) = app.store().find(key, app.clock().now()).await?.map(|view| view.definition) else {
            return Ok(Forgetting::Redefined);
        };
        let without_target = FunctionDefinition { target: None, ..before.clone() };
        Self { app, before, without_target }.run().await
    }

    async fn run(self) -> Result<Forgetting, StoreError> {
        let ended = match self.take_target().await {
            Ok(true) => self.forget_when_all_have_left().await,
            Ok(false) => return Ok(Forgetting::Redefined),
            Err(StoreError::Unavailable(trouble)) => return Err(StoreError::Unavailable(trouble)),
            // It may be gone.
            Err(error) => Err(error),
        };
        let given_back = match ended {
            Ok(Forgetting::Forgotten | Forgetting::Redefined) => Ok(()),
            Ok(Forgetting::InUse) | Err(_) => self.give_back_target().await,
        };
        given_back.and(ended).map_err(|error| self.half_done(error))
    }

    async fn definition(&self) -> Result<Option<FunctionDefinition>, StoreError> {
        Ok(self.app.store().find(&self.before.key, self.app.clock().now()).await?.map(|view| view.definition))
    }

    /// Whether the target is taken away. `false`: the function has another definition, or is not known.
    async fn take_target(&self) -> Result<bool, StoreError> {
        let is_taken = self.app.store().redefine(&self.before, self.without_target.clone()).await?;
        Ok(is_taken || self.definition().await?.as_ref() == Some(&self.without_target))
    }

    async fn forget_when_all_have_left(&self) -> Result<Forgetting, StoreError> {
        let (app, key) = (&self.app, &self.before.key);
        let give_up_at = app.clock().now() + RETIRE_TIME_MAX;
        loop {
            if let Some(ended) = self.try_to_forget().await? {
                return Ok(ended);
            }
            let Some(view) = app.store().find(key, app.clock().now()).await? else { return Ok(Forgetting::Forgotten) };
            let has_calls = view.counts.backlog() + view.counts.running + view.counts.dead > 0;
            if has_calls || app.clock().now() >= give_up_at {
                return Ok(Forgetting::InUse);
            }
            app.clock().sleep_until(app.clock().now() + LOOK_AGAIN_AFTER).await;
        }
    }

    /// `None`: a worker is still there, or a call.
    async fn try_to_forget(&self) -> Result<Option<Forgetting>, StoreError> {
        // Definitions that come through this server wait until it is forgotten or not.
        let _still = self.app.pushed().definitions().await;
        // In every round: a server that was just starting its worker writes the definition again, as it had read it.
        if !self.take_target().await? {
            let is_gone = self.definition().await?.is_none();
            return Ok(Some(if is_gone { Forgetting::Forgotten } else { Forgetting::Redefined }));
        }
        Ok(self.app.store().forget(&self.before.key).await?.then_some(Forgetting::Forgotten))
    }

    /// Unless the function is gone, or a caller or a worker has defined it otherwise meanwhile.
    async fn give_back_target(&self) -> Result<(), StoreError> {
        let clock = self.app.clock();
        let give_up_at = clock.now() + GIVE_BACK_TIME_MAX;
        loop {
            let Err(error) = self.try_to_give_back().await else { return Ok(()) };
            if matches!(error, StoreError::Unavailable(StoreTrouble::Closed)) || clock.now() >= give_up_at {
                tracing::error!(function = %self.before.key, %error, "a function that was not forgotten may be without its target: define it again");
                return Err(error);
            }
            clock.sleep_until(clock.now() + GIVE_BACK_AGAIN_AFTER).await;
        }
    }

    async fn try_to_give_back(&self) -> Result<(), StoreError> {
        let workers = self.app.store().workers().await?;
        let mut kinds = workers.iter().filter(|worker| worker.functions.contains(&self.before.key)).map(|worker| worker.kind.as_str());
        // Such a worker came meanwhile, and its definition counts although it looks like ours.
        if kinds.any(|kind| kind != push::KIND && kind != LEGACY) {
            return Ok(());
        }
        let _still = self.app.pushed().definitions().await;
        self.app.store().redefine(&self.without_target, self.before.clone()).await.map(drop)
    }

    /// An error after the target was taken away: the client may not believe that nothing has happened.
    fn half_done(&self, error: StoreError) -> StoreError {
        let cause = match error {
            StoreError::Unavailable(trouble) => trouble.to_string(),
            StoreError::Unknown(cause) => cause,
            corrupt @ StoreError::Corrupt(_) => return corrupt,
        };
        StoreError::Unknown(format!(
            "{cause}; look whether function '{}' has its target, and define it or forget it again",
            self.before.key
        ))
    }
}
