//! Taking calls. Those that come at the same time go with one script.

use std::sync::Arc;

use bytes::Bytes;
use redis::Value;
use tokio::sync::oneshot;
use towpath_core::call::{Call, CallRequest};
use towpath_core::names::{CallId, IdempotencyKey};
use towpath_core::payload::Payload;
use towpath_core::store::{Durability, StoreError, SubmitCall, Submitted};
use towpath_core::time::{Timestamp, millis};
use towpath_core::worker::HEALTHY_FOR;

use super::change::group;
use super::names::Reserved;
use super::partition::{Partition, Weighed};
use super::record::{Record, read_request, write_request};
use super::sections;
use crate::lane::heard;
use crate::link::slot_of_key;
use crate::script::{Args, SUBMIT};
use crate::store::RedisStore;
use crate::value;

/// A call on its way to the server.
#[derive(Clone)]
pub(crate) struct ToSubmit {
    call: Arc<SubmitCall>,
    /// A task of this process waits for its end.
    is_waited_for: bool,
    fresh: bool,
}

impl Weighed for ToSubmit {
    fn bytes(&self) -> usize {
        let request = &self.call.request;
        request.params.len() + request.input_item.as_ref().map_or(0, Payload::len)
    }
}

/// What the server made of it.
pub(crate) enum Judged {
    Accepted { deadline: Timestamp, durability: Durability },
    Existing { call_id: CallId, record: Bytes, request: Bytes },
    UnknownFunction,
    NoWorkers,
    Overloaded { backlog: u64, limit: u64 },
    Again,
}

impl RedisStore {
    pub(crate) async fn submit_call(&self, call: SubmitCall) -> Result<Submitted, StoreError> {
        self.check_place(&call.request.function)?;
        if !call.continues {
            self.shared.guarantee.admit()?;
        }
        let mut partition = self.partition_for(&call).await?;
        let call = Arc::new(call);
        let mut submitted = self.submit_to(&partition, &call).await?;
        if submitted == Submitted::UnknownFunction && partition.is_shard() {
            // It is not defined there yet, or no longer.
            partition = self.partition(&call.request.function);
            submitted = self.submit_to(&partition, &call).await?;
        }
        if submitted == Submitted::NoWorkers && self.has_legacy_workers(&partition.function).await? {
            let anyway = SubmitCall { fail_without_workers: false, ..SubmitCall::clone(&call) };
            submitted = self.submit_to(&partition, &Arc::new(anyway)).await?;
        }
        if matches!(submitted, Submitted::Accepted { .. }) {
            self.call_was_submitted(&partition);
        }
        Ok(submitted)
    }

    /// The partition that a call goes to: the first, or one of those that the function is spread over. The same call goes to the same
    /// one again, as long as there are as many.
    async fn partition_for(&self, call: &SubmitCall) -> Result<Arc<Partition>, StoreError> {
        let function = &call.request.function;
        let first = self.partition(function);
        if first.must_read_shards(self.shared.news.function_changes()) {
            self.members_of_the_set().await?;
        }
        let shards = first.shards();
        // A call that is looked up by more than its id is kept in one place, as are calls that legacy workers may run.
        if shards == 0 || call.request.idempotency_key.is_some() || call.fail_without_workers || self.is_served_by_legacy(function).await? {
            return Ok(first);
        }
        Ok(self.shard(function, 1 + slot_of_key(call.call_id.as_str().as_bytes()) % shards))
    }

    async fn submit_to(&self, partition: &Arc<Partition>, call: &Arc<SubmitCall>) -> Result<Submitted, StoreError> {
        let probe = Call::submitted(call.call_id.clone(), self.shared.now(), call.timeout, call.retain);
        let Reserved::Ours { made } = self.reserve(&partition.function, &probe).await? else {
            return Ok(Submitted::Conflict { call_id: call.call_id.clone() });
        };
        let other = if call.fresh { None } else { self.partition_that_has(partition, &call.call_id).await? };
        let submitted = self.submit_once(other.as_ref().unwrap_or(partition), call).await?;
        let is_refused = matches!(submitted, Submitted::UnknownFunction | Submitted::NoWorkers | Submitted::Overloaded { .. });
        if let Some(made) = made.filter(|_| is_refused) {
            self.unreserve(&partition.function, &call.call_id, &made).await;
        }
        Ok(submitted)
    }

    /// Another partition of the function that has this call: it was submitted while the function was spread otherwise.
    async fn partition_that_has(&self, partition: &Arc<Partition>, call_id: &CallId) -> Result<Option<Arc<Partition>>, StoreError> {
        if self.partition(&partition.function).shards() == 0 {
            return Ok(None);
        }
        for other in self.partitions(&partition.function).into_iter().filter(|other| other.member != partition.member) {
            if self.records(&other, std::slice::from_ref(call_id)).await?.iter().any(Option::is_some) {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    async fn submit_once(&self, partition: &Arc<Partition>, call: &Arc<SubmitCall>) -> Result<Submitted, StoreError> {
        loop {
            let is_waited_for = self.shared.waiters.has_waiter(&call.call_id);
            return match heard(self.send_submit(partition, call, is_waited_for)).await?? {
                Judged::Again => continue,
                Judged::Accepted { deadline, durability } => {
                    if !partition.is_remembered() {
                        self.shared.partitions.remember(&partition.function);
                    }
                    if is_waited_for {
                        self.shared.waiters.expect_answer(&call.call_id);
                    }
                    self.shared.agenda.note(partition, deadline);
                    Ok(Submitted::Accepted { deadline, durability })
                }
                Judged::Existing { call_id, record, request } => self.existing(partition, call, call_id, &record, &request),
                Judged::UnknownFunction => Ok(Submitted::UnknownFunction),
                Judged::NoWorkers => Ok(Submitted::NoWorkers),
                Judged::Overloaded { backlog, limit } => Ok(Submitted::Overloaded { backlog, limit }),
            };
        }
    }

    /// Sends a call with those that are sent at the same time.
    fn send_submit(
        &self,
        partition: &Arc<Partition>,
        call: &Arc<SubmitCall>,
        is_waited_for: bool,
    ) -> oneshot::Receiver<Result<Result<Judged, StoreError>, StoreError>> {
        let to_submit = ToSubmit { call: Arc::clone(call), is_waited_for, fresh: call.fresh };
        let store = self.clone();
        partition.submits.ask_one((Arc::clone(partition), to_submit), move |batch| {
            let store = store.clone();
            async move { Ok(store.flush_submits(&batch).await) }
        })
    }

    fn existing(
        &self,
        partition: &Partition,
        again: &SubmitCall,
        call_id: CallId,
        text: &Bytes,
        request: &Bytes,
    ) -> Result<Submitted, StoreError> {
        let record = Record::read(&call_id, text)?;
        let asked: CallRequest = read_request(&partition.function, record.request.as_ref().unwrap_or(request))?;
        if !asked.asks_the_same_as(&again.request) {
            return Ok(Submitted::Conflict { call_id });
        }
        if record.tells(&self.shared.process) {
            self.shared.waiters.expect_answer(&call_id);
        }
        let durability = self.shared.durability();
        Ok(Submitted::Existing { call_id, state: record.call.state, deadline: record.call.deadline, durability })
    }

    async fn flush_submits(&self, batch: &[(Arc<Partition>, ToSubmit)]) -> Vec<Result<Judged, StoreError>> {
        let groups = group(batch, 0..batch.len());
        let mut judged: Vec<Result<Judged, StoreError>> = batch.iter().map(|_| Ok(Judged::Again)).collect();
        match self.run_submits(batch, &groups).await {
            Err(error) => judged.iter_mut().for_each(|one| *one = Err(error.clone())),
            Ok((replies, now, durability)) => {
                for ((partition, places), reply) in groups.iter().zip(replies) {
                    let reply = match reply {
                        Err(error) => Err(self.explain(partition, error).await),
                        reply => reply,
                    };
                    for (place, one) in places.iter().zip(read_section(reply, places.len())) {
                        let deadline = now + batch[*place].1.call.timeout;
                        judged[*place] = one.and_then(|reply| read_judgement(reply, deadline, durability));
                    }
                }
            }
        }
        judged
    }

    async fn run_submits(
        &self,
        batch: &[(Arc<Partition>, ToSubmit)],
        groups: &[(Arc<Partition>, Vec<usize>)],
    ) -> Result<(Vec<Result<Value, StoreError>>, Timestamp, Durability), StoreError> {
        let (shared, now) = (&self.shared, self.shared.now());
        let mut args = shared.pool.take();
        args.number(groups.len());
        args.number(now.as_millis());
        args.number(now.as_millis().saturating_sub(millis(HEALTHY_FOR)));
        // In a Cluster the claim of a worker has another slot than the function.
        args.push(if shared.link.is_cluster() { String::new() } else { shared.keys.claim("") });
        args.push(shared.keys.replies(""));
        let mut keys: Vec<&str> = Vec::with_capacity(groups.len() * 7);
        let ours: Arc<[Arc<str>]> = Arc::from([Arc::from(shared.process.as_str())]);
        for (partition, places) in groups {
            let of = &partition.keys;
            keys.extend(of.of_submits());
            let calls: Vec<Written<'_>> = places.iter().map(|place| self.write_submit(&batch[*place].1, now, &ours)).collect();
            let are_plain = calls.iter().all(|call| call.is_plain());
            args.number(calls.len());
            args.number(if are_plain { 4 } else { 7 });
            args.push(&partition.member);
            args.push(of.work.as_bytes());
            args.flag(partition.must_notify(now));
            args.push(if are_plain { "" } else { &of.ended });
            args.push(if are_plain { "" } else { &of.idempotency });
            calls.iter().for_each(|call| call.put_into(&mut args, are_plain));
        }
        let ran = shared.run_durably(&SUBMIT, &keys, &args).await;
        shared.pool.put(args);
        let (reply, durability) = ran?;
        Ok((sections::read("a submit", reply, groups.len())?, now, durability))
    }

    fn write_submit<'a>(&self, one: &'a ToSubmit, now: Timestamp, ours: &Arc<[Arc<str>]>) -> Written<'a> {
        let SubmitCall { call_id, request, timeout, retain, before, .. } = &*one.call;
        let call = Call::submitted(call_id.clone(), now, *timeout, *retain).with_attempts(*before);
        let (deadline, sequence, key) = (call.deadline, self.shared.next_sequence(now), request.idempotency_key.clone());
        let replies = if one.is_waited_for { Arc::clone(ours) } else { Arc::default() };
        let request = write_request(request);
        let record = Record::submitted(call, sequence, key, replies, request.clone());
        let beside = if record.request.is_none() { request } else { Bytes::new() };
        Written { one, record: record.write(), sequence, deadline, beside }
    }
}

/// A call as the script gets it.
struct Written<'a> {
    one: &'a ToSubmit,
    record: Vec<u8>,
    sequence: u64,
    deadline: Timestamp,
    /// The request, if it stands beside the record.
    beside: Bytes,
}

impl Written<'_> {
    fn key(&self) -> &str {
        self.one.call.request.idempotency_key.as_ref().map_or("", IdempotencyKey::as_str)
    }

    /// Its id is fresh, and nothing else is to be said of it.
    fn is_plain(&self) -> bool {
        self.one.fresh && !self.one.call.fail_without_workers && self.key().is_empty() && self.beside.is_empty()
    }

    fn put_into(&self, args: &mut Args, are_plain: bool) {
        args.push(self.one.call.call_id.as_str());
        args.push(&self.record);
        args.number(self.sequence);
        args.number(self.deadline.as_millis());
        if are_plain {
            return;
        }
        args.push(match (self.one.fresh, self.one.call.fail_without_workers) {
            (true, true) => "fw",
            (true, false) => "f",
            (false, true) => "w",
            (false, false) => "",
        });
        args.push(self.key());
        args.push(&self.beside);
    }
}

/// The judgements of one section.
fn read_section(reply: Result<Value, StoreError>, count: usize) -> Vec<Result<Value, StoreError>> {
    match reply {
        Ok(Value::Array(replies)) if replies.len() == count => replies.into_iter().map(Ok).collect(),
        Ok(word) if value::text(&word) == Some("A") => vec![Ok(word); count],
        Ok(other) => vec![Err(value::strange("a submit", &other)); count],
        Err(error) => vec![Err(error); count],
    }
}

fn read_judgement(reply: Value, deadline: Timestamp, durability: Durability) -> Result<Judged, StoreError> {
    let mut parts = match reply {
        Value::Array(parts) => parts,
        word => vec![word],
    };
    parts.resize(4, Value::Nil);
    let [kind, first, second, third] = <[Value; 4]>::try_from(parts).unwrap_or_else(|_| [Value::Nil, Value::Nil, Value::Nil, Value::Nil]);
    let count = |value: &Value| value::number(value).and_then(|number| u64::try_from(number).ok()).unwrap_or_default();
    Ok(match value::text(&kind) {
        Some("A") => Judged::Accepted { deadline, durability },
        Some("E") => {
            let bytes = |value: Value| Bytes::from(value::into_bytes(value).unwrap_or_default());
            Judged::Existing { call_id: value::call_id(&first)?, record: bytes(second), request: bytes(third) }
        }
        Some("U") => Judged::UnknownFunction,
        Some("N") => Judged::NoWorkers,
        Some("O") => Judged::Overloaded { backlog: count(&first), limit: count(&second) },
        Some("R") => Judged::Again,
        _ => return Err(value::strange("a submit", &kind)),
    })
}
