//! How the stream of a function is, for people: its length, its groups, what waits in it and what is held, and keys that hold something else.

use redis::Value;
use towpath_core::inspect::{FunctionView, StreamGroup, StreamView};
use towpath_core::store::StoreError;

use super::CONSUMER;
use super::entry::Place;
use super::look::{items, lossy};
use crate::registry::reply::command;
use crate::store::RedisStore;
use crate::value;

impl RedisStore {
    /// Adds what waits in the stream to the view of a function, and how the stream is. Calls that Towpath has exported are in the view already.
    pub(crate) async fn add_legacy_backlog(&self, view: &mut FunctionView) -> Result<(), StoreError> {
        let keys = self.shared.keys.function(&view.definition.key);
        let field = |name: &str| command("HEXISTS", &[keys.legacy.as_str(), name]);
        let asks = [
            command("XINFO", &["GROUPS", keys.stream.as_str()]),
            command("XLEN", &[&keys.stream]),
            command("XPENDING", &[&keys.stream, &keys.group]),
            command("ZCARD", &[&keys.exported]),
            command("HLEN", &[&keys.legacy]),
            field("watermark"),
            field("pending"),
            field("missed"),
            command("ZCARD", &[&keys.buckets]),
            command("SCARD", &[&keys.owed]),
        ];
        let replies = self.shared.link.ask_all(&asks).await?;
        let [groups, length, pending, exported, notes, rest @ ..] = &replies[..] else { return Ok(()) };
        let (fields, [buckets, owed]) = rest.split_at(3) else { return Ok(()) };
        for (key, wanted, reply) in [
            (&keys.stream, "stream", length),
            (&keys.legacy, "hash", notes),
            (&keys.buckets, "sorted set", buckets),
            (&keys.owed, "set", owed),
        ] {
            if is_wrong_type(reply) {
                view.problems.push(format!("the key {key} should be a {wanted} and holds something else: rename or delete it"));
            }
        }
        let all: Vec<StreamGroup> = items(groups).iter().map(read_group).collect();
        if matches!(groups, Value::ServerError(_)) {
            // There is no stream, or the key holds something else.
            return Ok(());
        }
        let ours = items(groups).iter().zip(&all).find(|(_, group)| group.name == keys.group);
        let mut stream = StreamView { length: count(length), groups: all.clone(), ..StreamView::default() };
        if let Some((about, group)) = ours {
            let held = count(items(pending).first().unwrap_or(&Value::Nil));
            let first_held = items(pending).get(1).and_then(value::text).and_then(Place::read).filter(|_| held > 0);
            let consumers = items(pending).get(3).map(items).unwrap_or_default();
            let by_towpath = consumers.iter().map(items).filter(|one| one.first().and_then(value::text) == Some(CONSUMER));
            let by_towpath: u64 = by_towpath.filter_map(|one| one.get(1)).map(count).sum();
            let run_for_towpath = count(notes).saturating_sub(fields.iter().map(count).sum());
            // The server does not always know how many entries are unread: then they are those that no consumer holds.
            let unread = group.lag.unwrap_or_else(|| stream.length.saturating_sub(held)).min(stream.length);
            let of_legacy_callers = unread.saturating_sub(count(exported));
            view.counts.queued += of_legacy_callers;
            view.counts.running += held.saturating_sub(by_towpath).saturating_sub(run_for_towpath);
            let last = field_of(about, "last-delivered-id").and_then(value::text).unwrap_or("0-0");
            let first_unread = if unread > 0 { self.first_entry(&keys.stream, &format!("({last}")).await? } else { None };
            if of_legacy_callers > 0 {
                view.oldest_queued_at = view.oldest_queued_at.into_iter().chain(first_unread.map(Place::at)).min();
            }
            stream.pending = held;
            stream.oldest_pending_at = first_held.map(Place::at);
            stream.oldest_at = first_held.into_iter().chain(first_unread).min().map(Place::at);
        } else if stream.length > 0 {
            stream.oldest_at = self.first_entry(&keys.stream, "-").await?.map(Place::at);
        }
        view.stream = Some(stream);
        Ok(())
    }

    /// The first entry of a stream from some place on.
    async fn first_entry(&self, stream: &str, from: &str) -> Result<Option<Place>, StoreError> {
        let first = command("XRANGE", &[stream, from, "+", "COUNT", "1"]);
        let first = self.shared.link.ask_all(&[first]).await?.pop().unwrap_or(Value::Nil);
        Ok(items(&first).first().and_then(|entry| items(entry).first()).and_then(value::text).and_then(Place::read))
    }
}

fn read_group(about: &Value) -> StreamGroup {
    let number = |name: &str| field_of(about, name).map(count).unwrap_or_default();
    StreamGroup {
        name: field_of(about, "name").map(lossy).unwrap_or_default(),
        consumers: number("consumers"),
        pending: number("pending"),
        lag: field_of(about, "lag").and_then(value::number).and_then(|lag| u64::try_from(lag).ok()),
    }
}

fn field_of<'a>(about: &'a Value, name: &str) -> Option<&'a Value> {
    items(about).chunks_exact(2).find(|pair| value::text(&pair[0]) == Some(name)).map(|pair| &pair[1])
}

/// A number; 0 where there is none, because the key is not there or holds something else.
fn count(reply: &Value) -> u64 {
    value::number(reply).and_then(|count| u64::try_from(count).ok()).unwrap_or_default()
}

fn is_wrong_type(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "WRONGTYPE")
}
