//! Named lists of rules. They stand in the shared configuration under `limit_policies`, so every process sees the same.
//!
//! `{"limit_policies": {"for_all": {"default": [rule, ..]}, "of_scopes": {"acme": {"default": [rule, ..]}}}}`

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use towpath_core::limit::Rules;
use towpath_core::names::{LimitScope, RuleName};
use towpath_core::payload::Payload;
use towpath_core::store::{ConfigView, SetConfig};
use towpath_core::time::Timestamp;

use super::{LimitError, RuleSpec};
use crate::Towpath;

/// Where the policies stand in the shared configuration.
const FIELD: &str = "limit_policies";
/// What was put by another process is seen after so long at the latest.
const SEEN_WITHIN: Duration = Duration::from_secs(1);
/// All scopes together have so many: the whole configuration is read at once.
const POLICIES_MAX: usize = 1_000;

type Named = BTreeMap<String, Vec<RuleSpec>>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Table {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    for_all: Named,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    of_scopes: BTreeMap<String, Named>,
}

/// A named list of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Whose; `None`: any scope's that has none of that name itself.
    pub scope: Option<LimitScope>,
    /// What it is called.
    pub name: RuleName,
    /// Its rules.
    pub rules: Rules,
}

/// The policies as they were last seen, and when.
#[derive(Default)]
pub(crate) struct PolicyCache {
    seen: Mutex<Option<(Timestamp, Arc<Table>)>>,
}

/// The policies that all processes share.
#[derive(Clone, Debug)]
pub struct Policies {
    towpath: Towpath,
}

impl Policies {
    pub(super) fn new(towpath: Towpath) -> Self {
        Self { towpath }
    }

    /// All of them: those for all first, then by scope and name.
    pub async fn list(&self) -> Result<Vec<Policy>, LimitError> {
        let table = table(&self.towpath.config().await?)?;
        let for_all = table.for_all.iter().map(|(name, rules)| policy(None, name, rules));
        let of_scopes =
            table.of_scopes.iter().flat_map(|(scope, named)| named.iter().map(move |(name, rules)| policy(Some(scope), name, rules)));
        for_all.chain(of_scopes).collect()
    }

    /// The rules that a name means for a scope: its own of that name, else the one for all.
    pub async fn find(&self, scope: &LimitScope, name: &RuleName) -> Result<Option<Rules>, LimitError> {
        let table = self.table().await?;
        let own = table.of_scopes.get(scope.as_str()).and_then(|named| named.get(name.as_str()));
        own.or_else(|| table.for_all.get(name.as_str())).map(|specs| rules(specs)).transpose()
    }

    /// Whether a name means something for a scope. Not from memory: another process may have put it a moment ago.
    pub(super) async fn has(&self, scope: &LimitScope, name: &RuleName) -> Result<bool, LimitError> {
        let table = table(&self.towpath.config().await?)?;
        let own = table.of_scopes.get(scope.as_str()).is_some_and(|named| named.contains_key(name.as_str()));
        Ok(own || table.for_all.contains_key(name.as_str()))
    }

    /// Puts a policy of a scope, or one for all; returns whether it is new.
    pub async fn put(&self, scope: Option<&LimitScope>, name: &RuleName, rules: &Rules) -> Result<bool, LimitError> {
        let specs: Vec<RuleSpec> = rules.iter().map(RuleSpec::from).collect();
        self.change(|table| {
            let named = match scope {
                Some(scope) => table.of_scopes.entry(scope.as_str().to_owned()).or_default(),
                None => &mut table.for_all,
            };
            named.insert(name.as_str().to_owned(), specs.clone()).is_none()
        })
        .await
    }

    /// Removes a policy; returns whether there was one. What its rules have counted stays until it is over.
    pub async fn remove(&self, scope: Option<&LimitScope>, name: &RuleName) -> Result<bool, LimitError> {
        self.change(|table| match scope {
            None => table.for_all.remove(name.as_str()).is_some(),
            Some(scope) => {
                let removed = table.of_scopes.get_mut(scope.as_str()).is_some_and(|named| named.remove(name.as_str()).is_some());
                table.of_scopes.retain(|_, named| !named.is_empty());
                removed
            }
        })
        .await
    }

    /// Changes the table, again and again if somebody else changes the configuration meanwhile.
    async fn change<T>(&self, change: impl Fn(&mut Table) -> T) -> Result<T, LimitError> {
        loop {
            let config = self.towpath.config().await?;
            let mut changed = table(&config)?;
            let outcome = change(&mut changed);
            let count = changed.for_all.len() + changed.of_scopes.values().map(BTreeMap::len).sum::<usize>();
            if count > POLICIES_MAX {
                return Err(LimitError::BadPolicies(format!(
                    "there would be {count} policies, and at most {POLICIES_MAX} are kept: let scopes share one"
                )));
            }
            let set = SetConfig { value: with_table(&config, &changed)?, if_version: Some(config.version) };
            if self.towpath.set_config(set).await?.is_some() {
                *self.cache() = Some((self.towpath.clock().now(), Arc::new(changed)));
                return Ok(outcome);
            }
        }
    }

    async fn table(&self) -> Result<Arc<Table>, LimitError> {
        let now = self.towpath.clock().now();
        let fresh = self.cache().as_ref().filter(|(seen, _)| now.since(*seen) < SEEN_WITHIN).map(|(_, table)| Arc::clone(table));
        if let Some(table) = fresh {
            return Ok(table);
        }
        let config = match self.towpath.config().await {
            Ok(config) => config,
            // What was last seen says what its rules want to happen while the store is out of reach.
            Err(error) => return self.cache().as_ref().map(|(_, table)| Arc::clone(table)).ok_or_else(|| error.into()),
        };
        let table = Arc::new(table(&config)?);
        *self.cache() = Some((now, Arc::clone(&table)));
        Ok(table)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Option<(Timestamp, Arc<Table>)>> {
        self.towpath.limits().policies.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn policy(scope: Option<&String>, name: &str, specs: &[RuleSpec]) -> Result<Policy, LimitError> {
    Ok(Policy { scope: scope.map(LimitScope::new).transpose()?, name: RuleName::new(name)?, rules: rules(specs)? })
}

fn rules(specs: &[RuleSpec]) -> Result<Rules, LimitError> {
    let rules: Result<Vec<_>, _> = specs.iter().map(RuleSpec::rule).collect();
    rules.and_then(Rules::new).map_err(|refused| LimitError::BadPolicies(refused.to_string()))
}

fn object(config: &ConfigView) -> Result<Map<String, Value>, LimitError> {
    match serde_json::from_slice(config.value.as_bytes()) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err(LimitError::BadPolicies("the configuration is no JSON object: make it one".to_owned())),
        Err(error) => Err(LimitError::BadPolicies(format!("the configuration is no JSON ({error})"))),
    }
}

fn table(config: &ConfigView) -> Result<Table, LimitError> {
    let Some(found) = object(config)?.remove(FIELD) else { return Ok(Table::default()) };
    serde_json::from_value(found).map_err(|error| LimitError::BadPolicies(error.to_string()))
}

/// The configuration with another table, and all else as it was.
fn with_table(config: &ConfigView, table: &Table) -> Result<Payload, LimitError> {
    let mut fields = object(config)?;
    let value = serde_json::to_value(table).map_err(|error| LimitError::BadPolicies(error.to_string()))?;
    fields.insert(FIELD.to_owned(), value);
    Ok(Payload::from_json(Value::Object(fields).to_string()))
}
