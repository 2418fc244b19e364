//! The list of limits: which rules have counted something, written down after the check that was the first, and how they stand.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::try_join_all;
use redis::Cmd;
use tokio::sync::RwLock;
use towpath_core::inspect::{LimitPage, LimitQuery, LimitView, PageRequest};
use towpath_core::limit::{Check, LimitReply, Note, Noted, NotedRule};
use towpath_core::store::StoreError;
use towpath_core::time::Micros;

use super::wire::Verb;
use crate::script::{Args, LIMITS_NOTE};
use crate::store::RedisStore;
use crate::value;

/// So many rules are kept; of a flood of scopes the list shows a part.
const KEPT_MAX: usize = 100_000;
/// So many rules are looked at for one page; a list of many that rest comes in short pages.
const LOOKED_AT_MAX: usize = 2_000;
/// So many are looked at together.
const TOGETHER: usize = 100;

/// What this process has written down.
#[derive(Default)]
pub(crate) struct Notebook {
    noted: Mutex<Noted>,
    /// Held while something is written down, so that a list can wait for it.
    writing: Arc<RwLock<()>>,
}

impl Notebook {
    /// Waits until everything that was to be written down is.
    pub(crate) async fn is_written(&self) {
        drop(self.writing.write().await);
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        // Nothing in here can panic half way.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RedisStore {
    /// Writes down which rules have counted something, where that is news. Nobody waits for it: a list that lacks one harms no check.
    pub(super) async fn note_limits(&self, check: &Check, reply: &LimitReply) {
        let now = self.shared.clock.now_us();
        let news = self.shared.notebook.noted().news(check, reply, now);
        if news.is_empty() {
            return;
        }
        self.shared.notebook.noted().keep(check, reply, now);
        let (store, writing) = (self.clone(), Arc::clone(&self.shared.notebook.writing).read_owned().await);
        tokio::spawn(async move {
            if let Err(error) = store.write_notes(&news, now).await {
                tracing::debug!(%error, "which limits are in use could not be written down");
            }
            drop(writing);
        });
    }

    async fn write_notes(&self, news: &[Note], now: Micros) -> Result<(), StoreError> {
        let mut args = Args::with_capacity(2 + news.len() * 2);
        args.number(now.to_millis().as_millis());
        args.number(KEPT_MAX);
        for note in news {
            args.push(note.noted.text());
            args.number(note.keep_until.to_millis().as_millis());
        }
        let (index, over) = (self.shared.keys.limit_index(), self.shared.keys.limit_over());
        self.shared.link.run_args(&LIMITS_NOTE, &[index.as_str(), over.as_str()], &args).await.map(drop)
    }

    pub(crate) async fn limit_page(&self, query: &LimitQuery) -> Result<LimitPage, StoreError> {
        self.shared.notebook.is_written().await;
        let limit = query.limit.min(PageRequest::LIMIT_MAX) as usize;
        let (mut items, mut after): (Vec<LimitView>, Option<NotedRule>) = (Vec::new(), query.after.clone());
        let mut from = after.as_ref().map(|after| after.text().as_bytes().to_vec());
        for _ in 0..LOOKED_AT_MAX / TOGETHER {
            let (listed, last) = self.limits_after(&query.prefix, from.as_deref()).await?;
            let Some(last) = last else { return Ok(LimitPage { items, next: None }) };
            from = Some(last);
            after = listed.last().cloned().or(after);
            let meant: Vec<NotedRule> = listed.into_iter().filter(|limited| query.means(limited)).collect();
            let looks = try_join_all(meant.into_iter().map(|limited| self.look_at(limited))).await?;
            for view in looks.into_iter().flatten() {
                if items.len() == limit {
                    let next = items.last().map(|view| view.limit.clone());
                    return Ok(LimitPage { items, next });
                }
                items.push(view);
            }
        }
        Ok(LimitPage { items, next: after })
    }

    /// The next rules of the list, whether or not anything of them is in use, and the last line that was looked at, whatever it is.
    async fn limits_after(&self, prefix: &str, after: Option<&[u8]>) -> Result<(Vec<NotedRule>, Option<Vec<u8>>), StoreError> {
        let after = after.filter(|after| *after > prefix.as_bytes());
        let from = after.map_or_else(|| [b"[", prefix.as_bytes()].concat(), |after| [b"(", after].concat());
        // No text has this byte, so nothing that begins with the prefix comes after it.
        let until = [b"(", prefix.as_bytes(), b"\xff"].concat();
        let (index, mut ask) = (self.shared.keys.limit_index(), Cmd::new());
        ask.arg("ZRANGE").arg(&index).arg(from).arg(until).arg("BYLEX").arg("LIMIT").arg(0).arg(TOGETHER);
        let lines = self.shared.link.ask(&ask).await.and_then(|reply| value::array("ZRANGE", reply));
        let lines = self.shared.or_pass_over(&index, lines, Vec::new())?;
        let last = lines.last().and_then(value::bytes).map(<[u8]>::to_vec);
        let mut listed = Vec::with_capacity(lines.len());
        for line in &lines {
            match value::text(line).and_then(NotedRule::from_text) {
                Some(rule) => listed.push(rule),
                None => {
                    self.shared.pass_over(&index, value::bytes(line).unwrap_or_default(), "it names no rule of a limit; ZREM removes it");
                }
            }
        }
        Ok((listed, last))
    }

    async fn look_at(&self, limited: NotedRule) -> Result<Option<LimitView>, StoreError> {
        let Some(look) = LimitView::look(&limited) else { return Ok(None) };
        let reply = match self.ask_limit(&look, Verb::Peek).await {
            Err(error) if self.shared.is_local(&error) => return Ok(None), // a caller that asks it is told; a list goes on without it
            reply => reply?,
        };
        Ok(reply.rules.first().copied().and_then(|said| LimitView::in_use(limited, said)))
    }
}
