//! The list of limits: which rules have counted something, and how they stand.

use towpath_core::inspect::{LimitPage, LimitQuery, LimitView, PageRequest};
use towpath_core::limit::{Check, LimitReply, NotedRule};

use super::load;
use crate::trouble::Moved;
use crate::writer::Tx;

const PUT: &str = "INSERT INTO limit_rules (noted, sweep_us) VALUES (?1, ?2) \
     ON CONFLICT (noted) DO UPDATE SET sweep_us = max(sweep_us, excluded.sweep_us)";
pub(crate) const SWEEP: &str =
    "DELETE FROM limit_rules WHERE noted IN (SELECT noted FROM limit_rules WHERE sweep_us < ?1 ORDER BY sweep_us LIMIT ?2)";
pub(crate) const AFTER: &str = "SELECT noted FROM limit_rules WHERE noted > ?1 ORDER BY noted LIMIT ?2";

/// Every new rule sweeps so many that are over: more go than come.
const SWEPT_PER_NEW: i64 = 2;
/// So many rules are looked at for one page; a list of many that rest comes in short pages.
const LOOKED_AT_MAX: usize = 2_000;

/// Writes down which rules have counted something, where that is news.
pub(super) fn note(tx: &mut Tx<'_>, check: &Check, reply: &LimitReply) -> Moved<()> {
    let news = tx.memory.noted.news(check, reply, tx.now_us);
    if news.is_empty() {
        return Ok(());
    }
    for note in &news {
        tx.conn.prepare_cached(PUT)?.execute((note.noted.text(), note.keep_until.get()))?;
    }
    let swept = SWEPT_PER_NEW * i64::try_from(news.len()).unwrap_or(1);
    tx.conn.prepare_cached(SWEEP)?.execute((tx.now_us.get(), swept))?;
    tx.memory.noted.keep(check, reply, tx.now_us);
    Ok(())
}

pub(crate) fn page(tx: &Tx<'_>, query: &LimitQuery) -> Moved<LimitPage> {
    let limit = query.limit.min(PageRequest::LIMIT_MAX) as usize;
    // Whatever begins with the prefix comes after it, and after it comes nothing else.
    let mut last = query.after.as_ref().map(NotedRule::text).filter(|after| *after > query.prefix).unwrap_or_else(|| query.prefix.clone());
    let mut items: Vec<LimitView> = Vec::new();
    for _ in 0..LOOKED_AT_MAX {
        let mut statement = tx.conn.prepare_cached(AFTER)?;
        let found: Option<String> = statement.query_map((&last, 1), |row| row.get(0))?.next().transpose()?;
        let Some(text) = found.filter(|text| text.starts_with(&query.prefix)) else { return Ok(LimitPage { items, next: None }) };
        let Some(limited) = NotedRule::from_text(&text).filter(|limited| query.means(limited)) else {
            last = text; // what cannot be read was written by another version
            continue;
        };
        let state = load(tx, limited.scope(), limited.rule())?;
        if let Some(view) = LimitView::of(limited, state, tx.now_us) {
            if items.len() == limit {
                let next = items.last().map(|view| view.limit.clone());
                return Ok(LimitPage { items, next });
            }
            items.push(view);
        }
        last = text;
    }
    Ok(LimitPage { items, next: NotedRule::from_text(&last) })
}
