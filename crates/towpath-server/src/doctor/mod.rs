//! The doctor: what is right and wrong with a store, its disk, and the names that functions and batchers point to. A server examines its own
//! store (`GET /v1/doctor`), so that no address and no password has to be known elsewhere; the command line does it where no server answers.

mod disk;
mod finding;
pub mod folder;
mod redis;
mod size;
mod wiring;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use towpath::Towpath;
use towpath_core::store::Durability;

use crate::settings::Settings;

pub use finding::{Finding, Level};
use folder::Place;

/// A store that takes longer than this to write is not fit.
const WRITE_TIME_MAX: Duration = Duration::from_secs(5);

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
    examine_holding(store, durability, ()).await
}

/// The same. `held` is dropped when the examination is over, also where its caller has left before: work on the disk does not stop then.
async fn examine_holding(store: &str, durability: Option<Durability>, held: impl Send + 'static) -> Examined {
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
        drop(held);
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
    at_work: Arc<Mutex<()>>,
}

impl Doctor {
    pub(crate) fn new(settings: &Settings) -> Self {
        let listen = listen(settings.listen, settings);
        Self { store: settings.store.clone(), durability: settings.durability, listen, at_work: Arc::default() }
    }

    /// The store as it may be shown.
    pub(crate) fn store(&self) -> String {
        towpath::shown(&self.store)
    }

    /// The store, if it is asked for, and the names that functions and batchers point to.
    pub(crate) async fn examine(&self, towpath: &Towpath, with_store: bool) -> Examined {
        let one_at_a_time = Arc::new(Arc::clone(&self.at_work).lock_owned().await);
        let mut examined = Examined { findings: Vec::new(), durability: None, is_redis: false };
        if with_store {
            examined = examine_holding(&self.store, self.durability, Arc::clone(&one_at_a_time)).await;
            examined.findings.insert(0, self.listen.clone());
            examined.findings.extend(takes_nothing(towpath).await);
        }
        examined.findings.extend(wiring::check(towpath).await);
        examined
    }
}

/// Whether the open store refuses a write, and why.
async fn takes_nothing(towpath: &Towpath) -> Option<Finding> {
    let refused = match tokio::time::timeout(WRITE_TIME_MAX, towpath.store().probe()).await {
        Ok(Ok(_)) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(_elapsed) => format!("a probe write took longer than {} seconds", WRITE_TIME_MAX.as_secs()),
    };
    Some(Finding::fail("store", refused, "the server accepts nothing until this is mended: do what the message says"))
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::poll;

    use super::*;

    #[test]
    fn an_examination_whose_caller_has_left_is_finished_before_the_next_begins() {
        // The one thread for work on the disk is busy, so that the examination cannot begin.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (folder, towpath) = (tempfile::tempdir().unwrap(), Towpath::open("memory:").await.unwrap());
            let doctor = Doctor::new(&Settings { store: format!("sqlite:{}", folder.path().display()), ..Settings::default() });
            let (go, wait) = mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || wait.recv());
            {
                let mut examination = std::pin::pin!(doctor.examine(&towpath, true));
                assert!(poll!(&mut examination).is_pending());
            }
            assert!(doctor.at_work.try_lock().is_err(), "it has still to be done");
            go.send(()).unwrap();
            busy.await.unwrap().unwrap();
            tokio::time::timeout(Duration::from_secs(60), doctor.examine(&towpath, true)).await.unwrap();
            towpath.close().await;
        });
    }
}
