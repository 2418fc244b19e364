//! The list of limits: which rules are asked, written down beside the check that is the first to ask them, and how they stand.

use std::sync::{Mutex, PoisonError};

use futures_util::future::try_join_all;
use redis::Cmd;
use towpath_core::inspect::{LimitPage, LimitQuery, LimitView, PageRequest};
use towpath_core::limit::{Check, Note, Noted, NotedRule};
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
pub(crate) struct Notebook(Mutex<Noted>);

impl Notebook {
    fn news(&self, check: &Check, now: Micros) -> Vec<Note> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).news(check, now)
    }

    fn keep(&self, check: &Check, now: Micros) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keep(check, now);
    }
}

impl RedisStore {
    /// Writes down which rules are asked, where that is news. A list that lacks one is no reason to refuse a check.
    pub(super) async fn note_limits(&self, check: &Check) {
        let now = self.shared.clock.now_us();
        let news = self.shared.notebook.news(check, now);
        if news.is_empty() {
            return;
        }
        match self.write_notes(&news, now).await {
            Ok(()) => self.shared.notebook.keep(check, now),
            Err(error) => tracing::debug!(%error, "which rules are asked could not be written down"),
        }
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
        let limit = query.limit.min(PageRequest::LIMIT_MAX) as usize;
        let (mut items, mut after): (Vec<LimitView>, Option<NotedRule>) = (Vec::new(), query.after.clone());
        for _ in 0..LOOKED_AT_MAX / TOGETHER {
            let listed = self.limits_after(&query.prefix, after.as_ref()).await?;
            let Some(last) = listed.last().cloned() else { return Ok(LimitPage { items, next: None }) };
            let meant: Vec<NotedRule> = listed.into_iter().filter(|limited| query.means(limited)).collect();
            let looks = try_join_all(meant.into_iter().map(|limited| self.look_at(limited))).await?;
            for view in looks.into_iter().flatten() {
                if items.len() == limit {
                    let next = items.last().map(|view| view.limit.clone());
                    return Ok(LimitPage { items, next });
                }
                items.push(view);
            }
            after = Some(last);
        }
        Ok(LimitPage { items, next: after })
    }

    /// The next rules of the list, whether or not anything of them is in use.
    async fn limits_after(&self, prefix: &str, after: Option<&NotedRule>) -> Result<Vec<NotedRule>, StoreError> {
        let after = after.map(NotedRule::text).filter(|after| after.as_str() > prefix);
        let from = after.map_or_else(|| format!("[{prefix}"), |after| format!("({after}"));
        // No text has this byte, so nothing that begins with the prefix comes after it.
        let until = [b"(", prefix.as_bytes(), b"\xff"].concat();
        let mut ask = Cmd::new();
        ask.arg("ZRANGE").arg(self.shared.keys.limit_index()).arg(from).arg(until).arg("BYLEX").arg("LIMIT").arg(0).arg(TOGETHER);
        let listed = value::array("ZRANGE", self.shared.link.ask(&ask).await?)?;
        Ok(listed.iter().filter_map(|text| NotedRule::from_text(value::text(text)?)).collect())
    }

    async fn look_at(&self, limited: NotedRule) -> Result<Option<LimitView>, StoreError> {
        let Some(look) = LimitView::look(&limited) else { return Ok(None) };
        let reply = match self.ask_limit(&look, Verb::Peek).await {
            Err(StoreError::Corrupt(_)) => return Ok(None), // whoever asks it is told; a list goes on without it
            reply => reply?,
        };
        Ok(reply.rules.first().copied().and_then(|said| LimitView::in_use(limited, said)))
    }
}
