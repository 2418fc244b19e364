//! From a call's id to its partition. An id that Towpath makes ends with a hash of its function. Any other id is reserved in a key of its
//! own before its call is written, and the reservation names the function.

use std::sync::{Arc, Mutex, PoisonError};

use redis::{Cmd, Value};
use towpath_core::call::Call;
use towpath_core::names::{CallId, FunctionKey};
use towpath_core::store::StoreError;

use super::change::longest_life_ms;
use super::partition::Partition;
use crate::definition::{function_member, read_function_member};
use crate::quick::QuickMap;
use crate::store::RedisStore;
use crate::value;

/// The functions of each hash that this process has met.
#[derive(Default)]
pub(crate) struct Tags {
    known: Mutex<QuickMap<String, Vec<FunctionKey>>>,
}

impl Tags {
    fn of(&self, tag: &str) -> Vec<FunctionKey> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(tag).cloned().unwrap_or_default()
    }

    pub(crate) fn note(&self, function: &FunctionKey) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let functions = known.entry(function.tag()).or_default();
        if !functions.contains(function) {
            functions.push(function.clone());
        }
    }
}

/// Whether an id tells that its call is of this function.
fn is_named_by(call_id: &CallId, function: &FunctionKey) -> bool {
    call_id.function_tag().is_some_and(|tag| tag == function.tag())
}

/// What became of a reservation.
pub(crate) enum Reserved {
    /// The id is this function's.
    Ours,
    /// A call of another function has this id.
    ByAnother,
}

impl RedisStore {
    /// The partitions that the id itself names; none if it was not made by Towpath, or its function is not known.
    pub(crate) async fn partitions_named_by(&self, call_id: &CallId) -> Result<Vec<Arc<Partition>>, StoreError> {
        let Some(tag) = call_id.function_tag() else { return Ok(Vec::new()) };
        let mut functions = self.shared.tags.of(tag);
        if functions.is_empty() {
            self.functions_in_set().await?.iter().for_each(|function| self.shared.tags.note(function));
            functions = self.shared.tags.of(tag);
        }
        Ok(functions.iter().flat_map(|function| self.partitions(function)).collect())
    }

    /// The partitions that the reservation of an id names.
    pub(crate) async fn partitions_reserved_for(&self, call_id: &CallId) -> Result<Vec<Arc<Partition>>, StoreError> {
        Ok(self.reserved_for(call_id).await?.map(|function| self.partitions(&function)).unwrap_or_default())
    }

    async fn reserved_for(&self, call_id: &CallId) -> Result<Option<FunctionKey>, StoreError> {
        let mut get = Cmd::new();
        get.arg("GET").arg(self.shared.keys.reservation(call_id));
        let reply = self.shared.link.ask(&get).await?;
        Ok(value::text(&reply).and_then(read_function_member))
    }

    /// Makes an id a function's, unless the id tells its function. A reservation without a call belongs to no one.
    pub(crate) async fn reserve(&self, function: &FunctionKey, call: &Call) -> Result<Reserved, StoreError> {
        let call_id = &call.call_id;
        if is_named_by(call_id, function) {
            return Ok(Reserved::Ours);
        }
        let (key, member) = (self.shared.keys.reservation(call_id), function_member(function));
        let (mut set, mut get) = (Cmd::new(), Cmd::new());
        set.arg("SET").arg(&key).arg(&member).arg("NX").arg("PX").arg(longest_life_ms(call));
        get.arg("GET").arg(&key);
        let mut replies = self.shared.link.ask_all(&[set, get]).await?.into_iter();
        value::checked(replies.next().unwrap_or(Value::Nil))?;
        let holder = value::checked(replies.next().unwrap_or(Value::Nil))?;
        let Some(other) = value::text(&holder).filter(|holder| *holder != member) else { return Ok(Reserved::Ours) };
        if let Some(other) = read_function_member(other)
            && self.has_call(&other, call_id).await?
        {
            return Ok(Reserved::ByAnother);
        }
        let mut take = Cmd::new();
        take.arg("SET").arg(&key).arg(&member).arg("PX").arg(longest_life_ms(call));
        self.shared.link.ask(&take).await?;
        Ok(Reserved::Ours)
    }

    async fn has_call(&self, function: &FunctionKey, call_id: &CallId) -> Result<bool, StoreError> {
        for partition in self.partitions(function) {
            if self.records(&partition, std::slice::from_ref(call_id)).await?.iter().any(Option::is_some) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Keeps the reservations of calls that are about to become dead letters, which stay until a person deals with them.
    pub(crate) async fn keep_reservations(&self, calls: impl Iterator<Item = (&FunctionKey, &Call)>) -> Result<(), StoreError> {
        let keep: Vec<Cmd> = calls
            .filter(|(function, call)| !is_named_by(&call.call_id, function))
            .map(|(_, call)| {
                let mut persist = Cmd::new();
                persist.arg("PERSIST").arg(self.shared.keys.reservation(&call.call_id));
                persist
            })
            .collect();
        for reply in self.shared.link.ask_all(&keep).await? {
            value::checked(reply)?;
        }
        Ok(())
    }

    /// Lets the reservation of a dead letter that was dealt with end with its retention. If this fails, one small key stays.
    pub(crate) async fn let_reservation_end(&self, call: &Call) {
        let mut expire = Cmd::new();
        expire.arg("PEXPIRE").arg(self.shared.keys.reservation(&call.call_id)).arg(longest_life_ms(call));
        if let Err(error) = self.shared.link.ask(&expire).await {
            tracing::debug!(%error, call_id = %call.call_id, "the reservation of an id stays");
        }
    }
}
