//! The indexes: which locks end when, and what an execution holds. On one server the scripts write them; in a Cluster they lie elsewhere than
//! the locks, so the process writes them: an execution's before the question, the others after the answer. They may name more than there is.

use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::names::{ExecutionId, LockScope};
use towpath_core::permit::PermitKind;
use towpath_core::store::{HeldScope, StoreError};
use towpath_core::time::Timestamp;

use super::keys::LockKeys;
use crate::registry::reply::instant;
use crate::store::RedisStore;
use crate::unreadable::of_key;
use crate::value;

/// An execution's set outlives what it names by so much.
pub(super) const OUTLIVES: Duration = Duration::from_secs(3_600);

/// What the index should say about a lock.
pub(super) enum Indexed {
    /// It is held until then, by whoever this new identity names.
    Until(Timestamp, Option<String>),
    /// No tenure of ours needs to be looked after.
    Nobody,
}

impl RedisStore {
    /// Writes down what a Cluster's script could not. That it may fail costs a list its line, and an old counter its broom.
    pub(super) async fn keep_index(&self, keys: &LockKeys, scope: &LockScope, what: Indexed) {
        let locks = &self.shared.locks;
        if !locks.keys.is_cluster {
            return;
        }
        let (mut index, mut copy) = (Cmd::new(), Cmd::new());
        match what {
            Indexed::Until(lease_end, meta) => {
                index.arg("ZADD").arg(&locks.keys.index).arg(lease_end.as_millis()).arg(scope.as_str());
                let life = locks.lifetime_ms(lease_end.since(self.shared.now()));
                match meta {
                    Some(meta) => copy.arg("SET").arg(&keys.seeds_meta).arg(meta).arg("PX").arg(life),
                    None => copy.arg("PEXPIRE").arg(&keys.seeds_meta).arg(life),
                };
            }
            Indexed::Nobody => {
                index.arg("ZREM").arg(&locks.keys.index).arg(scope.as_str());
                copy.arg("DEL").arg(&keys.seeds_meta);
            }
        }
        if let Err(error) = self.shared.link.ask_all(&[index, copy]).await {
            tracing::debug!(%error, %scope, "the index of locks was not kept");
        }
    }

    /// Notes that an execution may come to hold this, where the script cannot.
    pub(super) async fn note_execution(&self, execution_id: &ExecutionId, member: &str, cap: Duration) -> Result<(), StoreError> {
        let locks = &self.shared.locks;
        if !locks.keys.is_cluster {
            return Ok(());
        }
        let set = locks.keys.execution(execution_id);
        let (mut add, mut left) = (Cmd::new(), Cmd::new());
        add.arg("SADD").arg(&set).arg(member);
        left.arg("PTTL").arg(&set);
        let replies = self.shared.link.ask_all(&[add, left]).await?;
        let left = replies.into_iter().nth(1).map_or(Ok(None), |reply| value::checked(reply).map(|reply| value::number(&reply)))?;
        let life = locks.lifetime_ms(cap + OUTLIVES);
        if left.is_none_or(|left| left < life) {
            let mut keep = Cmd::new();
            keep.arg("PEXPIRE").arg(&set).arg(life);
            self.shared.link.ask(&keep).await?;
        }
        Ok(())
    }

    /// Writes down, where the script cannot, that lists shall have this until then. That it may fail costs a list its line.
    pub(super) async fn note_used(&self, member: &str, until: Timestamp) {
        let keys = &self.shared.locks.keys;
        if !keys.is_cluster {
            return;
        }
        let mut note = Cmd::new();
        note.arg("ZADD").arg(&keys.used).arg("GT").arg(until.as_millis()).arg(member);
        if let Err(error) = self.shared.link.ask_all(&[self.sweep_used(), note]).await {
            tracing::debug!(%error, member, "what lists shall have was not kept");
        }
    }

    fn sweep_used(&self) -> Cmd {
        let mut sweep = Cmd::new();
        sweep.arg("ZREMRANGEBYSCORE").arg(&self.shared.locks.keys.used).arg("-inf").arg(self.shared.now().as_millis());
        sweep
    }

    /// What lists shall have besides our own tenures.
    pub(super) async fn used(&self) -> Result<Vec<HeldScope>, StoreError> {
        let mut ask = Cmd::new();
        ask.arg("ZRANGE").arg(&self.shared.locks.keys.used).arg(0).arg(-1);
        let replies = self.shared.link.ask_apart(&[self.sweep_used(), ask]).await;
        let members = replies.into_iter().nth(1).map_or(Ok(Vec::new()), |reply| value::array("ZRANGE", reply?));
        let members = self.shared.or_pass_over(&self.shared.locks.keys.used, members, Vec::new())?;
        Ok(members.iter().filter_map(|member| read_member(value::text(member)?)).collect())
    }

    /// Locks whose lease is over by the index, the earliest first, and by scope at one instant.
    pub(crate) async fn ended_leases(&self, now: Timestamp, limit: usize) -> Result<Vec<(Timestamp, LockScope)>, StoreError> {
        let mut ask = Cmd::new();
        ask.arg("ZRANGEBYSCORE").arg(&self.shared.locks.keys.index).arg("-inf").arg(now.as_millis());
        ask.arg("WITHSCORES").arg("LIMIT").arg(0).arg(limit);
        let index = &self.shared.locks.keys.index;
        let lines = self.shared.link.ask(&ask).await.and_then(|reply| value::array("ZRANGEBYSCORE", reply));
        let (ends, junk) = read_ends(&self.shared.or_pass_over(index, lines, Vec::new())?);
        // A line that names no scope would be due forever.
        if !junk.is_empty() {
            junk.iter().for_each(|member| self.shared.pass_over(index, member, "no lock has such a scope; it is removed"));
            let mut remove = Cmd::new();
            remove.arg("ZREM").arg(index).arg(junk);
            self.shared.link.ask(&remove).await?;
        }
        Ok(ends)
    }

    /// When the next lease ends.
    pub(crate) async fn next_lease_end(&self) -> Result<Option<Timestamp>, StoreError> {
        let mut ask = Cmd::new();
        ask.arg("ZRANGE").arg(&self.shared.locks.keys.index).arg(0).arg(0).arg("WITHSCORES");
        let head = self.shared.link.ask(&ask).await.and_then(|reply| value::array("ZRANGE", reply));
        let head = self.shared.or_pass_over(&self.shared.locks.keys.index, head, Vec::new())?;
        // Whatever the line names: when it is due, it is looked at.
        Ok(head.get(1).and_then(value::score).map(instant))
    }

    /// What the execution holds of all that its set names.
    pub(super) async fn what_execution_holds(&self, execution_id: &ExecutionId) -> Result<Vec<HeldScope>, StoreError> {
        let mut ask = Cmd::new();
        ask.arg("SMEMBERS").arg(self.shared.locks.keys.execution(execution_id));
        let set = self.shared.locks.keys.execution(execution_id);
        let members = self.shared.link.ask(&ask).await.and_then(|reply| value::array("SMEMBERS", reply));
        let members = members.map_err(|error| of_key(error, &set))?;
        let now = self.shared.now();
        let mut held = Vec::new();
        for named in members.iter().filter_map(|member| read_member(value::text(member)?)) {
            let is_held = match &named {
                HeldScope::Lock(scope) => {
                    let state = self.or_left_out(scope, self.lock_state(scope).await.map(Some))?;
                    let tenure = state.and_then(|state| state.tenure).filter(|tenure| tenure.lease_end > now);
                    tenure.is_some_and(|tenure| tenure.execution_id.as_ref() == Some(execution_id))
                }
                HeldScope::Permit(kind, scope) => {
                    let state = self.or_left_out(scope, self.permit_state(*kind, scope).await.map(Some))?;
                    let permits = state.map(|state| state.permits).unwrap_or_default();
                    permits.iter().any(|permit| permit.lease_end > now && permit.execution_id.as_ref() == Some(execution_id))
                }
            };
            if is_held {
                held.push(named);
            }
        }
        held.sort();
        Ok(held)
    }
}

/// Ends of leases with their scopes, and members that are no scopes.
fn read_ends(reply: &[Value]) -> (Vec<(Timestamp, LockScope)>, Vec<Vec<u8>>) {
    let (mut ends, mut junk) = (Vec::new(), Vec::new());
    for pair in reply.chunks_exact(2) {
        let at = value::score(&pair[1]).map(instant);
        let scope = value::text(&pair[0]).and_then(|scope| LockScope::new(scope).ok());
        match at.zip(scope) {
            Some(end) => ends.push(end),
            None => junk.extend(value::bytes(&pair[0]).map(<[u8]>::to_vec)),
        }
    }
    (ends, junk)
}

/// `lock:<scope>`, `sem:<scope>` or `rw:<scope>`.
fn read_member(member: &str) -> Option<HeldScope> {
    let (what, scope) = member.split_once(':')?;
    let scope = LockScope::new(scope).ok()?;
    if what == "lock" {
        return Some(HeldScope::Lock(scope));
    }
    PermitKind::ALL.into_iter().find(|kind| kind.as_str() == what).map(|kind| HeldScope::Permit(kind, scope))
}
