//! Functions that are missing in the set of all functions although they are defined: another program has replaced the set, or removed it. They are
//! put back. A function leaves the set only after its definition is gone, so one that has a definition belongs there.

use towpath_core::names::FunctionKey;
use towpath_core::store::StoreError;

use super::reply::{command, done, read};
use crate::definition::{read_definition, shard_member};
use crate::quick::QuickSet;
use crate::store::RedisStore;
use crate::unreadable::is_odd;

impl RedisStore {
    /// Finds functions that this process knows and that a read did not find in the set, and puts those back that are still defined or have calls.
    /// Returns the members that were put back.
    pub(super) async fn put_back(&self, reading: u64, found: &[(FunctionKey, u16)]) -> Result<Vec<(FunctionKey, u16)>, StoreError> {
        let found: QuickSet<&FunctionKey> = found.iter().map(|(function, _)| function).collect();
        let missing = self.shared.partitions.missing(reading, &found);
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let looks = missing.iter().flat_map(|(function, shard)| {
            let keys = self.shared.keys.shard(function, *shard);
            [command("HEXISTS", &[keys.definition.as_str(), "definition"]), command("EXISTS", &[keys.calls])]
        });
        let looks: Vec<_> = looks.collect();
        let replies = self.shared.link.ask_apart(&looks).await;
        let is_there = |reply: &Result<redis::Value, StoreError>| match reply.clone().and_then(read::<bool>) {
            Ok(is_there) => is_there,
            // A key that cannot be reached now may be there.
            Err(error) => !is_odd(&error),
        };
        let lost = missing.into_iter().zip(replies.chunks_exact(2)).filter(|(_, replies)| replies.iter().any(is_there));
        let lost: Vec<(FunctionKey, u16)> = lost.map(|(member, _)| member).collect();
        self.list(&lost).await?;
        Ok(lost)
    }

    /// Puts functions back that are missing in the set. A set with fewer members than this process knows functions lacks some.
    pub(crate) async fn check_set_of_functions(&self) -> Result<(), StoreError> {
        let set = self.shared.keys.functions();
        let asked = self.shared.link.ask(&command("SCARD", &[&set])).await.and_then(read::<usize>);
        let known = self.shared.partitions.count_known();
        if self.shared.or_pass_over(&set, asked, known)? < known {
            self.members_of_the_set().await?;
        }
        Ok(())
    }

    /// Searches the names of keys for definitions, and puts their functions into the set. Returns whether there are any. It is for a process that
    /// starts and finds the set empty. Not in a Cluster, where such a search has no bound.
    pub(super) async fn search_definitions(&self) -> Result<bool, StoreError> {
        if self.shared.link.is_cluster() {
            return Ok(false);
        }
        let start = format!("{}:function:", self.shared.keys.prefix());
        let found = self.some_key_names(&format!("{start}*")).await?;
        let names: Vec<String> = found.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect();
        let asks: Vec<_> = names.iter().map(|name| command("HGET", &[name.as_str(), "definition"])).collect();
        let replies = self.shared.link.ask_apart(&asks).await.into_iter();
        let mut lost = Vec::new();
        for (name, reply) in names.iter().zip(replies) {
            let Ok(Some(text)) = reply.and_then(read::<Option<Vec<u8>>>) else { continue };
            let Ok(definition) = read_definition(&text) else { continue };
            let is_of = |shard: &u16| self.shared.keys.shard(&definition.key, *shard).definition == *name;
            let shard = (0..=definition.limits.shards.unwrap_or(0)).find(is_of);
            lost.extend(shard.map(|shard| (definition.key, shard)));
        }
        lost.iter().for_each(|(function, _)| self.shared.partitions.remember(function));
        self.list(&lost).await?;
        Ok(!lost.is_empty())
    }

    /// Puts members into the set. One that another program has replaced is passed over.
    async fn list(&self, lost: &[(FunctionKey, u16)]) -> Result<(), StoreError> {
        if lost.is_empty() {
            return Ok(());
        }
        let set = self.shared.keys.functions();
        let mut list = command("SADD", &[&set]);
        for (function, shard) in lost {
            list.arg(shard_member(function, *shard));
        }
        tracing::warn!(key = set, functions = lost.len(), "functions were missing in the set of all functions; they are put back");
        let listed = self.shared.link.insist(&[list]).await.and_then(done);
        self.shared.or_pass_over(&set, listed, ())
    }
}
