//! The doctor: what is right and wrong with a store, its disk, and the names that functions and batchers point to. A server examines its own
//! store (`GET /v1/doctor`), so that no address and no password has to be known elsewhere; the command line does it where no server answers.

mod disk;
mod finding;
pub mod folder;
mod redis;
mod size;
mod wiring;

use std::net::SocketAddr;

use tokio::sync::Mutex;
use towpath::Towpath;
use towpath_core::store::Durability;

use crate::settings::Settings;

pub use finding::{Finding, Level};
use folder::Place;

/// What was seen of a store.
#[derive(Debug)]
pub struct Examined {
    /// What was found.
    pub findings: Vec<Finding>,
    /// What an acknowledgement is worth there; `None` when only an open store can tell, or when it gives less than was asked for.
    pub durability: Option<Durability>,
    /// It is a Redis.
    pub is_redis: bool,
}

/// Looks at the store that a URL names, without opening it.
pub async fn examine(store: &str, durability: Option<Durability>) -> Examined {
    if let Some(examined) = redis::check(store, durability).await {
        return examined;
    }
    let Some(place) = Place::of_store(store) else {
        let nothing =
            Finding::info("store", format!("{} has no folder to look at", towpath::shown(store)), "checks of the disk are left out");
        return Examined { findings: vec![nothing], durability: None, is_redis: false };
    };
    let look = move || {
        let mut findings = folder::check(&place);
        findings.extend(disk::check(&place.existing_folder(), place.exists()));
        findings.extend(size::of_folder(&place));
        findings
    };
    // It waits for the disk some hundred times.
    let findings = tokio::task::spawn_blocking(look).await.unwrap_or_default();
    Examined { findings, durability: None, is_redis: false }
}

/// What a server examines about itself.
#[derive(Debug)]
pub(crate) struct Doctor {
    store: String,
    durability: Option<Durability>,
    listen: Finding,
    /// One examination at a time: it costs some hundred commands, or writes to the disk.
    at_work: Mutex<()>,
}

impl Doctor {
    pub(crate) fn new(settings: &Settings) -> Self {
        let listen = listen(settings.listen, settings);
        Self { store: settings.store.clone(), durability: settings.durability, listen, at_work: Mutex::default() }
    }

    /// The store as it may be shown.
    pub(crate) fn store(&self) -> String {
        towpath::shown(&self.store)
    }

    /// The store, if it is asked for, and the names that functions and batchers point to.
    pub(crate) async fn examine(&self, towpath: &Towpath, with_store: bool) -> Examined {
        let _one_at_a_time = self.at_work.lock().await;
        let mut examined = Examined { findings: Vec::new(), durability: None, is_redis: false };
        if with_store {
            examined = examine(&self.store, self.durability).await;
            examined.findings.insert(0, self.listen.clone());
        }
        examined.findings.extend(wiring::check(towpath).await);
        examined
    }
}

/// The listen address against the keys, as a server judges it when it starts.
pub fn listen(addr: SocketAddr, settings: &Settings) -> Finding {
    let many = settings.api_keys.len();
    let public = !addr.ip().is_loopback();
    match settings.check() {
        Err(refused) => Finding::fail("listen", refused.to_string(), "set TOWPATH_API_KEYS, or listen on 127.0.0.1"),
        Ok(()) if public && many == 0 => Finding::warn(
            "listen",
            format!("{addr} is open to everyone who reaches it"),
            "set TOWPATH_API_KEYS and leave out --insecure-no-auth",
        ),
        Ok(()) if public => Finding::ok("listen", format!("{addr} with {many} key(s)")),
        Ok(()) => Finding::ok("listen", format!("{addr} is this machine only")),
    }
}
