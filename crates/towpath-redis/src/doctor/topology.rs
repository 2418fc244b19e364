//! Several servers that must agree: Sentinels about the master, the masters of a Cluster about the slots.

use std::collections::BTreeSet;

use redis::Cmd;
use towpath_core::store::StoreError;

use super::check::Check;
use crate::about::{self, About, Info};
use crate::link::{Link, Testimony};
use crate::options::RedisOptions;

/// Two cannot outvote a third that is cut off, and one is no vote.
const SENTINELS_LEAST: usize = 3;
const SLOTS: u64 = 16_384;

/// Whether enough Sentinels name the same master; `None` without Sentinels.
pub(crate) async fn sentinels(options: &RedisOptions) -> Result<Option<Check>, StoreError> {
    let testimonies = Link::ask_sentinels(options).await?;
    Ok((!testimonies.is_empty()).then(|| judge_sentinels(&testimonies)))
}

fn judge_sentinels(testimonies: &[Testimony]) -> Check {
    let silent: Vec<String> =
        testimonies.iter().filter_map(|one| one.says.as_ref().err().map(|error| format!("{}: {error}", one.sentinel))).collect();
    let said: Vec<_> = testimonies.iter().filter_map(|one| one.says.as_ref().ok()).collect();
    let masters: BTreeSet<String> = said.iter().map(|(master, _)| master.to_string()).collect();
    // Whoever tells of no others may not be asked for them: then those of the URL count.
    let known = said.iter().map(|(_, others)| others.map_or(testimonies.len(), |others| others + 1)).min().unwrap_or(0);
    let masters = masters.into_iter().collect::<Vec<_>>().join(" and ");
    if said.iter().any(|(master, _)| master.to_string() != masters) {
        let says = format!("they disagree: the master is {masters}");
        return Check::warn("sentinels", says, "wait for a failover to end; if it stays so, SENTINEL RESET on those that are wrong");
    }
    if !silent.is_empty() {
        let says = format!("{} of {} do not answer as they should: {}", silent.len(), testimonies.len(), silent.join("; "));
        return Check::warn("sentinels", says, "start them, or take them out of the store's URL");
    }
    if known < SENTINELS_LEAST {
        let says = format!("only {known} watch the master {masters}: when one is gone, nobody can take over");
        return Check::warn("sentinels", says, "run at least three, on machines of their own");
    }
    Check::ok("sentinels", format!("{known} watch the master {masters}, and all name it"))
}

/// Whether every slot is served, and would be if a master died; `None` without a Cluster.
pub(crate) async fn cluster(link: &Link, about: &About) -> Result<Option<Check>, StoreError> {
    if !link.is_cluster() {
        return Ok(None);
    }
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("INFO");
    let away: Vec<String> = link.ask_each(&command).await.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
    if !away.is_empty() {
        let says = format!("{} master(s) do not answer: {}", away.len(), away.join("; "));
        return Ok(Some(Check::fail("cluster", says, "start them, or let a replica take over")));
    }
    let Some(replies) = about::permitted_each(link, &command).await? else {
        return Ok(Some(Check::not_permitted("cluster", "CLUSTER|INFO")));
    };
    let texts = replies.into_iter().filter_map(|reply| redis::from_redis_value::<String>(reply).ok());
    let states: Vec<Info> = texts.map(|text| Info::parse(&text)).collect();
    Ok(Some(judge_cluster(&states, about.infos())))
}

fn judge_cluster(states: &[Info], masters: &[Info]) -> Check {
    let served = states.iter().filter_map(|state| state.number("cluster_slots_ok")).min().unwrap_or(0);
    if served < SLOTS || states.iter().any(|state| state.field("cluster_state") != Some("ok")) {
        let says = format!("{served} of {SLOTS} slots are served: calls of functions in the others are refused");
        return Check::fail("cluster", says, "see `redis-cli --cluster check HOST:PORT`, and `redis-cli --cluster fix HOST:PORT`");
    }
    let alone = masters.iter().filter(|master| master.replicas_online() == 0).count();
    if alone > 0 {
        let says = format!(
            "all slots are served, but {alone} of {} masters have no replica: when one dies, its functions stand still",
            masters.len()
        );
        return Check::warn("cluster", says, "add a replica to each: `redis-cli --cluster add-node … --cluster-slave`");
    }
    Check::ok("cluster", format!("all slots are served by {} masters, each with a replica", masters.len()))
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use crate::link::trouble;
    use crate::options::Address;

    fn address(port: u16) -> Address {
        Address { host: "10.0.0.1".to_owned(), port }
    }

    fn says(master: u16, others: Option<usize>) -> Testimony {
        Testimony { sentinel: address(26379), says: Ok((address(master), others)) }
    }

    #[test]
    fn sentinels_must_be_three_and_agree() {
        let silent = || Testimony { sentinel: address(26380), says: Err(trouble("gone".to_owned())) };
        for (testimonies, verdict) in [
            (vec![says(1, Some(2)), says(1, Some(2)), says(1, Some(2))], Verdict::Ok),
            (vec![says(1, Some(2))], Verdict::Ok),
            (vec![says(1, None), says(1, None), says(1, None)], Verdict::Ok),
            (vec![says(1, Some(1)), says(1, Some(1))], Verdict::Warn),
            (vec![says(1, Some(2)), says(2, Some(2)), says(1, Some(2))], Verdict::Warn),
            (vec![says(1, Some(2)), says(1, Some(2)), silent()], Verdict::Warn),
        ] {
            assert_eq!(judge_sentinels(&testimonies).verdict, verdict, "{testimonies:?}");
        }
    }

    #[test]
    fn a_cluster_must_serve_every_slot_and_should_have_replicas() {
        let state = |state: &str, ok: u64| Info::parse(&format!("cluster_state:{state}\ncluster_slots_ok:{ok}"));
        let alone = Info::parse("role:master");
        let followed = Info::parse("role:master\nslave0:ip=10.0.0.2,port=1,state=online,offset=5,lag=0");
        for (states, masters, verdict) in [
            ([state("ok", 16_384), state("ok", 16_384)], [&followed, &followed], Verdict::Ok),
            ([state("ok", 16_384), state("ok", 16_384)], [&followed, &alone], Verdict::Warn),
            ([state("ok", 16_384), state("fail", 16_384)], [&followed, &followed], Verdict::Fail),
            ([state("ok", 16_384), state("ok", 16_383)], [&followed, &followed], Verdict::Fail),
        ] {
            assert_eq!(judge_cluster(&states, &masters.map(Clone::clone)).verdict, verdict, "{states:?} {masters:?}");
        }
    }
}
