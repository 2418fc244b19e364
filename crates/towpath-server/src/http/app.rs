//! What every handler can reach.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use tokio::sync::Semaphore;
use towpath::{Clock, Store, Towpath};
use towpath_core::time::Timestamp;

use super::auth::Keys;
use super::drain::Drain;
use super::host::Hosts;
use super::probe::Probe;
use super::roster::Roster;
use super::routes::Permission;
use super::runs::pull::Books;
use super::runs::{RunRoster, SeenPlaces};
use super::standing::Standing;
use super::turns::Paced;
use crate::batches::EloRoutes;
use crate::doctor::Doctor;
use crate::metrics::Metrics;
use crate::push::{Pushed, TargetPolicy};
use crate::settings::Settings;

/// The server's state: a cheap handle.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

struct Inner {
    towpath: Towpath,
    keys: Keys,
    hosts: Hosts,
    targets: TargetPolicy,
    pushed: Pushed,
    elo_routes: EloRoutes,
    metrics: Arc<Metrics>,
    drain: Drain,
    probe: Probe,
    doctor: Doctor,
    roster: Roster,
    run_roster: RunRoster,
    seen_places: SeenPlaces,
    books: Books,
    standing: Standing,
    paced: Paced,
    permissions: HashMap<String, Vec<(Method, Permission)>>,
    requests: Arc<Semaphore>,
    body_time_max: Duration,
    started_at: Timestamp,
}

impl App {
    pub(crate) fn new(towpath: Towpath, settings: &Settings, metrics: Arc<Metrics>, pushed: Pushed) -> Self {
        let started_at = towpath.clock().now();
        Self(Arc::new(Inner {
            towpath,
            keys: Keys::new(settings.api_keys.clone()),
            hosts: Hosts::new(settings.listen, &settings.allowed_hosts),
            targets: settings.target_policy(),
            pushed,
            elo_routes: settings.config.elo_routes.clone(),
            metrics,
            drain: Drain::default(),
            probe: Probe::default(),
            doctor: Doctor::new(settings),
            roster: Roster::default(),
            run_roster: RunRoster::default(),
            seen_places: SeenPlaces::default(),
            books: Books::default(),
            standing: Standing::default(),
            paced: Paced::default(),
            permissions: super::routes::permissions(),
            requests: Arc::new(Semaphore::new(settings.max_requests)),
            body_time_max: settings.body_time_max,
            started_at,
        }))
    }

    pub(crate) fn towpath(&self) -> &Towpath {
        &self.0.towpath
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.0.towpath.store()
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.0.towpath.clock()
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.0.keys
    }

    pub(crate) fn hosts(&self) -> &Hosts {
        &self.0.hosts
    }

    pub(crate) fn targets(&self) -> &TargetPolicy {
        &self.0.targets
    }

    pub(crate) fn pushed(&self) -> &Pushed {
        &self.0.pushed
    }

    pub(crate) fn elo_routes(&self) -> &EloRoutes {
        &self.0.elo_routes
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    pub(crate) fn drain(&self) -> &Drain {
        &self.0.drain
    }

    pub(crate) fn probe(&self) -> &Probe {
        &self.0.probe
    }

    pub(crate) fn doctor(&self) -> &Doctor {
        &self.0.doctor
    }

    pub(crate) fn roster(&self) -> &Roster {
        &self.0.roster
    }

    pub(crate) fn run_roster(&self) -> &RunRoster {
        &self.0.run_roster
    }

    pub(crate) fn seen_places(&self) -> &SeenPlaces {
        &self.0.seen_places
    }

    pub(crate) fn books(&self) -> &Books {
        &self.0.books
    }

    pub(crate) fn paced(&self) -> &Paced {
        &self.0.paced
    }

    pub(crate) fn standing(&self) -> &Standing {
        &self.0.standing
    }

    pub(crate) fn requests(&self) -> &Arc<Semaphore> {
        &self.0.requests
    }

    pub(crate) fn body_time_max(&self) -> Duration {
        self.0.body_time_max
    }

    pub(crate) fn started_at(&self) -> Timestamp {
        self.0.started_at
    }

    /// What a request needs. A path or method that the table does not have needs a key, like everything that is not public.
    pub(crate) fn permission_of(&self, request: &Request) -> Permission {
        let Some(path) = request.extensions().get::<MatchedPath>() else { return Permission::Admin };
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let methods = self.0.permissions.get(path.as_str()).map_or(&[][..], Vec::as_slice);
        methods.iter().find(|(known, _)| known == method).map_or(Permission::Admin, |(_, permission)| *permission)
    }
}
