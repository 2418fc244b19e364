//! From a call's id to its partition. An id that Towpath makes ends with a hash of its function. Any other id is reserved in a key of its
//! own before its call is written, and the reservation names the function.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::call::Call;
use towpath_core::names::{CallId, FunctionKey};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::change::longest_life_ms;
use super::partition::Partition;
use crate::definition::{function_member, read_function_member};
use crate::pause::pause;
use crate::script::{Args, RESERVE};
use crate::store::RedisStore;
use crate::value;

/// The function that a reservation names.
fn holder(reservation: &str) -> Option<FunctionKey> {
    read_function_member(reservation.split_once('\t').map_or(reservation, |(member, _)| member))
}

/// Whether an id tells that its call is of this function.
fn is_named_by(call_id: &CallId, function: &FunctionKey) -> bool {
    call_id.function_tag().is_some_and(|tag| tag == function.tag())
}

/// A reservation that is younger than this may be of a submit that has not written its call yet. It is not taken over.
const YOUNG: Duration = Duration::from_secs(2);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOKS: u32 = 40;

/// What became of a reservation.
pub(crate) enum Reserved {
    /// The id is this function's. `made`: the reservation, if this request made it.
    Ours { made: Option<String> },
    /// A call of another function has this id.
    ByAnother,
}

impl RedisStore {
    /// The partitions that the id itself names; none if it was not made by Towpath, or its function is not known.
    pub(crate) async fn partitions_named_by(&self, call_id: &CallId) -> Result<Vec<Arc<Partition>>, StoreError> {
        let Some(tag) = call_id.function_tag() else { return Ok(Vec::new()) };
        let mut functions = self.shared.partitions.of_tag(tag);
        if functions.is_empty() {
            self.members_of_the_set().await?;
            functions = self.shared.partitions.of_tag(tag);
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
        Ok(value::text(&reply).and_then(holder))
    }

    /// Makes an id a function's, unless the id tells its function. The reservation lasts at least as long as this call can be found.
    ///
    /// A reservation without a call belongs to no function and is taken over, but not while its call may be on its way.
    pub(crate) async fn reserve(&self, function: &FunctionKey, call: &Call) -> Result<Reserved, StoreError> {
        let call_id = &call.call_id;
        if is_named_by(call_id, function) {
            return Ok(Reserved::Ours { made: None });
        }
        let (mut seen, mut looks, mut take_over) = (String::new(), 0, String::new());
        loop {
            let reply = self.run_reserve(function, call_id, longest_life_ms(call), &take_over).await?;
            let words: Vec<&str> = reply.iter().filter_map(value::text).collect();
            let (there, instant) = match words[..] {
                ["ours", reservation, is_new] => return Ok(Reserved::Ours { made: (is_new == "1").then(|| reservation.to_owned()) }),
                ["of another", there, instant] => (there.to_owned(), Timestamp::from_millis(instant.parse().unwrap_or(0))),
                _ => return Err(StoreError::Corrupt(format!("the reservation of '{call_id}' has another shape: {words:?}"))),
            };
            if let Some(other) = holder(&there)
                && self.has_call(&other, call_id).await?
            {
                return Ok(Reserved::ByAnother);
            }
            looks = if there == seen { looks + 1 } else { 0 };
            if looks == LOOKS || self.shared.now().since(instant) >= YOUNG {
                take_over = there;
            } else {
                seen = there;
                pause(LOOK_EVERY).await;
            }
        }
    }

    /// Lets go of a reservation whose call was refused, unless another submit has relied on it since. If this fails, one small key stays
    /// until it expires.
    pub(crate) async fn unreserve(&self, function: &FunctionKey, call_id: &CallId, made: &str) {
        if let Err(error) = self.run_reserve(function, call_id, 0, made).await {
            tracing::debug!(%error, %call_id, "the reservation of a refused call stays");
        }
    }

    async fn run_reserve(&self, function: &FunctionKey, call_id: &CallId, life_ms: i64, seen: &str) -> Result<Vec<Value>, StoreError> {
        let mut args = Args::with_capacity(4);
        args.push(function_member(function));
        args.number(self.shared.now().as_millis());
        args.number(life_ms);
        args.push(seen);
        value::array("a reservation", self.shared.link.run_args(&RESERVE, &[&self.shared.keys.reservation(call_id)], &args).await?)
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
