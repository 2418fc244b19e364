//! What a batch of changes does to the server, gathered into as few commands as possible: one per key and kind, whatever the batch's size.

use std::borrow::Cow;

use redis::Cmd;
use towpath_core::call::{Call, CallState};
use towpath_core::time::Timestamp;

use super::entry;
use super::moves::{Move, REPLY_KEPT_MS};
use crate::keys::FunctionKeys;
use crate::pieces::Writer;
use crate::record::{Life, write_outcome};
use crate::script::{Args, ArgsPool};

/// A word for an inbox that is as long as this is long enough.
const WORD_MAX: usize = 64 * 1024;
const KEEP: &str = "KEEP";
const ABSENT: &str = "ABSENT";
const PENDING: &str = "PENDING";
/// What comes before all else.
const LOOKS: [&str; 3] = [KEEP, ABSENT, PENDING];

/// How the script sees that nobody was faster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// The lives begin as the host saw them.
    Compared,
    /// None of the calls in the stream is touched, and the entries that workers of this process have read are still pending.
    Untouched,
}

/// The commands of a batch, in the order in which their kinds first came up.
pub(super) struct Effects<'a> {
    names: Vec<Cow<'a, str>>,
    commands: Vec<Command>,
    counts: Vec<(&'a str, String, i64)>,
    /// In a Cluster reply lists of old callers lie on other servers: they are written to first.
    elsewhere: Vec<Cmd>,
    /// One server has all keys.
    together: bool,
    guard: Guard,
    pool: &'a ArgsPool,
}

struct Command {
    name: &'static str,
    key: usize,
    words: Args,
}

impl<'a> Effects<'a> {
    pub(super) fn new(together: bool, guard: Guard, pool: &'a ArgsPool) -> Self {
        Self { names: Vec::new(), commands: Vec::new(), counts: Vec::new(), elsewhere: Vec::new(), together, guard, pool }
    }

    /// Commands for other servers, to be sent first.
    pub(super) fn take_elsewhere(&mut self) -> Vec<Cmd> {
        std::mem::take(&mut self.elsewhere)
    }

    /// The records of calls that nobody has touched, each behind its id: they may be written beside the script, which then keeps what was
    /// there before under `kept` if it does nothing.
    pub(super) fn take_records(&mut self, calls: &'a str, kept: &'a str) -> Option<Args> {
        let key = self.number(calls);
        let place = self.commands.iter().position(|command| command.key == key && command.name == "HSET")?;
        let records = self.commands.swap_remove(place).words;
        self.command(KEEP, kept, None).written(|ids| {
            for id in records.words().step_by(2) {
                ids.extend_from_slice(id);
                ids.push(b'\n');
            }
        });
        Some(records)
    }

    /// Writes all commands, and returns the keys that they name.
    pub(super) fn write(mut self, args: &mut Args) -> Vec<Cow<'a, str>> {
        for (key, field, n) in std::mem::take(&mut self.counts).into_iter().filter(|(.., n)| *n != 0) {
            // What is counted for each worker goes when it comes to nothing: there is no end of workers.
            let name = if field.contains(':') { "COUNT" } else { "HINCRBY" };
            self.alone(name, key, [field.as_bytes(), n.to_string().as_bytes()]);
        }
        // What is looked at comes before what is changed.
        self.commands.sort_by_key(|command| LOOKS.iter().position(|look| *look == command.name).unwrap_or(LOOKS.len()));
        for Command { name, key, mut words } in self.commands {
            if name == "ACKDEL" || name == PENDING {
                oldest_first(&mut words);
            }
            args.push(name);
            args.number(key);
            args.number(words.len());
            args.append(&words);
            self.pool.put(words);
        }
        self.names
    }

    fn number(&mut self, key: &'a str) -> usize {
        // Most are the very same text as one of the last, which is seen without reading it.
        let same = |name: &Cow<'a, str>| std::ptr::eq(&**name, key);
        let place = self.names.iter().rposition(same).or_else(|| self.names.iter().rposition(|name| *name == key));
        let place = place.unwrap_or_else(|| {
            self.names.push(Cow::Borrowed(key));
            self.names.len() - 1
        });
        place + 1
    }

    fn add<const N: usize>(&mut self, name: &'static str, key: &'a str, words: [&[u8]; N]) {
        let command = self.command(name, key, None);
        words.into_iter().for_each(|word| command.push(word));
    }

    /// The words of the command of this kind and key, which is begun if there is none.
    fn command(&mut self, name: &'static str, key: &'a str, first: Option<&str>) -> &mut Args {
        let key = self.number(key);
        let place = self.commands.iter().rposition(|command| command.key == key && command.name == name).unwrap_or_else(|| {
            let mut words = self.pool.take();
            first.into_iter().for_each(|first| words.push(first));
            self.commands.push(Command { name, key, words });
            self.commands.len() - 1
        });
        &mut self.commands[place].words
    }

    fn alone<const N: usize>(&mut self, name: &'static str, key: &'a str, words: [&[u8]; N]) {
        let key = self.number(key);
        let mut args = Args::default();
        words.into_iter().for_each(|word| args.push(word));
        self.commands.push(Command { name, key, words: args });
    }

    fn count(&mut self, key: &'a str, field: &str, n: i64) {
        match self.counts.iter_mut().rev().find(|(of, known, _)| std::ptr::eq(*of, key) && known == field) {
            Some((.., count)) => *count += n,
            None => self.counts.push((key, field.to_owned(), n)),
        }
    }

    /// Everything that one change does. `place` is that of its call among those that change, the first being 1; `own_inbox` is that of
    /// this process, which hears without being written to.
    pub(super) fn gather(&mut self, keys: &'a FunctionKeys, own_inbox: &str, place: usize, one: &'a Move) {
        if self.names.is_empty() {
            self.names.push(Cow::Borrowed(&keys.calls));
        }
        let id = one.before.call.call_id.as_str().as_bytes();
        let Some(after) = &one.after else {
            return self.forget(keys, &one.before);
        };
        let (life, tail) = after.write(&keys.line);
        match one.asked.as_ref().filter(|_| self.guard == Guard::Untouched) {
            Some(asked) => {
                let words = self.command("HSET", &keys.calls, None);
                words.push(id);
                words.written(|record| {
                    record.extend_from_slice(&life);
                    record.extend_from_slice(asked);
                });
            }
            None => {
                let words = self.command("LIVES", &keys.calls, None);
                words.number(place);
                words.push(&life);
                words.number(after.kept);
            }
        }
        if let Some(tail) = &tail {
            self.add("HSET", &keys.outcomes, [id, tail]);
        }
        match (own_due(&one.before), own_due(after)) {
            (before, after) if before == after => {}
            (_, None) => self.add("ZREM", &keys.due, [id]),
            (_, Some(due)) => self.add("ZADD", &keys.due, [due.as_millis().to_string().as_bytes(), id]),
        }
        self.move_entry(keys, &one.before, after);
        self.move_counts(keys, &one.before, after);
        if one.ends() {
            self.tell_end(&one.before, after, &[own_inbox, one.heard_on.as_deref().unwrap_or_default()]);
        } else if one.is_put_off() {
            self.tell_change(&one.before, own_inbox);
        }
    }

    fn forget(&mut self, keys: &'a FunctionKeys, life: &'a Life) {
        let id = life.call.call_id.as_str().as_bytes();
        let apart = [(true, &keys.calls), (life.kept == 0, &keys.requests), (life.tail_apart, &keys.outcomes), (true, &keys.progress)];
        for (_, key) in apart.into_iter().filter(|(there, _)| *there) {
            self.add("HDEL", key, [id]);
        }
        let listed = [(own_due(life).is_some(), &keys.due), (!life.paged, &keys.index)];
        for (_, key) in listed.into_iter().filter(|(there, _)| *there) {
            self.add("ZREM", key, [id]);
        }
        if let Some(key) = &life.key {
            self.alone("UNKEY", &keys.idempotency, [key.as_str().as_bytes(), id]);
        }
    }

    /// The call's entry in the stream, and where it is listed once it has none.
    fn move_entry(&mut self, keys: &'a FunctionKeys, before: &Life, after: &Life) {
        use CallState as S;
        let id = before.call.call_id.as_str().as_bytes();
        let sequence = || before.sequence.to_string();
        let (was, is) = (before.call.state, after.call.state);
        let leaves = !before.entry.is_empty() && after.entry.is_empty();
        if leaves && self.guard == Guard::Untouched {
            self.command(ABSENT, &keys.touched, None);
            self.command(PENDING, &keys.stream, Some(&keys.group)).push(&before.entry);
        } else if leaves {
            // Nobody shall read what is over. And entries of old callers carry no mark that tells a finished one from a new one, so they
            // do not stay until the stream is trimmed.
            let delete = was == S::Queued || from_an_old_caller(before);
            let command = if delete { "ACKDEL" } else { "XACK" };
            self.command(command, &keys.stream, Some(&keys.group)).push(&before.entry);
        }
        if leaves && before.version > 1 {
            self.add("SREM", &keys.touched, [id]);
        } else if !after.entry.is_empty() {
            self.add("SADD", &keys.touched, [id]);
        }
        match (was, is) {
            (S::Running | S::Queued, S::Running) if leaves => self.add("SADD", &keys.aside, [id]),
            (S::Running, S::Running) => {}
            (S::Running, _) if before.entry.is_empty() => self.add("SREM", &keys.aside, [id]),
            (S::Queued, _) if before.entry.is_empty() && is != S::Queued => self.add("ZREM", &keys.ready, [id]),
            _ => {}
        }
        if is == S::Queued && after.entry.is_empty() && (was != S::Queued || leaves) {
            self.add("ZADD", &keys.ready, [sequence().as_bytes(), id]);
        }
        if is == S::Dead {
            self.add("ZADD", &keys.dead, [sequence().as_bytes(), id]);
        } else if was == S::Dead {
            self.add("ZREM", &keys.dead, [id]);
        }
    }

    fn move_counts(&mut self, keys: &'a FunctionKeys, before: &Life, after: &Life) {
        for (life, n) in [(before, -1), (after, 1)] {
            let call = &life.call;
            let moved = before.call.state != after.call.state;
            if let Some(word) = counted_as(call.state).filter(|_| moved) {
                self.count(&keys.counts, word, n);
            }
            let Some(holder) = call.holder.as_ref().filter(|_| call.state == CallState::Running) else { continue };
            if moved {
                self.count(&keys.busy, &format!("r:{holder}"), n);
            }
            if call.parked && (moved || before.call.parked != after.call.parked) {
                self.count(&keys.counts, "parked", n);
                self.count(&keys.busy, &format!("p:{holder}"), n);
            }
        }
    }

    /// Tells everybody who waits, except where it is known already.
    fn tell_end(&mut self, before: &'a Life, after: &Life, known_on: &[&str]) {
        for channel in before.channels.iter().filter(|channel| !known_on.contains(&channel.as_str())) {
            if entry::is_inbox(channel) {
                let outcome = after.call.outcome.as_ref().map(write_outcome);
                let mut news = Writer::with_capacity(64 + outcome.as_ref().map_or(0, Vec::len));
                news.put(b'i', after.call.call_id.as_str().as_bytes());
                if let Some(outcome) = &outcome {
                    news.put(b'o', outcome);
                }
                self.tell_inbox(channel, &news.done());
            } else {
                self.answer_list(channel, &after.call);
            }
        }
    }

    /// Answers as old callers expect it. Workers of the field's second generation look whether that was done before they answer too.
    fn answer_list(&mut self, list: &'a str, call: &Call) {
        let (mark, reply) = (entry::sent_mark(&call.call_id), entry::reply(call));
        if self.together {
            self.names.push(Cow::Owned(mark));
            let (key, mut words) = (self.names.len(), Args::default());
            [&b"1"[..], b"EX", b"60"].into_iter().for_each(|word| words.push(word));
            self.commands.push(Command { name: "SET", key, words });
            return self.push(list, &reply);
        }
        let (mut set, mut push, mut expire) = (Cmd::new(), Cmd::new(), Cmd::new());
        set.arg("SET").arg(mark).arg(1).arg("EX").arg(60);
        push.arg("LPUSH").arg(list).arg(reply);
        expire.arg("PEXPIRE").arg(list).arg(REPLY_KEPT_MS);
        self.elsewhere.extend([set, push, expire]);
    }

    fn tell_change(&mut self, before: &'a Life, own_inbox: &str) {
        let mut news = Writer::default();
        news.put(b'i', before.call.call_id.as_str().as_bytes());
        let news = news.done();
        for channel in before.channels.iter().filter(|channel| *channel != own_inbox && entry::is_inbox(channel)) {
            self.tell_inbox(channel, &news);
        }
    }

    fn push(&mut self, channel: &'a str, what: &[u8]) {
        let words = self.command("LPUSH", channel, None);
        words.push(what);
        if words.len() == 1 {
            self.alone("PEXPIRE", channel, [REPLY_KEPT_MS.to_string().as_bytes()]);
        }
    }

    /// Tells the reader of an inbox. What it is told together is one word: a thousand words cost the server and the reader more than one
    /// that is as long.
    fn tell_inbox(&mut self, inbox: &'a str, news: &[u8]) {
        let words = self.command("LPUSH", inbox, None);
        if !words.append_to_last(news, WORD_MAX) {
            self.push(inbox, news);
        }
    }
}

/// When something happens by itself to a call that has a line of its own on the agenda. What is on a page needs one only for what comes
/// before its deadline: the page comes up then at the latest, and looks when it has to come up again.
fn own_due(life: &Life) -> Option<Timestamp> {
    let by_page = |due: &Timestamp| life.paged && *due >= life.call.deadline && life.call.state != CallState::Settled;
    life.call.due().filter(|due| !by_page(due))
}

/// Sorts the entries behind the name of the group.
fn oldest_first(words: &mut Args) {
    let place = |entry: &[u8]| {
        let (ms, n) = std::str::from_utf8(entry).ok()?.split_once('-')?;
        Some((ms.parse::<u64>().ok()?, n.parse::<u64>().ok()?))
    };
    let mut sorted: Vec<&[u8]> = words.words().skip(1).collect();
    if sorted.is_sorted_by_key(|entry| place(entry)) {
        return;
    }
    sorted.sort_by_cached_key(|entry| place(entry));
    let mut in_order = Args::with_capacity(words.len());
    words.words().take(1).chain(sorted).for_each(|word| in_order.push(word));
    *words = in_order;
}

fn from_an_old_caller(life: &Life) -> bool {
    !life.channels.is_empty() && life.channels.iter().all(|channel| !entry::is_inbox(channel))
}

/// How a state is called among the counts of a function.
fn counted_as(state: CallState) -> Option<&'static str> {
    match state {
        CallState::Queued => Some("queued"),
        CallState::Delayed => Some("delayed"),
        CallState::Running => Some("running"),
        CallState::Dead => Some("dead"),
        _over => None,
    }
}
