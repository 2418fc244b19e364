//! Posts: notices to other runs, kept from the move that causes them until they have arrived.

use std::collections::HashSet;

use rusqlite::Connection;
use towpath_core::run::{ChildEnd, ChildStart, FactKind, Post, RunCommand};
use towpath_core::store::{EventSent, NewEvent, POST_KEPT_FOR, RunRequest, StartRun, post_again_after};
use towpath_core::time::Timestamp;

use super::rows;
use crate::trouble::Moved;
use crate::writer::Tx;

/// Posts that may be sent now. Those to one run are in the order in which they were written.
pub(super) const DUE: &str =
    "SELECT number, to_run, post, written_ms, tries FROM run_posts WHERE not_before_ms <= ?1 ORDER BY not_before_ms, number LIMIT ?2";
pub(super) const NEXT_DUE: &str = "SELECT not_before_ms FROM run_posts ORDER BY not_before_ms LIMIT 1";
// It does not overtake an earlier post to the same run that was put off.
const KEEP: &str = "INSERT INTO run_posts (to_run, written_ms, not_before_ms, tries, post) VALUES \
     (?1, ?2, max(?2, coalesce((SELECT max(not_before_ms) FROM run_posts WHERE to_run = ?1), 0)), 0, ?3) RETURNING not_before_ms";
const PUT_OFF: &str = "UPDATE run_posts SET not_before_ms = ?2, tries = ?3 WHERE to_run = ?1";
const REMOVE: &str = "DELETE FROM run_posts WHERE number = ?1";

/// A post as it is kept. It may be one that cannot be read.
struct Kept {
    number: i64,
    to: String,
    post: String,
    written_at: Timestamp,
    tries: u32,
}

/// Keeps a post. The timekeeper hears that there is one to send.
pub(super) fn keep(tx: &mut Tx<'_>, post: &Post) -> Moved<()> {
    let row = (post.to().as_str(), tx.now.as_millis(), rows::write_json(post)?);
    let not_before: i64 = tx.conn.prepare_cached(KEEP)?.query_row(row, |row| row.get(0))?;
    tx.after.note_due(Some(Timestamp::from_millis(not_before)));
    Ok(())
}

/// Sends posts that are due. Returns how many have arrived, or never can. One that cannot be read, or is for a run that cannot be read, waits
/// like one that its run refuses.
pub(super) fn send(tx: &mut Tx<'_>, limit: u32) -> Moved<u64> {
    let (mut sent, mut refused) = (0, HashSet::new());
    for Kept { number, to, post, written_at, tries } in due(tx.conn, limit, tx.now)? {
        if refused.contains(&to) {
            continue;
        }
        let delivered = rows::read_json(&post).and_then(|post| deliver(tx, post));
        let has_arrived = super::or_passed_over(tx, &to, delivered)?.unwrap_or(false);
        if has_arrived || tx.now >= written_at + POST_KEPT_FOR {
            tx.conn.prepare_cached(REMOVE)?.execute([number])?;
            sent += 1;
        } else {
            // Posts to one run keep their order: all of them wait.
            let again_at = tx.now + post_again_after(tries);
            tx.conn.prepare_cached(PUT_OFF)?.execute((&to, again_at.as_millis(), tries + 1))?;
            refused.insert(to);
        }
    }
    tx.after.next_due = Some(crate::timers::next_of_all(tx.conn, tx.memory)?);
    tx.after.due = None; // all timers were looked at
    Ok(sent)
}

fn due(conn: &Connection, limit: u32, now: Timestamp) -> Moved<Vec<Kept>> {
    let mut statement = conn.prepare_cached(DUE)?;
    let read = |row: &rusqlite::Row<'_>| {
        let written_at = Timestamp::from_millis(row.get(3)?);
        Ok(Kept { number: row.get(0)?, to: row.get(1)?, post: row.get(2)?, written_at, tries: row.get(4)? })
    };
    let kept = statement.query_map((now.as_millis(), limit), read)?;
    Ok(kept.collect::<Result<_, _>>()?)
}

/// Whether the post has arrived, or never can.
fn deliver(tx: &mut Tx<'_>, post: Post) -> Moved<bool> {
    match post {
        Post::Create(child) => create_child(tx, *child)?,
        Post::ChildClosed { to, step, run_id, completed, outcome } => {
            let open = rows::child(tx.conn, &to, &step)?;
            let fact = FactKind::ChildClosed { step, completed, outcome };
            super::put(tx, &to, RunCommand::ChildClosed(ChildEnd { run_id, open, completed }), Some(&fact))?;
        }
        Post::Cancel { to, reason } => drop(super::request(tx, &to, &RunRequest::Cancel { reason })?),
        Post::Terminate { to, reason } => drop(super::request(tx, &to, &RunRequest::Terminate { reason })?),
        Post::Send { to, name, data, reference } => {
            let event = NewEvent { name, data, reference: Some(reference) };
            return Ok(super::send(tx, &to, &event)? != EventSent::MailboxFull);
        }
    }
    Ok(true)
}

fn create_child(tx: &mut Tx<'_>, child: ChildStart) -> Moved<()> {
    if rows::load(tx.conn, &child.run_id)?.is_some() {
        return Ok(());
    }
    let (start, parent) = StartRun::of_child(child);
    super::create(tx, &start, Some(parent))
}
