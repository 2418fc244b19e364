//! Limits: whatever checks have piled up go with one script run, which judges by the server's own clock.
//!
//! | file | what it does |
//! |---|---|
//! | `mod` | the moves; asks again when the window in a key was another one |
//! | `crowd` | which checks go together |
//! | `list` | which limits are in use, for people |
//! | `wire` | a check as words of the script, and its reply back |

mod crowd;
mod list;
mod wire;

use async_trait::async_trait;
use towpath_core::limit::{Check, LimitReply, Rules};
use towpath_core::names::LimitScope;
use towpath_core::store::{LimitStore, StoreError};
use towpath_core::time::Micros;

use crate::link::trouble;
use crate::store::RedisStore;
pub(crate) use crowd::Crowds;
pub(crate) use list::Notebook;
use wire::{Question, Said, Verb};

/// A check is put so often. Our clock is corrected by the first answer, so only an edge passed meanwhile makes a second one wrong.
const ATTEMPTS: usize = 3;

#[async_trait]
impl LimitStore for RedisStore {
    async fn take(&self, check: &Check) -> Result<LimitReply, StoreError> {
        let verb = if check.writes() { Verb::Commit } else { Verb::Peek };
        let reply = self.ask_limit(check, verb).await?;
        self.note_limits(check, &reply).await;
        Ok(reply)
    }

    async fn reset(&self, scope: &LimitScope, rules: &Rules) -> Result<u64, StoreError> {
        let look = Check::peek(scope.clone(), rules.clone(), 0).map_err(|refused| trouble(refused.to_string()))?;
        let before = self.ask_limit(&look, Verb::Reset).await?;
        Ok(before.rules.iter().filter(|said| !said.reset.is_zero()).count() as u64)
    }
}

impl RedisStore {
    async fn ask_limit(&self, check: &Check, verb: Verb) -> Result<LimitReply, StoreError> {
        let cluster = self.shared.link.is_cluster();
        if cluster && check.scope().as_str().contains(['{', '}']) {
            let scope = check.scope();
            return Err(trouble(format!(
                "scope '{scope}' has a brace, by which a Redis Cluster would place its keys: choose another name"
            )));
        }
        let mut now = self.shared.clock.now_us();
        for _ in 0..ATTEMPTS {
            let question = Question::new(check, verb, now, &self.shared.keys, cluster);
            match self.ask_together(question).await? {
                Said::Reply(reply) => return Ok(reply),
                Said::Rebucket(servers) => now = servers,
            }
        }
        Err(trouble("the Redis server's clock jumps: its window was another one each time; nothing was counted".to_owned()))
    }

    /// The instant that the script is handed: none where the server's own clock judges.
    fn given_time(&self) -> Option<Micros> {
        (!self.shared.lives_by_the_server).then(|| self.shared.clock.now_us())
    }
}
