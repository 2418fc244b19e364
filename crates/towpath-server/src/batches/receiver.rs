//! The server as a receiver: whichever target a batcher has, its batches go there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Client;
use towpath::batches::{Admission, Delivered, Delivery, FunctionReceiver, Parcel, Receiver, Settings, Target};
use towpath::{Clock, Towpath};
use url::Url;

use super::hosts::{Host, Hosts};
use super::{check, post, secrets};
use crate::push::{TargetPolicy, WebhookSecret, client};

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// Delivers to URLs and functions.
pub(crate) struct ServerReceiver {
    functions: FunctionReceiver,
    clock: Arc<dyn Clock>,
    policy: TargetPolicy,
    /// For batchers that name no secrets of their own.
    secrets: Vec<WebhookSecret>,
    hosts: Hosts,
    /// One client for each list of places that batchers allow.
    clients: Mutex<HashMap<Vec<String>, Client>>,
}

impl ServerReceiver {
    pub(crate) fn new(towpath: &Towpath, policy: TargetPolicy, secrets: Vec<WebhookSecret>) -> Self {
        let (functions, clock) = (FunctionReceiver::new(towpath.clone()), Arc::clone(towpath.clock()));
        Self { functions, clock, policy, secrets, hosts: Hosts::default(), clients: Mutex::default() }
    }

    /// The host that a batcher's batches go to, as the breaker knows it.
    fn host(&self, settings: &Settings) -> Option<Arc<Host>> {
        let Some(Target::Url(url)) = &settings.target else { return None };
        let url = Url::parse(url).ok()?;
        let host = format!("{}:{}", url.host_str()?, url.port_or_known_default()?);
        Some(self.hosts.get(&host, settings.per_host))
    }

    fn client(&self, settings: &Settings, policy: &TargetPolicy) -> Result<Client, reqwest::Error> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&settings.allow_targets) {
            return Ok(client.clone());
        }
        let client = client::build(policy, CONNECT_TIME_MAX)?;
        clients.insert(settings.allow_targets.clone(), client.clone());
        Ok(client)
    }

    /// Checked at every delivery: the settings may be older than the policy, and addresses in URLs never reach the resolver.
    async fn post(&self, url: &str, parcel: &Parcel) -> Delivery {
        let settings = &parcel.settings;
        let policy = match check::policy(&self.policy, settings) {
            Ok(policy) => policy,
            Err(refused) => return Delivery::unanswered(refused.to_string(), "refused"),
        };
        let url = match policy.check(url) {
            Ok(url) => url,
            Err(refused) => return Delivery::unanswered(refused.to_string(), "refused"),
        };
        let own = match secrets::read(&settings.secrets) {
            Ok(own) => own,
            // Never unsigned, and never under another name.
            Err(error) => return Delivery::unanswered(error, "no_secret"),
        };
        let secrets = if own.is_empty() { &self.secrets } else { &own };
        match self.client(settings, &policy) {
            Ok(client) => post::post(&client, url, secrets, parcel, self.clock.now()).await,
            Err(error) => Delivery::unanswered(format!("the client cannot be made: {error}"), "no_client"),
        }
    }
}

#[async_trait]
impl Receiver for ServerReceiver {
    fn takes(&self, settings: &Settings) -> bool {
        matches!(settings.target, Some(Target::Url(_) | Target::Function { .. }))
    }

    fn try_admit(&self, settings: &Settings) -> Option<Admission> {
        match self.host(settings) {
            Some(host) => Some(Box::new(host.try_admit(self.clock.as_ref())?)),
            None => Some(Box::new(())),
        }
    }

    async fn admit(&self, settings: &Settings) -> Admission {
        match self.host(settings) {
            Some(host) => Box::new(host.admit(self.clock.as_ref()).await),
            None => self.functions.admit(settings).await,
        }
    }

    async fn deliver(&self, parcel: &Parcel) -> Delivery {
        let Some(Target::Url(url)) = &parcel.settings.target else { return self.functions.deliver(parcel).await };
        let delivery = self.post(url, parcel).await;
        if let Some(host) = self.host(&parcel.settings) {
            host.heard(is_well(&delivery.delivered), self.clock.now());
        }
        delivery
    }
}

/// Whether a host works, whatever it thinks of this batch.
fn is_well(delivered: &Delivered) -> bool {
    matches!(delivered, Delivered::Answered { status, .. } if *status < 500)
}
