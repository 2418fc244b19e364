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

/// What the calls of a batch have in common, whatever function they are of.
pub(super) struct Shapes<'a> {
    shapes: Vec<Shape>,
    /// The latest call that is not on a page, the latest that is, and the numbers of their shapes.
    latest: [Option<(&'a ToSubmit, usize)>; 2],
    now: Timestamp,
}

impl<'a> Shapes<'a> {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { shapes: Vec::new(), latest: [None; 2], now }
    }

    /// The number of a call's shape, the first being 1.
    pub(super) fn number(&mut self, one: &'a ToSubmit, paged: bool) -> usize {
        let latest = &mut self.latest[usize::from(paged)];
        let number = latest.filter(|(earlier, _)| one.has_the_shape_of(earlier)).map_or_else(
            || {
                self.shapes.push(one.shape(self.now, paged));
                self.shapes.len()
            },
            |(_, number)| number,
        );
        *latest = Some((one, number));
        number
    }

    /// Writes the shapes.
    pub(super) fn write(&self, args: &mut Args) {
        args.number(self.shapes.len());
        self.shapes.iter().for_each(|shape| args.append(&shape.words));
    }

    /// Writes a call of the shape with this number.
    pub(super) fn write_call(&self, one: &ToSubmit, number: usize, args: &mut Args) {
        let params = one.call.request.params.as_bytes();
        let asked = self.shapes[number - 1].lead + params.len();
        args.push(one.call.call_id.as_str());
        args.push(params);
        args.number(number);
        args.number(if asked <= INLINE_MAX { asked } else { 0 });
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
        let shape = self.shape(now, false);
        let params = self.call.request.params.as_bytes();
        let asked = shape.lead + params.len();
        let words: Vec<&[u8]> = shape.words.words().collect();
        let [_key, _how, rest, due, _item, channel, timeout, lead, mark, ..] = words[..] else { return None };
        let mut args = Args::with_capacity(11);
        args.number(now.as_millis());
        args.push(room.function.name.as_str());
        args.written(|text| [rest, room.keys.line.as_bytes()].into_iter().for_each(|part| text.extend_from_slice(part)));
        [due, channel, timeout, lead, mark].into_iter().for_each(|word| args.push(word));
        args.push(self.call.call_id.as_str());
        args.push(params);
        args.number(asked);
        (shape.is_plain && asked <= INLINE_MAX).then_some(args)
    }

    /// All of the call but its function, its id and its params, as the script wants it.
    fn shape(&self, now: Timestamp, paged: bool) -> Shape {
        let SubmitCall { call_id, request, timeout, retain, fail_without_workers } = &*self.call;
        let call = Call::submitted(call_id.clone(), now, *timeout, *retain);
        let due = call.deadline.as_millis().to_string();
        let told = Some(&self.reply_to.told).filter(|channel| !channel.is_empty());
        let channels: Vec<String> = told.map(|channel| channel.to_string()).into_iter().collect();
        let key = request.idempotency_key.clone();
        let mut rest = Vec::with_capacity(96);
        Life { paged, ..Life::submitted(call, key.clone(), channels) }.write_rest("", &mut rest);
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
