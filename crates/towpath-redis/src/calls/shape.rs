//! Calls on their way to the server, as the scripts that take them want them: what many have in common is written once.

use std::sync::Arc;

use towpath_core::call::Call;
use towpath_core::store::SubmitCall;
use towpath_core::time::{Timestamp, millis};

use super::entry::{self, Mark, added_fields, empty_item};
use super::inbox::ReplyTo;
use crate::record::{INLINE_MAX, Life, write_request_lead};
use crate::room::Room;
use crate::script::Args;

/// A call on its way to the server.
#[derive(Clone)]
pub(crate) struct ToSubmit {
    pub(super) call: Arc<SubmitCall>,
    pub(super) reply_to: ReplyTo,
    /// Only in a Cluster, where the sequence is handed out beforehand.
    pub(super) sequence: u64,
}

/// Writes what a function's calls have in common once, and each call behind it.
pub(super) fn write_calls(batch: &[&ToSubmit], function: &str, (now, paged, cluster): (Timestamp, bool, bool), args: &mut Args) {
    let mut shapes: Vec<Shape> = Vec::new();
    let mut numbers = Vec::with_capacity(batch.len());
    let mut last: Option<&ToSubmit> = None;
    for one in batch {
        if !last.is_some_and(|earlier| one.has_the_shape_of(earlier)) {
            shapes.push(one.shape(function, now, paged));
        }
        last = Some(one);
        numbers.push(shapes.len());
    }
    args.number(shapes.len());
    for shape in &shapes {
        args.append(&shape.words);
    }
    args.number(batch.len());
    for (one, number) in batch.iter().zip(numbers) {
        let params = one.call.request.params.as_bytes();
        let asked = shapes[number - 1].lead + params.len();
        args.push(one.call.call_id.as_str());
        args.push(params);
        args.number(number);
        args.number(if asked <= INLINE_MAX { asked } else { 0 });
        if cluster {
            args.number(one.sequence);
        }
    }
}

/// What calls have in common, as the script wants it.
struct Shape {
    words: Args,
    /// It asks for nothing special.
    is_plain: bool,
    /// The length of what stands before the params in a record.
    lead: usize,
}

impl ToSubmit {
    fn has_the_shape_of(&self, other: &Self) -> bool {
        let plain = |one: &Self| {
            let SubmitCall { request, fail_without_workers, .. } = &*one.call;
            let extras = request.input_item.is_some() || request.idempotency_key.is_some() || request.depth > 0;
            !extras && !fail_without_workers && request.parent.is_none() && request.traceparent.is_none()
        };
        let same_reply = self.reply_to.told == other.reply_to.told && self.reply_to.may_be_old == other.reply_to.may_be_old;
        let same_times = self.call.timeout == other.call.timeout && self.call.retain == other.call.retain;
        plain(self) && plain(other) && same_times && same_reply && (entry::is_inbox(&self.reply_to.told) || self.reply_to.told.is_empty())
    }

    /// The call alone, as the script for one call wants it. `None`: it asks for something special.
    pub(super) fn alone(&self, room: &Room, now: Timestamp) -> Option<Args> {
        let shape = self.shape(&room.keys.line, now, false);
        let params = self.call.request.params.as_bytes();
        let asked = shape.lead + params.len();
        let words: Vec<&[u8]> = shape.words.words().collect();
        let [_key, _how, rest, due, _item, channel, timeout, lead, mark, ..] = words[..] else { return None };
        let mut args = Args::with_capacity(11);
        args.number(now.as_millis());
        args.push(room.function.name.as_str());
        [rest, due, channel, timeout, lead, mark].into_iter().for_each(|word| args.push(word));
        args.push(self.call.call_id.as_str());
        args.push(params);
        args.number(asked);
        (shape.is_plain && asked <= INLINE_MAX).then_some(args)
    }

    /// All of the call but its id and params, as the script wants it.
    fn shape(&self, function: &str, now: Timestamp, paged: bool) -> Shape {
        let SubmitCall { call_id, request, timeout, retain, fail_without_workers } = &*self.call;
        let call = Call::submitted(call_id.clone(), now, *timeout, *retain);
        let due = call.deadline.as_millis().to_string();
        let told = Some(&self.reply_to.told).filter(|channel| !channel.is_empty());
        let channels: Vec<String> = told.map(|channel| channel.to_string()).into_iter().collect();
        let key = request.idempotency_key.clone();
        let mut rest = Vec::with_capacity(96);
        Life { paged, ..Life::submitted(call, key.clone(), channels) }.write_rest(function, &mut rest);
        let mut added = added_fields(request);
        if self.reply_to.may_be_old {
            added.extend(empty_item(request).iter().map(|word| word.as_bytes().to_vec()));
        }
        let lead = write_request_lead(request);
        let waits_in_inbox = entry::is_inbox(&self.reply_to.written);
        let is_plain = key.is_none() && !fail_without_workers && request.input_item.is_none() && added.is_empty() && waits_in_inbox;
        let mut words = Args::with_capacity(10 + added.len());
        words.push(key.as_ref().map_or("", |key| key.as_str()));
        words.push(if *fail_without_workers { "w" } else { "-" });
        words.push(rest);
        words.push(due);
        words.push(request.input_item.as_ref().map_or(&b""[..], |item| item.as_bytes()));
        words.push(if waits_in_inbox { &*self.reply_to.written } else { "" });
        words.number(millis(*timeout));
        words.push(&lead);
        words.push(Mark::write(millis(*retain), !self.reply_to.told.is_empty(), paged));
        words.number(added.len());
        added.iter().for_each(|word| words.push(word));
        Shape { words, is_plain, lead: lead.len() }
    }
}
