//! Asking the Sentinels which server is the master, and the server whether it agrees.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue, Value};
use tokio::time::timeout;
use towpath_core::store::StoreError;

use super::dial::Dialer;
use super::error::{self, checked, trouble};
use super::wire::Wire;
use crate::options::Address;

/// For one Sentinel, all included: there are others to ask.
const SENTINEL_ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// What one Sentinel says.
#[derive(Debug)]
pub(crate) struct Testimony {
    pub(crate) sentinel: Address,
    /// Which server is the master, and how many other Sentinels it knows, if it tells; or why it says nothing.
    pub(crate) says: Result<(Address, Option<usize>), StoreError>,
}

pub(super) struct Sentinels {
    addresses: Vec<Address>,
    master: String,
    /// Which one answered last: it is asked first.
    first: AtomicUsize,
}

impl Sentinels {
    pub(super) fn new(addresses: Vec<Address>, master: String) -> Self {
        Self { addresses, master, first: AtomicUsize::new(0) }
    }

    /// A connection to the server that a Sentinel calls the master and that says so itself.
    pub(super) async fn master(&self, dialer: &Dialer, answer_within: Duration) -> Result<Wire, StoreError> {
        let first = self.first.load(Ordering::Relaxed);
        let mut failures = Vec::new();
        for turn in 0..self.addresses.len() {
            let number = (first + turn) % self.addresses.len();
            let sentinel = &self.addresses[number];
            let found = timeout(SENTINEL_ANSWERS_WITHIN, self.ask(dialer, sentinel)).await;
            let found = found.unwrap_or_else(|_| Err(error::not_reached(sentinel, "no answer in time")));
            let connected = match found {
                Ok(address) => connect(dialer, &address, answer_within).await,
                Err(failure) => Err(failure),
            };
            match connected {
                Ok(wire) => {
                    self.first.store(number, Ordering::Relaxed);
                    return Ok(wire);
                }
                Err(StoreError::Unavailable(failure)) => failures.push(format!("Sentinel {sentinel}: {failure}")),
                Err(failure) => failures.push(format!("Sentinel {sentinel}: {failure}")),
            }
        }
        let failures = failures.join("; ");
        Err(trouble(format!("no Sentinel leads to a master '{}' ({failures}); work goes on by itself when one does", self.master)))
    }

    /// What each of them says when it is asked alone.
    pub(super) async fn testimonies(&self, dialer: &Dialer) -> Vec<Testimony> {
        let ask = self.addresses.iter().map(|sentinel| async {
            let asked = async { Ok((self.ask(dialer, sentinel).await?, self.others(dialer, sentinel).await)) };
            let says = timeout(SENTINEL_ANSWERS_WITHIN, asked).await;
            let says = says.unwrap_or_else(|_| Err(error::not_reached(sentinel, "no answer in time")));
            Testimony { sentinel: sentinel.clone(), says }
        });
        join_all(ask).await
    }

    /// How many others a Sentinel knows.
    async fn others(&self, dialer: &Dialer, sentinel: &Address) -> Option<usize> {
        let mut question = Cmd::new();
        question.arg("SENTINEL").arg("SENTINELS").arg(&self.master);
        match self.answer(dialer, sentinel, &question).await {
            Ok(Value::Array(others)) => Some(others.len()),
            _ => None,
        }
    }

    async fn ask(&self, dialer: &Dialer, sentinel: &Address) -> Result<Address, StoreError> {
        let mut question = Cmd::new();
        question.arg("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
        match checked(self.answer(dialer, sentinel, &question).await?)? {
            Value::Nil => Err(trouble(format!("it knows no master '{}': check the name in the URL", self.master))),
            found => {
                let (host, port) = <(String, u16)>::from_redis_value(found).map_err(|error| trouble(error.to_string()))?;
                Ok(Address { host, port })
            }
        }
    }

    async fn answer(&self, dialer: &Dialer, sentinel: &Address, question: &Cmd) -> Result<Value, StoreError> {
        let wire = Wire::new(sentinel, dialer.sentinel(sentinel, false).await?, None).await?;
        let mut reply = ask(&wire, question).await;
        let is_closed = matches!(&reply, Ok(Value::ServerError(refusal)) if matches!(refusal.code(), "NOAUTH" | "NOPERM"));
        if is_closed && dialer.has_credentials() {
            let wire = Wire::new(sentinel, dialer.sentinel(sentinel, true).await?, None).await?;
            reply = ask(&wire, question).await;
        }
        reply
    }
}

/// Connects and asks the server for its role: a Sentinel may not have heard yet.
async fn connect(dialer: &Dialer, address: &Address, answer_within: Duration) -> Result<Wire, StoreError> {
    let wire = Wire::new(address, dialer.data(address).await?, Some(answer_within)).await?;
    let mut question = Cmd::new();
    question.arg("ROLE");
    let role = match ask(&wire, &question).await? {
        Value::Array(mut role) if !role.is_empty() => String::from_redis_value(role.remove(0)).unwrap_or_default(),
        // A user without the right to ask takes the Sentinel's word for it.
        Value::ServerError(refusal) if refusal.code() == "NOPERM" => "master".to_owned(),
        other => return Err(checked(other).err().unwrap_or_else(|| trouble(format!("the server at {address} names no role")))),
    };
    match role.as_str() {
        "master" => Ok(wire),
        other => Err(trouble(format!("the server at {address} is a {other}, not the master"))),
    }
}

async fn ask(wire: &Wire, question: &Cmd) -> Result<Value, StoreError> {
    let replies = wire.send(std::slice::from_ref(question)).await;
    let mut replies = replies.map_err(|failure| error::not_reached(&wire.address, &failure.to_string()))?;
    Ok(replies.pop().unwrap_or(Value::Nil))
}
