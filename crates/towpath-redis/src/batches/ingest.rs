//! Taking messages: those that come while others are under way go together, in order.

use std::sync::Arc;

use redis::Value;
use towpath_core::batch::{BatcherId, IngestReply, NewMessage, Rules, SOURCE_KEPT, Seal};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::places::Place;
use super::{length_ms, scripts};
use crate::lane::{Kind, Lane, heard};
use crate::script::Args;
use crate::store::RedisStore;
use crate::value;

/// So much goes with one script run at most, unless a single message has more: the server does nothing else meanwhile.
const BYTES_MAX: usize = 1 << 20;

/// Words of the reply to one message.
const WORDS: usize = 4;

/// Messages that wait for one place.
pub(super) type IngestLane = Lane<ToIngest, Result<IngestReply, StoreError>>;

/// A message, and the rules of its batcher.
pub(super) struct ToIngest {
    message: NewMessage,
    rules: Arc<Rules>,
}

impl Kind for ToIngest {
    fn bytes(&self) -> usize {
        self.message.body.len()
    }
}

impl RedisStore {
    pub(super) async fn ingest(
        &self,
        batcher: &BatcherId,
        rules: &Rules,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<IngestReply>, StoreError> {
        // What a legacy producer has put into its list is kept by the same server either way.
        if messages.iter().any(|message| message.source.is_none()) {
            self.shared.guarantee.admit()?;
        }
        let places = self.places(batcher);
        let parts = places.all().len() as u64;
        // Each part knows only its own messages.
        let rules = Arc::new(Rules { max_open: rules.max_open.div_ceil(parts), ..rules.clone() });
        let count = messages.len();
        let mut by_part: Vec<Vec<(usize, ToIngest)>> = places.all().iter().map(|_| Vec::new()).collect();
        for (order, message) in messages.into_iter().enumerate() {
            by_part[places.part_of(&message.key)].push((order, ToIngest { message, rules: Arc::clone(&rules) }));
        }
        let mut answers = Vec::with_capacity(count);
        for (place, asked) in places.all().iter().zip(by_part).filter(|(_, asked)| !asked.is_empty()) {
            let (orders, asked): (Vec<usize>, Vec<ToIngest>) = asked.into_iter().unzip();
            let (store, at) = (self.clone(), Arc::clone(place));
            let receivers = place.lane.ask(asked, move |crowd| {
                let (store, at) = (store.clone(), Arc::clone(&at));
                async move { Ok(store.flush(&at, &crowd).await) }
            });
            answers.extend(orders.into_iter().zip(receivers));
        }
        answers.sort_by_key(|(order, _)| *order);
        let mut replies = Vec::with_capacity(count);
        for (_, answer) in answers {
            replies.push(heard(answer).await??);
        }
        Ok(replies)
    }

    /// What one run cannot do, the next does. After one that failed nothing more is tried, so that order is kept.
    async fn flush(&self, place: &Place, crowd: &[ToIngest]) -> Vec<Result<IngestReply, StoreError>> {
        let mut replies = Vec::with_capacity(crowd.len());
        while replies.len() < crowd.len() {
            let rest = &crowd[replies.len()..];
            match self.flush_some(place, &rest[..how_many_fit(rest)]).await {
                Ok(said) => replies.extend(said),
                Err(error) => replies.resize_with(crowd.len(), || Err(error.clone())),
            }
        }
        replies
    }

    async fn flush_some(&self, place: &Place, some: &[ToIngest]) -> Result<Vec<Result<IngestReply, StoreError>>, StoreError> {
        let mut args = self.batch_args(place, self.shared.now(), some.len() * 7 + 9);
        let rules = write_rules(&mut args, some);
        args.number(some.len());
        for one in some {
            let rule = rules.iter().position(|rules| **rules == *one.rules).unwrap_or(0);
            write_message(&mut args, rule + 1, &one.message);
        }
        args.number(length_ms(SOURCE_KEPT));
        let mut more = Vec::new();
        if self.shared.link.is_cluster() {
            for ToIngest { message, .. } in some {
                more.extend(place.keys.of_key(&message.key));
                more.extend(place.keys.of_ids(message));
            }
        }
        let reply = self.run_durably_at(&scripts::INGEST, place, &more, &args).await?;
        let words = value::array("an ingest", reply)?;
        if words.len() != some.len() * WORDS {
            return Err(value::strange("an ingest", &Value::Array(words)));
        }
        words.chunks_exact(WORDS).zip(some).map(|(words, one)| read(words, place, &one.message)).collect()
    }
}

/// So many from the front go with one run; at least one.
fn how_many_fit(messages: &[ToIngest]) -> usize {
    let mut bytes = 0;
    let fits = |one: &&ToIngest| {
        bytes += one.message.body.len();
        bytes <= BYTES_MAX
    };
    messages.iter().take_while(fits).count().max(1)
}

/// Writes all rules that differ. Most messages that come together have the same.
fn write_rules<'a>(args: &mut Args, some: &'a [ToIngest]) -> Vec<&'a Rules> {
    let mut rules: Vec<&Rules> = Vec::with_capacity(1);
    for one in some {
        if !rules.iter().any(|known| **known == *one.rules) {
            rules.push(&one.rules);
        }
    }
    args.number(rules.len());
    for rules in &rules {
        args.number(length_ms(rules.max_wait));
        args.number(rules.max_messages);
        args.number(rules.max_bytes);
        args.push(if rules.serial { "1" } else { "0" });
        args.number(length_ms(rules.idempotency));
        args.number(rules.max_open);
    }
    rules
}

fn write_message(args: &mut Args, rule: usize, message: &NewMessage) {
    args.number(rule);
    args.push(message.key.as_str());
    args.push(message.body.as_bytes());
    args.number(length_ms(message.debounce));
    args.push(message.seal.map(Seal::reason).map_or("", |reason| reason.as_str()));
    args.push(message.message_id.as_ref().map_or("", |id| id.as_str()));
    match &message.source {
        Some(source) => args.shown(source),
        None => args.push(""),
    }
}

fn read(words: &[Value], place: &Place, message: &NewMessage) -> Result<Result<IngestReply, StoreError>, StoreError> {
    let odd = || value::strange("an ingest", &Value::Array(words.to_vec()));
    let [outcome, first, second, text] = words else { return Err(odd()) };
    let number = |word: &Value| value::number(word).ok_or_else(odd);
    let count = |word: &Value| number(word).map(|number| u64::try_from(number).unwrap_or(0));
    let deadline = number(first).map(Timestamp::from_millis);
    Ok(Ok(match value::text(outcome) {
        Some("accepted") => {
            let reason = value::text(text).and_then(|word| word.parse().ok()).ok_or_else(odd)?;
            IngestReply::Accepted { deadline: deadline?, size: count(second)?, reason }
        }
        Some("duplicate") => {
            let deadline = deadline?;
            IngestReply::Duplicate { deadline: (deadline.as_millis() >= 0).then_some(deadline), size: count(second)? }
        }
        Some("full") => IngestReply::Full { open_messages: count(first)? },
        Some("corrupt") => {
            let (key, said) = (&message.key, value::text(text).unwrap_or_default());
            let list = format!("{}{key}", place.keys.lists);
            let why = format!("'{list}', or a key of batch key '{key}' that begins with '{}', is not ours: {said}", place.keys.own);
            return Ok(Err(StoreError::Corrupt(format!("{why}; remove it or rename it"))));
        }
        _ => return Err(odd()),
    }))
}
